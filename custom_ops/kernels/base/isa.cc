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

#if defined(__x86_64__)
static bool UsesAllOfAvx512() {
  return BestIsa() == Isa::kAvx512 && std::getenv("BERT_TF_ISA") == nullptr;
}

bool HasVnni() {
  static const bool has_vnni = UsesAllOfAvx512() && __builtin_cpu_supports("avx512vnni");
  return has_vnni;
}

bool HasBfloat16() {
  static const bool has_bfloat16 = UsesAllOfAvx512() && __builtin_cpu_supports("avx512bf16");
  return has_bfloat16;
}
#else
bool HasVnni() { return false; }
bool HasBfloat16() { return false; }
#endif

}  // namespace bert_tf
