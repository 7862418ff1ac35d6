// The names of the GPU platform in XLA. In a build for tests, BERT_TF_EMULATED_GPU, the same
// lowerings and handlers run the emulated kernels on the CPU.
#pragma once

#include <optional>

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
