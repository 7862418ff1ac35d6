// Shared by the GPU OpKernels: the stream of a computation, the types of the launchers, and errors.
// In a build for tests, BERT_TF_EMULATED_GPU, the same OpKernels run the emulated kernels on the
// CPU.
#ifndef BERT_TF_CUSTOM_OPS_OPS_GPU_UTIL_H_
#define BERT_TF_CUSTOM_OPS_OPS_GPU_UTIL_H_

#include <cstdint>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace bert_tf {

#ifndef BERT_TF_EMULATED_GPU

inline constexpr char kGpuDevice[] = "GPU";

// The cudaStream_t on which TensorFlow runs this computation.
inline void* GpuStream(tensorflow::OpKernelContext* context) {
  return context->op_device_context()->stream()->platform_specific_handle().stream;
}

#else

inline constexpr char kGpuDevice[] = "CPU";

inline void* GpuStream(tensorflow::OpKernelContext*) { return nullptr; }

#endif  // BERT_TF_EMULATED_GPU

// The priority of the registrations. The emulated kernels are registered for the CPU and must take
// precedence over the CPU kernels.
inline constexpr int kGpuPriority = 1;

template <typename T>
constexpr int kCudaType = kBertTfFloat32;
template <>
constexpr int kCudaType<Eigen::bfloat16> = kBertTfBFloat16;
template <>
constexpr int kCudaType<Eigen::half> = kBertTfFloat16;

// The status for the result of a launcher, a cudaError_t.
inline absl::Status LaunchStatus(const char* kernel, int cuda_error) {
  if (cuda_error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("Launching ", kernel, " failed with CUDA error ", cuda_error, "."));
}

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_GPU_UTIL_H_
