#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t ResidualLayerNormGradScratchSize(int64_t rows, int64_t columns) {
  return SizeProduct(portable::NumRowBlocks(rows) * 3, columns);  // dgamma, dbeta, dbias
}

template <typename T>
void FusedResidualLayerNorm(const Parallel& parallel, const ResidualLayerNormArgs<T>& args) {
  BERT_TF_DISPATCH(FusedResidualLayerNorm, parallel, args);
}

template <typename T>
void FusedResidualLayerNormGrad(const Parallel& parallel,
                                const ResidualLayerNormGradArgs<T>& args) {
  BERT_TF_DISPATCH(FusedResidualLayerNormGrad, parallel, args);
}

#define BERT_TF_INSTANTIATE(T)                                                               \
  template void FusedResidualLayerNorm<T>(const Parallel&, const ResidualLayerNormArgs<T>&); \
  template void FusedResidualLayerNormGrad<T>(const Parallel&, const ResidualLayerNormGradArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(BFloat16)
BERT_TF_INSTANTIATE(Float16)
#undef BERT_TF_INSTANTIATE

}  // namespace bert_tf
