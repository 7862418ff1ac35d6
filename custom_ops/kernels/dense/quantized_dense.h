// epilogue(x W) in 8-bit integers, on the CPU. W is quantized once, and x when the op runs.
//
// W [depth, columns] is quantized symmetrically with one scale per column. x [rows, depth] is
// quantized asymmetrically with one scale and one zero point per row, because after GELU nearly all
// numbers are on one side of zero:
//
//   smoothing[k] * x[i, k] ~ row_scale[i] * (u[i, k] - zero[i]),  u, zero in [0, 255]
//   w[k, j] / smoothing[k] = column_scale[j] * v[k, j],           v in [-127, 127]
//   z[i, j] = row_scale[i] * column_scale[j] * (sum_k u[i, k] v[k, j] - zero[i] sum_k v[k, j])
//             + bias[j]
//   y = activation(z) | activation(first half of z) * second half
//     | z + residual | LayerNorm(z + residual)
//
// With s[k] = smoothing[k] * x[k] in float32, and with least <= 0 <= largest over zero and all s[k]
// of a row, in float64 except for the last line:
//
//   step = (largest - least) / 255,  row_scale = float32(step),  zero = round(-least / step)
//   u[k] = clamp(round(s[k] * float32(1 / step)) + zero, 0, 255)
//
// Or, with a static scale, row_scale = static_scale[0] and zero = static_scale[1] for every row,
// and u[k] = clamp(round(s[k] * (1 / row_scale)) + zero, 0, 255) in float32, so that numbers
// outside of the range of the bytes are clamped.
//
// Rounding is to nearest even. Smoothing moves large values of a column of x into W (SmoothQuant,
// arXiv 2211.10438); its factors are ones if it is not used. The expression in parentheses is exact
// in int32 for depths up to kQuantizedDenseDepth, and every instruction set computes the same
// integers. A row whose span is less than kSmallestSpan is treated as zeros. The result of a row
// with an infinity or a NaN is NaN.
//
// v is prepacked in panels of kDensePanel columns with the layout [depth / 4][kDensePanel][4], as
// VNNI's vpdpbusd and ARM's sdot read it. The depth and the columns are padded with zeros. The
// layout is the same for every instruction set.
//
// Without an instruction for four products of bytes, int16 products are summed in int32 (vpmaddwd,
// smlal), because x86's vpmaddubsw, which multiplies bytes, would saturate. AVX2 uses it for
// numbers that are small enough (byte_pairs.h).
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"
#include "custom_ops/kernels/dense/fused_dense.h"

namespace bert_tf {

constexpr int64_t kQuantizedDenseDepth = 65536;  // 65536 * 255 * 127 < 2^31
constexpr float kSmallestSpan = 0x1p-100f;       // so that 1 / step is a normal float32

// The depth is at most kQuantizedDenseDepth.
template <typename T>
struct QuantizedDenseArgs : DenseArgs<T> {
  const int8_t* packed = nullptr;        // v, PackedQuantizedDenseSize(depth, columns)
  const float* column_scale = nullptr;   // [columns]
  const int32_t* column_sums = nullptr;  // [columns], sum_k v[k, j]
  const float* smoothing = nullptr;      // [depth]
  const float* static_scale = nullptr;  // [2], a positive scale and an integral zero point, or null
};

// The number of elements, or kTooLarge (sizes.h).
int64_t PackedQuantizedDenseSize(int64_t depth, int64_t columns);

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args);

// Two layers: the result of `first` is the x of `second`, which has LayerNorm and as many rows.
// `first.y` and `second.x` are not used.
template <typename T>
struct QuantizedFeedForwardArgs {
  QuantizedDenseArgs<T> first;
  QuantizedDenseArgs<T> second;
};

// Computes both layers with the bits of two calls of QuantizedDense, in blocks of rows whose result
// of `first` stays in the second-level cache: in bytes if `second` has a static scale.
template <typename T>
void QuantizedFeedForward(const Parallel& parallel, const QuantizedFeedForwardArgs<T>& args);

BERT_TF_DECLARE_FOR_ISAS(template <typename T>
                         void QuantizedDense(const Parallel&, const QuantizedDenseArgs<T>&,
                                             ByteInstructions);
                         template <typename T>
                         void QuantizedFeedForward(const Parallel&,
                                                   const QuantizedFeedForwardArgs<T>&,
                                                   ByteInstructions);)

}  // namespace bert_tf
