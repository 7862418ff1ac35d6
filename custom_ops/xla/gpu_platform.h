// The names of the GPU platform in XLA. In a build for tests, BERT_TF_EMULATED_GPU, the same
// lowerings and handlers run the emulated kernels on the CPU.
#pragma once

#include <optional>
#include <utility>

#include "xla/ffi/api/ffi.h"

#ifndef BERT_TF_EMULATED_GPU

namespace bert_tf {

inline constexpr char kGpuPlatform[] = "CUDA";          // of foreign functions
inline constexpr char kGpuXlaDevice[] = "XLA_GPU_JIT";  // of lowerings
using StreamContext = xla::ffi::PlatformStream<void*>;

}  // namespace bert_tf

#else

namespace bert_tf {

inline constexpr char kGpuPlatform[] = "Host";
inline constexpr char kGpuXlaDevice[] = "XLA_CPU_JIT";
struct StreamContext {};

}  // namespace bert_tf

namespace xla::ffi {

template <>
struct CtxDecoding<bert_tf::StreamContext> {
  using Type = void*;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return std::optional<Type>(std::in_place, nullptr);
  }
};

}  // namespace xla::ffi

#endif  // BERT_TF_EMULATED_GPU

namespace bert_tf {

// What attention needs: the stream, and GPU memory until the end of the call.
struct StreamAndScratch {
  void* stream;
  xla::ffi::ScratchAllocator scratch;
};
struct StreamAndScratchContext {};

}  // namespace bert_tf

namespace xla::ffi {

template <>
struct CtxDecoding<bert_tf::StreamAndScratchContext> {
  using Type = bert_tf::StreamAndScratch;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine& diagnostic) {
    auto stream = CtxDecoding<bert_tf::StreamContext>::Decode(api, context, diagnostic);
    auto scratch = CtxDecoding<ScratchAllocator>::Decode(api, context, diagnostic);
    if (!stream.has_value() || !scratch.has_value()) return std::nullopt;
    return Type{*stream, *std::move(scratch)};
  }
};

}  // namespace xla::ffi
