#include "custom_ops/kernels/base/isa.h"

#include <cstdlib>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace bert_tf {
namespace {

// The value of BERT_TF_ISA; empty if it is not set.
std::string_view Limit() {
  const char* const variable = std::getenv("BERT_TF_ISA");
  return variable != nullptr ? variable : "";
}

#define BERT_TF_TEXT_OF(macro) BERT_TF_TEXT(macro)
#define BERT_TF_TEXT(name) #name
#if defined(BERT_TF_ONLY_ISA)
constexpr std::string_view kOnlyIsa = BERT_TF_TEXT_OF(BERT_TF_ONLY_ISA);
#else
constexpr std::string_view kOnlyIsa;
#endif

// Returns whether the copy for an instruction set is built.
constexpr bool IsBuilt(std::string_view isa) { return kOnlyIsa.empty() || kOnlyIsa == isa; }

std::string FindWhyNoCopy() {
  const char* const found = BestIsa() == Isa::kAvx512 ? "avx512"
                            : BestIsa() == Isa::kAvx2 ? "avx2"
                            : BestIsa() == Isa::kNeon ? "neon"
                                                      : "portable";
  if (IsBuilt(found)) return "";
  const std::string limit(Limit());
  return "The kernels are built only for the instruction set " + std::string(kOnlyIsa) +
         ", which this processor does not have" +
         (limit.empty() ? "" : " or BERT_TF_ISA=" + limit + " excludes") +
         ". `make ops ALL=1` builds all instruction sets.";
}

#if defined(__x86_64__)
Isa FindIsa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx2 || Limit() == "portable") return Isa::kPortable;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && Limit() != "avx2" && IsBuilt("avx512")) return Isa::kAvx512;
  return IsBuilt("avx2") ? Isa::kAvx2 : Isa::kPortable;
}

// Returns whether the copy for `isa` is used with what not every such processor has.
bool UsesAllOf(Isa isa) {
  return BestIsa() == isa && (std::getenv("BERT_TF_ISA") == nullptr || Limit() == "amx");
}

bool HasAvxVnni() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

ByteInstructions FindByteInstructions() {
  const bool has_vnni = (UsesAllOf(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni")) ||
                        (UsesAllOf(Isa::kAvx2) && HasAvxVnni());
  return has_vnni ? ByteInstructions::kVnni : ByteInstructions::kNone;
}

bool FindBfloat16() { return UsesAllOf(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16"); }

bool FindAmx() {
  if (!UsesAllOf(Isa::kAvx512) || Limit() != "amx") return false;
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned int kAmxBfloat16AndTiles = (1u << 22) | (1u << 24);
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBfloat16AndTiles) != kAmxBfloat16AndTiles) return false;
  // Linux gives a process the tiles on request: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA).
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}
#elif defined(__aarch64__)
Isa FindIsa() { return Limit() == "portable" ? Isa::kPortable : Isa::kNeon; }

ByteInstructions FindByteInstructions() {
  const bool has_limit = std::getenv("BERT_TF_ISA") != nullptr;
  if (has_limit && Limit() != "dotprod") return ByteInstructions::kNone;
  constexpr unsigned long kHwcapDotProduct = 1ul << 20;  // Linux: HWCAP_ASIMDDP, HWCAP2_I8MM
  constexpr unsigned long kHwcap2I8mm = 1ul << 13;
  const bool has_dot_product = (getauxval(AT_HWCAP) & kHwcapDotProduct) != 0;
  const bool has_i8mm = (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0;
  return has_i8mm && !has_limit ? ByteInstructions::kI8mm
         : has_dot_product      ? ByteInstructions::kDotProduct
                                : ByteInstructions::kNone;
}

bool FindBfloat16() { return false; }
bool FindAmx() { return false; }
#else
Isa FindIsa() { return Isa::kPortable; }
ByteInstructions FindByteInstructions() { return ByteInstructions::kNone; }
bool FindBfloat16() { return false; }
bool FindAmx() { return false; }
#endif

}  // namespace

Isa BestIsa() {
  static const Isa isa = FindIsa();
  return isa;
}

const char* WhyNoCopy() {
  static const std::string why = FindWhyNoCopy();
  return why.c_str();
}

ByteInstructions BestByteInstructions() {
  static const ByteInstructions instructions = FindByteInstructions();
  return instructions;
}

bool HasBfloat16() {
  static const bool has_bfloat16 = FindBfloat16();
  return has_bfloat16;
}

bool HasAmx() {
  static const bool has_amx = FindAmx();
  return has_amx;
}

}  // namespace bert_tf
