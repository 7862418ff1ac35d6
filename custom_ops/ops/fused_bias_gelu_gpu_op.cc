// BertTf>FusedBiasGelu and its gradient on a GPU; fused_bias_gelu_op.cc registers the ops.
#include "custom_ops/ops/fused_bias_gelu_op.h"
#include "custom_ops/ops/gpu_util.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;

template <typename Type>
struct Gpu {
  using T = void;

  static absl::Status Run(OpKernelContext* context, const BiasGeluArgs<void>& args) {
    return LaunchStatus("fused_bias_gelu",
                        BertTfCudaBiasGelu(kCudaType<Type>, args, GpuStream(context)));
  }

  static absl::Status Run(OpKernelContext* context, const BiasGeluGradArgs<void>& args) {
    return LaunchStatus("the gradient of fused_bias_gelu",
                        BertTfCudaBiasGeluGrad(kCudaType<Type>, args, GpuStream(context)));
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BertTfCudaBiasGeluGradScratch(rows, columns);
  }
};

BERT_TF_REGISTER("FusedBiasGelu", kGpuDevice, kGpuPriority, FusedBiasGeluOp, Gpu);
BERT_TF_REGISTER("FusedBiasGeluGrad", kGpuDevice, kGpuPriority, FusedBiasGeluGradOp, Gpu);

}  // namespace
}  // namespace bert_tf
