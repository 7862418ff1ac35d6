// What this processor can do at most, for the matmul's table: multiply-adds in registers, and
// reading memory. Compiled by machine.py for the machine it runs on.
#include <cstdint>

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

// Enough to hide the latency of a multiply-add (4 cycles, 2 a cycle), few enough for 16 registers.
constexpr int kChains = 12;

float Sum(const Vec (&chains)[kChains]) {
  float sum = 0;
  for (const Vec& chain : chains) {
    for (int i = 0; i < kLanes; ++i) sum += chain[i];
  }
  return sum;
}

}  // namespace

// Operations of one `fused_multiply_adds(1)`.
extern "C" int64_t operations_a_round() { return 2 * kChains * kLanes; }

extern "C" float fused_multiply_adds(int64_t rounds) {
  Vec chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = Vec{} + static_cast<float>(c);
  volatile float factor = 0.5f;
  const Vec x = Vec{} + factor;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = chains[c] * x + x;
  }
  return Sum(chains);
}

// Reads `count` numbers, a multiple of kChains * kLanes.
extern "C" float read_all(const float* values, int64_t count) {
  Vec chains[kChains] = {};
  for (int64_t i = 0; i < count; i += kChains * kLanes) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      chains[c] += *reinterpret_cast<const Vec*>(values + i + c * kLanes);
    }
  }
  return Sum(chains);
}
