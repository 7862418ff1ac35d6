// The arguments of the kernels from a call of an op, in the same way for OpKernels and for XLA's
// foreign functions, and for CPU and GPU. T is the element type of the kernels, or Gpu for the
// launchers of a GPU, which take the type as a number.
//
// Bind sets the arguments from an OpCall. Inputs, outputs and attributes have the names of the op's
// definition, and their order does not matter. The shape function of the op has checked the shapes
// before.
#pragma once

#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/attention_op_args.h"
#include "custom_ops/ops/row_op_args.h"

namespace bert_tf {

// Sets all arguments of a kernel.
template <typename Call, typename Args>
absl::Status BindAll(Call* call, Args* args) {
  const absl::Status status = Bind(call, args);
  return status.ok() ? call->AllBound() : status;
}

// The status of a launch from what a launcher returns: 0 or an error, or a status.
inline absl::Status StatusOf(absl::string_view op, int error) {
  if (error == 0) return absl::OkStatus();
  const absl::string_view why = BertTfCudaError();
  return absl::InternalError(absl::StrCat(
      "The GPU kernel of ", op, " was not launched: ", why.empty() ? "invalid arguments" : why,
      ". BERT_TF_OPS=reference computes the same with stock TensorFlow."));
}
inline absl::Status StatusOf(absl::string_view, const absl::Status& status) { return status; }

// Calls the launcher of a GPU kernel for tensors of the kernels' type T.
template <typename Args, typename T, typename Launcher, typename Call>
absl::Status Launch(absl::string_view op, Launcher launcher, Call* call, void* stream) {
  Args args;
  const absl::Status status = BindAll(call, &args);
  if (!status.ok()) return status;
  constexpr int kType = std::is_same_v<T, BFloat16>  ? kBertTfBFloat16
                        : std::is_same_v<T, Float16> ? kBertTfFloat16
                                                     : kBertTfFloat32;
  return StatusOf(op, launcher(kType, args, stream));
}

}  // namespace bert_tf
