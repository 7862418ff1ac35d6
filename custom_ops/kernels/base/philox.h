// Random bits for dropout that depend only on a seed and the index of an element: Philox4x32-10
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), the generator of
// tf.random.stateless_*. The gradient draws the bits of the forward pass again, so no mask is
// stored. All implementations (NumPy, the reference implementation, each CPU path, XLA, CUDA) draw
// the same mask.
//
//   key     = the 64-bit seed
//   counter = (low 64 bits: block, high 64 bits: stream)
//
// The elements of a stream are numbered. Element e uses word w of block b with b = 16 c + r % 16
// and w = r / 16, where c = e / 64 and r = e % 64. Thus 16 consecutive elements use the same word
// of 16 consecutive blocks, and vector code does not need to transpose words. An element is kept if
// its word is at least `DropoutThreshold(rate)`, and kept values are scaled by 1 / (1 - rate).
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/simd.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int kPhiloxChunk = 64;  // elements whose bits are drawn together

BERT_TF_INLINE uint32_t DropoutThreshold(float rate) {
  return static_cast<uint32_t>(static_cast<double>(rate) * 4294967296.0);
}

// Each 64-bit lane has one counter or key in its low 32 bits. The multiplication ignores the high
// 32 bits, so they are never cleared.
constexpr int kPhiloxLanes = kVectorBytes / 8;
using VecU64 = uint64_t __attribute__((vector_size(kVectorBytes)));

// The full products of the low 32 bits.
BERT_TF_INLINE VecU64 MultiplyLow32(VecU64 a, VecU64 b) {
#if defined(__AVX512F__)
  return (VecU64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (VecU64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (VecU64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#elif defined(BERT_TF_NEON)
  return (VecU64)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

BERT_TF_INLINE void StoreLow32(uint32_t* p, VecU64 v) {
  using Words = uint32_t __attribute__((vector_size(kVectorBytes / 2)));
  const Words words = __builtin_convertvector(v, Words);
  std::memcpy(p, &words, sizeof(words));
}

// The words of elements [64 * chunk, 64 * chunk + 64) of `stream`.
BERT_TF_INLINE void PhiloxChunk(uint64_t seed, uint64_t stream, uint64_t chunk,
                                uint32_t words[kPhiloxChunk]) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint64_t kWeyl0 = 0x9E3779B9;
  constexpr uint64_t kWeyl1 = 0xBB67AE85;
  constexpr int kGroups = 2;  // vectors of blocks that are computed together, to hide latencies
  constexpr uint64_t kIota[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto iota = LoadAs<VecU64>(kIota);
  for (int first = 0; first < 16; first += kGroups * kPhiloxLanes) {
    VecU64 c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
    for (int group = 0; group < kGroups; ++group) {
      c0[group] = iota + (16 * chunk + static_cast<uint64_t>(first + group * kPhiloxLanes));
      c1[group] = c0[group] >> 32;
      c2[group] = VecU64{} + stream;
      c3[group] = VecU64{} + (stream >> 32);
    }
    VecU64 key0 = VecU64{} + seed;
    VecU64 key1 = VecU64{} + (seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int group = 0; group < kGroups; ++group) {
        const VecU64 product0 = MultiplyLow32(c0[group], VecU64{} + kMultiplier0);
        const VecU64 product1 = MultiplyLow32(c2[group], VecU64{} + kMultiplier1);
        c0[group] = (product1 >> 32) ^ c1[group] ^ key0;
        c1[group] = product1;
        c2[group] = (product0 >> 32) ^ c3[group] ^ key1;
        c3[group] = product0;
      }
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    for (int group = 0; group < kGroups; ++group) {
      uint32_t* const lanes = words + first + group * kPhiloxLanes;
      StoreLow32(lanes, c0[group]);
      StoreLow32(lanes + 16, c1[group]);
      StoreLow32(lanes + 32, c2[group]);
      StoreLow32(lanes + 48, c3[group]);
    }
  }
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
