// varlen_attention in 8-bit integers, on the CPU, only forward and without dropout.
//
// Queries, keys and values are quantized when the op runs, per sequence and head:
//
//   mean[d] = mean over the keys j of the sequence of k[j, d]
//   q[i, d] ~ a_scale[i] * (a[i, d] - a_zero[i]),  a, a_zero in [0, 255], as x in quantized_dense.h
//   k[j, d] - mean[d] ~ b_scale[j] * b[j, d],      b in [-127, 127], b_scale[j] = max_d |..| / 127
//   v[j, d] ~ c_scale[d] * c[j, d],                c in [-127, 127], c_scale[d] = max_j |..| / 127
//   s[i, j] = a_scale[i] * b_scale[j] / sqrt(D) * sum_d (a[i, d] - a_zero[i]) b[j, d] + bias[i - j]
//   p[i, j] = round(255 * e^(s[i, j] - max_j s[i, j])), in [0, 255]
//   out[i, d] = c_scale[d] * (sum_j p[i, j] c[j, d]) / sum_j p[i, j]
//
// where j are the tokens to which i may attend. Subtracting the mean changes all scores of a query
// by the same number, and therefore not the softmax; it removes what all keys have in common, which
// would take most of the 8 bits (SageAttention, Zhang et al., arXiv 2410.02367). The sums of
// products are exact in int32. The weights p / sum p of a query have the sum 1.
//
// A query that is not finite gives NaN in its own row. A key or value that is not finite gives NaN
// in the rows of its sequence and head, also if a mask hides it; so does a distance bias that is
// not finite, in its head.
//
// Glossary: B sequences, T length of a sequence, R rows of all sequences, N heads, D head size.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/attention/varlen_attention_units.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

constexpr int64_t kQuantizedAttentionLength = 65536;  // 65536 * 255 * 127 < 2^31

// Writes `output`. T is float, BFloat16 or Float16; what is not an integer is computed in float32.
// It is self-attention (SetQkv). No sequence is longer than kQuantizedAttentionLength. There is no
// dropout.
template <typename T>
void QuantizedAttention(const Parallel& parallel, const VarlenAttentionArgs<T>& args);

// A unit is a block of kQuantizedAttentionQueries queries of one head.
constexpr int64_t kQuantizedAttentionQueries = 512;
BERT_TF_DECLARE_FOR_ISAS(template <typename T>
                         void QuantizedAttentionUnits(const VarlenAttentionArgs<T>& args,
                                                      const AttentionUnit* units, int64_t count,
                                                      ByteInstructions instructions);)

}  // namespace bert_tf
