#include "custom_ops/kernels/dense/quantized_dense.h"

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t PackedQuantizedDenseSize(int64_t depth, int64_t columns) {
  return SizeProduct(RoundUpSize(depth, 4), RoundUpSize(columns, kDensePanel));
}

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args) {
  BERT_TF_DISPATCH(QuantizedDense, parallel, args, HasVnni());
}

#define BERT_TF_INSTANTIATE(T) \
  template void QuantizedDense<T>(const Parallel&, const QuantizedDenseArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(BFloat16)
BERT_TF_INSTANTIATE(Float16)
#undef BERT_TF_INSTANTIATE

}  // namespace bert_tf
