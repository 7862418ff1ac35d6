// BertTf>AdamWeightDecay; custom_ops/kernels/optimizer/adam_weight_decay.h has the formula.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "custom_ops/kernels/optimizer/adam_weight_decay.h"
#include "custom_ops/ops/shape_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;
using tensorflow::shape_inference::InferenceContext;

// The inputs of the op in order.
enum Input {
  kVariable,
  kMean,
  kSquare,
  kGradient,
  kLearningRate,
  kGradientScale,
  kWeightDecay,
  kSteps,
};
constexpr int kResources = 3;

class AdamWeightDecayOp : public OpKernel {
 public:
  explicit AdamWeightDecayOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("beta_1", &beta_1_));
    OP_REQUIRES_OK(context, context->GetAttr("beta_2", &beta_2_));
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Compute(OpKernelContext* context) override {
    std::array<RefCountPtr<Var>, kResources> variables;
    std::array<decltype(std::declval<Var&>().mu()), kResources> mutexes;
    for (int i = 0; i < kResources; ++i) {
      OP_REQUIRES_OK(context, tensorflow::LookupResource(
                                  context, tensorflow::HandleFromInput(context, i), &variables[i]));
      mutexes[i] = variables[i]->mu();
    }
    // The mutexes are locked in the order of their addresses, as in TensorFlow's ops.
    std::sort(mutexes.begin(), mutexes.end());
    OP_REQUIRES(context, mutexes[0] != mutexes[1] && mutexes[1] != mutexes[2],
                InvalidArgument("`variable`, `mean` and `square` must be different variables."));
    tensorflow::mutex_lock lock_0(*mutexes[0]);
    tensorflow::mutex_lock lock_1(*mutexes[1]);
    tensorflow::mutex_lock lock_2(*mutexes[2]);

    const Tensor& gradient = context->input(kGradient);
    for (int i = kLearningRate; i <= kSteps; ++i) {
      OP_REQUIRES(context, context->input(i).NumElements() == 1,
                  InvalidArgument("The inputs after `gradient` must be scalars. Received: input ",
                                  i, " of shape ", context->input(i).shape().DebugString()));
    }
    const TensorFlowParallel parallel(context->device()->tensorflow_cpu_worker_threads()->workers);
    std::array<float*, kResources> data;
    for (int i = 0; i < kResources; ++i) {
      Tensor* const tensor = variables[i]->tensor();
      OP_REQUIRES(context, variables[i]->is_initialized && tensor->IsInitialized(),
                  InvalidArgument("The variables must be initialized. Received: variable ", i,
                                  " without a value"));
      OP_REQUIRES(context,
                  tensor->dtype() == tensorflow::DT_FLOAT && tensor->shape() == gradient.shape(),
                  InvalidArgument("The variables must be float32 of the shape of `gradient`, ",
                                  gradient.shape().DebugString(), ". Received: variable ", i,
                                  " of shape ", tensor->shape().DebugString()));
      OP_REQUIRES_OK(context, OwnBuffer(context, parallel, variables[i].get()));
      data[i] = tensor->flat<float>().data();
    }
    const float learning_rate = Scalar(context, kLearningRate);
    const float correction = AdamBiasCorrection(beta_1_, beta_2_, Scalar(context, kSteps));
    AdamWeightDecay(parallel,
                    AdamWeightDecayArgs{gradient.flat<float>().data(), gradient.NumElements(),
                                        Scalar(context, kGradientScale), beta_1_, beta_2_, epsilon_,
                                        learning_rate * correction,
                                        learning_rate * Scalar(context, kWeightDecay),
                                        data[kVariable], data[kMean], data[kSquare]});
  }

 private:
  static float Scalar(OpKernelContext* context, int index) {
    return context->input(index).flat<float>()(0);
  }

  // A tensor that was read from the variable and is still in use shares its buffer. In that case,
  // the variable gets a new buffer.
  static absl::Status OwnBuffer(OpKernelContext* context, const TensorFlowParallel& parallel,
                                Var* variable) {
    Tensor* const tensor = variable->tensor();
    if (tensor->RefCountIsOne() && !variable->copy_on_read_mode.load()) return absl::OkStatus();
    Tensor copy;
    TF_RETURN_IF_ERROR(context->allocate_temp(tensor->dtype(), tensor->shape(), &copy));
    const float* const from = tensor->flat<float>().data();
    float* const to = copy.flat<float>().data();
    parallel.For(tensor->NumElements(), 1, [from, to](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, (end - begin) * sizeof(float));
    });
    *tensor = copy;
    return absl::OkStatus();
  }

  float beta_1_;
  float beta_2_;
  float epsilon_;
};

REGISTER_OP("BertTf>AdamWeightDecay")
    .Attr("beta_1: float")
    .Attr("beta_2: float")
    .Attr("epsilon: float")
    .Input("variable: resource")
    .Input("mean: resource")
    .Input("square: resource")
    .Input("gradient: float")
    .Input("learning_rate: float")
    .Input("gradient_scale: float")
    .Input("weight_decay: float")
    .Input("steps: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return absl::OkStatus(); });

REGISTER_KERNEL_BUILDER(Name("BertTf>AdamWeightDecay").Device(tensorflow::DEVICE_CPU),
                        AdamWeightDecayOp);

}  // namespace
}  // namespace bert_tf
