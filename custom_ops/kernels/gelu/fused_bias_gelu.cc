#include "custom_ops/kernels/gelu/fused_bias_gelu.h"

#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t BiasGeluGradScratchSize(int64_t rows, int64_t columns) {
  return SizeProduct(portable::NumRowBlocks(rows), columns);
}

BERT_TF_SELECT_COPY(FusedBiasGelu, BiasGeluArgs)
BERT_TF_SELECT_COPY(FusedBiasGeluGrad, BiasGeluGradArgs)

}  // namespace bert_tf
