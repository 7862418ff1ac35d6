// adam_weight_decay and the global norm on the GPU; adam_weight_decay.h has the formulas. A block
// of threads processes a block of one tensor, so a kernel is launched once for several tensors.
#define BERT_TF_CUDA
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

#include <cmath>
#include <type_traits>

#include "custom_ops/kernels/cuda/cuda_dispatch.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPackSize = 4;                 // consecutive elements of a thread
constexpr size_t kParameterBytes = 4096;     // CUDA's limit for all arguments of a kernel
constexpr size_t kOtherParameterBytes = 64;  // of the arguments after the list

// The tensors of a launch, without empty ones. The blocks of the launch are those of tensor 0, then
// of tensor 1, and so on.
template <typename Tensor>
struct TensorList {
  static constexpr int kMost = static_cast<int>((kParameterBytes - kOtherParameterBytes - 16) /
                                                (sizeof(Tensor) + sizeof(int64_t)));
  Tensor tensors[kMost];
  int first_blocks[kMost];
  int indices[kMost];  // in the list of the op
  int size = 0;
  int blocks = 0;
};

BERT_TF_HOST_DEVICE const FloatTensor& GradientOf(const FloatTensor& tensor) { return tensor; }
BERT_TF_HOST_DEVICE const FloatTensor& GradientOf(const AdamTensor& tensor) {
  return tensor.gradient;
}

// The part of a tensor that a block of threads processes.
struct Part {
  int place;  // of the tensor in the list
  int64_t begin, end;
};

template <typename Tensor>
BERT_TF_DEVICE Part PartOfBlock(const TensorList<Tensor>& list) {
  const int block = static_cast<int>(blockIdx.x);
  int place = 0, after = list.size;
  while (after - place > 1) {
    const int middle = (place + after) / 2;
    (list.first_blocks[middle] <= block ? place : after) = middle;
  }
  const int64_t begin = (block - list.first_blocks[place]) * kTensorBlock;
  return {place, begin, Smaller(begin + kTensorBlock, GradientOf(list.tensors[place]).count)};
}

// Calls body(width, j) for the elements j, j + 1, …, j + width - 1 of this thread. The width is
// kPackSize, or 1 at the end of a tensor or if it is not `aligned`.
template <typename Body>
BERT_TF_DEVICE void ForPacks(const Part& part, bool aligned, const Body& body) {
#pragma unroll 1
  for (int64_t j = part.begin + static_cast<int>(threadIdx.x) * kPackSize; j < part.end;
       j += kThreads * kPackSize) {
    if (aligned && j + kPackSize <= part.end) {
      body(Int<kPackSize>(), j);
      continue;
    }
#pragma unroll 1
    for (int64_t e = j; e < Smaller(j + kPackSize, part.end); ++e) {
      body(Int<1>(), e);
    }
  }
}

template <int kWidth>
BERT_TF_DEVICE void LoadTensor(const FloatTensor& tensor, int64_t i, float* values) {
  switch (tensor.type) {
    case FloatType::kBFloat16:
      return LoadFloats<kWidth>(static_cast<const BFloat16*>(tensor.data) + i, values);
    case FloatType::kFloat16:
      return LoadFloats<kWidth>(static_cast<const Float16*>(tensor.data) + i, values);
    default:
      return LoadFloats<kWidth>(static_cast<const float*>(tensor.data) + i, values);
  }
}

template <typename... Pointers>
BERT_TF_DEVICE bool AreAligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15) == 0;
}

struct AdamNumbers {
  const float* learning_rates;
  const float* weight_decays;
  const float* gradient_scale;
  const float* steps;
  float beta_1, beta_2, epsilon;
  float log_beta_1, log_beta_2;
};
static_assert(sizeof(AdamNumbers) <= kOtherParameterBytes, "a launch has too many arguments");

__global__ void __launch_bounds__(kThreads)
    AdamKernel(const TensorList<AdamTensor> list, const AdamNumbers numbers) {
  const Part part = PartOfBlock(list);
  const AdamTensor& tensor = list.tensors[part.place];
  const int index = list.indices[part.place];
  const float learning_rate = numbers.learning_rates[index];
  const float decay = learning_rate * numbers.weight_decays[index];
  const float scale = *numbers.gradient_scale;
  const float steps = *numbers.steps;
  float step = learning_rate;
  if (steps > 0.0f) {
    // 1 - beta^steps without the cancellation
    step *= sqrtf(-expm1f(steps * numbers.log_beta_2)) / -expm1f(steps * numbers.log_beta_1);
  }
  const bool aligned = AreAligned(tensor.gradient.data, tensor.variable, tensor.m, tensor.v,
                                  tensor.new_variable, tensor.new_m, tensor.new_v);
  ForPacks(part, aligned, [&](auto width, int64_t j) {
    constexpr int kWidth = decltype(width)::value;
    float g[kWidth], x[kWidth], m[kWidth], v[kWidth];
    LoadTensor<kWidth>(tensor.gradient, j, g);
    LoadFloats<kWidth>(tensor.variable + j, x);
    LoadFloats<kWidth>(tensor.m + j, m);
    LoadFloats<kWidth>(tensor.v + j, v);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      g[e] *= scale;
      m[e] += (1.0f - numbers.beta_1) * (g[e] - m[e]);
      v[e] += (1.0f - numbers.beta_2) * (g[e] * g[e] - v[e]);
      x[e] -= step * m[e] / (sqrtf(v[e]) + numbers.epsilon) + decay * x[e];
    }
    StoreFloats<kWidth>(tensor.new_variable + j, x);
    StoreFloats<kWidth>(tensor.new_m + j, m);
    StoreFloats<kWidth>(tensor.new_v + j, v);
  });
}

// Adds the numbers of all threads of a block, always in the same order. Only thread 0 gets the sum.
template <typename V>
BERT_TF_DEVICE V BlockSum(V value) {
  V* const of_warp = reinterpret_cast<V*>(SharedMemory());  // [kWarps]
  const int thread = static_cast<int>(threadIdx.x);
  value = WarpSum(value);
  if (thread % kWarp == 0) of_warp[thread / kWarp] = value;
  SyncThreads();
  if (thread != 0) return value;
  for (int warp = 1; warp < kWarps; ++warp) value += of_warp[warp];
  return value;
}

__global__ void __launch_bounds__(kThreads)
    SquaresKernel(const TensorList<FloatTensor> list, float* sums) {
  const Part part = PartOfBlock(list);
  const FloatTensor& tensor = list.tensors[part.place];
  float sum = 0.0f;
  ForPacks(part, AreAligned(tensor.data), [&](auto width, int64_t j) {
    constexpr int kWidth = decltype(width)::value;
    float x[kWidth];
    LoadTensor<kWidth>(tensor, j, x);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum += x[e] * x[e];
  });
  sum = BlockSum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    NormKernel(const float* sums, int64_t count, float* norm) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += sums[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

namespace bert_tf::cuda {
namespace {

// Calls launch(list, number of its first block) for lists that have all tensors.
template <typename Tensor, typename Function>
int ForLists(const std::vector<Tensor>& tensors, const Function& launch) {
  TensorList<Tensor> list;
  int64_t first_block = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t blocks = NumBlocks(GradientOf(tensors[i]).count);
    if (blocks > 0) {
      list.tensors[list.size] = tensors[i];
      list.first_blocks[list.size] = list.blocks;
      list.indices[list.size++] = static_cast<int>(i);
      list.blocks += static_cast<int>(blocks);
    }
    const bool is_complete = list.size == list.kMost || i + 1 == tensors.size();
    if (list.size == 0 || !is_complete) continue;
    const int error = launch(list, first_block);
    if (error != 0) return error;
    first_block += list.blocks;
    list.size = list.blocks = 0;
  }
  return 0;
}

float LogOf(float beta) { return static_cast<float>(std::log(static_cast<double>(beta))); }

}  // namespace
}  // namespace bert_tf::cuda

extern "C" int BertTfCudaAdamWeightDecay(int, const bert_tf::AdamWeightDecayArgs& args,
                                         void* stream) {
  using namespace bert_tf::cuda;
  const AdamNumbers numbers{args.learning_rates, args.weight_decays, args.gradient_scale,
                            args.steps,          args.beta_1,        args.beta_2,
                            args.epsilon,        LogOf(args.beta_1), LogOf(args.beta_2)};
  return ForLists(args.tensors, [&](const auto& list, int64_t) {
    return Launch<AdamKernel>(dim3(list.blocks), kThreads, 0, stream, list, numbers);
  });
}

extern "C" int BertTfCudaGlobalNorm(int, const bert_tf::GlobalNormArgs& args, void* stream) {
  using namespace bert_tf::cuda;
  const int error = ForLists(args.tensors, [&](const auto& list, int64_t first_block) {
    return Launch<SquaresKernel>(dim3(list.blocks), kThreads, kWarps * sizeof(float), stream, list,
                                 args.scratch + first_block);
  });
  if (error != 0) return error;
  return Launch<NormKernel>(dim3(1), kThreads, kWarps * sizeof(double), stream, args.scratch,
                            bert_tf::NumBlocks(args.tensors), args.norm);
}

#endif  // __CUDACC_RTC__
