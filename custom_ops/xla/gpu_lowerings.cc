// The ops with GPU kernels under XLA on a GPU (jit_compile=True).
#include <cstdint>
#include <vector>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/xla/custom_call_op.h"
#include "custom_ops/xla/gpu_platform.h"

namespace bert_tf {
namespace {

// The inputs of BertTf>VarlenAttentionGrad: d_output [R, N, D] is the first one, the row splits are
// the fifth, and the distance bias [N, 2 M + 1] may be the seventh.
int64_t AttentionScratch(const std::vector<tensorflow::TensorShape>& inputs) {
  const int64_t distances = inputs.size() > 6 ? inputs[6].dim_size(1) : 0;
  return BertTfCudaVarlenAttentionGradScratch(inputs[0].dim_size(0), inputs[0].dim_size(1),
                                              inputs[4].dim_size(0) - 1, distances);
}

// The priority is only needed in a build for tests, where the CPU also has its own lowerings.
#define BERT_TF_REGISTER(NAME, ...) \
  REGISTER_KERNEL_BUILDER(Name("BertTf>" NAME).Device(kGpuXlaDevice).Priority(1), __VA_ARGS__)
BERT_TF_REGISTER("FusedBiasGelu", CustomCallOp<>);
BERT_TF_REGISTER("FusedBiasGeluGrad", CustomCallOp<ScratchOfMatrix<BertTfCudaBiasGeluGradScratch>>);
BERT_TF_REGISTER("FusedResidualLayerNorm", CustomCallOp<>);
BERT_TF_REGISTER("FusedResidualLayerNormGrad",
                 CustomCallOp<ScratchOfMatrix<BertTfCudaResidualLayerNormGradScratch>>);
BERT_TF_REGISTER("VarlenAttention", CustomCallOp<>);
BERT_TF_REGISTER("VarlenAttentionGrad", CustomCallOp<AttentionScratch>);
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
