#include "custom_ops/kernels/dense/quantized_dense.h"

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t PackedQuantizedDenseSize(int64_t depth, int64_t columns) {
  return SizeProduct(RoundUpSize(depth, 4), RoundUpSize(columns, kDensePanel));
}

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args) {
  BERT_TF_DISPATCH(QuantizedDense, parallel, args, HasVnni());
}

template <typename T>
void QuantizedFeedForward(const Parallel& parallel, const QuantizedDenseArgs<T>& first,
                          const QuantizedDenseArgs<T>& second) {
  BERT_TF_DISPATCH(QuantizedFeedForward, parallel, first, second, HasVnni());
}

BERT_TF_INSTANTIATE_KERNEL(QuantizedDense, QuantizedDenseArgs)

#define BERT_TF_INSTANTIATE(T)                                                         \
  template void QuantizedFeedForward<T>(const Parallel&, const QuantizedDenseArgs<T>&, \
                                        const QuantizedDenseArgs<T>&);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf
