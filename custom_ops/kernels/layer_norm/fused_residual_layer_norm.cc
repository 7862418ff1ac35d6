#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"

#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t ResidualLayerNormGradScratchSize(int64_t rows, int64_t columns) {
  return SizeProduct(portable::NumRowBlocks(rows) * 3, columns);  // dgamma, dbeta, dbias
}

BERT_TF_SELECT_COPY(FusedResidualLayerNorm, ResidualLayerNormArgs)
BERT_TF_SELECT_COPY(FusedResidualLayerNormGrad, ResidualLayerNormGradArgs)

}  // namespace bert_tf
