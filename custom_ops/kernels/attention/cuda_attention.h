// Shared by the forward pass and the gradient of varlen_attention on the GPU: the arguments of the
// kernels, the loop over tiles, and what the launchers have in common.
#pragma once

#include <cmath>

#include "custom_ops/kernels/attention/cuda_attention_tiles.h"

namespace bert_tf::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// The number of buffers in shared memory for each streamed tile. With two, the next tile is loaded
// while the current one is multiplied. float32 tiles are too large for that in the 99 KiB of shared
// memory of sm_86.
template <typename T>
constexpr int kStages = sizeof(T) == 2 ? 2 : 1;

// What the forward pass and the gradient have in common.
template <typename T>
struct Inputs {
  const T* qkv = nullptr;
  Sequences sequences = {};
  PairMask mask = {};
  Dropout dropout = {};
  int num_heads = 0;
  int head_size = 0;
  bool vectors = false;                  // rows are whole, aligned vectors
  float scale = 0.0f;                    // 1 / sqrt(D)
  const float* distance_bias = nullptr;  // [N, 2 M + 1], or null
  int max_distance = 0;                  // M
  const float* rotation = nullptr;       // [P, S], or null
  int64_t rotation_places = 0;           // P
  int rotation_size = 0;                 // S

  BERT_TF_DEVICE int OutputStride() const { return num_heads * head_size; }
  BERT_TF_DEVICE int QkvStride() const { return 3 * OutputStride(); }
  // The offset of the query (part 0), key (1) or value (2) of a row and a head.
  BERT_TF_DEVICE int64_t QkvOffset(int64_t row, int part, int head) const {
    return row * QkvStride() + part * OutputStride() + head * head_size;
  }
  BERT_TF_DEVICE int64_t OutputOffset(int64_t row, int head) const {
    return row * OutputStride() + head * head_size;
  }

  BERT_TF_HOST_DEVICE int64_t NumDistances() const { return 2 * int64_t{max_distance} + 1; }
  // The place of a distance of query and key in a row of the distance bias.
  BERT_TF_DEVICE int DistanceIndex(int distance) const {
    if (distance < -max_distance) return 0;
    return max_distance + (distance < max_distance ? distance : max_distance);
  }
  // Turns the products q . k of the tiles at `query` and `key` into scores. They are rounded in the
  // same way in all kernels: otherwise, a large score could be above the logarithm of the sum of
  // its row. The bias, the mask and the end of a sequence have a loop each, here and in HidePairs,
  // which most tiles skip: they spend no instructions on it (tests/machine_code.json).
  template <bool kRowsAreKeys>
  BERT_TF_DEVICE void ToScores(int head, int query, int key, float (&p)[kGroups][4]) const {
    ForEachElement<kTile>(
        [&](int group, int e, int, int) { p[group][e] = RoundedProduct(p[group][e], scale); });
    if (distance_bias == nullptr) return;
    const float* const bias = distance_bias + head * NumDistances();
    ForEachPair<kRowsAreKeys>(
        p, [&](float& score, int i, int j) { score += bias[DistanceIndex(query - key + i - j)]; });
  }
  // Writes `value` to the pairs of which the mask hides the key, or whose key is past the end.
  template <bool kRowsAreKeys>
  BERT_TF_DEVICE void HidePairs(int query, int key, int length, float value,
                                float (&p)[kGroups][4]) const {
    if (key + kTile > length) {
      ForEachPair<kRowsAreKeys>(p, [&](float& x, int, int j) { x = key + j < length ? x : value; });
    }
    if (mask.ShowsAll(query, query + kTile, key, key + kTile)) return;
    ForEachPair<kRowsAreKeys>(
        p, [&](float& x, int i, int j) { x = mask.Sees(query + i, key + j) ? x : value; });
  }

  // Copies `count` rows of a part of qkv to a tile.
  template <int kSize>
  BERT_TF_DEVICE void LoadPart(int64_t row, int part, int head, int count, T* tile) const {
    LoadTile<T, kSize>(qkv + QkvOffset(row, part, head), QkvStride(), count, head_size, vectors,
                       tile);
  }

  // The cosines of the angles of a place, or of the last one if the rotation has no row for the
  // place. The sines are S / 2 numbers later.
  BERT_TF_DEVICE const float* CosinesOf(int64_t place) const {
    return rotation + Smaller(place, rotation_places - 1) * rotation_size;
  }
  // Turns `count` queries or keys in a tile, from `place` of their sequence on, by their angles, if
  // there is a rotation. Without a row for their place, they become NaN: lengths are known only
  // here, where nothing can be refused. Each thread has waited for its own copies to the tile. All
  // kernels round in the same way, as the gradient recomputes the scores of the forward pass.
  template <int kSize>
  BERT_TF_DEVICE void RotateTile(int place, int count, T* tile) const {
    if (rotation == nullptr) return;
    SyncThreads();  // the copies of all threads are complete
    const int half = rotation_size / 2;
    for (int i = Thread(); i < count * half; i += kThreads) {
      const int row = i / half, c = i % half;
      const float* const cosines = CosinesOf(place + row) + c;
      const float cosine = place + row < rotation_places ? cosines[0] : NAN;
      T* const x = tile + row * kRowElements<T, kSize> + c;
      const float first = ToFloat(x[0]), second = ToFloat(x[half]), sine = cosines[half];
      Round(fmaf(first, cosine, -RoundedProduct(second, sine)), x);
      Round(fmaf(second, cosine, RoundedProduct(first, sine)), x + half);
    }
  }
  // Loads a tile of queries (part 0) or keys (1) of `block`, and turns them.
  template <int kSize>
  BERT_TF_DEVICE void LoadRotated(const Block& block, int part, int head, T* tile) const {
    LoadPart<kSize>(block.Row(), part, head, block.Count(), tile);
    if (rotation == nullptr) return;
    CommitCopies();
    WaitForCopies<0>();
    RotateTile<kSize>(block.begin, block.Count(), tile);
  }
  // Column `column` of a gradient of a turned row, turned back. It is NaN if the turned row was.
  BERT_TF_DEVICE float TurnedBack(const float* gradient, int64_t place, int column) const {
    if (column >= rotation_size) return gradient[column];
    const int half = rotation_size / 2, c = column % half;
    const float* const cosine = CosinesOf(place) + c;
    const float first = gradient[c], second = gradient[c + half], sine = cosine[half];
    return column < half ? first * *cosine + second * sine : second * *cosine - first * sine;
  }

  // Whether no query of the tile at `query` attends to a key of the tile at `key`.
  BERT_TF_DEVICE bool HidesTile(int query, int key) const {
    return mask.HidesAll(query, query + kTile, key, key + kTile);
  }
};

template <typename T>
struct ForwardArgs : Inputs<T> {
  T* output = nullptr;
  float* logsumexp = nullptr;

  ForwardArgs(const Inputs<T>& inputs, const CudaAttentionArgs& call)
      : Inputs<T>(inputs), output(static_cast<T*>(call.output)), logsumexp(call.logsumexp) {
    this->vectors = Aligned<T>(call.head_size, call.qkv, call.output);
  }
};

template <typename T>
struct GradArgs : Inputs<T> {
  const T* output = nullptr;
  const float* logsumexp = nullptr;
  const T* d_output = nullptr;
  T* d_qkv = nullptr;
  float* delta = nullptr;                  // [R, N]: sum_d output * d_output
  float* d_distance_bias_parts = nullptr;  // [blocks, N, 2 M + 1]

  GradArgs(const Inputs<T>& inputs, const CudaAttentionGradArgs& call)
      : Inputs<T>(inputs),
        output(static_cast<const T*>(call.output)),
        logsumexp(call.logsumexp),
        d_output(static_cast<const T*>(call.d_output)),
        d_qkv(static_cast<T*>(call.d_qkv)),
        delta(call.scratch) {
    this->vectors = Aligned<T>(call.head_size, call.qkv, call.output, call.d_output, call.d_qkv);
    if (call.d_distance_bias != nullptr) {
      d_distance_bias_parts = call.scratch + call.rows * call.num_heads;
    }
  }

  // Copies `count` rows of d_output to a tile, or a result to a part of d_qkv.
  template <int kSize>
  BERT_TF_DEVICE void LoadGradient(int64_t row, int head, int count, T* tile) const {
    LoadTile<T, kSize>(d_output + this->OutputOffset(row, head), this->OutputStride(), count,
                       this->head_size, this->vectors, tile);
  }
  template <int kSize>
  BERT_TF_DEVICE void StorePart(const float (&c)[kSize / 8][4], float factor, T* tile, int64_t row,
                                int part, int head, int count) const {
    const float factors[2] = {factor, factor};
    StoreRows<T, kSize>(c, factors, tile, count, this->head_size, this->vectors,
                        d_qkv + this->QkvOffset(row, part, head), this->QkvStride());
  }
  // The same for the gradients of queries (part 0) or keys (1) of a block, turned back. `streamed`
  // are the tiles of ForEachTile, which are unused now: kTile rows of kSize + 4 floats fit there.
  template <int kSize>
  BERT_TF_DEVICE void StoreTurnedBack(const float (&c)[kSize / 8][4], T* tile, const Block& block,
                                      int part, int head, T* streamed) const {
    const int count = block.Count();
    if (this->rotation == nullptr) {
      return StorePart<kSize>(c, this->scale, tile, block.Row(), part, head, count);
    }
    constexpr int kRow = kSize + 4;
    static_assert(kTile * kRow * sizeof(float) <= kStages<T> * kTileElements<T, kSize> * sizeof(T));
    float* const rows = reinterpret_cast<float*>(streamed);
    ForEachElement<kSize>([&](int group, int e, int row, int column) {
      rows[row * kRow + column] = c[group][e] * this->scale;
    });
    SyncWarp();
    T* const results = d_qkv + this->QkvOffset(block.Row(), part, head);
    const auto store = [&](auto width) {
      ForEachPack<kSize, decltype(width)::value>(
          Lane(), kWarp, Thread() / kWarp * kWarpRows, kWarpRows, [&](int row, int column) {
            if (row >= count || column >= this->head_size) return;
            Pack<T, decltype(width)::value> pack;
#pragma unroll
            for (int i = 0; i < decltype(width)::value; ++i) {
              Round(this->TurnedBack(rows + row * kRow, block.begin + row, column + i),
                    &pack.values[i]);
            }
            StorePack(results + row * this->QkvStride() + column, pack);
          });
    };
    this->vectors ? store(Int<kVectorWidth<T>>{}) : store(Int<1>{});
  }
};

// Processes the tiles for which `hidden(position)` is false. `load(position, stage)` queues the
// copies of a tile. `prepare(position, stage)` turns rows and computes additional data, when the
// copies of the calling thread are complete. `meet(position, stage)` uses the tile.
template <typename T, typename Hidden, typename Load, typename Prepare, typename Meet>
BERT_TF_DEVICE void ForEachTile(int length, const Hidden& hidden, const Load& load,
                                const Prepare& prepare, const Meet& meet) {
  const auto next = [&](int position) {
    while (position < length && hidden(position)) position += kTile;
    return position;
  };
  int position = next(0);
  int stage = 0;
  if (kStages<T> == 2) {
    if (position < length) load(position, stage);
    CommitCopies();
  }
  while (position < length) {
    const int following = next(position + kTile);
    if (kStages<T> == 2) {
      if (following < length) load(following, 1 - stage);
      CommitCopies();
      WaitForCopies<1>();
    } else {
      load(position, stage);
      CommitCopies();
      WaitForCopies<0>();
    }
    prepare(position, stage);
    SyncThreads();  // the tile is complete
    meet(position, stage);
    SyncThreads();  // the tile may be overwritten
    position = following;
    if (kStages<T> == 2) stage = 1 - stage;
  }
}

// Processes the tiles of keys to which the queries of a block attend. `keys` and `values` have room
// for kStages tiles each. `keep` receives the dropout bits of a tile.
template <typename T, int kSize, bool kDropout, typename Meet>
BERT_TF_DEVICE void ForEachKeyTile(const Inputs<T>& args, const Block& block, int head, T* keys,
                                   T* values, uint32_t* keep, const Meet& meet) {
  constexpr int kElements = kTileElements<T, kSize>;
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;
  ForEachTile<T>(
      block.length, [&](int key) { return args.HidesTile(block.begin, key); },
      [&](int key, int stage) {
        const int rows = Smaller(kTile, block.length - key);
        const int64_t first = block.first_row + key;
        args.template LoadPart<kSize>(first, 1, head, rows, keys + stage * kElements);
        args.template LoadPart<kSize>(first, 2, head, rows, values + stage * kElements);
      },
      [&](int key, int stage) {
        args.template RotateTile<kSize>(key, Smaller(kTile, block.length - key),
                                        keys + stage * kElements);
        if (kDropout) {
          DrawTile(seed, args.dropout.threshold, block.Row(), args.num_heads, head, key, keep);
        }
      },
      meet);
}

template <typename T>
dim3 Grid(const Inputs<T>& args) {
  return dim3(static_cast<unsigned>(NumBlocks(args.sequences.rows, args.sequences.count)),
              static_cast<unsigned>(args.num_heads));
}

#ifndef __CUDACC_RTC__
// Calls function(inputs, element, size, dropout) with the inputs of a launcher, if the kernels
// support them. `element` is of type T, and the types of `size` and `dropout` hold the other
// template arguments of the kernels.
template <typename Function>
int WithInputs(int type, const CudaAttentionInputs& call, const Function& function) {
  constexpr int64_t kMaxGridY = 65535;  // CUDA C++ Programming Guide, technical specifications
  if (call.rows == 0 || call.num_heads == 0 || call.num_sequences == 0) return 0;
  if (call.head_size < 1 || call.head_size > kLargestCudaHead || call.num_heads > kMaxGridY) {
    return kInvalidValue;
  }
  if (call.rows > kMostCudaRows || call.max_distance > kMostCudaRows) return kInvalidValue;
  if (call.rotation != nullptr && call.rotation_places < 1) return kInvalidValue;
  return WithType(type, [&](auto element) {
    using T = decltype(element);
    Inputs<T> inputs;
    inputs.qkv = static_cast<const T*>(call.qkv);
    inputs.sequences = {call.row_splits, call.row_splits_are_int64, call.num_sequences, call.rows};
    inputs.mask = {call.causal, call.window_size >= 0,
                   static_cast<int>(Smaller(call.window_size, call.rows)),
                   static_cast<int>(Smaller(call.num_global_tokens, call.rows))};
    inputs.dropout = MakeDropout(call.dropout_rate, call.seed);
    inputs.num_heads = static_cast<int>(call.num_heads);
    inputs.head_size = static_cast<int>(call.head_size);
    inputs.scale = 1.0f / std::sqrt(static_cast<float>(call.head_size));
    inputs.distance_bias = call.distance_bias;
    inputs.max_distance = static_cast<int>(call.max_distance);
    inputs.rotation = call.rotation;
    inputs.rotation_places = call.rotation_places;
    inputs.rotation_size = static_cast<int>(call.rotation_size);
    const auto with_size = [&](auto size) {
      return inputs.dropout.seed != nullptr ? function(inputs, element, size, std::true_type{})
                                            : function(inputs, element, size, std::false_type{});
    };
    return inputs.head_size <= 32 ? with_size(Int<32>{}) : with_size(Int<64>{});
  });
}
#endif  // __CUDACC_RTC__

}  // namespace
}  // namespace bert_tf::cuda
