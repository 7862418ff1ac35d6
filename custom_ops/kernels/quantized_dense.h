// epilogue(x W) in 8-bit integers, on the CPU: W quantized once, x row by row on the fly.
//
// W [depth, columns] is symmetric, a scale a column; x [rows, depth] is asymmetric, a scale and a
// zero point a row, because after GELU nearly everything is on one side of zero:
//
//   smoothing[k] * x[i, k] ~ row_scale[i] * (u[i, k] - zero[i]),  u, zero in [0, 255]
//   w[k, j] / smoothing[k] = column_scale[j] * v[k, j],           v in [-127, 127]
//   z[i, j] = row_scale[i] * column_scale[j] * (sum_k u[i, k] v[k, j] - zero[i] sum_k v[k, j])
//             + bias[j]
//   y = z | gelu(z) | z + residual | LayerNorm(z + residual)
//
// with s[k] = smoothing[k] * x[k] in float32 and, over a row of them and zero, least <= 0 <=
// largest, in float64 but for the last line,
//
//   step = (largest - least) / 255,  row_scale = float32(step),  zero = round(-least / step)
//   u[k] = clamp(round(s[k] * float32(1 / step)) + zero, 0, 255)
//
// and rounding to nearest even. Smoothing moves what is large in a column of x into W (SmoothQuant,
// arXiv 2211.10438); ones where there is none. The bracket is exact in int32 for depths up to
// kQuantizedDenseDepth; every instruction set computes the same integers. A row whose numbers span
// less than kSmallestSpan counts as zeros. A row with an infinity or a NaN comes out as NaN.
//
// v lies packed in panels of kDensePanel columns, each [depth / 4][kDensePanel][4], as VNNI's
// vpdpbusd reads it; depth and columns are filled up with zeros. The layout is the same for every
// instruction set.
//
// Without VNNI the products are sums of two int16 products in int32 (vpmaddwd): vpmaddubsw, which
// takes bytes, would saturate.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_QUANTIZED_DENSE_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_QUANTIZED_DENSE_H_

#include <cstdint>

#include "custom_ops/kernels/fused_dense.h"
#include "custom_ops/kernels/parallel.h"

namespace bert_tf {

constexpr int64_t kQuantizedDenseDepth = 65536;  // 65536 * 255 * 127 < 2^31
constexpr float kSmallestSpan = 0x1p-100f;       // so that 1 / step is a normal float32

// As FusedDenseArgs.
template <typename T>
struct QuantizedDenseArgs {
  const T* x;                  // [rows, depth]
  const int8_t* packed;        // v, PackedQuantizedDenseSize(depth, columns)
  const float* column_scale;   // [columns]
  const int32_t* column_sums;  // [columns], sum_k v[k, j]
  const float* smoothing;      // [depth]
  const T* bias;               // [columns] or null
  DenseActivation activation;
  const T* residual;  // [rows, columns] or null
  const T* gamma;     // [columns] or null
  const T* beta;      // [columns] or null, with gamma
  float epsilon;
  int64_t rows;
  int64_t depth;  // at most kQuantizedDenseDepth
  int64_t columns;
  T* y;  // [rows, columns]; may be residual, not x
};

// sizes.h: kTooLarge where no buffer holds it.
int64_t PackedQuantizedDenseSize(int64_t depth, int64_t columns);

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args);

// The copies for each instruction set (isa.h); only tests call them directly. `has_vnni` is looked
// at by the AVX-512 one alone.
#define BERT_TF_DECLARE_QUANTIZED_DENSE(isa)                                                       \
  namespace isa {                                                                                  \
  template <typename T>                                                                            \
  void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args, bool has_vnni); \
  }
BERT_TF_DECLARE_QUANTIZED_DENSE(portable)
BERT_TF_DECLARE_QUANTIZED_DENSE(avx2)
BERT_TF_DECLARE_QUANTIZED_DENSE(avx512)
#undef BERT_TF_DECLARE_QUANTIZED_DENSE

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_QUANTIZED_DENSE_H_
