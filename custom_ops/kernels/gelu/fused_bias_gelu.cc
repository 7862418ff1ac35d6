#include "custom_ops/kernels/gelu/fused_bias_gelu.h"

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

int64_t BiasGeluGradScratchSize(int64_t rows, int64_t columns) {
  return SizeProduct(portable::NumRowBlocks(rows), columns);
}

template <typename T>
void FusedBiasGelu(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  BERT_TF_DISPATCH(FusedBiasGelu, parallel, args);
}

template <typename T>
void FusedBiasGeluGrad(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  BERT_TF_DISPATCH(FusedBiasGeluGrad, parallel, args);
}

#define BERT_TF_INSTANTIATE(T)                                             \
  template void FusedBiasGelu<T>(const Parallel&, const BiasGeluArgs<T>&); \
  template void FusedBiasGeluGrad<T>(const Parallel&, const BiasGeluGradArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(BFloat16)
BERT_TF_INSTANTIATE(Float16)
#undef BERT_TF_INSTANTIATE

}  // namespace bert_tf
