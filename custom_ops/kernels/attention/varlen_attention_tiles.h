// Shared by the forward pass and the gradient of varlen_attention: matrix products of tiles, copies
// of rows, masks, the random words of dropout, and the exponential. Include this file only in
// sources that are compiled through isa.bzl.
//
// Score tiles are transposed, [keys, queries]: the lanes of a vector are queries, so the maxima,
// sums and masks of the softmax and the streams of dropout need no operations across lanes. All
// other tiles are [positions, features], and their rows are padded with zeros to whole vectors.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "custom_ops/kernels/attention/pair_mask.h"
#include "custom_ops/kernels/attention/varlen_attention_units.h"
#include "custom_ops/kernels/base/philox.h"
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/base/thread_scratch.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int kTile = kAttentionTile;
constexpr int kTileFloats = kTile * kTile;
static_assert(kTile == kPhiloxChunk, "a tile of keys is one chunk of random words");

constexpr float kLog2E = 1.44269504088896341f;

// The number of rows and vectors that a product keeps in registers.
constexpr int kMicroRows = 6;
#if defined(__AVX512F__)
constexpr int kMicroVectors = 4;  // 24 sums of 32 registers
#else
constexpr int kMicroVectors = 2;  // 12 sums of 16 registers
#endif

BERT_TF_INLINE int64_t RoundUpToLanes(int64_t n) { return CeilDivide(n, kLanes) * kLanes; }

// The size of the next part of `left` items: at most `most`, and the last two parts have about
// equal sizes.
BERT_TF_INLINE int64_t NextPart(int64_t left, int64_t most) {
  if (left >= 2 * most || left == most) return most;
  return left > most ? (left + 1) / 2 : left;
}

// c[i, :] (+)= sum_k a(i, k) b[k, :] for kRows rows and kVectors vectors of lanes.
template <bool kAccumulate, bool kTransposed, int kRows, int kVectors>
void MicroProduct(int64_t depth, const float* a, int64_t a_stride, const float* b, float* c,
                  int64_t stride) {
  Vec sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = kAccumulate ? Load(c + i * stride + v * kLanes) : Vec{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = Load(b + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float factor = a[kTransposed ? i : i * a_stride];
      for (int v = 0; v < kVectors; ++v) sum[i][v] += row[v] * factor;
    }
    a += kTransposed ? a_stride : 1;
    b += stride;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) Store(c + i * stride + v * kLanes, sum[i][v]);
  }
}

// Calls function(n) for 1 <= n <= kMost, with a type that holds n.
template <int kMost, typename Function>
BERT_TF_INLINE void WithConstant(int64_t n, const Function& function) {
  if constexpr (kMost > 1) {
    if (n < kMost) return WithConstant<kMost - 1>(n, function);
  }
  function(std::integral_constant<int, kMost>{});
}

// c[i, :] (+)= sum_k a(i, k) b[k, :] for i < rows, k < depth and `columns` lanes, a multiple of
// kLanes. a(i, k) = a[i * a_stride + k], or a[k * a_stride + i] if transposed. Rows of b and c are
// `stride` apart.
template <bool kAccumulate, bool kTransposed>
void Product(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_stride,
             const float* b, float* c, int64_t stride) {
  for (int64_t v = 0, vectors; v < columns / kLanes; v += vectors) {
    vectors = NextPart(columns / kLanes - v, kMicroVectors);
    for (int64_t i = 0, part; i < rows; i += part) {
      part = NextPart(rows - i, kMicroRows);
      WithConstant<kMicroVectors>(vectors, [&](auto vector_count) BERT_TF_INLINE_LAMBDA {
        WithConstant<kMicroRows>(part, [&](auto row_count) BERT_TF_INLINE_LAMBDA {
          MicroProduct<kAccumulate, kTransposed, row_count.value, vector_count.value>(
              depth, a + (kTransposed ? i : i * a_stride), a_stride, b + v * kLanes,
              c + i * stride + v * kLanes, stride);
        });
      });
    }
  }
}

// Adds the same product, but only over the pairs with `sees(i, k)`. It is used for partially masked
// tiles with numbers that are not finite, because their product with zero is not zero.
template <bool kTransposed, typename Sees>
void MaskedProduct(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_stride,
                   const float* b, float* c, int64_t stride, const Sees& sees) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      if (!sees(i, k)) continue;
      const float factor = a[kTransposed ? k * a_stride + i : i * a_stride + k];
      for (int64_t d = 0; d < columns; ++d) c[i * stride + d] += factor * b[k * stride + d];
    }
  }
}

inline bool AllFinite(const float* p, int64_t count) {
  Vec zeros = {};  // x * 0 is 0 or NaN
  for (int64_t i = 0; i < count; i += kLanes) zeros += Load(p + i) * 0.0f;
  return ReduceAdd(zeros) == 0.0f;
}

// Interleaves the lanes of a and b from lane kFirst on: a0 b0 a1 b1 ...
template <int kFirst, int... i>
BERT_TF_INLINE Vec Interleave(Vec a, Vec b, std::integer_sequence<int, i...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (kFirst + i / 2 + i % 2 * kLanes)...);
#else  // GCC has that only since version 12; Ubuntu 22.04 has 11
  return __builtin_shuffle(a, b, VecI32{(kFirst + i / 2 + i % 2 * kLanes)...});
#endif
}

// Each round interleaves the first and the second half of the rows (a perfect shuffle). After
// log2(kLanes) rounds, the square is transposed.
BERT_TF_INLINE void Transpose(Vec rows[kLanes]) {
  for (int round = 1; round < kLanes; round *= 2) {
    Vec dealt[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      constexpr std::make_integer_sequence<int, kLanes> kAll;
      dealt[2 * i] = Interleave<0>(rows[i], rows[i + kLanes / 2], kAll);
      dealt[2 * i + 1] = Interleave<kLanes / 2>(rows[i], rows[i + kLanes / 2], kAll);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = dealt[i];
  }
}

// The layout of one head of one sequence in the packed tensors.
struct HeadLayout {
  int64_t head_size;    // D
  int64_t padded_size;  // D rounded up to whole vectors
  int64_t num_heads;    // N
  int64_t hidden_size;  // N D, the distance from a query to its key, and from the key to its value
  // The factor of the queries, 1 / sqrt(D). The gradient must recompute the scores of the forward
  // pass with equal bits, so that no score is above the logarithm of the sum of its row and no
  // probability is above 1.
  float scale;

  explicit HeadLayout(const VarlenAttentionOptions& options)
      : head_size(options.head_size),
        padded_size(RoundUpToLanes(head_size)),
        num_heads(options.num_heads),
        hidden_size(num_heads * head_size),
        scale(1.0f / std::sqrt(static_cast<float>(head_size))) {}

  // Where a position begins in logsumexp [R, N] (and, times D, in output [R, N, D]), and in the
  // queries of qkv [R, 3, N, D].
  int64_t RowOffset(const AttentionUnit& unit, int64_t position) const {
    return (unit.first_row + position) * num_heads + unit.head;
  }
  int64_t QkvOffset(const AttentionUnit& unit, int64_t position) const {
    return (unit.first_row + position) * 3 * hidden_size + unit.head * head_size;
  }
};

// Copies [rows, D], whose rows are `stride` elements apart, to float32 rows of `padded_size` lanes.
template <typename T>
void PackRows(const T* p, int64_t stride, const HeadLayout& layout, int64_t rows, float* packed) {
  // Local copies: for the compiler, a store could change the layout.
  const int64_t size = layout.head_size, padded = layout.padded_size;
  for (int64_t i = 0; i < rows; ++i) {
    ForSingleVectors(size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      Store(packed + i * padded + d, Load(p + i * stride + d, lanes));
    });
  }
}

// Copies the keys and the values of `count` positions.
template <typename T>
void PackKeys(const T* qkv, const HeadLayout& layout, const AttentionUnit& unit, int64_t begin,
              int64_t count, float* keys, float* values) {
  const T* const first = qkv + layout.QkvOffset(unit, begin) + layout.hidden_size;
  PackRows(first, 3 * layout.hidden_size, layout, count, keys);
  PackRows(first + layout.hidden_size, 3 * layout.hidden_size, layout, count, values);
}

// Copies the results of PackRows [rows, D], times `factor`, to [D, kTile]. The lanes after `rows`
// in the last vector are set to zero.
inline void PackTransposed(const float* packed, const HeadLayout& layout, int64_t rows,
                           float factor, float* transposed) {
  const int64_t size = layout.head_size, padded = layout.padded_size;
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t d = 0; d < size; d += kLanes) {
      Vec square[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const float* row = packed + (i + lane) * padded + d;
        square[lane] = i + lane < rows ? Load(row) * factor : Vec{};
      }
      Transpose(square);
      const int64_t features = Smaller(kLanes, size - d);
      for (int64_t f = 0; f < features; ++f) Store(transposed + (d + f) * kTile + i, square[f]);
    }
  }
}

// Copies rows in the layout of PackRows, row i times factor(i), to [rows, D] of type T.
template <typename T, typename Factor>
void UnpackRows(const float* packed, const HeadLayout& layout, int64_t rows, const Factor& factor,
                T* p, int64_t stride) {
  const int64_t size = layout.head_size, padded = layout.padded_size;
  for (int64_t i = 0; i < rows; ++i) {
    const float factor_i = factor(i);
    ForSingleVectors(size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      Store(p + i * stride + d, Load(packed + i * padded + d) * factor_i, lanes);
    });
  }
}

// e^x for x <= 0: exactly 1 at 0, 0 below ln(2^-126), and NaN for NaN. With n = x log2(e) rounded,
// 2^(x log2(e) - n) is a minimax polynomial (relative error 2e-8 before rounding).
BERT_TF_INLINE Vec ExpOfNegative(Vec x) {
  constexpr float kSmallest = -87.3365447f;
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr int32_t kRoundMagicBits = 0x4B400000;
  const Vec shifted = x * kLog2E + kRoundMagic;
  const Vec f = x * kLog2E - (shifted - kRoundMagic);
  Vec p = f * 1.535336196e-4f + 1.339887385e-3f;
  p = p * f + 9.618436918e-3f;
  p = p * f + 5.550332367e-2f;
  p = p * f + 2.402264774e-1f;
  p = p * f + 6.931471825e-1f;
  p = p * f + 1.0f;
  const Vec power = FromBits((Bits(shifted) + (127 - kRoundMagicBits)) << 23);
  return x < kSmallest ? Vec{} : p * power;
}

struct Mask : PairMask {
  // 32 bits are enough for the positions in a sequence, and wider lanes would be slower.
  explicit Mask(const VarlenAttentionOptions& options)
      : PairMask{options.causal, options.window_size >= 0,
                 Smaller(options.window_size, INT32_MAX / 2),
                 Smaller(options.num_global_tokens, INT32_MAX)} {}

  using PairMask::Sees;
  // The result for queries[lane] in each lane, as a lane mask.
  BERT_TF_INLINE VecI32 Sees(VecI32 queries, int32_t key) const {
    const int32_t window_32 = static_cast<int32_t>(window);
    const VecI32 distance = queries - key;
    VecI32 sees = VecI32{} == 0;
    if (windowed && key >= globals) {
      sees = ((distance <= window_32) & (distance >= -window_32)) |
             (queries < static_cast<int32_t>(globals));
    }
    return causal ? sees & (distance >= 0) : sees;
  }
};

BERT_TF_INLINE VecI32 LaneNumbers(int64_t first) {
  VecI32 numbers;
  for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = static_cast<int32_t>(first) + lane;
  return numbers;
}

// The 64-bit products of every lane with a constant, as high and low words.
BERT_TF_INLINE void MultiplyWide(VecU32 x, uint32_t factor, VecU32* high, VecU32* low) {
  const VecU64 lanes = (VecU64)x;
  const VecU64 even = MultiplyLow32(lanes, VecU64{} + factor);
  const VecU64 odd = MultiplyLow32(lanes >> 32, VecU64{} + factor);
  *high = (VecU32)((even >> 32) | (odd & 0xFFFFFFFF00000000u));
  *low = (VecU32)((even & 0xFFFFFFFFu) | (odd << 32));
}

// Dropout of the probabilities. In philox.h, 64 keys use 16 blocks of four words, and the words of
// a block are 16 keys apart. Here, the lanes of a vector are different streams, which are queries.
struct Dropout {
  float rate;
  uint64_t seed;
  uint32_t threshold;
  float scale;  // 1 / (1 - rate)

  explicit Dropout(const VarlenAttentionOptions& options)
      : rate(options.dropout_rate),
        seed(options.seed),
        threshold(DropoutThreshold(options.dropout_rate)),
        scale(1.0f / (1.0f - options.dropout_rate)) {}

  // Calls keep(key, lanes) for keys [0, count) of the tile of keys that begins at `tile_begin`.
  // Lane l of `lanes` says whether the probability of stream first + l * step is kept.
  template <typename Keep>
  BERT_TF_INLINE void ForEachKey(uint64_t first, uint64_t step, int64_t tile_begin, int64_t count,
                                 const Keep& keep) const {
    VecU32 stream_low, stream_high;
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t stream = first + static_cast<uint64_t>(lane) * step;
      stream_low[lane] = static_cast<uint32_t>(stream);
      stream_high[lane] = static_cast<uint32_t>(stream >> 32);
    }
    const uint64_t first_block = static_cast<uint64_t>(tile_begin) / kPhiloxChunk * 16;
    for (int64_t b = 0; b < Smaller(count, 16); ++b) {
      const uint64_t block = first_block + static_cast<uint64_t>(b);
      VecU32 c0 = VecU32{} + static_cast<uint32_t>(block);
      VecU32 c1 = VecU32{} + static_cast<uint32_t>(block >> 32);
      VecU32 c2 = stream_low;
      VecU32 c3 = stream_high;
      uint32_t key0 = static_cast<uint32_t>(seed);
      uint32_t key1 = static_cast<uint32_t>(seed >> 32);
      for (int round = 0; round < 10; ++round) {
        VecU32 high0, low0, high1, low1;
        MultiplyWide(c0, 0xD2511F53u, &high0, &low0);  // philox.h's constants
        MultiplyWide(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
      }
      keep(b, c0 >= threshold);
      if (b + 16 < count) keep(b + 16, c1 >= threshold);
      if (b + 32 < count) keep(b + 32, c2 >= threshold);
      if (b + 48 < count) keep(b + 48, c3 >= threshold);
    }
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
