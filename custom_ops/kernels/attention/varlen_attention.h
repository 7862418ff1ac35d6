// Attention over packed sequences, without padding and without [T, T] tensors.
//
//   out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D) + bias[n, r - j])) v[j, n]
//
// where j are the keys of the sequence of row r to which row r may attend. The bias of the distance
// is optional (Raffel et al., arXiv 1910.10683, section 2.1), and so are the rotation of q[r, n]
// and k[j, n] by their places (Su et al., arXiv 2104.09864, section 3.4.2) and queries and keys of
// distances (He et al., arXiv 2006.03654, equation 4). The tokens of all sequences are stored one
// after another, in R rows. The queries of sequence b have the rows
// [row_splits[b], row_splits[b+1]), its keys and values [key_row_splits[b], key_row_splits[b+1]).
// In self-attention, queries, keys and values are columns of one tensor with one set of row splits.
//
// The scores are computed in tiles (64 queries x 64 keys) with an online softmax, as in
// FlashAttention (Dao et al., arXiv 2205.14135). Packing without padding is that of ByteTransformer
// (Zhai et al., arXiv 2210.03052). The gradient recomputes the tiles from the logarithm of the
// softmax denominator of each row. Additional memory is linear in the sequence length.
//
// Glossary: B sequences, T length of a sequence, R rows of all sequences, N heads, D head size.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

// The sizes and options of the attention. Query i of n attends to key j of m if
//   (not causal or j <= i + m - n) and
//   (window_size < 0 or |i - j| <= window_size or i < num_global_tokens or j < num_global_tokens)
// with i and j counted from the start of the sequence. A causal mask is aligned at the ends: the
// last query attends to all keys. A window is for self-attention, where n = m and every query
// attends to itself. The output and the gradients of a query that attends to no key are zeros.
struct VarlenAttentionOptions {
  int64_t num_sequences = 0;                // B
  const int64_t* row_splits = nullptr;      // [B + 1], of the queries: from 0 to R, non-decreasing
  const int64_t* key_row_splits = nullptr;  // the same of the keys and values
  int64_t num_heads = 0;                    // N
  int64_t head_size = 0;                    // D
  bool causal = false;
  int64_t window_size = -1;  // no window if negative
  int64_t num_global_tokens = 0;
  // Dropout of the results of the softmax. A probability is kept if its word (philox.h) is at least
  // DropoutThreshold(rate), and is then scaled by 1 / (1 - rate). The stream is row * N + head of
  // the query, and the element is the position of the key in its sequence.
  float dropout_rate = 0.0f;
  uint64_t seed = 0;
  // Whether the factors of matrix products are rounded to bfloat16.
  bool bfloat16_products = false;
  // [N, 2 M + 1]: the number at M + min(max(i - j, -M), M) is added to the score of query i and key
  // j. Null for none; only self-attention may have it.
  const float* distance_bias = nullptr;
  int64_t max_distance = 0;  // M
  // [P, S], S even and at most D, P at least the length of every sequence: the cosines and the
  // sines of S / 2 angles for each place. Columns c and c + S / 2 of the query and the key at a
  // place are turned by angle c, before their products:
  //   x[c] cos[c] - x[c + S / 2] sin[c],  x[c + S / 2] cos[c] + x[c] sin[c]
  // The columns from S on are kept. Null for none; only self-attention may have it.
  const float* rotation = nullptr;
  int64_t rotation_size = 0;  // S
  // [V, 2, N, D], a query Q and a key K for each of V kinds of distances (disentangled attention).
  // The score of query q and key k, at a distance of kind s, is
  //   (q . k + q . K[s] + Q[s] . k) / sqrt(3 D)
  // Null for none; only self-attention may have them. They are not rounded to bfloat16.
  const float* distance_vectors = nullptr;
  int64_t num_distance_vectors = 0;  // V
  // [2 M' + 1], each in [0, V): the kind of the distance min(max(i - j, -M'), M').
  const int32_t* distance_rows = nullptr;
  int64_t max_row_distance = 0;  // M'

  // The numbers of a head, and how many there are.
  const float* DistanceBiasOf(int64_t head) const { return distance_bias + head * NumDistances(); }
  int64_t NumDistances() const { return 2 * max_distance + 1; }
};

// A column of a tensor [R, num_columns, N, D].
template <typename T>
struct TensorColumn {
  T* tensor = nullptr;
  int64_t num_columns = 1;
  int64_t column = 0;
};

// T is float, BFloat16 or Float16; the arithmetic is float32. For T = BFloat16 or with
// `bfloat16_products`, the factors of the matrix products are rounded to bfloat16, to nearest even:
// queries and keys, after their rotation; values; the weights of the values (e^(score - maximum),
// after dropout) and, in the gradient, d_output, the probabilities and the gradients of the scores.
// Products are exact and sums float32, with the bits of bfloat16_products.h; subnormal factors may
// count as zeros.
template <typename T>
struct VarlenAttentionInputs : VarlenAttentionOptions {
  TensorColumn<const T> query, key, value;

  // Self-attention: qkv [R, 3, N, D], with `row_splits`.
  void SetQkv(const T* qkv) {
    query = {qkv, 3, 0};
    key = {qkv, 3, 1};
    value = {qkv, 3, 2};
    key_row_splits = row_splits;
  }
  // Cross-attention: queries [Rq, N, D], keys and values [Rk, 2, N, D].
  void SetQueryKeyValue(const T* queries, const T* key_value) {
    query = {queries, 1, 0};
    key = {key_value, 2, 0};
    value = {key_value, 2, 1};
  }
};

template <typename T>
struct VarlenAttentionArgs : VarlenAttentionInputs<T> {
  T* output = nullptr;  // [R, N, D]
  // [R, N]: log sum_j exp(score of j), from which the gradient recomputes the softmax;
  // infinity if a score is +infinity or NaN, -infinity if the query attends to no key
  float* logsumexp = nullptr;
};

template <typename T>
struct VarlenAttentionGradArgs : VarlenAttentionInputs<T> {
  const T* output = nullptr;  // this and logsumexp as VarlenAttention has written them
  const float* logsumexp = nullptr;
  const T* d_output = nullptr;  // [R, N, D]
  TensorColumn<T> d_query, d_key, d_value;
  float* d_distance_bias = nullptr;  // [N, 2 M + 1]
  // [2 R N]: the part of each sequence and head, in varlen_attention_units.h
  float* d_distance_bias_parts = nullptr;
  float* d_distance_vectors = nullptr;  // [V, 2, N, D]

  void SetQkvGradient(T* d_qkv) {
    d_query = {d_qkv, 3, 0};
    d_key = {d_qkv, 3, 1};
    d_value = {d_qkv, 3, 2};
  }
  void SetQueryKeyValueGradient(T* d_queries, T* d_key_value) {
    d_query = {d_queries, 1, 0};
    d_key = {d_key_value, 2, 0};
    d_value = {d_key_value, 2, 1};
  }
};

// Writes `output` and `logsumexp`. A score that is not finite affects its own row as in a plain
// softmax. A non-finite key or value never affects a row that does not attend to it.
template <typename T>
void VarlenAttention(const Parallel& parallel, const VarlenAttentionArgs<T>& args);

// Writes every element of `d_query`, `d_key`, `d_value` and, with a distance bias or vectors,
// `d_distance_bias` or `d_distance_vectors`. All results, of both functions, have the same bits for
// every number of threads.
template <typename T>
void VarlenAttentionGrad(const Parallel& parallel, const VarlenAttentionGradArgs<T>& args);

}  // namespace bert_tf
