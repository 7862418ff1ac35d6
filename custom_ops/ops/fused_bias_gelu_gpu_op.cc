// BertTf>FusedBiasGelu and its gradient on a GPU; fused_bias_gelu_op.cc registers the ops.
#include "custom_ops/ops/fused_bias_gelu_op.h"
#include "custom_ops/ops/gpu_util.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;

// `type` is the element type, a BertTfCudaType.
template <int type>
struct Gpu {
  static absl::Status Run(OpKernelContext* context, const BiasGeluArgs<void>& args) {
    return LaunchStatus("fused_bias_gelu",
                        BertTfCudaBiasGelu(type, args.x, args.bias, args.rows, args.columns,
                                           args.approximate, args.y, GpuStream(context)));
  }

  static absl::Status Run(OpKernelContext* context, const BiasGeluGradArgs<void>& args) {
    return LaunchStatus("the gradient of fused_bias_gelu",
                        BertTfCudaBiasGeluGrad(type, args.dy, args.x, args.bias, args.rows,
                                               args.columns, args.approximate, args.dx, args.dbias,
                                               args.scratch, GpuStream(context)));
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BertTfCudaBiasGeluGradScratch(rows, columns);
  }
};

#define BERT_TF_REGISTER(T)                                          \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedBiasGelu")               \
                              .Device(kGpuDevice)                    \
                              .Priority(kGpuPriority)                \
                              .TypeConstraint<T>("T"),               \
                          FusedBiasGeluOp<void, Gpu<kCudaType<T>>>); \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedBiasGeluGrad")           \
                              .Device(kGpuDevice)                    \
                              .Priority(kGpuPriority)                \
                              .TypeConstraint<T>("T"),               \
                          FusedBiasGeluGradOp<void, Gpu<kCudaType<T>>>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
