#include "custom_ops/kernels/base/isa.h"

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
static bool WantsAmx() {
  const char* const variable = std::getenv("BERT_TF_ISA");
  return variable != nullptr && std::string_view(variable) == "amx";
}

static bool UsesAllOfAvx512() {
  return BestIsa() == Isa::kAvx512 && (std::getenv("BERT_TF_ISA") == nullptr || WantsAmx());
}

bool HasVnni() {
  static const bool has_vnni = UsesAllOfAvx512() && __builtin_cpu_supports("avx512vnni");
  return has_vnni;
}

bool HasBfloat16() {
  static const bool has_bfloat16 = UsesAllOfAvx512() && __builtin_cpu_supports("avx512bf16");
  return has_bfloat16;
}

bool HasAmx() {
  static const bool has_amx = [] {
    if (!UsesAllOfAvx512() || !WantsAmx()) return false;
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned int kAmxBfloat16AndTiles = (1u << 22) | (1u << 24);
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kAmxBfloat16AndTiles) != kAmxBfloat16AndTiles) return false;
    // Linux gives a process the tiles on request: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA).
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  }();
  return has_amx;
}
#else
bool HasVnni() { return false; }
bool HasBfloat16() { return false; }
bool HasAmx() { return false; }
#endif

}  // namespace bert_tf
