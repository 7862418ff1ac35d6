// varlen_attention and its gradient on the GPU; varlen_attention.h has the formula.
//
// Forward pass: a block has a tile of 64 queries of one head and processes the tiles of keys with
// an online softmax. Gradient: one kernel has tiles of queries and computes dq, another has tiles
// of keys and computes dk and dv. Both recompute the probabilities from logsumexp. This takes seven
// products instead of five, but every sum is computed by one block, so there are no atomics and the
// bits are always the same. Tiles that the mask hides are skipped. bfloat16 and float16 use the
// tensor cores.
#include <cmath>
#include <type_traits>

#include "custom_ops/kernels/attention/cuda_attention_tiles.h"
#include "custom_ops/kernels/base/sizes.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"

namespace bert_tf {
namespace cuda {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// The number of buffers in shared memory for each streamed tile. With two, the next tile is loaded
// while the current one is multiplied. float32 tiles are too large for that in the 99 KiB of shared
// memory of sm_86.
template <typename T>
constexpr int kStages = sizeof(T) == 2 ? 2 : 1;

template <typename T>
struct Args {
  const T* qkv;
  Sequences sequences;
  PairMask mask;
  Dropout dropout;
  int64_t num_heads;
  int head_size;
  bool vectors;  // rows are whole, aligned vectors
  float scale;   // 1 / sqrt(D)
  const T* d_output;
  T* output;  // written by the forward, read by the gradient
  float* logsumexp;
  float* delta;  // [R, N]: sum_d output * d_output, for the gradient
  T* d_qkv;

  BERT_TF_DEVICE int64_t QkvStride() const { return 3 * num_heads * head_size; }
  BERT_TF_DEVICE int64_t OutputStride() const { return num_heads * head_size; }
  // The offset of the query (part 0), key (1) or value (2) of a row and a head.
  BERT_TF_DEVICE int64_t QkvOffset(int64_t row, int part, int64_t head) const {
    return row * QkvStride() + part * OutputStride() + head * head_size;
  }
  BERT_TF_DEVICE int64_t OutputOffset(int64_t row, int64_t head) const {
    return row * OutputStride() + head * head_size;
  }
};

// The first tile, starting from `key` (`query`), that the mask does not hide.
BERT_TF_DEVICE int64_t NextKeys(const PairMask& mask, const Block& block, int64_t key) {
  while (key < block.length && mask.HidesTile(block.begin, key)) key += kTile;
  return key;
}
BERT_TF_DEVICE int64_t NextQueries(const PairMask& mask, const Block& block, int64_t query) {
  while (query < block.length && mask.HidesTile(query, block.begin)) query += kTile;
  return query;
}

// Processes the tiles, starting from `next(0)`. `load(position, stage)` queues the copies of a
// tile, `draw(position)` computes additional data for it, and `meet(position, stage)` uses the tile
// when its copies are complete.
template <typename T, typename Next, typename Load, typename Draw, typename Meet>
BERT_TF_DEVICE void ForEachTile(int64_t length, const Next& next, const Load& load,
                                const Draw& draw, const Meet& meet) {
  int64_t position = next(static_cast<int64_t>(0));
  int stage = 0;
  if (kStages<T> == 2) {
    if (position < length) load(position, stage);
    CommitCopies();
  }
  while (position < length) {
    const int64_t following = next(position + kTile);
    if (kStages<T> == 2) {
      if (following < length) load(following, 1 - stage);
      CommitCopies();
      WaitForCopies<1>();
    } else {
      load(position, stage);
      CommitCopies();
      WaitForCopies<0>();
    }
    draw(position);
    SyncThreads();  // the copies of all threads are complete
    meet(position, stage);
    SyncThreads();  // the tile may be overwritten
    position = following;
    if (kStages<T> == 2) stage = 1 - stage;
  }
}

template <typename T, int kSize, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) ForwardKernel(Args<T> args) {
  const Block block = FindBlock(args.sequences, blockIdx.x);
  if (block.begin >= block.length) return;
  const int64_t head = blockIdx.y;
  const int64_t count = Smaller(kTile, block.length - block.begin);
  constexpr int kElements = kTileElements<T, kSize>;
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const keys = queries + kElements;
  T* const values = keys + kStages<T> * kElements;
  uint32_t* const keep = reinterpret_cast<uint32_t*>(values + kStages<T> * kElements);
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;

  LoadTile<T, kSize>(args.qkv + args.QkvOffset(block.first_row + block.begin, 0, head),
                     args.QkvStride(), count, args.head_size, args.vectors, queries);
  float sum[kSize / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};  // of the lane's two rows
  float denominator[2] = {0.0f, 0.0f};

  ForEachTile<T>(
      block.length, [&](int64_t from) { return NextKeys(args.mask, block, from); },
      [&](int64_t key, int stage) {
        const int64_t rows = Smaller(kTile, block.length - key);
        const int64_t first = block.first_row + key;
        LoadTile<T, kSize>(args.qkv + args.QkvOffset(first, 1, head), args.QkvStride(), rows,
                           args.head_size, args.vectors, keys + stage * kElements);
        LoadTile<T, kSize>(args.qkv + args.QkvOffset(first, 2, head), args.QkvStride(), rows,
                           args.head_size, args.vectors, values + stage * kElements);
      },
      [&](int64_t key) {
        if (kDropout) {
          DrawTile(seed, args.dropout.threshold, block.first_row + block.begin, args.num_heads,
                   head, key, keep);
        }
      },
      [&](int64_t key, int stage) {
        float p[kGroups][4];
        RowProduct<T, kSize>::Run(queries, keys + stage * kElements, p);
        const bool masked = key + kTile > block.length || !args.mask.ShowsTile(block.begin, key);
        float new_maximum[2] = {maximum[0], maximum[1]};
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float score = RoundedProduct(p[group][e], args.scale);
            if (masked) {
              const int64_t q = block.begin + LaneRow() + e / 2 * 8;
              const int64_t k = key + group * 8 + LaneColumn() + e % 2;
              if (k >= block.length || !args.mask.Sees(q, k)) score = -INFINITY;
            }
            p[group][e] = score;
            new_maximum[e / 2] = fmaxf(new_maximum[e / 2], score);
          }
        }
        //   m' = max(m, max_j s_j),  p_j = e^(s_j - m'),  l' = l e^(m - m') + sum_j p_j
        // The difference is computed before the product with log2(e), so that the scores do not
        // leave the range of float32. If all scores of a row so far are minus infinity, 0 is used
        // instead of m'.
        float base[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          new_maximum[r] = fmaxf(new_maximum[r], ShuffleXor(new_maximum[r], 1));
          new_maximum[r] = fmaxf(new_maximum[r], ShuffleXor(new_maximum[r], 2));
          base[r] = new_maximum[r] == -INFINITY ? 0.0f : new_maximum[r];
          const float correction = FastExp2((maximum[r] - base[r]) * kLog2E);
          maximum[r] = new_maximum[r];
          denominator[r] *= correction;
#pragma unroll
          for (int d = 0; d < kSize / 8; ++d) {
            sum[d][2 * r] *= correction;
            sum[d][2 * r + 1] *= correction;
          }
        }
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float exponential = FastExp2((p[group][e] - base[e / 2]) * kLog2E);
            denominator[e / 2] += exponential;
            const bool kept =
                !kDropout || Kept(keep, LaneRow() + e / 2 * 8, group * 8 + LaneColumn() + e % 2);
            p[group][e] = kept ? exponential : 0.0f;
          }
        }
        ColumnProduct<T, kSize>::Run(p, values + stage * kElements, sum);
      });

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    denominator[r] += ShuffleXor(denominator[r], 1);
    denominator[r] += ShuffleXor(denominator[r], 2);
    factor[r] = (kDropout ? args.dropout.scale : 1.0f) / denominator[r];
    const int64_t position = block.begin + LaneRow() + 8 * r;
    if (position < block.length && Lane() % 4 == 0) {
      args.logsumexp[(block.first_row + position) * args.num_heads + head] =
          denominator[r] == denominator[r] ? maximum[r] + logf(denominator[r]) : INFINITY;
    }
  }
  const int64_t offset = args.OutputOffset(block.first_row + block.begin, head);
  StoreRows<T, kSize>(sum, factor, queries, count, args.head_size, args.vectors,
                      args.output + offset, args.OutputStride());
}

// Recomputes the probability of a pair in the forward pass from q . k. The score is rounded as in
// the forward pass. Otherwise, a large score could be above the logarithm of the sum of its row.
BERT_TF_DEVICE float Probability(float product, float scale, float logsumexp) {
  return FastExp2((RoundedProduct(product, scale) - logsumexp) * kLog2E);
}

// dq = sum_j ds_j k_j / sqrt(D),  ds = p (dropout'(d_output . v) - delta)
template <typename T, int kSize, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) QueryGradientKernel(Args<T> args) {
  const Block block = FindBlock(args.sequences, blockIdx.x);
  if (block.begin >= block.length) return;
  const int64_t head = blockIdx.y;
  const int64_t first_row = block.first_row + block.begin;
  const int64_t count = Smaller(kTile, block.length - block.begin);
  constexpr int kElements = kTileElements<T, kSize>;
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const d_outputs = queries + kElements;
  T* const keys = d_outputs + kElements;
  T* const values = keys + kStages<T> * kElements;
  uint32_t* const keep = reinterpret_cast<uint32_t*>(values + kStages<T> * kElements);
  float* const deltas = reinterpret_cast<float*>(keep + kKeepWords);
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;

  LoadTile<T, kSize>(args.qkv + args.QkvOffset(first_row, 0, head), args.QkvStride(), count,
                     args.head_size, args.vectors, queries);
  LoadTile<T, kSize>(args.d_output + args.OutputOffset(first_row, head), args.OutputStride(), count,
                     args.head_size, args.vectors, d_outputs);
  {  // delta = sum_d output * d_output, with two threads per row
    const int row = Thread() / 2;
    float delta = 0.0f;
    if (row < count) {
      const int64_t offset = args.OutputOffset(first_row + row, head);
      for (int d = Thread() % 2; d < args.head_size; d += 2) {
        delta += ToFloat(args.output[offset + d]) * ToFloat(args.d_output[offset + d]);
      }
    }
    delta += ShuffleXor(delta, 1);
    if (Thread() % 2 == 0) {
      deltas[row] = delta;
      if (row < count) args.delta[(first_row + row) * args.num_heads + head] = delta;
    }
  }
  SyncThreads();
  float delta[2], logsumexp[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = LaneRow() + 8 * r;
    delta[r] = deltas[row];
    logsumexp[r] =
        row < count ? args.logsumexp[(first_row + row) * args.num_heads + head] : INFINITY;
  }
  float sum[kSize / 8][4] = {};

  ForEachTile<T>(
      block.length, [&](int64_t from) { return NextKeys(args.mask, block, from); },
      [&](int64_t key, int stage) {
        const int64_t rows = Smaller(kTile, block.length - key);
        const int64_t first = block.first_row + key;
        LoadTile<T, kSize>(args.qkv + args.QkvOffset(first, 1, head), args.QkvStride(), rows,
                           args.head_size, args.vectors, keys + stage * kElements);
        LoadTile<T, kSize>(args.qkv + args.QkvOffset(first, 2, head), args.QkvStride(), rows,
                           args.head_size, args.vectors, values + stage * kElements);
      },
      [&](int64_t key) {
        if (kDropout) {
          DrawTile(seed, args.dropout.threshold, first_row, args.num_heads, head, key, keep);
        }
      },
      [&](int64_t key, int stage) {
        float p[kGroups][4], dp[kGroups][4];
        RowProduct<T, kSize>::Run(queries, keys + stage * kElements, p);
        RowProduct<T, kSize>::Run(d_outputs, values + stage * kElements, dp);
        const bool masked = key + kTile > block.length || !args.mask.ShowsTile(block.begin, key);
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = LaneRow() + e / 2 * 8;
            const int column = group * 8 + LaneColumn() + e % 2;
            float probability = Probability(p[group][e], args.scale, logsumexp[e / 2]);
            if (masked && (key + column >= block.length ||
                           !args.mask.Sees(block.begin + row, key + column))) {
              probability = 0.0f;
            }
            float d = dp[group][e];
            if (kDropout) d = Kept(keep, row, column) ? d * args.dropout.scale : 0.0f;
            p[group][e] = probability * (d - delta[e / 2]);
          }
        }
        ColumnProduct<T, kSize>::Run(p, keys + stage * kElements, sum);
      });

  const float factor[2] = {args.scale, args.scale};
  StoreRows<T, kSize>(sum, factor, queries, count, args.head_size, args.vectors,
                      args.d_qkv + args.QkvOffset(first_row, 0, head), args.QkvStride());
}

// dv = sum_i dropout(p_i) d_output_i,  dk = sum_i ds_i q_i / sqrt(D). This is QueryGradientKernel
// with the roles of queries and keys exchanged, so the registers hold transposed tiles [keys,
// queries].
template <typename T, int kSize, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) KeyGradientKernel(Args<T> args) {
  const Block block = FindBlock(args.sequences, blockIdx.x);
  if (block.begin >= block.length) return;
  const int64_t head = blockIdx.y;
  const int64_t first_row = block.first_row + block.begin;
  const int64_t count = Smaller(kTile, block.length - block.begin);
  constexpr int kElements = kTileElements<T, kSize>;
  T* const keys = reinterpret_cast<T*>(SharedMemory());
  T* const values = keys + kElements;
  T* const queries = values + kElements;
  T* const d_outputs = queries + kStages<T> * kElements;
  uint32_t* const keep = reinterpret_cast<uint32_t*>(d_outputs + kStages<T> * kElements);
  float* const deltas = reinterpret_cast<float*>(keep + kKeepWords);
  float* const logsumexps = deltas + kTile;
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;

  LoadTile<T, kSize>(args.qkv + args.QkvOffset(first_row, 1, head), args.QkvStride(), count,
                     args.head_size, args.vectors, keys);
  LoadTile<T, kSize>(args.qkv + args.QkvOffset(first_row, 2, head), args.QkvStride(), count,
                     args.head_size, args.vectors, values);
  float d_key[kSize / 8][4] = {};
  float d_value[kSize / 8][4] = {};

  ForEachTile<T>(
      block.length, [&](int64_t from) { return NextQueries(args.mask, block, from); },
      [&](int64_t query, int stage) {
        const int64_t rows = Smaller(kTile, block.length - query);
        const int64_t first = block.first_row + query;
        LoadTile<T, kSize>(args.qkv + args.QkvOffset(first, 0, head), args.QkvStride(), rows,
                           args.head_size, args.vectors, queries + stage * kElements);
        LoadTile<T, kSize>(args.d_output + args.OutputOffset(first, head), args.OutputStride(),
                           rows, args.head_size, args.vectors, d_outputs + stage * kElements);
      },
      [&](int64_t query) {
        if (Thread() < kTile) {
          const int64_t position = query + Thread();
          const int64_t i = (block.first_row + position) * args.num_heads + head;
          const bool inside = position < block.length;
          deltas[Thread()] = inside ? args.delta[i] : 0.0f;
          logsumexps[Thread()] = inside ? args.logsumexp[i] : INFINITY;
        }
        if (kDropout) {
          DrawTile(seed, args.dropout.threshold, block.first_row + query, args.num_heads, head,
                   block.begin, keep);
        }
      },
      [&](int64_t query, int stage) {
        float p[kGroups][4], dp[kGroups][4];
        RowProduct<T, kSize>::Run(keys, queries + stage * kElements, p);
        RowProduct<T, kSize>::Run(values, d_outputs + stage * kElements, dp);
        const bool masked = !args.mask.ShowsTile(query, block.begin);
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = LaneRow() + e / 2 * 8;
            const int column = group * 8 + LaneColumn() + e % 2;
            float probability = Probability(p[group][e], args.scale, logsumexps[column]);
            if (masked && !args.mask.Sees(query + column, block.begin + row)) probability = 0.0f;
            const bool kept = !kDropout || Kept(keep, column, row);
            float d = dp[group][e];
            if (kDropout) d = kept ? d * args.dropout.scale : 0.0f;
            p[group][e] = kept ? probability : 0.0f;
            dp[group][e] = probability * (d - deltas[column]);
          }
        }
        ColumnProduct<T, kSize>::Run(p, d_outputs + stage * kElements, d_value);
        ColumnProduct<T, kSize>::Run(dp, queries + stage * kElements, d_key);
      });

  const float key_factor[2] = {args.scale, args.scale};
  const float kept_scale = kDropout ? args.dropout.scale : 1.0f;
  const float value_factor[2] = {kept_scale, kept_scale};
  StoreRows<T, kSize>(d_key, key_factor, keys, count, args.head_size, args.vectors,
                      args.d_qkv + args.QkvOffset(first_row, 1, head), args.QkvStride());
  StoreRows<T, kSize>(d_value, value_factor, values, count, args.head_size, args.vectors,
                      args.d_qkv + args.QkvOffset(first_row, 2, head), args.QkvStride());
}

template <int value>
struct Int {
  static constexpr int kValue = value;
};

// Calls function(size, dropout), where the types hold the template arguments of the kernels.
template <typename T, typename Function>
int WithSize(const Args<T>& args, const Function& function) {
  const auto with_size = [&](auto size) {
    return args.dropout.seed != nullptr ? function(size, Int<1>{}) : function(size, Int<0>{});
  };
  return args.head_size <= 32 ? with_size(Int<32>{}) : with_size(Int<64>{});
}

template <typename T>
dim3 Grid(const Args<T>& args) {
  return dim3(static_cast<unsigned>(NumBlocks(args.sequences.rows, args.sequences.count)),
              static_cast<unsigned>(args.num_heads));
}

template <typename T>
int Forward(const Args<T>& args, void* stream) {
  return WithSize(args, [&](auto size, auto dropout) {
    constexpr int kSize = decltype(size)::kValue;
    const size_t shared_bytes =
        (1 + 2 * kStages<T>)*kTileElements<T, kSize> * sizeof(T) + kKeepWords * sizeof(uint32_t);
    return Launch(ForwardKernel<T, kSize, decltype(dropout)::kValue != 0>, Grid(args), kThreads,
                  shared_bytes, stream, args);
  });
}

template <typename T>
int Backward(const Args<T>& args, void* stream) {
  return WithSize(args, [&](auto size, auto dropout) {
    constexpr int kSize = decltype(size)::kValue;
    constexpr bool kDropout = decltype(dropout)::kValue != 0;
    const size_t shared_bytes = (2 + 2 * kStages<T>)*kTileElements<T, kSize> * sizeof(T) +
                                kKeepWords * sizeof(uint32_t) + 2 * kTile * sizeof(float);
    const int status = Launch(QueryGradientKernel<T, kSize, kDropout>, Grid(args), kThreads,
                              shared_bytes, stream, args);
    if (status != 0) return status;
    return Launch(KeyGradientKernel<T, kSize, kDropout>, Grid(args), kThreads, shared_bytes, stream,
                  args);
  });
}

// Sets the arguments that both launchers have. Returns whether the kernels support them.
template <typename T>
bool MakeArgs(const void* qkv, const void* row_splits, int row_splits_are_int64,
              int64_t num_sequences, int64_t rows, int64_t num_heads, int64_t head_size, int causal,
              int64_t window_size, int64_t num_global_tokens, float dropout_rate,
              const int64_t* seed, Args<T>* args) {
  constexpr int64_t kMaxGridY = 65535;
  if (head_size < 1 || head_size > kBertTfLargestHead || num_heads > kMaxGridY) return false;
  args->qkv = static_cast<const T*>(qkv);
  args->sequences = {row_splits, row_splits_are_int64 != 0, num_sequences, rows};
  args->mask = {causal != 0, window_size >= 0, window_size, num_global_tokens};
  args->dropout = MakeDropout(dropout_rate, dropout_rate > 0.0f ? seed : nullptr);
  args->num_heads = num_heads;
  args->head_size = static_cast<int>(head_size);
  args->scale = 1.0f / std::sqrt(static_cast<float>(head_size));
  args->d_output = nullptr;
  args->output = nullptr;
  args->logsumexp = nullptr;
  args->delta = nullptr;
  args->d_qkv = nullptr;
  return true;
}

template <typename Function>
int WithType(int type, const Function& function) {
  switch (type) {
    case kBertTfFloat32:
      return function(static_cast<float*>(nullptr));
    case kBertTfBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    case kBertTfFloat16:
      return function(static_cast<Float16*>(nullptr));
  }
  return kInvalidValue;
}

}  // namespace
}  // namespace cuda
}  // namespace bert_tf

extern "C" {

int BertTfCudaVarlenAttention(int type, const void* qkv, const void* row_splits,
                              int row_splits_are_int64, int64_t num_sequences, int64_t rows,
                              int64_t num_heads, int64_t head_size, int causal, int64_t window_size,
                              int64_t num_global_tokens, float dropout_rate, const int64_t* seed,
                              void* output, float* logsumexp, void* stream) {
  using namespace bert_tf::cuda;
  if (rows == 0 || num_heads == 0 || num_sequences == 0) return 0;
  return WithType(type, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    Args<T> args;
    if (!MakeArgs(qkv, row_splits, row_splits_are_int64, num_sequences, rows, num_heads, head_size,
                  causal, window_size, num_global_tokens, dropout_rate, seed, &args)) {
      return kInvalidValue;
    }
    args.output = static_cast<T*>(output);
    args.logsumexp = logsumexp;
    args.vectors = Aligned<T>(head_size, qkv, output);
    return Forward(args, stream);
  });
}

int64_t BertTfCudaVarlenAttentionGradScratch(int64_t rows, int64_t num_heads) {
  return bert_tf::SizeProduct(rows, num_heads);
}

int BertTfCudaVarlenAttentionGrad(int type, const void* d_output, const void* qkv,
                                  const void* output, const float* logsumexp,
                                  const void* row_splits, int row_splits_are_int64,
                                  int64_t num_sequences, int64_t rows, int64_t num_heads,
                                  int64_t head_size, int causal, int64_t window_size,
                                  int64_t num_global_tokens, float dropout_rate,
                                  const int64_t* seed, void* d_qkv, float* scratch, void* stream) {
  using namespace bert_tf::cuda;
  if (rows == 0 || num_heads == 0 || num_sequences == 0) return 0;
  return WithType(type, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    Args<T> args;
    if (!MakeArgs(qkv, row_splits, row_splits_are_int64, num_sequences, rows, num_heads, head_size,
                  causal, window_size, num_global_tokens, dropout_rate, seed, &args)) {
      return kInvalidValue;
    }
    args.d_output = static_cast<const T*>(d_output);
    args.output = static_cast<T*>(const_cast<void*>(output));
    args.logsumexp = const_cast<float*>(logsumexp);
    args.delta = scratch;
    args.d_qkv = static_cast<T*>(d_qkv);
    args.vectors = Aligned<T>(head_size, d_output, qkv, output, d_qkv);
    return Backward(args, stream);
  });
}

}  // extern "C"
