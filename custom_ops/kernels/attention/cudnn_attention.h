// Self-attention of varlen_attention.h by cuDNN, which the wheels of TensorFlow for GPUs install.
//
// cuDNN computes the same formula from the same tensors, but draws other dropout masks than our
// kernels. So the forward pass and the gradient of a call must both be cuDNN's or both ours. Both
// have the same CudnnCase, and what is decided for a case, once it has occurred, holds for the life
// of the process: it takes cuDNN if cuDNN supports both the forward pass and the gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

#include "custom_ops/kernels/cuda/cuda_launchers.h"

namespace bert_tf {

constexpr size_t kLeastCudnn = 92600;  // of cudnnGetVersion(): 9.26.0
constexpr int64_t kLargestCudnnHead = 128;
constexpr int64_t kCudnnHeadMultiple = 8;

enum CudnnResult {
  kCudnnDone,         // the work is queued
  kCudnnFailed,       // an error
  kCudnnDoesNotFit,   // cuDNN is not for these arguments, or off, so our kernels must compute them
  kCudnnUnavailable,  // cuDNN would be, but it is too old or absent, or it refuses
};

// Returns why cuDNN does not compute attention for these arguments, which depends only on the type,
// the shapes and the attributes. It is null if it does.
inline const char* WhyNotCudnn(int type, const CudaAttentionInputs& args) {
  if (type == kBertTfFloat32) return "the type is float32";
  if (args.rows == 0 || args.num_heads == 0 || args.num_sequences == 0) return "there are no rows";
  if (args.rows > kMostCudaRows) return "there are too many rows";
  if (args.head_size % kCudnnHeadMultiple != 0) return "the head size is not a multiple of 8";
  if (args.head_size > kLargestCudnnHead) return "the head size is above 128";
  if (args.distance_bias != nullptr) return "there is a distance bias";
  if (args.rotation != nullptr) return "there is a rotation";
  if (args.num_global_tokens > 0) return "there are global tokens";
  return nullptr;
}

// Rounds a size up, by at most an eighth, to one of eight between a power of two and the next one.
// There are so few of these that plans for batches of different sizes can be kept.
inline int64_t RoundedSize(int64_t size) {
  int64_t step = 1;
  while (size / step >= 16) step *= 2;
  return (size + step - 1) / step * step;
}

// What a plan is made for.
struct CudnnCase {
  int type;
  int64_t sequences, rows, longest;  // rounded; no sequence has more rows than `longest`
  int64_t heads, head_size;
  int64_t window;  // negative without a window
  bool causal, deterministic;
  float dropout;

  auto Key() const {
    return std::tie(type, sequences, rows, longest, heads, head_size, window, causal, deterministic,
                    dropout);
  }
  bool operator<(const CudnnCase& other) const { return Key() < other.Key(); }
};

inline CudnnCase CaseOf(int type, const CudaAttentionInputs& args, bool deterministic) {
  const bool is_known = args.max_length > 0 && args.max_length < args.rows;
  const int64_t longest = is_known ? args.max_length : args.rows;
  const bool has_window = args.window_size >= 0 && args.window_size < longest;
  return {type,
          RoundedSize(args.num_sequences),
          RoundedSize(args.rows),
          RoundedSize(longest),
          args.num_heads,
          args.head_size,
          has_window ? args.window_size : -1,
          args.causal,
          deterministic,
          args.dropout_rate};
}

// The tensors of a forward pass, or with d_output of a gradient, whose outputs are d_qkv.
struct CudnnTensors {
  explicit CudnnTensors(const CudaAttentionArgs& args)
      : output(args.output), logsumexp(args.logsumexp) {}
  explicit CudnnTensors(const CudaAttentionGradArgs& args)
      : output(const_cast<void*>(args.output)),
        logsumexp(const_cast<float*>(args.logsumexp)),
        d_output(args.d_output),
        d_qkv(args.d_qkv) {}

  void* output;
  float* logsumexp;
  const void* d_output = nullptr;
  void* d_qkv = nullptr;
};

// What the caller gives to a call.
struct GpuResources {
  void* stream;
  bool deterministic;  // whether the gradient must have the same bits in each run
  // Returns this many bytes of GPU memory until the end of the call, or null.
  std::function<void*(int64_t bytes)> allocate;
};

}  // namespace bert_tf

extern "C" {

// Queues attention on the stream and returns a CudnnResult. `message` becomes the reason for any
// other than kCudnnDone.
int BertTfCudaCudnnAttention(int type, const bert_tf::CudaAttentionInputs& args,
                             const bert_tf::CudnnTensors& tensors,
                             const bert_tf::GpuResources& resources, std::string* message);

}  // extern "C"
