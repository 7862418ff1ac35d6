#include "custom_ops/kernels/dense/fused_dense.h"

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t PackedDenseSize(int64_t depth, int64_t columns) {
  return SizeProduct(depth, RoundUpSize(columns, kDensePanel));
}

template <typename T>
void PackDense(const Parallel& parallel, const PackDenseArgs<T>& args) {
  BERT_TF_DISPATCH(PackDense, parallel, args);
}

template <typename T>
void FusedDense(const Parallel& parallel, const FusedDenseArgs<T>& args) {
  BERT_TF_DISPATCH(FusedDense, parallel, args);
}

#define BERT_TF_INSTANTIATE(T)                                          \
  template void PackDense<T>(const Parallel&, const PackDenseArgs<T>&); \
  template void FusedDense<T>(const Parallel&, const FusedDenseArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(Float16)

}  // namespace bert_tf
