// BertTf>AdamWeightDecay and BertTf>GlobalNorm;
// custom_ops/kernels/optimizer/adam_weight_decay.h has the formulas.
#include "custom_ops/ops/adam_weight_decay_op.h"

#include <vector>

#include "custom_ops/kernels/optimizer/adam_weight_decay.h"
#include "custom_ops/ops/shape_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

class CpuAdamWeightDecayOp : public AdamWeightDecayOp {
 public:
  using AdamWeightDecayOp::AdamWeightDecayOp;

 protected:
  absl::Status Update(tensorflow::OpKernelContext* context,
                      OpCall<VariablesCall>* call) const override {
    AdamWeightDecayArgs args;
    TF_RETURN_IF_ERROR(BindAll(call, &args));
    AdamWeightDecay(TensorFlowParallel(context->device()->tensorflow_cpu_worker_threads()->workers),
                    args);
    return absl::OkStatus();
  }
};

// The OpKernels and lowerings compare the shapes of the variables with those of the gradients.
absl::Status AdamWeightDecayShape(InferenceContext* c) {
  int count;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &count));
  std::vector<ShapeHandle> gradients;
  TF_RETURN_IF_ERROR(c->input("gradients", &gradients));
  if (static_cast<int>(gradients.size()) != count) {
    return InvalidArgument("`gradients` must have one tensor for each variable, ", count,
                           ". Received: ", gradients.size(), " tensors");
  }
  for (const char* name : {"learning_rates", "weight_decays"}) {
    ShapeHandle shape = c->Vector(count);
    TF_RETURN_IF_ERROR(MergeShape(c, name, &shape));
  }
  for (const char* name : {"gradient_scale", "steps"}) {
    ShapeHandle shape = c->Scalar();
    TF_RETURN_IF_ERROR(MergeShape(c, name, &shape));
  }
  return absl::OkStatus();
}

REGISTER_OP("BertTf>AdamWeightDecay")
    .Attr("N: int >= 1")
    .Attr("T: list({float, bfloat16, half}) >= 1")
    .Attr("beta_1: float")
    .Attr("beta_2: float")
    .Attr("epsilon: float")
    .Input("variables: N * resource")
    .Input("means: N * resource")
    .Input("squares: N * resource")
    .Input("gradients: T")
    .Input("learning_rates: float")
    .Input("weight_decays: float")
    .Input("gradient_scale: float")
    .Input("steps: float")
    .SetIsStateful()
    .SetShapeFn(AdamWeightDecayShape);

REGISTER_OP("BertTf>GlobalNorm")
    .Attr("T: list({float, bfloat16, half}) >= 1")
    .Input("tensors: T")
    .Output("norm: float")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("BertTf>AdamWeightDecay").Device(tensorflow::DEVICE_CPU),
                        CpuAdamWeightDecayOp);
REGISTER_KERNEL_BUILDER(Name("BertTf>GlobalNorm").Device(tensorflow::DEVICE_CPU),
                        CpuOp<GlobalNormArgs, GlobalNorm>);

}  // namespace
}  // namespace bert_tf
