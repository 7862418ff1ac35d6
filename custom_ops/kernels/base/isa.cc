#include "custom_ops/kernels/base/isa.h"

#include <cstdlib>
#include <cstring>

namespace bert_tf {
namespace {

Isa DetectIsa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const char* limit = std::getenv("BERT_TF_ISA");
  if (limit != nullptr && std::strcmp(limit, "portable") == 0) return Isa::kPortable;
  const bool at_most_avx2 = limit != nullptr && std::strcmp(limit, "avx2") == 0;
  if (avx512 && !at_most_avx2) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

}  // namespace

Isa BestIsa() {
  static const Isa isa = DetectIsa();
  return isa;
}

bool HasVnni() {
#if defined(__x86_64__)
  static const bool has_vnni = BestIsa() == Isa::kAvx512 && std::getenv("BERT_TF_ISA") == nullptr &&
                               __builtin_cpu_supports("avx512vnni");
  return has_vnni;
#else
  return false;
#endif
}

}  // namespace bert_tf
