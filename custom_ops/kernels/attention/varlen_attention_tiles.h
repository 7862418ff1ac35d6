// Shared by the forward pass and the gradient of varlen_attention: copies of rows, masks, the
// random words of dropout, and the exponential.
//
// Score tiles are transposed, [keys, queries]: the lanes of a vector are queries, so the maxima,
// sums and masks of the softmax and the streams of dropout need no operations across lanes. All
// other tiles are [positions, features], and their rows are padded with zeros to whole vectors.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "custom_ops/kernels/attention/attention_products.h"
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

// The layout of one head of one sequence in the packed tensors.
struct HeadLayout {
  int64_t head_size;    // D
  int64_t padded_size;  // D rounded up to whole vectors
  int64_t num_heads;    // N
  int64_t hidden_size;  // N D
  // The factor of the scores: 1 / sqrt(D), or 1 / sqrt(3 D) with distance vectors. The gradient
  // must recompute the scores of the forward pass with equal bits, so that no score is above the
  // logarithm of the sum of its row and no probability is above 1.
  float scale;

  explicit HeadLayout(const VarlenAttentionOptions& options)
      : head_size(options.head_size),
        padded_size(RoundUpToLanes(head_size)),
        num_heads(options.num_heads),
        hidden_size(num_heads * head_size),
        scale(1.0f / std::sqrt(static_cast<float>(
                         options.distance_vectors == nullptr ? head_size : 3 * head_size))) {}

  // Where a query begins in logsumexp [R, N] and, times D, in output [R, N, D].
  int64_t RowOffset(const AttentionUnit& unit, int64_t query) const {
    return (unit.queries.first + query) * num_heads + unit.head;
  }

  // The D numbers of a head in a row of a column, and the distance to those in the next row.
  template <typename T>
  T* Row(const TensorColumn<T>& column, int64_t row, int64_t head) const {
    return column.tensor + (row * column.num_columns + column.column) * hidden_size +
           head * head_size;
  }
  template <typename T>
  int64_t Stride(const TensorColumn<T>& column) const {
    return column.num_columns * hidden_size;
  }
};

// The layout of the packed tiles.
template <typename Format>
struct TileLayout : HeadLayout {
  static_assert(CheckFormat<Format>());

  int64_t words;         // of the D numbers of a row
  int64_t padded_words;  // rounded up to whole vectors

  explicit TileLayout(const VarlenAttentionOptions& options)
      : HeadLayout(options),
        words(WordsOf<Format>(head_size)),
        padded_words(RoundUpToLanes(words)) {}
};

// Where a matrix [positions, D] is packed: by PackRows and by PackColumns (attention_products.h).
// Both are the same memory if the results are the same, or if only the first is used.
struct PackedTile {
  float* rows;
  float* columns;
};

// Packs [rows, D], whose rows are `stride` elements apart. They may be packed.rows themselves.
template <typename Format, typename T>
void Pack(const TileLayout<Format>& layout, const T* p, int64_t stride, int64_t rows,
          const PackedTile& packed) {
  if (packed.columns != packed.rows) {
    PackColumns<Format>(p, stride, rows, layout.head_size, packed.columns, layout.padded_size);
  }
  PackRows<Format>(p, stride, rows, layout.head_size, packed.rows, layout.padded_words);
}

// Turns rows of `padded_size` floats, the first of which is at `place` of its sequence, by their
// angles times `direction`, 1 or -1. The gradient needs the bits of the forward pass, so the
// compiler must not choose where it fuses operations.
inline void Rotate(const VarlenAttentionOptions& options, const HeadLayout& layout, float direction,
                   int64_t place, int64_t rows, float* x) {
  const int64_t half = options.rotation_size / 2;
  const float* cosines = options.rotation + place * options.rotation_size;
  for (int64_t i = 0; i < rows; ++i) {
    float* const y = x + half;
    const float* const sines = cosines + half;
    ForSingleVectors(half, [&](auto lanes, int64_t c) BERT_TF_INLINE_LAMBDA {
      const Vec first = Load(x + c, lanes), second = Load(y + c, lanes);
      const Vec cosine = Load(cosines + c, lanes), sine = Load(sines + c, lanes) * direction;
      Store(x + c, Fma(first, cosine, -(second * sine)), lanes);
      Store(y + c, Fma(second, cosine, first * sine), lanes);
    });
    x += layout.padded_size;
    cosines += options.rotation_size;
  }
}

// Packs queries or keys from `place` of their sequence on, after their rotation if there is one.
// They are copied before, because rotating takes so long that memory would wait.
template <typename Format, typename T>
void PackRotated(const VarlenAttentionOptions& options, const TileLayout<Format>& layout,
                 int64_t place, const T* p, int64_t stride, int64_t rows,
                 const PackedTile& packed) {
  if (options.rotation == nullptr) return Pack(layout, p, stride, rows, packed);
  PackRows<Float32>(p, stride, rows, layout.head_size, packed.rows, layout.padded_size);
  Rotate(options, layout, 1.0f, place, rows, packed.rows);
  if (Format::kRounds) Pack(layout, packed.rows, layout.padded_size, rows, packed);
}

// Transposes the words of PackRows [rows, words] to [words, kTile]. The lanes after `rows` in the
// last vector are set to zero. In Float32, the numbers are multiplied by `factor`.
template <typename Format>
void Transpose(const TileLayout<Format>& layout, const float* packed, int64_t rows, float factor,
               float* transposed) {
  const int64_t words = layout.words, padded = layout.padded_words;
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t d = 0; d < words; d += kLanes) {
      Vec square[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const float* row = packed + (i + lane) * padded + d;
        square[lane] = i + lane < rows ? Load(row) : Vec{};
        if (!Format::kRounds) square[lane] *= factor;
      }
      Transpose(square);
      const int64_t features = Smaller(kLanes, words - d);
      for (int64_t f = 0; f < features; ++f) Store(transposed + (d + f) * kTile + i, square[f]);
    }
  }
}

// The number of a distance among those from -reach to reach. The farther ones have the last
// numbers.
BERT_TF_INLINE int64_t DistanceIndex(int64_t distance, int64_t reach) {
  return reach + Smaller(Larger(distance, -reach), reach);
}

// Adds the biases of the distances to the scores of a tile [keys, queries], if there are any.
inline void AddDistanceBias(const VarlenAttentionOptions& options, int64_t head, int64_t query,
                            int64_t query_lanes, int64_t key, int64_t keys, float* scores) {
  if (options.distance_bias == nullptr) return;
  const float* const bias = options.DistanceBiasOf(head);
  float of_tile[2 * kTile];  // from the distance of the first query to the last key on
  for (int64_t i = 0; i < keys - 1 + query_lanes; ++i) {
    of_tile[i] = bias[DistanceIndex(query - key - (keys - 1) + i, options.max_distance)];
  }
  for (int64_t j = 0; j < keys; ++j) {
    const float* const of_key = of_tile + keys - 1 - j;
    float* const row = scores + j * kTile;
    for (int64_t i = 0; i < query_lanes; i += kLanes)
      Store(row + i, Load(row + i) + Load(of_key + i));
  }
}

// The distances of the queries and keys of a tile: column kTile - 1 + i - j is that of query i and
// key j.
constexpr int kDistances = 2 * kTile;

// The vectors of these distances, by column: [D, kDistances].
struct DistanceTile {
  const float* queries;  // in Float32 times the scale, as the transposed queries
  const float* keys;

  DistanceTile operator+(int64_t columns) const { return {queries + columns, keys + columns}; }
};

// Where the query (part 0) or the key (1) of a distance begins in the vectors.
inline int64_t DistanceVectorOffset(const VarlenAttentionOptions& options, const HeadLayout& layout,
                                    int64_t head, int part, int64_t distance) {
  const int64_t row = options.distance_rows[DistanceIndex(distance, options.max_row_distance)];
  return (2 * row + part) * layout.hidden_size + head * layout.head_size;
}

// The scores of kKeys keys and kVectors vectors of queries with the vectors of their distances,
//   sum_d q[d] (k[d] + K[d]) + Q[d] k[d],
// where `distances` begins at the column of the first query and the first key.
template <int kKeys, int kVectors>
void MicroScores(int64_t depth, const float* keys, int64_t key_stride, const float* queries_t,
                 DistanceTile distances, float scale, float* scores) {
  Vec sum[kKeys][kVectors] = {};
  for (int64_t d = 0; d < depth; ++d) {
    Vec query[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) query[v] = Load(queries_t + v * kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < kKeys; ++j) {
      const Vec key = Broadcast(keys[j * key_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const int64_t column = v * kLanes - j;
        sum[j][v] += query[v] * (key + Load(distances.keys + column));
        sum[j][v] += key * Load(distances.queries + column);
      }
    }
    keys += 1;
    queries_t += kTile;
    distances = distances + kDistances;
  }
#pragma GCC unroll 8
  for (int j = 0; j < kKeys; ++j) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(scores + j * kTile + v * kLanes, sum[j][v] * scale);
  }
}

// Computes the scores of tiles [keys, queries] before any mask.
template <typename Format>
class TileScores {
 public:
  TileScores(const VarlenAttentionOptions& options, const TileLayout<Format>& layout)
      : options_(options), layout_(layout) {
    if (options.distance_vectors == nullptr) return;
    scratch_ = ThreadScratch(1, kKept * 2 * layout.head_size * kDistances);
    for (int64_t& head : heads_) head = -1;
  }

  // From the keys by PackRows and the transposed queries, which contain the scale in Float32.
  // Otherwise, the scale is applied to the sums, because queries that are bfloat16 numbers would be
  // rounded again. `query` and `key` are the positions of the first ones.
  void Compute(int64_t head, int64_t query, int64_t query_lanes, int64_t key, int64_t keys,
               const float* key_rows, const float* queries_t, float* scores) {
    const float scale = Format::kRounds ? layout_.scale : 1.0f;
    if (options_.distance_vectors == nullptr) {
      Product<Format>(keys, query_lanes, layout_.head_size, Rows(key_rows, layout_.padded_words),
                      queries_t, {scores, kTile, false, scale});
    } else if constexpr (Format::kNumbers == 1) {
      const DistanceTile distances = Distances(head, query - key) + (kTile - 1);
      for (int64_t i = 0, vectors; i < query_lanes; i += vectors * kLanes) {
        vectors = NextPart((query_lanes - i) / kLanes, kMicroVectors);
        for (int64_t j = 0, part; j < keys; j += part) {
          part = NextPart(keys - j, kMicroRows);
          WithConstant<kMicroVectors>(vectors, [&](auto vector_count) BERT_TF_INLINE_LAMBDA {
            WithConstant<kMicroRows>(part, [&](auto key_count) BERT_TF_INLINE_LAMBDA {
              MicroScores<key_count.value, vector_count.value>(
                  layout_.head_size, key_rows + j * layout_.padded_words, layout_.padded_words,
                  queries_t + i, distances + (i - j), scale, scores + j * kTile + i);
            });
          });
        }
      }
    }
    AddDistanceBias(options_, head, query, query_lanes, key, keys, scores);
  }

  // The vectors of the distances of a tile whose first query and key are `first` apart.
  DistanceTile Distances(int64_t head, int64_t first) {
    const int64_t size = layout_.head_size * kDistances;
    const int64_t place = (first / kTile % kKept + kKept) % kKept;
    const DistanceTile tile = {scratch_ + 2 * place * size, scratch_ + (2 * place + 1) * size};
    if (heads_[place] == head && firsts_[place] == first) return tile;
    heads_[place] = head;
    firsts_[place] = first;
    for (int64_t column = 0; column < kDistances; column += kLanes) {
      const int64_t distance = first + column - (kTile - 1);
      float* const columns = scratch_ + 2 * place * size + column;
      TransposeVectors(head, 0, distance, Format::kRounds ? 1.0f : layout_.scale, columns);
      TransposeVectors(head, 1, distance, 1.0f, columns + size);
    }
    return tile;
  }

 private:
  // The number of tiles of distances that are kept for the next tiles of scores, of the same head
  // or not: those of a sequence of 512 positions.
  static constexpr int64_t kKept = 16;

  // Writes the D numbers, times `factor`, of the queries (part 0) or keys (1) of kLanes distances.
  void TransposeVectors(int64_t head, int part, int64_t distance, float factor, float* columns) {
    const float* vectors[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      vectors[lane] = options_.distance_vectors +
                      DistanceVectorOffset(options_, layout_, head, part, distance + lane);
    }
    ForSingleVectors(layout_.head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      Vec square[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        square[lane] = Load(vectors[lane] + d, lanes) * factor;
      }
      Transpose(square);
      const int64_t features = Smaller(kLanes, layout_.head_size - d);
      for (int64_t f = 0; f < features; ++f) Store(columns + (d + f) * kDistances, square[f]);
    });
  }

  const VarlenAttentionOptions& options_;
  const TileLayout<Format> layout_;
  float* scratch_ = nullptr;  // [kKept, 2, D, kDistances]
  int64_t heads_[kKept];      // of the kept tiles, or -1
  int64_t firsts_[kKept];
};

// Copies rows of `padded_size` floats, row i times factor(i), to [rows, D] of type T.
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
  explicit Mask(const VarlenAttentionOptions& options)
      : PairMask{options.causal, options.window_size >= 0,
                 static_cast<int32_t>(Smaller(options.window_size, INT32_MAX / 2)),
                 static_cast<int32_t>(Smaller(options.num_global_tokens, INT32_MAX))} {}

  using PairMask::Sees;
  // The result for queries[lane] in each lane, as a lane mask.
  BERT_TF_INLINE VecI32 Sees(VecI32 queries, int32_t key) const {
    const VecI32 distance = queries - key;
    VecI32 sees = VecI32{} == 0;
    if (windowed && key >= globals) {
      sees = ((distance <= window) & (distance >= -window)) | (queries < globals);
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

// Calls run(format) with the Format for the arguments.
template <typename T, typename Run>
void WithFormat(const VarlenAttentionInputs<T>& args, [[maybe_unused]] bool has_bfloat16,
                const Run& run) {
  if constexpr (!std::is_same_v<T, BFloat16>) {
    if (!MultipliesBfloat16(args)) return run(Float32{});
  }
#if defined(__AVX512F__)
  if (has_bfloat16 && args.distance_vectors == nullptr) return run(Bfloat16Words{});
#endif
  run(RoundedFloat32{});
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
