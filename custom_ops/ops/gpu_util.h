// What the GPU OpKernels share: the stream of a computation, the launchers' name of a type, errors.
// A test's build, BERT_TF_EMULATED_GPU, has the same OpKernels on the CPU, over the emulated
// kernels.
#ifndef BERT_TF_CUSTOM_OPS_OPS_GPU_UTIL_H_
#define BERT_TF_CUSTOM_OPS_OPS_GPU_UTIL_H_

#include <cstdint>

#include "custom_ops/kernels/cuda_launchers.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace bert_tf {

#ifndef BERT_TF_EMULATED_GPU

inline constexpr char kGpuDevice[] = "GPU";

// The cudaStream_t that TensorFlow runs this computation on.
inline void* GpuStream(tensorflow::OpKernelContext* context) {
  return context->op_device_context()->stream()->platform_specific_handle().stream;
}

#else

inline constexpr char kGpuDevice[] = "CPU";

inline void* GpuStream(tensorflow::OpKernelContext*) { return nullptr; }

#endif  // BERT_TF_EMULATED_GPU

// Of a registration: emulated, it goes before that of the CPU's own kernel.
inline constexpr int kGpuPriority = 1;

template <typename T>
constexpr int kCudaType = kBertTfFloat32;
template <>
constexpr int kCudaType<Eigen::bfloat16> = kBertTfBFloat16;
template <>
constexpr int kCudaType<Eigen::half> = kBertTfFloat16;

// The error of a launcher's answer, a cudaError_t.
inline absl::Status LaunchStatus(const char* kernel, int cuda_error) {
  if (cuda_error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("Launching ", kernel, " failed with CUDA error ", cuda_error, "."));
}

// The address of a tensor's first byte, whatever its type.
inline const void* Address(const tensorflow::Tensor& tensor) { return tensor.data(); }
inline void* MutableAddress(tensorflow::Tensor* tensor) { return tensor->data(); }

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_GPU_UTIL_H_
