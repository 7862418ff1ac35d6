// The random bits of philox.h on the GPU: the same words for the same seed, stream and element.
#pragma once

#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {

struct PhiloxWords {
  uint32_t words[4];
};

BERT_TF_DEVICE PhiloxWords PhiloxBlock(uint64_t seed, uint64_t stream, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block);
  uint32_t c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream);
  uint32_t c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = MultiplyHigh(c0, 0xD2511F53u);
    const uint32_t low0 = c0 * 0xD2511F53u;
    const uint32_t high1 = MultiplyHigh(c2, 0xCD9E8D57u);
    const uint32_t low1 = c2 * 0xCD9E8D57u;
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The dropout of a kernel. The seed is in GPU memory, where the graph has computed it.
struct Dropout {
  const uint64_t* seed;  // null if the rate is 0
  uint32_t threshold;
  float scale;  // 1 / (1 - rate)
};

inline Dropout MakeDropout(float rate, const int64_t* seed) {
  return {rate > 0.0f ? reinterpret_cast<const uint64_t*>(seed) : nullptr,
          static_cast<uint32_t>(static_cast<double>(rate) * 4294967296.0), 1.0f / (1.0f - rate)};
}

// Whether one element is kept, for the kernels that take rows of any width and alignment.
BERT_TF_DEVICE bool KeepElement(uint64_t seed, uint64_t stream, uint64_t element,
                                uint32_t threshold) {
  const PhiloxWords block = PhiloxBlock(seed, stream, element / 64 * 16 + element % 16);
  return block.words[element % 64 / 16] >= threshold;
}

// Bit i says whether element first + i of stream 0 is kept, for i < kWidth. The lanes of a warp
// have consecutive packs of kWidth elements, and the first element of lane 0 is a multiple of 64.
// Four lanes, 16 elements apart, need the four words of the same kWidth blocks, so each of them
// draws a quarter of these blocks.
template <int kWidth>
BERT_TF_DEVICE uint32_t KeepPack(uint64_t seed, uint64_t first, uint32_t threshold, int lane) {
  constexpr int kLanesOf16 = 16 / kWidth;
  constexpr int kOwn = kWidth / 4;
  const int word = lane / kLanesOf16 % 4;
  const uint64_t first_block =
      first / 64 * 16 + static_cast<uint64_t>(lane % kLanesOf16 * kWidth + word * kOwn);
  uint32_t drawn = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const PhiloxWords block = PhiloxBlock(seed, 0, first_block + i);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      drawn |= static_cast<uint32_t>(block.words[w] >= threshold) << (4 * i + w);
    }
  }
  uint32_t keep = 0;
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const uint32_t theirs = Shuffle(drawn, lane + (quarter - word) * kLanesOf16);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      keep |= (theirs >> (4 * i + word) & 1u) << (quarter * kOwn + i);
    }
  }
  return keep;
}

}  // namespace bert_tf::cuda
