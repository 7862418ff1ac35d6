// varlen_attention on the GPU; varlen_attention.h has the formula.
//
// A block has a tile of 64 queries of one head and processes the tiles of keys with an online
// softmax. Tiles that the mask hides are skipped. bfloat16 and float16 use the tensor cores.
#define BERT_TF_CUDA
#include <cmath>

#include "custom_ops/kernels/attention/cuda_attention.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"

namespace bert_tf::cuda {
namespace {

template <typename T, int kSize, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) ForwardKernel(ForwardArgs<T> args) {
  const Block block = FindBlock(args.sequences, blockIdx.x);
  if (block.begin >= block.length) return;
  const int head = blockIdx.y;
  constexpr int kElements = kTileElements<T, kSize>;
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const keys = queries + kElements;
  T* const values = keys + kStages<T> * kElements;
  uint32_t* const keep = reinterpret_cast<uint32_t*>(values + kStages<T> * kElements);

  args.template LoadRotated<kSize>(block, 0, head, queries);
  float sum[kSize / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};  // of the lane's two rows
  float denominator[2] = {0.0f, 0.0f};

  ForEachKeyTile<T, kSize, kDropout>(
      args, block, head, keys, values, keep, [&](int key, int stage) {
        float p[kGroups][4];
        RowProduct<T, kSize>(queries, keys + stage * kElements, p);
        args.template ToScores<false>(head, block.begin, key, p);
        args.template HidePairs<false>(block.begin, key, block.length, -INFINITY, p);
        float new_maximum[2] = {maximum[0], maximum[1]};
        ForEachElement<kTile>([&](int group, int e, int, int) {
          new_maximum[e / 2] = fmaxf(new_maximum[e / 2], p[group][e]);
        });
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
        ForEachElement<kTile>([&](int group, int e, int row, int column) {
          const float exponential = FastExp2((p[group][e] - base[e / 2]) * kLog2E);
          denominator[e / 2] += exponential;
          p[group][e] = !kDropout || Kept(keep, row, column) ? exponential : 0.0f;
        });
        ColumnProduct<T, kSize>(p, values + stage * kElements, sum);
      });

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    denominator[r] += ShuffleXor(denominator[r], 1);
    denominator[r] += ShuffleXor(denominator[r], 2);
    factor[r] = (kDropout ? args.dropout.scale : 1.0f) / denominator[r];
    const int position = block.begin + LaneRow() + 8 * r;
    if (position < block.length && Lane() % 4 == 0) {
      args.logsumexp[(block.first_row + position) * args.num_heads + head] =
          denominator[r] == denominator[r] ? maximum[r] + logf(denominator[r]) : INFINITY;
    }
  }
  StoreRows<T, kSize>(sum, factor, queries, block.Count(), args.head_size, args.vectors,
                      args.output + args.OutputOffset(block.Row(), head), args.OutputStride());
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

extern "C" int BertTfCudaVarlenAttention(int type, const bert_tf::CudaAttentionArgs& call,
                                         void* stream) {
  using namespace bert_tf::cuda;
  return WithInputs(type, call, [&](const auto& inputs, auto element, auto size, auto dropout) {
    using T = decltype(element);
    const size_t shared_bytes = (1 + 2 * kStages<T>)*kTileElements<T, size.value> * sizeof(T) +
                                kKeepWords * sizeof(uint32_t);
    return Launch<ForwardKernel<T, size.value, dropout.value>>(
        Grid(inputs), kThreads, shared_bytes, stream, ForwardArgs<T>(inputs, call));
  });
}

#endif  // __CUDACC_RTC__
