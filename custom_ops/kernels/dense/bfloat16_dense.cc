#include "custom_ops/kernels/dense/bfloat16_dense.h"

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t PackedBfloat16DenseSize(int64_t depth, int64_t columns) {
  return SizeProduct(RoundUpSize(depth, 2), RoundUpSize(columns, kDensePanel));
}

namespace {

Bfloat16Instructions Instructions() {
  return HasAmx()        ? Bfloat16Instructions::kAmx
         : HasBfloat16() ? Bfloat16Instructions::kAvx512
                         : Bfloat16Instructions::kNone;
}

}  // namespace

template <>
void PackDense<BFloat16>(const Parallel& parallel, const PackDenseArgs<BFloat16>& args) {
  BERT_TF_DISPATCH(PackBfloat16Dense, parallel, args);
}

template <typename T>
void Bfloat16Dense(const Parallel& parallel, const Bfloat16DenseArgs<T>& args) {
  BERT_TF_DISPATCH(Bfloat16Dense, parallel, args, Instructions());
}

template <typename T>
void Bfloat16FeedForward(const Parallel& parallel, const Bfloat16FeedForwardArgs<T>& args) {
  BERT_TF_DISPATCH(Bfloat16FeedForward, parallel, args, Instructions());
}

BERT_TF_INSTANTIATE_KERNEL(Bfloat16Dense, Bfloat16DenseArgs)
BERT_TF_INSTANTIATE_KERNEL(Bfloat16FeedForward, Bfloat16FeedForwardArgs)

}  // namespace bert_tf
