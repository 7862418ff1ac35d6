// Which instruction set a kernel runs on, chosen once per process.
//
// Every kernel is compiled three times from one source (isa.bzl), each copy in its own namespace:
// `portable`, `avx2`, `avx512`. A public entry point picks the copy with BERT_TF_DISPATCH.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_ISA_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_ISA_H_

namespace bert_tf {

enum class Isa { kPortable, kAvx2, kAvx512 };

// The best set that the processor and the operating system have. The environment variable
// BERT_TF_ISA=portable|avx2|avx512 lowers the choice (for tests); a set that the processor lacks is
// never chosen. Read once, at the first call.
Isa BestIsa();

// Whether AVX-512 has VNNI, bytes multiplied and summed in one instruction. BERT_TF_ISA set to
// anything takes it away.
bool HasVnni();

}  // namespace bert_tf

// Calls `function(args...)` from the namespace of the chosen instruction set.
#if defined(__x86_64__)
#define BERT_TF_DISPATCH(function, ...)                    \
  do {                                                     \
    switch (::bert_tf::BestIsa()) {                        \
      case ::bert_tf::Isa::kAvx512:                        \
        return ::bert_tf::avx512::function(__VA_ARGS__);   \
      case ::bert_tf::Isa::kAvx2:                          \
        return ::bert_tf::avx2::function(__VA_ARGS__);     \
      case ::bert_tf::Isa::kPortable:                      \
        return ::bert_tf::portable::function(__VA_ARGS__); \
    }                                                      \
  } while (false)
#else
#define BERT_TF_DISPATCH(function, ...) return ::bert_tf::portable::function(__VA_ARGS__)
#endif

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_ISA_H_
