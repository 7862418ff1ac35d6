// Shared by the GPU kernels of varlen_attention: the tile that a block works on, and the products
// of 64 x 64 tiles. Each of the four warps of a block computes 16 rows of a product.
//
// The result of a warp, [16, columns], is in registers in the layout of the tensor cores: for every
// eight columns, lane l has in c[0] and c[1] row l / 4, columns 2 (l % 4) and 2 (l % 4) + 1, and in
// c[2] and c[3] the same columns of row l / 4 + 8. float32 products are computed with plain FMAs in
// the same layout.
#pragma once

#include <type_traits>

#include "custom_ops/kernels/attention/pair_mask.h"
#include "custom_ops/kernels/cuda/cuda_dispatch.h"
#include "custom_ops/kernels/cuda/cuda_philox.h"

namespace bert_tf::cuda {
namespace {

constexpr int kTile = 64;  // rows and columns; 64 keys are one chunk of philox.h
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWarpRows = kTile / kWarps;
constexpr int kGroups = kTile / 8;  // of eight columns

BERT_TF_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
BERT_TF_DEVICE int Lane() { return Thread() % kWarp; }
// The row of c[0] and c[1] in the tile. c[2] and c[3] are eight rows below.
BERT_TF_DEVICE int LaneRow() { return Thread() / kWarp * kWarpRows + Lane() / 4; }
// The column of c[0] and c[2] in a group of eight columns.
BERT_TF_DEVICE int LaneColumn() { return Lane() % 4 * 2; }

// Calls body(group, e, row, column) for the elements c[group][e] of a result with kColumns columns.
template <int kColumns, typename Body>
BERT_TF_DEVICE void ForEachElement(const Body& body) {
#pragma unroll
  for (int group = 0; group < kColumns / 8; ++group) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      body(group, e, LaneRow() + e / 2 * 8, group * 8 + LaneColumn() + e % 2);
    }
  }
}

// Calls body(p[group][e], query, key) for each pair; both are counted from the corner of the tile.
template <bool kRowsAreKeys, typename Body>
BERT_TF_DEVICE void ForEachPair(float (&p)[kGroups][4], const Body& body) {
  ForEachElement<kTile>([&](int group, int e, int row, int column) {
    body(p[group][e], kRowsAreKeys ? column : row, kRowsAreKeys ? row : column);
  });
}

struct Sequences {
  const void* row_splits;
  bool are_int64;
  int64_t count;
  int64_t rows;

  BERT_TF_DEVICE int64_t Split(int64_t b) const {
    const int64_t split = are_int64 ? static_cast<const int64_t*>(row_splits)[b]
                                    : static_cast<const int32_t*>(row_splits)[b];
    return Smaller(Larger(split, 0), rows);
  }
};

// The rows of one tile of a sequence.
struct Block {
  int64_t first_row;  // of the sequence
  int length;
  int begin;  // position of the tile in the sequence; if past the length, the block is empty

  BERT_TF_DEVICE int64_t Row() const { return first_row + begin; }
  BERT_TF_DEVICE int Count() const { return Smaller(kTile, length - begin); }
};

// A number of blocks that is sufficient for any row splits. The blocks of sequence b begin at
// split / kTile + b, and are at least as many as its tiles.
BERT_TF_HOST_DEVICE int64_t NumBlocks(int64_t rows, int64_t sequences) {
  return rows / kTile + sequences;
}

BERT_TF_DEVICE Block FindBlock(const Sequences& sequences, int64_t index) {
  int64_t low = 0, high = sequences.count;  // the sequence is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (sequences.Split(middle) / kTile + middle <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t first_row = sequences.Split(low);
  const int64_t length = Larger(sequences.Split(low + 1) - first_row, 0);
  const int64_t begin = (index - first_row / kTile - low) * kTile;
  return {first_row, static_cast<int>(length), static_cast<int>(begin)};
}

// The distance of the rows of a tile in shared memory, chosen so that the accesses of a product use
// different banks.
template <typename T, int kSize>
constexpr int kRowElements = kSize + 16 / static_cast<int>(sizeof(T));
template <typename T, int kSize>
constexpr int kTileElements = kTile * kRowElements<T, kSize>;

// Calls body(row, column) for the packs of kWidth columns of the rows [first, first + rows) of a
// tile, of which thread `index` of `threads` has every `threads`-th.
template <int kSize, int kWidth, typename Body>
BERT_TF_DEVICE void ForEachPack(int index, int threads, int first, int rows, const Body& body) {
  for (int i = index; i < rows * (kSize / kWidth); i += threads) {
    body(first + i / (kSize / kWidth), i % (kSize / kWidth) * kWidth);
  }
}

// Copies `count` rows of head_size elements, which are `stride` apart, to a tile. The remaining
// rows and columns are set to zero. Whole vectors are copied with the next committed group, other
// elements immediately.
template <typename T, int kSize>
BERT_TF_DEVICE void LoadTile(const T* rows, int stride, int count, int head_size, bool vectors,
                             T* tile) {
  constexpr int kRow = kRowElements<T, kSize>;
  if (vectors) {
    constexpr int kPacks = kSize / kVectorWidth<T>, kStep = kThreads / kPacks;
    const int first = Thread() / kPacks, column = Thread() % kPacks * kVectorWidth<T>;
    const int end = column < head_size ? count - first : 0;
    const T* const from = rows + first * stride + column;
    T* const to = tile + first * kRow + column;
#pragma unroll
    for (int row = 0; row < kTile; row += kStep) {
      CopyAsync(to + row * kRow, row < end ? from + row * stride : rows, row < end);
    }
  } else {
    ForEachPack<kSize, 1>(Thread(), kThreads, 0, kTile, [&](int row, int column) {
      const bool inside = row < count && column < head_size;
      tile[row * kRow + column] = inside ? rows[row * stride + column] : T{};
    });
  }
}

// Writes the results of a warp times `factor` (one for each of the two rows of the lane) to the
// rows of the warp in the tile, and from there to memory. These 16 rows must be unused.
template <typename T, int kSize>
BERT_TF_DEVICE void StoreRows(const float (&c)[kSize / 8][4], const float (&factor)[2], T* tile,
                              int count, int head_size, bool vectors, T* rows, int stride) {
  constexpr int kRow = kRowElements<T, kSize>;
  SyncWarp();
  ForEachElement<kSize>([&](int group, int e, int row, int column) {
    Round(c[group][e] * factor[e / 2], tile + row * kRow + column);
  });
  SyncWarp();
  const auto store = [&](auto width) {
    ForEachPack<kSize, decltype(width)::value>(
        Lane(), kWarp, Thread() / kWarp * kWarpRows, kWarpRows, [&](int row, int column) {
          if (row < count && column < head_size) {
            StorePack(rows + row * stride + column,
                      LoadPack<decltype(width)::value>(tile + row * kRow + column));
          }
        });
  };
  vectors ? store(Int<kVectorWidth<T>>{}) : store(Int<1>{});
}

// c[i, j] = sum_d a[i, d] b[j, d] for two tiles: the rows of the warp in a, and all rows of b.
template <typename T, int kSize>
BERT_TF_DEVICE void RowProduct(const T* a, const T* b, float (&c)[kGroups][4]) {
  constexpr int kRow = kRowElements<T, kSize>;
  ForEachElement<kTile>([&](int group, int e, int, int) { c[group][e] = 0.0f; });
  if constexpr (std::is_same_v<T, float>) {
    const float* const a_row = a + LaneRow() * kRow;
    const float* const b_row = b + LaneColumn() * kRow;
#pragma unroll 1
    for (int d = 0; d < kSize; d += 4) {
      float a_part[2][4];
      LoadFloats<4>(a_row + d, a_part[0]);
      LoadFloats<4>(a_row + 8 * kRow + d, a_part[1]);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        float b_part[2][4];
        LoadFloats<4>(b_row + group * 8 * kRow + d, b_part[0]);
        LoadFloats<4>(b_row + (group * 8 + 1) * kRow + d, b_part[1]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int i = 0; i < 4; ++i) c[group][e] += a_part[e / 2][i] * b_part[e % 2][i];
        }
      }
    }
  } else {
    const int lane = Lane();
    const T* const a_row = a + (Thread() / kWarp * kWarpRows + lane % 16) * kRow + lane / 16 * 8;
    const T* const b_row = b + (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 8;
#pragma unroll
    for (int d = 0; d < kSize; d += 16) {
      uint32_t a_part[4];
      LoadMatrices(a_row + d, a_part);
#pragma unroll
      for (int group = 0; group < kGroups; group += 2) {
        uint32_t b_part[4];
        LoadMatrices(b_row + group * 8 * kRow + d, b_part);
        MultiplyAdd<T>(c[group], a_part, b_part[0], b_part[1]);
        MultiplyAdd<T>(c[group + 1], a_part, b_part[2], b_part[3]);
      }
    }
  }
}

// sum[i, d] += sum_j p[i, j] b[j, d]: the rows p of the warp, in registers, times a tile.
template <typename T, int kSize>
BERT_TF_DEVICE void ColumnProduct(const float (&p)[kGroups][4], const T* b,
                                  float (&sum)[kSize / 8][4]) {
  constexpr int kRow = kRowElements<T, kSize>;
  const int lane = Lane();
  if constexpr (std::is_same_v<T, float>) {
    const float* const b_column = b + LaneColumn();
    const int first_of_row = lane / 4 * 4;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        // Lane j / 2 of the four lanes that share a row has column j of the eight.
        const float low = Shuffle(p[group][j % 2], first_of_row + j / 2);
        const float high = Shuffle(p[group][2 + j % 2], first_of_row + j / 2);
        const float* const b_row = b_column + (group * 8 + j) * kRow;
#pragma unroll
        for (int d = 0; d < kSize / 8; ++d) {
          const Pack<float, 2> pair = LoadPack<2>(b_row + d * 8);
          sum[d][0] += low * pair.values[0];
          sum[d][1] += low * pair.values[1];
          sum[d][2] += high * pair.values[0];
          sum[d][3] += high * pair.values[1];
        }
      }
    }
  } else {
    const T* const b_row = b + lane % 16 * kRow + lane / 16 * 8;
#pragma unroll
    for (int group = 0; group < kGroups; group += 2) {
      // Results of 16 columns have the layout of an operand.
      const uint32_t a_part[4] = {RoundPair<T>(p[group][0], p[group][1]),
                                  RoundPair<T>(p[group][2], p[group][3]),
                                  RoundPair<T>(p[group + 1][0], p[group + 1][1]),
                                  RoundPair<T>(p[group + 1][2], p[group + 1][3])};
#pragma unroll
      for (int d = 0; d < kSize; d += 16) {
        uint32_t b_part[4];
        LoadMatricesTransposed(b_row + group * 8 * kRow + d, b_part);
        MultiplyAdd<T>(sum[d / 8], a_part, b_part[0], b_part[1]);
        MultiplyAdd<T>(sum[d / 8 + 1], a_part, b_part[2], b_part[3]);
      }
    }
  }
}

// The dropout bits of a tile of 64 queries and 64 keys, two words per query. Word h has the bits of
// the keys whose position modulo 16 is 8 h + i with i < 8, at bit 4 i + position / 16. A thread
// draws one word from eight Philox blocks, all of whose words are used.
constexpr int kKeepWords = 2 * kTile;
static_assert(kKeepWords == kThreads, "a thread draws one word");

BERT_TF_DEVICE void DrawTile(uint64_t seed, uint32_t threshold, int64_t first_query_row,
                             int num_heads, int head, int key, uint32_t* keep) {
  const int query = Thread() / 2;
  const int half = Thread() % 2;
  const uint64_t stream = static_cast<uint64_t>((first_query_row + query) * num_heads + head);
  const uint64_t first_block = static_cast<uint64_t>(key) / 64 * 16 + 8 * half;
  uint32_t bits = 0;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const PhiloxWords block = PhiloxBlock(seed, stream, first_block + i);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      bits |= static_cast<uint32_t>(block.words[word] >= threshold) << (4 * i + word);
    }
  }
  keep[Thread()] = bits;
}

// Whether the pair (query, key) is kept; both are counted from the corner of the tile.
BERT_TF_DEVICE bool Kept(const uint32_t* keep, int query, int key) {
  return keep[2 * query + key / 8 % 2] >> (key % 8 * 4 + key / 16) & 1u;
}

}  // namespace
}  // namespace bert_tf::cuda
