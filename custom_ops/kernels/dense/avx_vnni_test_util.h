// Carries out AVX-VNNI's vpdpbusd on x86-64 processors without it, for tests: these raise SIGILL,
// and a signal handler computes the sums as Intel's manual describes the instruction (Intel 64 and
// IA-32 Architectures Software Developer's Manual, VPDPBUSD, VEX.256.66.0F38.W0 50 /r).
#pragma once

#if defined(__x86_64__)
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace bert_tf {
namespace testing {

// The AVX registers in the frame of a signal: the lower halves in the area of FXSAVE, the upper
// ones in that of XSAVE, where bit 2 of the header says that they are not all zero.
class SavedRegisters {
 public:
  explicit SavedRegisters(ucontext_t* context)
      : area_(reinterpret_cast<char*>(context->uc_mcontext.fpregs)) {
    constexpr uint64_t kUpperHalves = 1 << 2;
    uint64_t present;
    std::memcpy(&present, area_ + 512, sizeof(present));
    if ((present & kUpperHalves) == 0) std::memset(area_ + kUpper, 0, 16 * 16);
    present |= kUpperHalves;
    std::memcpy(area_ + 512, &present, sizeof(present));
  }

  void Read(int i, void* bytes) const {
    std::memcpy(bytes, area_ + kLower + 16 * i, 16);
    std::memcpy(static_cast<char*>(bytes) + 16, area_ + kUpper + 16 * i, 16);
  }
  void Write(int i, const void* bytes) {
    std::memcpy(area_ + kLower + 16 * i, bytes, 16);
    std::memcpy(area_ + kUpper + 16 * i, static_cast<const char*>(bytes) + 16, 16);
  }

 private:
  static constexpr int kLower = 160, kUpper = 576;

  char* area_;
};

inline void EmulateVpdpbusd(int, siginfo_t*, void* frame) {
  auto* const context = static_cast<ucontext_t*>(frame);
  greg_t& instruction = context->uc_mcontext.gregs[REG_RIP];
  const auto* const code = reinterpret_cast<const uint8_t*>(instruction);
  constexpr int kOf0F38 = 2, kLengthAndPrefix = 5, kRegisters = 3;  // mmmmm, L and pp, mod
  if (code[0] != 0xC4 || (code[1] & 31) != kOf0F38 || (code[2] & 0x87) != kLengthAndPrefix ||
      code[3] != 0x50 || code[4] >> 6 != kRegisters) {
    std::abort();
  }
  const int sum = (code[4] >> 3 & 7) | (code[1] & 0x80 ? 0 : 8);
  const int unsigned_factor = ~code[2] >> 3 & 15;
  const int signed_factor = (code[4] & 7) | (code[1] & 0x20 ? 0 : 8);
  SavedRegisters registers(context);
  int32_t sums[8];
  uint8_t u[32];
  int8_t s[32];
  registers.Read(sum, sums);
  registers.Read(unsigned_factor, u);
  registers.Read(signed_factor, s);
  for (int k = 0; k < 32; ++k) sums[k / 4] += u[k] * s[k];
  registers.Write(sum, sums);
  instruction += 5;
}

inline void EmulateAvxVnni() {
  struct sigaction action = {};
  action.sa_sigaction = EmulateVpdpbusd;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

}  // namespace testing
}  // namespace bert_tf
#endif
