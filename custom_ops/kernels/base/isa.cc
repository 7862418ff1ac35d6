#include "custom_ops/kernels/base/isa.h"

#include <cstdlib>
#include <string_view>

namespace bert_tf {

Isa BestIsa() {
  static const Isa isa = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const char* const variable = std::getenv("BERT_TF_ISA");
    const std::string_view limit = variable != nullptr ? variable : "";
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!avx2 || limit == "portable") return Isa::kPortable;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 && limit != "avx2" ? Isa::kAvx512 : Isa::kAvx2;
#else
    return Isa::kPortable;
#endif
  }();
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
