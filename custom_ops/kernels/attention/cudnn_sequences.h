// The row splits of a packed batch as cuDNN reads them.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/cuda/cuda_launchers.h"

namespace bert_tf {

// The sequences of a batch as cuDNN reads them, in GPU memory. There are at least as many as in the
// row splits: further ones are empty.
struct CudnnSequences {
  int64_t* first_qkv;     // [sequences + 1], the first element of each sequence in qkv [R, 3, N, D]
  int64_t* first_output;  // [sequences + 1], in the output [R, N, D]
  int64_t* first_logsumexp;  // [sequences + 1], in logsumexp [R, N]
  int64_t* dropout_offset;   // [1], zero
  int32_t* length;           // [sequences]
};

}  // namespace bert_tf

extern "C" {

// Computes the sequences from the row splits on the GPU, so that the CPU does not wait for these.
// Invalid row splits give sequences inside of the rows, and a sequence that is too long is cut off.
// Returns what the launchers of cuda_launchers.h return.
int BertTfCudaCudnnSequences(const bert_tf::CudaAttentionInputs& args, int64_t sequences,
                             int64_t longest, const bert_tf::CudnnSequences& results, void* stream);

}  // extern "C"
