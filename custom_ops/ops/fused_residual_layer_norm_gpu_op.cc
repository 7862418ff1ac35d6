// BertTf>FusedResidualLayerNorm and its gradient on a GPU; fused_residual_layer_norm_op.cc
// registers the ops.
#include "custom_ops/ops/fused_residual_layer_norm_op.h"
#include "custom_ops/ops/gpu_util.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;

template <typename Type>
struct Gpu {
  using T = void;

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormArgs<void>& args) {
    return LaunchStatus("fused_residual_layer_norm",
                        BertTfCudaResidualLayerNorm(kCudaType<Type>, args, GpuStream(context)));
  }

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormGradArgs<void>& args) {
    return LaunchStatus("the gradient of fused_residual_layer_norm",
                        BertTfCudaResidualLayerNormGrad(kCudaType<Type>, args, GpuStream(context)));
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BertTfCudaResidualLayerNormGradScratch(rows, columns);
  }
};

BERT_TF_REGISTER("FusedResidualLayerNorm", kGpuDevice, kGpuPriority, FusedResidualLayerNormOp, Gpu);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", kGpuDevice, kGpuPriority,
                 FusedResidualLayerNormGradOp, Gpu);

}  // namespace
}  // namespace bert_tf
