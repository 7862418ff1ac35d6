// The instruction set of the kernels, which is selected once per process.
//
// Every kernel is compiled once per instruction set from the same source (isa.bzl), each time in
// its own namespace: `portable`; on x86-64 also `avx2` and `avx512`; on 64-bit ARM also `neon`.
// Public functions select the copy with BERT_TF_DISPATCH.
//
// A build for one machine (`make ops`) has only the copy for the best instruction set of that
// machine, whose namespace is then the value of the macro BERT_TF_ONLY_ISA.
#pragma once

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

enum class Isa { kPortable, kAvx2, kAvx512, kNeon };

// Returns the best instruction set that the processor and the operating system support. The
// environment variable BERT_TF_ISA=portable|avx2|avx512|neon|dotprod limits the choice, for tests.
// It is read once, in the first call, and never selects an instruction set that is not supported.
Isa BestIsa();

// Returns why no copy of the kernels may run, in one sentence, or "". It is not empty only if one
// copy is built, and this processor or BERT_TF_ISA excludes it.
const char* WhyNoCopy();

// The instructions of a copy that multiply and sum bytes. Not every processor for which the copy is
// selected has them:
//   kVnni        vpdpbusd, in the copies for AVX-512 and AVX2 (AVX512-VNNI, AVX-VNNI)
//   kDotProduct  sdot, in the copy for NEON (FEAT_DotProd: Graviton2, Apple M1)
//   kI8mm        usmmla, in the copy for NEON (FEAT_I8MM: Graviton3, Apple M2)
enum class ByteInstructions { kNone, kVnni, kDotProduct, kI8mm };

// Returns the best of these for the copy of BestIsa(). It is kNone if BERT_TF_ISA is set to a value
// other than amx, and other than dotprod, which limits it to kDotProduct.
ByteInstructions BestByteInstructions();

// Returns whether AVX512-BF16 is used, which multiplies and sums bfloat16 numbers. It is not used
// if BERT_TF_ISA is set to a value other than amx.
bool HasBfloat16();

// Returns whether AMX is used, which multiplies tiles of bfloat16 numbers. It has never run on a
// processor, so it is used only if BERT_TF_ISA=amx; all else is then as if it were not set.
bool HasAmx();

}  // namespace bert_tf

// Calls `function(args...)` from the namespace of `isa`, which must be supported.
#if defined(BERT_TF_ONLY_ISA)
#define BERT_TF_CALL_ISA(isa, function, ...) \
  (static_cast<void>(isa), ::bert_tf::BERT_TF_ONLY_ISA::function(__VA_ARGS__))
#elif defined(__x86_64__)
#define BERT_TF_CALL_ISA(isa, function, ...)                                   \
  ((isa) == ::bert_tf::Isa::kAvx512 ? ::bert_tf::avx512::function(__VA_ARGS__) \
   : (isa) == ::bert_tf::Isa::kAvx2 ? ::bert_tf::avx2::function(__VA_ARGS__)   \
                                    : ::bert_tf::portable::function(__VA_ARGS__))
#elif defined(__aarch64__)
#define BERT_TF_CALL_ISA(isa, function, ...)                               \
  ((isa) == ::bert_tf::Isa::kNeon ? ::bert_tf::neon::function(__VA_ARGS__) \
                                  : ::bert_tf::portable::function(__VA_ARGS__))
#else
#define BERT_TF_CALL_ISA(isa, function, ...) \
  (static_cast<void>(isa), ::bert_tf::portable::function(__VA_ARGS__))
#endif
#define BERT_TF_DISPATCH(...) BERT_TF_CALL_ISA(::bert_tf::BestIsa(), __VA_ARGS__)

// Declares functions in the namespaces of the instruction sets. Except for BERT_TF_DISPATCH, only
// tests call these copies.
#define BERT_TF_DECLARE_FOR_ISAS(...) \
  namespace portable {                \
  __VA_ARGS__                         \
  }                                   \
  namespace avx2 {                    \
  __VA_ARGS__                         \
  }                                   \
  namespace avx512 {                  \
  __VA_ARGS__                         \
  }                                   \
  namespace neon {                    \
  __VA_ARGS__                         \
  }

// Most kernels are a `template <typename T> void Function(const Parallel&, const Args<T>&)`.
// BERT_TF_DECLARE_COPIES, in the header, declares the copies. BERT_TF_INSTANTIATE_KERNEL, after the
// definition of a copy, instantiates it for the storage types. BERT_TF_SELECT_COPY defines the
// public function.
#define BERT_TF_DECLARE_COPIES(Function, Args) \
  BERT_TF_DECLARE_FOR_ISAS(template <typename T> void Function(const Parallel&, const Args<T>&);)

// Expands Macro(T) for every storage type T.
#define BERT_TF_FOR_STORAGE_TYPES(Macro) Macro(float) Macro(BFloat16) Macro(Float16)

#define BERT_TF_INSTANTIATE_KERNEL(Function, Args)                          \
  template void Function<float>(const Parallel&, const Args<float>&);       \
  template void Function<BFloat16>(const Parallel&, const Args<BFloat16>&); \
  template void Function<Float16>(const Parallel&, const Args<Float16>&);

#define BERT_TF_SELECT_COPY(Function, Args)                      \
  template <typename T>                                          \
  void Function(const Parallel& parallel, const Args<T>& args) { \
    BERT_TF_DISPATCH(Function, parallel, args);                  \
  }                                                              \
  BERT_TF_INSTANTIATE_KERNEL(Function, Args)
