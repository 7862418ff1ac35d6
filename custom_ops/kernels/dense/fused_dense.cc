#include "custom_ops/kernels/dense/fused_dense.h"

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t PackedDenseSize(int64_t depth, int64_t columns) {
  return SizeProduct(depth, RoundUpSize(columns, kDensePanel));
}

BERT_TF_SELECT_COPY(PackDense, PackDenseArgs)
BERT_TF_SELECT_COPY(FusedDense, FusedDenseArgs)

}  // namespace bert_tf
