// The limits of this processor, for the tables of the job matmul: multiply-adds in registers, of
// float32, bfloat16 and bytes, and reads of memory. machine.py compiles this file on the machine.
#include <cstdint>

#if defined(__AVX512BW__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

// Enough to hide the latency of a multiply-add (4 cycles, 2 per cycle), and few enough for 16
// registers.
constexpr int kChains = 12;

volatile float used;  // results, which the compiler would otherwise not compute

float Sum(const Vec (&chains)[kChains]) {
  float sum = 0;
  for (const Vec& chain : chains) {
    for (int i = 0; i < kLanes; ++i) sum += chain[i];
  }
  return sum;
}

}  // namespace

// All `multiply_adds` return the number of their operations.
extern "C" int64_t float32_multiply_adds(int64_t rounds) {
  Vec chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = Vec{} + static_cast<float>(c);
  volatile float factor = 0.5f;
  const Vec x = Vec{} + factor;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = chains[c] * x + x;
  }
  used = Sum(chains);
  return rounds * 2 * kChains * kLanes;
}

// With AVX512-BF16, each float32 sum gets two products of bfloat16 numbers at a time. Without it,
// such numbers are widened, so the limit is that of float32.
extern "C" int64_t bfloat16_multiply_adds(int64_t rounds) {
#if defined(__AVX512BF16__)
  constexpr int kPairChains = 24;  // the latency is 6 cycles, and there are 32 registers
  __m512 chains[kPairChains];
  for (int c = 0; c < kPairChains; ++c) chains[c] = _mm512_set1_ps(static_cast<float>(c));
  volatile int32_t factor = 0x3F003F00;  // two times 0.5
  const __m512bh x = (__m512bh)_mm512_set1_epi32(factor);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int c = 0; c < kPairChains; ++c) chains[c] = _mm512_dpbf16_ps(chains[c], x, x);
  }
  for (const __m512& chain : chains) used = _mm512_reduce_add_ps(chain);
  return rounds * 2 * kPairChains * 2 * kLanes;
#else
  return float32_multiply_adds(rounds);
#endif
}

namespace {

// Sums of products of bytes: each int32 sum gets four products at a time.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
typedef __m512i Bytes;
Bytes DotProducts(Bytes sums, Bytes u, Bytes v) { return _mm512_dpbusd_epi32(sums, u, v); }
constexpr int kByteProducts = 64;
// Without VNNI: bytes widened to int16; each int32 sum gets two products at a time.
#elif defined(__AVX512BW__)
typedef __m512i Bytes;
Bytes DotProducts(Bytes sums, Bytes u, Bytes v) {
  return _mm512_add_epi32(sums, _mm512_madd_epi16(u, v));
}
constexpr int kByteProducts = 32;
#elif defined(__AVX2__)
typedef __m256i Bytes;
Bytes DotProducts(Bytes sums, Bytes u, Bytes v) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(u, v));
}
constexpr int kByteProducts = 16;
#else
typedef int32_t Bytes __attribute__((vector_size(16)));
Bytes DotProducts(Bytes sums, Bytes u, Bytes v) { return sums + u * v; }
constexpr int kByteProducts = 4;
#endif
typedef int32_t Words __attribute__((vector_size(sizeof(Bytes))));

}  // namespace

extern "C" int64_t int8_multiply_adds(int64_t rounds) {
  Bytes chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = (Bytes)(Words{} + c);
  volatile int32_t factor = 0x01020304;
  Bytes x = (Bytes)(Words{} + factor);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
#if defined(__x86_64__)
      asm("" : "+x"(x));  // hides that x is constant; otherwise one product is reused
#endif
      chains[c] = DotProducts(chains[c], x, x);
    }
  }
  Words sums = {};
  for (const Bytes& chain : chains) sums += (Words)chain;
  for (int i = 0; i < static_cast<int>(sizeof(Words) / sizeof(int32_t)); ++i) used = sums[i];
  return rounds * 2 * kChains * kByteProducts;
}

// Reads `count` numbers, a multiple of kChains * kLanes.
extern "C" void read_all(const float* values, int64_t count) {
  Vec chains[kChains] = {};
  for (int64_t i = 0; i < count; i += kChains * kLanes) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      chains[c] += *reinterpret_cast<const Vec*>(values + i + c * kLanes);
    }
  }
  used = Sum(chains);
}
