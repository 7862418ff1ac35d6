// The gradient of varlen_attention on the GPU; varlen_attention.h has the formula.
//
// One kernel has tiles of queries and computes dq, another has tiles of keys and computes dk and
// dv. Both recompute the probabilities from logsumexp. This takes seven products instead of five,
// but every sum is computed by one block, so there are no atomics and the bits are always the same.
#define BERT_TF_CUDA
#include <cmath>

#include "custom_ops/kernels/attention/cuda_attention.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"

namespace bert_tf::cuda {
namespace {

// Recomputes the probability of a pair in the forward pass.
BERT_TF_DEVICE float Probability(float score, float logsumexp) {
  return FastExp2((score - logsumexp) * kLog2E);
}

// The gradient of the distance bias of a block of queries and a head: that of each distance is the
// sum of ds along a diagonal, by one thread.
template <typename T>
struct DistanceSums {
  static constexpr int kRow = kTile + 1;  // so that the diagonals use different banks
  static constexpr int kDiagonals = 2 * kTile - 1;
  static constexpr int kFloats = kTile * kRow + kDiagonals;

  const GradArgs<T>& args;
  float* scores;  // [kTile, kRow] in shared memory
  float* part;    // [2 M + 1] in memory

  BERT_TF_DEVICE DistanceSums(const GradArgs<T>& args, int64_t block, int head, float* shared)
      : args(args),
        scores(shared),
        part(args.d_distance_bias_parts + (block * args.num_heads + head) * args.NumDistances()) {}

  BERT_TF_DEVICE void Clear() const {
    for (int64_t i = Thread(); i < args.NumDistances(); i += kThreads) part[i] = 0.0f;
  }

  // Adds a tile of ds whose first query and key have this distance.
  BERT_TF_DEVICE void Add(const float (&ds)[kGroups][4], int distance) const {
    float* const sums = scores + kTile * kRow;
    ForEachElement<kTile>(
        [&](int group, int e, int row, int column) { scores[row * kRow + column] = ds[group][e]; });
    SyncThreads();
    const int diagonal = Thread();
    const int first_row = static_cast<int>(Larger(diagonal - (kTile - 1), 0));
    if (diagonal < kDiagonals) {
      float sum = 0.0f;
      for (int row = first_row; row < kTile && row <= diagonal; ++row) {
        sum += scores[row * kRow + row - diagonal + kTile - 1];
      }
      sums[diagonal] = sum;
    }
    SyncThreads();
    // Diagonals beyond M have the same place, to which the last one of them adds all.
    const auto place = [&](int i) { return args.DistanceIndex(distance + i - (kTile - 1)); };
    if (diagonal >= kDiagonals) return;
    if (diagonal + 1 < kDiagonals && place(diagonal + 1) == place(diagonal)) return;
    float sum = 0.0f;
    for (int i = diagonal; i >= 0 && place(i) == place(diagonal); --i) sum += sums[i];
    part[place(diagonal)] += sum;
  }
};

// Adds up the parts of all blocks; a thread has one number of d_distance_bias. It is a template so
// that NVRTC does not compile it with the other kernels.
template <typename T>
__global__ void DistanceGradientKernel(const T* parts, int64_t blocks, int64_t numbers,
                                       T* d_distance_bias) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + Thread();
  if (i >= numbers) return;
  T sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += parts[block * numbers + i];
  d_distance_bias[i] = sum;
}

// dq = sum_j ds_j k_j / sqrt(D),  ds = p (dropout'(d_output . v) - delta)
template <typename T, int kSize, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) QueryGradientKernel(GradArgs<T> args) {
  const Block block = FindBlock(args.sequences, blockIdx.x);
  const int head = blockIdx.y;
  const bool sums_distances = args.d_distance_bias_parts != nullptr;
  if (block.begin >= block.length) {
    if (sums_distances) DistanceSums<T>(args, blockIdx.x, head, nullptr).Clear();
    return;
  }
  const int64_t first_row = block.Row();
  const int count = block.Count();
  constexpr int kElements = kTileElements<T, kSize>;
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const d_outputs = queries + kElements;
  T* const keys = d_outputs + kElements;
  T* const values = keys + kStages<T> * kElements;
  uint32_t* const keep = reinterpret_cast<uint32_t*>(values + kStages<T> * kElements);
  float* const deltas = reinterpret_cast<float*>(keep + kKeepWords);
  const DistanceSums<T> distances(args, blockIdx.x, head, deltas + 2 * kTile);

  if (sums_distances) distances.Clear();
  args.template LoadRotated<kSize>(block, 0, head, queries);
  args.template LoadGradient<kSize>(first_row, head, count, d_outputs);
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

  ForEachKeyTile<T, kSize, kDropout>(
      args, block, head, keys, values, keep, [&](int key, int stage) {
        float p[kGroups][4], dp[kGroups][4];
        RowProduct<T, kSize>(queries, keys + stage * kElements, p);
        RowProduct<T, kSize>(d_outputs, values + stage * kElements, dp);
        args.template ToScores<false>(head, block.begin, key, p);
        ForEachElement<kTile>([&](int group, int e, int, int) {
          p[group][e] = Probability(p[group][e], logsumexp[e / 2]);
        });
        args.template HidePairs<false>(block.begin, key, block.length, 0.0f, p);
        ForEachElement<kTile>([&](int group, int e, int row, int column) {
          float d = dp[group][e];
          if (kDropout) d = Kept(keep, row, column) ? d * args.dropout.scale : 0.0f;
          p[group][e] *= d - delta[e / 2];
        });
        ColumnProduct<T, kSize>(p, keys + stage * kElements, sum);
        if (sums_distances) distances.Add(p, block.begin - key);
      });

  args.template StoreTurnedBack<kSize>(sum, queries, block, 0, head, keys);
}

// dv = sum_i dropout(p_i) d_output_i,  dk = sum_i ds_i q_i / sqrt(D). This is QueryGradientKernel
// with the roles of queries and keys exchanged, so the registers hold transposed tiles [keys,
// queries].
template <typename T, int kSize, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) KeyGradientKernel(GradArgs<T> args) {
  const Block block = FindBlock(args.sequences, blockIdx.x);
  if (block.begin >= block.length) return;
  const int head = blockIdx.y;
  const int64_t first_row = block.Row();
  const int count = block.Count();
  constexpr int kElements = kTileElements<T, kSize>;
  T* const keys = reinterpret_cast<T*>(SharedMemory());
  T* const values = keys + kElements;
  T* const queries = values + kElements;
  T* const d_outputs = queries + kStages<T> * kElements;
  uint32_t* const keep = reinterpret_cast<uint32_t*>(d_outputs + kStages<T> * kElements);
  float* const deltas = reinterpret_cast<float*>(keep + kKeepWords);
  float* const logsumexps = deltas + kTile;
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;

  args.template LoadRotated<kSize>(block, 1, head, keys);
  args.template LoadPart<kSize>(first_row, 2, head, count, values);
  float d_key[kSize / 8][4] = {};
  float d_value[kSize / 8][4] = {};

  ForEachTile<T>(
      block.length, [&](int query) { return args.HidesTile(query, block.begin); },
      [&](int query, int stage) {
        const int rows = Smaller(kTile, block.length - query);
        const int64_t first = block.first_row + query;
        args.template LoadPart<kSize>(first, 0, head, rows, queries + stage * kElements);
        args.template LoadGradient<kSize>(first, head, rows, d_outputs + stage * kElements);
      },
      [&](int query, int stage) {
        args.template RotateTile<kSize>(query, Smaller(kTile, block.length - query),
                                        queries + stage * kElements);
        if (Thread() < kTile) {
          const int position = query + Thread();
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
      [&](int query, int stage) {
        float p[kGroups][4], dp[kGroups][4];
        RowProduct<T, kSize>(keys, queries + stage * kElements, p);
        RowProduct<T, kSize>(values, d_outputs + stage * kElements, dp);
        args.template ToScores<true>(head, query, block.begin, p);
        ForEachElement<kTile>([&](int group, int e, int, int column) {
          p[group][e] = Probability(p[group][e], logsumexps[column]);
        });
        args.template HidePairs<true>(query, block.begin, block.length, 0.0f, p);
        ForEachElement<kTile>([&](int group, int e, int row, int column) {
          const bool kept = !kDropout || Kept(keep, column, row);
          float d = dp[group][e];
          if (kDropout) d = kept ? d * args.dropout.scale : 0.0f;
          dp[group][e] = p[group][e] * (d - deltas[column]);
          if (!kept) p[group][e] = 0.0f;
        });
        ColumnProduct<T, kSize>(p, d_outputs + stage * kElements, d_value);
        ColumnProduct<T, kSize>(dp, queries + stage * kElements, d_key);
      });

  const float kept_scale = kDropout ? args.dropout.scale : 1.0f;
  args.template StoreTurnedBack<kSize>(d_key, keys, block, 1, head, queries);
  args.template StorePart<kSize>(d_value, kept_scale, values, first_row, 2, head, count);
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

#include "custom_ops/kernels/base/sizes.h"

extern "C" {

int64_t BertTfCudaVarlenAttentionGradScratch(int64_t rows, int64_t num_heads, int64_t num_sequences,
                                             int64_t distances) {
  using namespace bert_tf;
  const int64_t deltas = SizeProduct(rows, num_heads);
  const int64_t blocks = SizeProduct(cuda::NumBlocks(rows, num_sequences), num_heads);
  const int64_t parts = SizeProduct(blocks, distances);
  if (deltas < 0 || parts < 0 || parts > kLargestSize - deltas) return kTooLarge;
  return deltas + parts;
}

int BertTfCudaVarlenAttentionGrad(int type, const bert_tf::CudaAttentionGradArgs& call,
                                  void* stream) {
  using namespace bert_tf::cuda;
  const int status =
      WithInputs(type, call, [&](const auto& inputs, auto element, auto size, auto dropout) {
        using T = decltype(element);
        const GradArgs<T> args(inputs, call);
        const size_t shared_bytes = (2 + 2 * kStages<T>)*kTileElements<T, size.value> * sizeof(T) +
                                    kKeepWords * sizeof(uint32_t) + 2 * kTile * sizeof(float);
        const size_t distance_bytes =
            args.d_distance_bias_parts == nullptr ? 0 : DistanceSums<T>::kFloats * sizeof(float);
        const int status = Launch<QueryGradientKernel<T, size.value, dropout.value>>(
            Grid(args), kThreads, shared_bytes + distance_bytes, stream, args);
        if (status != 0) return status;
        return Launch<KeyGradientKernel<T, size.value, dropout.value>>(Grid(args), kThreads,
                                                                       shared_bytes, stream, args);
      });
  if (status != 0 || call.d_distance_bias == nullptr) return status;
  const int64_t numbers = call.num_heads * (2 * call.max_distance + 1);
  const int64_t blocks = call.rows == 0 ? 0 : NumBlocks(call.rows, call.num_sequences);
  const dim3 grid(static_cast<unsigned>((numbers + kThreads - 1) / kThreads));
  return Launch<DistanceGradientKernel<float>>(
      grid, kThreads, 0, stream,
      static_cast<const float*>(call.scratch + call.rows * call.num_heads), blocks, numbers,
      call.d_distance_bias);
}

}  // extern "C"

#endif  // __CUDACC_RTC__
