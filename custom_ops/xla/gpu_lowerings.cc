// The ops with GPU kernels under XLA on a GPU (jit_compile=True).
#include <cstdint>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/xla/custom_call_op.h"
#include "custom_ops/xla/gpu_platform.h"

namespace bert_tf {
namespace {

// d_output is [R, N, D].
int64_t AttentionScratch(const tensorflow::TensorShape& d_output) {
  return BertTfCudaVarlenAttentionGradScratch(d_output.dim_size(0), d_output.dim_size(1));
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
