// cudnn_sequences.h on the GPU.
#define BERT_TF_CUDA
#include "custom_ops/kernels/attention/cudnn_sequences.h"

#include "custom_ops/kernels/attention/cuda_attention_tiles.h"

namespace bert_tf::cuda {
namespace {

__global__ void SequencesKernel(Sequences inputs, int64_t sequences, int64_t longest, int64_t heads,
                                int64_t head_size, CudnnSequences results) {
  const int64_t b = int64_t{blockIdx.x} * kThreads + Thread();
  if (b > sequences) return;
  const auto first_row = [&](int64_t i) {
    return i < inputs.count ? inputs.Split(i) : inputs.rows;
  };
  const int64_t row = first_row(b);
  results.first_qkv[b] = row * 3 * heads * head_size;
  results.first_output[b] = row * heads * head_size;
  results.first_logsumexp[b] = row * heads;
  if (b == 0) *results.dropout_offset = 0;
  if (b < sequences) {
    results.length[b] = static_cast<int32_t>(Smaller(Larger(first_row(b + 1) - row, 0), longest));
  }
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__
extern "C" int BertTfCudaCudnnSequences(const bert_tf::CudaAttentionInputs& args, int64_t sequences,
                                        int64_t longest, const bert_tf::CudnnSequences& results,
                                        void* stream) {
  using namespace bert_tf::cuda;
  const dim3 grid(static_cast<unsigned>(sequences / kThreads + 1));
  return Launch<SequencesKernel>(
      grid, kThreads, 0, stream,
      Sequences{args.row_splits, args.row_splits_are_int64, args.num_sequences, args.rows},
      sequences, longest, args.num_heads, args.head_size, results);
}
#endif  // __CUDACC_RTC__
