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

#include "custom_ops/kernels/attention/varlen_attention_units.h"
#include "custom_ops/kernels/base/philox.h"
#include "custom_ops/kernels/base/simd.h"

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
template <int kRows, int kVectors, bool kAccumulate>
void MicroProduct(int64_t depth, const float* a, int64_t a_row, int64_t a_depth, const float* b,
                  int64_t b_depth, float* c, int64_t c_row) {
  Vec sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = kAccumulate ? Load(c + i * c_row + v * kLanes) : Vec{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = Load(b + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float factor = a[i * a_row];
      for (int v = 0; v < kVectors; ++v) sum[i][v] += row[v] * factor;
    }
    a += a_depth;
    b += b_depth;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) Store(c + i * c_row + v * kLanes, sum[i][v]);
  }
}

template <int kVectors, bool kAccumulate>
void ProductColumns(int64_t rows, int64_t depth, const float* a, int64_t a_row, int64_t a_depth,
                    const float* b, int64_t b_depth, float* c, int64_t c_row) {
  while (rows > 0) {
    const int64_t part = NextPart(rows, kMicroRows);
#define BERT_TF_MICRO_PRODUCT(n)                                                            \
  case n:                                                                                   \
    MicroProduct<n, kVectors, kAccumulate>(depth, a, a_row, a_depth, b, b_depth, c, c_row); \
    break
    switch (part) {
      BERT_TF_MICRO_PRODUCT(1);
      BERT_TF_MICRO_PRODUCT(2);
      BERT_TF_MICRO_PRODUCT(3);
      BERT_TF_MICRO_PRODUCT(4);
      BERT_TF_MICRO_PRODUCT(5);
      BERT_TF_MICRO_PRODUCT(6);
    }
#undef BERT_TF_MICRO_PRODUCT
    a += part * a_row;
    c += part * c_row;
    rows -= part;
  }
}

// c[i, :] (+)= sum_k a(i, k) b[k, :] for i < rows, k < depth and `columns` lanes, a multiple of
// kLanes. a(i, k) = a[i * a_row + k * a_depth]. Rows of b are b_depth apart, rows of c are c_row
// apart.
template <bool kAccumulate>
void Product(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
             int64_t a_depth, const float* b, int64_t b_depth, float* c, int64_t c_row) {
  int64_t vectors = columns / kLanes;
  while (vectors > 0) {
    const int64_t part = NextPart(vectors, kMicroVectors);
#define BERT_TF_PRODUCT_COLUMNS(n)                                                        \
  case n:                                                                                 \
    ProductColumns<n, kAccumulate>(rows, depth, a, a_row, a_depth, b, b_depth, c, c_row); \
    break
    switch (part) {
      BERT_TF_PRODUCT_COLUMNS(1);
      BERT_TF_PRODUCT_COLUMNS(2);
#if defined(__AVX512F__)
      BERT_TF_PRODUCT_COLUMNS(3);
      BERT_TF_PRODUCT_COLUMNS(4);
#endif
    }
#undef BERT_TF_PRODUCT_COLUMNS
    b += part * kLanes;
    c += part * kLanes;
    vectors -= part;
  }
}

// Adds the same product, but only over the pairs with `sees(i, k)`. It is used for partially masked
// tiles with numbers that are not finite, because their product with zero is not zero.
template <typename Sees>
void MaskedProduct(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                   int64_t a_depth, const float* b, int64_t b_depth, float* c, int64_t c_row,
                   const Sees& sees) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      if (!sees(i, k)) continue;
      const float factor = a[i * a_row + k * a_depth];
      for (int64_t d = 0; d < columns; ++d) c[i * c_row + d] += factor * b[k * b_depth + d];
    }
  }
}

inline bool AllFinite(const float* p, int64_t count) {
  Vec zeros = {};  // x * 0 is 0 or NaN
  for (int64_t i = 0; i < count; i += kLanes) zeros += Load(p + i) * 0.0f;
  return ReduceAdd(zeros) == 0.0f;
}

// Interleaves the lanes of the lower (upper) halves of a and b: a0 b0 a1 b1 ...
#if defined(__AVX512F__)
BERT_TF_INLINE Vec InterleaveLow(Vec a, Vec b) {
  const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return (Vec)_mm512_permutex2var_ps((__m512)a, order, (__m512)b);
}
BERT_TF_INLINE Vec InterleaveHigh(Vec a, Vec b) {
  const __m512i order =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return (Vec)_mm512_permutex2var_ps((__m512)a, order, (__m512)b);
}
#elif defined(__AVX2__)
BERT_TF_INLINE Vec InterleaveLow(Vec a, Vec b) {
  const __m256 low = _mm256_unpacklo_ps((__m256)a, (__m256)b);
  const __m256 high = _mm256_unpackhi_ps((__m256)a, (__m256)b);
  return (Vec)_mm256_permute2f128_ps(low, high, 0x20);
}
BERT_TF_INLINE Vec InterleaveHigh(Vec a, Vec b) {
  const __m256 low = _mm256_unpacklo_ps((__m256)a, (__m256)b);
  const __m256 high = _mm256_unpackhi_ps((__m256)a, (__m256)b);
  return (Vec)_mm256_permute2f128_ps(low, high, 0x31);
}
#else
BERT_TF_INLINE Vec InterleaveLow(Vec a, Vec b) { return Vec{a[0], b[0], a[1], b[1]}; }
BERT_TF_INLINE Vec InterleaveHigh(Vec a, Vec b) { return Vec{a[2], b[2], a[3], b[3]}; }
#endif

// Each round interleaves the first and the second half of the rows (a perfect shuffle). After
// log2(kLanes) rounds, the square is transposed.
BERT_TF_INLINE void Transpose(Vec rows[kLanes]) {
  for (int round = 1; round < kLanes; round *= 2) {
    Vec dealt[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      dealt[2 * i] = InterleaveLow(rows[i], rows[i + kLanes / 2]);
      dealt[2 * i + 1] = InterleaveHigh(rows[i], rows[i + kLanes / 2]);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = dealt[i];
  }
}

// Copies [rows, D], whose rows are `row_stride` elements apart, to float32 rows of `padded_size`
// lanes.
template <typename T>
void PackRows(const T* p, int64_t row_stride, int64_t rows, int64_t head_size, int64_t padded_size,
              float* packed) {
  for (int64_t i = 0; i < rows; ++i) {
    ForSingleVectors(head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      Store(packed + d, Load(p + d, lanes));
    });
    p += row_stride;
    packed += padded_size;
  }
}

// Copies the results of PackRows [rows, D], times `factor`, to [D, kTile]. The lanes after `rows`
// in the last vector are set to zero.
inline void PackTransposed(const float* packed, int64_t padded_size, int64_t rows,
                           int64_t head_size, float factor, float* transposed) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t d = 0; d < head_size; d += kLanes) {
      Vec square[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const float* row = packed + (i + lane) * padded_size + d;
        square[lane] = i + lane < rows ? Load(row) * factor : Vec{};
      }
      Transpose(square);
      const int64_t features = Smaller(kLanes, head_size - d);
      for (int64_t f = 0; f < features; ++f) Store(transposed + (d + f) * kTile + i, square[f]);
    }
  }
}

// Copies rows in the layout of PackRows, row i times factors[i], to [rows, D] of type T.
template <typename T>
void UnpackRows(const float* packed, int64_t padded_size, int64_t rows, int64_t head_size,
                const float* factors, T* p, int64_t row_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    ForSingleVectors(head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      Store(p + d, Load(packed + d) * factors[i], lanes);
    });
    packed += padded_size;
    p += row_stride;
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

// Which queries of a sequence attend to which keys; varlen_attention.h has the formula.
struct Mask {
  bool causal;
  bool windowed;
  int32_t window;
  int32_t globals;

  explicit Mask(const VarlenAttentionOptions& options)
      : causal(options.causal),
        windowed(options.window_size >= 0),
        window(static_cast<int32_t>(Smaller(options.window_size, INT32_MAX / 2))),
        globals(static_cast<int32_t>(Smaller(options.num_global_tokens, INT32_MAX))) {}

  bool Sees(int64_t query, int64_t key) const {
    if (causal && key > query) return false;
    if (!windowed || query < globals || key < globals) return true;
    return query - key <= window && key - query <= window;
  }

  // The result for queries[lane] in each lane, as a lane mask.
  BERT_TF_INLINE VecI32 Sees(VecI32 queries, int32_t key) const {
    const VecI32 distance = queries - key;
    VecI32 sees = VecI32{} == 0;
    if (windowed && key >= globals) {
      sees = ((distance <= window) & (distance >= -window)) | (queries < globals);
    }
    return causal ? sees & (distance >= 0) : sees;
  }

  // True if no query of [q0, q1) attends to a key of [k0, k1). False does not mean that one does.
  bool HidesAll(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
    if (causal && k0 >= q1) return true;
    if (!windowed || q0 < globals || k0 < globals) return false;
    return k0 - (q1 - 1) > window || q0 - (k1 - 1) > window;
  }

  // True if every query of [q0, q1) attends to every key of [k0, k1).
  bool ShowsAll(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
    if (causal && k1 - 1 > q0) return false;
    if (!windowed || q1 <= globals || k1 <= globals) return true;
    return (q1 - 1) - k0 <= window && (k1 - 1) - q0 <= window;
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
  uint64_t seed;
  uint32_t threshold;
  float scale;  // 1 / (1 - rate)

  explicit Dropout(const VarlenAttentionOptions& options)
      : seed(options.seed),
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

// The factor of the queries. The gradient must recompute the scores of the forward pass with equal
// bits, so that no score is above the logarithm of the sum of its row and no probability is above
// 1.
inline float ScoreScale(int64_t head_size) {
  return 1.0f / std::sqrt(static_cast<float>(head_size));
}

// The layout of one head of one sequence in the packed tensors.
struct HeadLayout {
  int64_t head_size;    // D
  int64_t padded_size;  // D rounded up to whole vectors
  int64_t qkv_row;      // distance of the rows of qkv, 3 N D
  int64_t key;          // distance from a query to its key, and from the key to its value, N D
  int64_t output_row;   // distance of the rows of output, N D
  int64_t num_heads;

  explicit HeadLayout(const VarlenAttentionOptions& options)
      : head_size(options.head_size),
        padded_size(RoundUpToLanes(options.head_size)),
        qkv_row(3 * options.num_heads * options.head_size),
        key(options.num_heads * options.head_size),
        output_row(options.num_heads * options.head_size),
        num_heads(options.num_heads) {}

  int64_t QkvOffset(const AttentionUnit& unit, int64_t position) const {
    return (unit.first_row + position) * qkv_row + unit.head * head_size;
  }
  int64_t OutputOffset(const AttentionUnit& unit, int64_t position) const {
    return (unit.first_row + position) * output_row + unit.head * head_size;
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
