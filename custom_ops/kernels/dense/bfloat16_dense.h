// epilogue(x W) with W in bfloat16, on the CPU: half the memory of float32 and, where the processor
// has AVX512-BF16, twice its speed.
//
//   z = bfloat16(x) W + bias
//   y = activation(z) | activation(first half of z) * second half
//     | z + residual | LayerNorm(z + residual)
//
// Numbers of x are rounded to bfloat16, to nearest even, when the op runs. Products are exact in
// float32, and the sums and all else are float32, as bfloat16_products.h describes it: the bits do
// not depend on the processor (except with AMX: amx_products.h), and those of a row of y depend
// neither on the other rows nor on the number of threads. Subnormal numbers may count as zeros.
//
// W is prepacked in panels of kDensePanel columns with the layout [depth / 2][kDensePanel][2], as
// vdpbf16ps reads it. The depth and the columns are padded with zeros. The layout is the same for
// every instruction set.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"
#include "custom_ops/kernels/dense/fused_dense.h"

namespace bert_tf {

template <typename T>
struct Bfloat16DenseArgs : DenseArgs<T> {
  const BFloat16* packed = nullptr;  // W, prepacked by PackDense<BFloat16>
};

// Two layers: the result of `first` is the x of `second`, which has LayerNorm and as many rows.
// `first.y` and `second.x` are not used.
template <typename T>
struct Bfloat16FeedForwardArgs {
  Bfloat16DenseArgs<T> first;
  Bfloat16DenseArgs<T> second;
};

// The number of elements, or kTooLarge (sizes.h).
int64_t PackedBfloat16DenseSize(int64_t depth, int64_t columns);

template <>
void PackDense<BFloat16>(const Parallel& parallel, const PackDenseArgs<BFloat16>& args);

template <typename T>
void Bfloat16Dense(const Parallel& parallel, const Bfloat16DenseArgs<T>& args);

// Computes both layers with the bits of two calls of Bfloat16Dense, in blocks of rows whose result
// of `first` stays in the second-level cache.
template <typename T>
void Bfloat16FeedForward(const Parallel& parallel, const Bfloat16FeedForwardArgs<T>& args);

// The instructions that multiply; the copies for other instruction sets than AVX-512 have kNone.
enum class Bfloat16Instructions { kNone, kAvx512, kAmx };

BERT_TF_DECLARE_FOR_ISAS(
    void PackBfloat16Dense(const Parallel&, const PackDenseArgs<BFloat16>&); template <typename T>
    void Bfloat16Dense(const Parallel&, const Bfloat16DenseArgs<T>&, Bfloat16Instructions);
    template <typename T>
    void Bfloat16FeedForward(const Parallel&, const Bfloat16FeedForwardArgs<T>&,
                             Bfloat16Instructions);)

}  // namespace bert_tf
