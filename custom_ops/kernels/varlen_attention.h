// Self-attention over packed sequences, without padding and without a [T, T] tensor.
//
//   out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D))) v[j, n]
//
// where j runs over the tokens of row r's own sequence that row r may attend to. The tokens of all
// sequences lie one after another: R rows, sequence b owning rows [row_splits[b], row_splits[b+1]).
//
// The scores are made tile by tile (64 queries x 64 keys) and the softmax is carried along
// ("online"), as in FlashAttention (Dao et al., arXiv 2205.14135); packing without padding is
// ByteTransformer's (Zhai et al., arXiv 2210.03052). The gradient makes the tiles again from the
// logarithm of each row's softmax denominator. Memory beyond the tensors is linear in the length.
//
// Glossary: B sequences, T length of a sequence, R rows of all sequences, N heads, D head size.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_VARLEN_ATTENTION_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_VARLEN_ATTENTION_H_

#include <cstdint>

#include "custom_ops/kernels/float_types.h"
#include "custom_ops/kernels/parallel.h"

namespace bert_tf {

// What the attention is over, and which pairs of positions it joins: query i sees key j where
//   (not causal or j <= i) and
//   (window_size < 0 or |i - j| <= window_size or i < num_global_tokens or j < num_global_tokens)
// with i and j counted from the start of the sequence. Every query sees itself.
struct VarlenAttentionOptions {
  int64_t num_sequences = 0;            // B
  const int64_t* row_splits = nullptr;  // [B + 1], from 0 to R, non-decreasing
  int64_t num_heads = 0;                // N
  int64_t head_size = 0;                // D
  bool causal = false;
  int64_t window_size = -1;  // negative: no window
  int64_t num_global_tokens = 0;
  // Dropout on the softmax's result: kept where philox.h's word is at least DropoutThreshold(rate)
  // and then scaled by 1 / (1 - rate). stream = row * N + head, element = the key's position in its
  // sequence.
  float dropout_rate = 0.0f;
  uint64_t seed = 0;
  // How many threads `parallel` may use. It shapes the plan of the work, never the result: outputs
  // are equal to the last bit whatever the number.
  int num_threads = 1;
};

// T is float, BFloat16 or Float16; the arithmetic is float32.
//   qkv        [R, 3, N, D]
//   output     [R, N, D]
//   logsumexp  [R, N]: log sum_j exp(q . k[j] / sqrt(D)), what the gradient needs of the softmax;
//              infinity where a score is infinite or NaN
// A score that is not finite does to its own row what it does in a plain softmax; a non-finite key
// or value never reaches a row that does not see it.
template <typename T>
void VarlenAttentionForward(const Parallel& parallel, const VarlenAttentionOptions& options,
                            const T* qkv, T* output, float* logsumexp);

//   d_output [R, N, D] -> d_qkv [R, 3, N, D], every element of it written
// `output` and `logsumexp` are the forward's.
template <typename T>
void VarlenAttentionBackward(const Parallel& parallel, const VarlenAttentionOptions& options,
                             const T* d_output, const T* qkv, const T* output,
                             const float* logsumexp, T* d_qkv);

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_VARLEN_ATTENTION_H_
