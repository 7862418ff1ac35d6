// Attention on a GPU: by cuDNN if it computes such a call (cudnn_attention.h), otherwise by our
// kernels. OpKernels and XLA's foreign functions call the same function. The emulation of a GPU,
// BERT_TF_EMULATED_GPU, has only our kernels.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/attention/cudnn_attention.h"
#include "custom_ops/ops/op_args.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/util/determinism.h"

namespace bert_tf {

// Lets cuDNN compute a call. If it does not, `why_not` says why.
inline absl::Status TryCudnn(int type, const CudaAttentionInputs& args, const CudnnTensors& tensors,
                             const GpuResources& resources, bool* is_done, std::string* why_not) {
  switch (BertTfCudaCudnnAttention(type, args, tensors, resources, why_not)) {
    case kCudnnDone:
      *is_done = true;
      return absl::OkStatus();
    case kCudnnFailed:
      return absl::InternalError(
          absl::StrCat("Attention by cuDNN failed: ", *why_not,
                       ". Without BERT_TF_CUDNN=1, bert_tf's kernels are used."));
    case kCudnnUnavailable: {
      [[maybe_unused]] static const bool is_logged = [&] {
        LOG(WARNING) << "bert_tf computes attention with its own GPU kernels. " << *why_not << ".";
        return true;
      }();
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
}

// Binds the arguments and queues attention. `allocate` is that of GpuResources.
template <typename Args, typename T, typename Launcher, typename Call>
absl::Status LaunchAttention(absl::string_view op, Launcher launcher, Call* call, void* stream,
                             [[maybe_unused]] const std::function<void*(int64_t)>& allocate) {
  const auto attend = [&](int type, const Args& args, void*) -> absl::Status {
    std::string error;
#ifndef BERT_TF_EMULATED_GPU
    const GpuResources resources = {stream, tensorflow::OpDeterminismRequired(), allocate};
    bool is_done = false;
    std::string why_not;
    const absl::Status status =
        TryCudnn(type, args, CudnnTensors(args), resources, &is_done, &why_not);
    if (!status.ok() || is_done) return status;
    error = CheckCudaAttention(args);
    if (!error.empty()) absl::StrAppend(&error, " cuDNN does not compute it: ", why_not, ".");
#else
    error = CheckCudaAttention(args);
#endif
    if (!error.empty()) return absl::InvalidArgumentError(error);
    return StatusOf(op, launcher(type, args, stream));
  };
  return Launch<Args, T>(op, attend, call, stream);
}

}  // namespace bert_tf
