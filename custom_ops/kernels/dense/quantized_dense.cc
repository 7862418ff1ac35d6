#include "custom_ops/kernels/dense/quantized_dense.h"

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t PackedQuantizedDenseSize(int64_t depth, int64_t columns) {
  return SizeProduct(RoundUpSize(depth, 4), RoundUpSize(columns, kDensePanel));
}

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args) {
  BERT_TF_DISPATCH(QuantizedDense, parallel, args, BestByteInstructions());
}

template <typename T>
void QuantizedFeedForward(const Parallel& parallel, const QuantizedFeedForwardArgs<T>& args) {
  BERT_TF_DISPATCH(QuantizedFeedForward, parallel, args, BestByteInstructions());
}

BERT_TF_INSTANTIATE_KERNEL(QuantizedDense, QuantizedDenseArgs)
BERT_TF_INSTANTIATE_KERNEL(QuantizedFeedForward, QuantizedFeedForwardArgs)

}  // namespace bert_tf
