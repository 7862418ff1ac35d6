// BertTf>FusedResidualLayerNorm and its gradient on a GPU; fused_residual_layer_norm_op.cc
// registers the ops.
#include "custom_ops/ops/fused_residual_layer_norm_op.h"
#include "custom_ops/ops/gpu_util.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;

// `type` is the element type, a BertTfCudaType.
template <int type>
struct Gpu {
  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormArgs<void>& args) {
    return LaunchStatus(
        "fused_residual_layer_norm",
        BertTfCudaResidualLayerNorm(type, args.x, args.residual, args.bias, args.gamma, args.beta,
                                    args.rows, args.columns, args.epsilon, args.dropout_rate,
                                    args.seed, args.y, args.mean, args.rstd, GpuStream(context)));
  }

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormGradArgs<void>& args) {
    return LaunchStatus(
        "the gradient of fused_residual_layer_norm",
        BertTfCudaResidualLayerNormGrad(
            type, args.dy, args.x, args.residual, args.bias, args.gamma, args.mean, args.rstd,
            args.rows, args.columns, args.dropout_rate, args.seed, args.dx, args.dresidual,
            args.dbias, args.dgamma, args.dbeta, args.scratch, GpuStream(context)));
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BertTfCudaResidualLayerNormGradScratch(rows, columns);
  }
};

#define BERT_TF_REGISTER(T)                                                   \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedResidualLayerNorm")               \
                              .Device(kGpuDevice)                             \
                              .Priority(kGpuPriority)                         \
                              .TypeConstraint<T>("T"),                        \
                          FusedResidualLayerNormOp<void, Gpu<kCudaType<T>>>); \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedResidualLayerNormGrad")           \
                              .Device(kGpuDevice)                             \
                              .Priority(kGpuPriority)                         \
                              .TypeConstraint<T>("T"),                        \
                          FusedResidualLayerNormGradOp<void, Gpu<kCudaType<T>>>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
