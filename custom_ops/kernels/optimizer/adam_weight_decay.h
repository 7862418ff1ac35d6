// One step of Adam with decoupled weight decay on a list of variables, in one pass over memory, and
// the global norm of a list of gradients. The order of the sums of the norm depends only on the
// sizes.
//
//   g = gradient_scale * gradient
//   m = m + (1 - beta_1) * (g - m)
//   v = v + (1 - beta_2) * (g^2 - v)
//   variable = variable - learning_rate * (correction * m / (sqrt(v) + epsilon)
//                                          + weight_decay * variable)
//
// Reference: google-research/bert optimization.py; Loshchilov and Hutter, arXiv 1711.05101.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/float_types.h"

#ifndef __CUDACC_RTC__
#include <vector>

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"
#endif  // __CUDACC_RTC__

namespace bert_tf {

struct FloatTensor {
  const void* data = nullptr;
  int64_t count = 0;
  FloatType type = FloatType::kFloat32;
};

// A variable and its means before and after the step, which may be in the same memory.
struct AdamTensor {
  FloatTensor gradient;
  const float* variable = nullptr;
  const float* m = nullptr;
  const float* v = nullptr;
  float* new_variable = nullptr;
  float* new_m = nullptr;
  float* new_v = nullptr;
};

// The tensors are divided into blocks of so many elements.
constexpr int64_t kTensorBlock = 4096;

constexpr int64_t NumBlocks(int64_t count) { return (count + kTensorBlock - 1) / kTensorBlock; }

#ifndef __CUDACC_RTC__  // the kernels of a GPU get tensors in another form

// On a GPU, the numbers that pointers point to are in its memory.
struct AdamWeightDecayArgs {
  std::vector<AdamTensor> tensors;
  const float* learning_rates = nullptr;  // one for each tensor
  const float* weight_decays = nullptr;   // likewise
  const float* gradient_scale = nullptr;
  // The number of the step, starting from 1, to correct the bias of m and v, which start at zero.
  // If it is 0, the correction is 1.
  const float* steps = nullptr;
  float beta_1 = 0.0f;
  float beta_2 = 0.0f;
  float epsilon = 0.0f;
};

struct GlobalNormArgs {
  std::vector<FloatTensor> tensors;
  float* scratch = nullptr;  // one float for each block
  float* norm = nullptr;     // the square root of the sum of all squares
};

inline int64_t NumBlocks(const std::vector<FloatTensor>& tensors) {
  int64_t blocks = 0;
  for (const FloatTensor& tensor : tensors) blocks += NumBlocks(tensor.count);
  return blocks;
}

void AdamWeightDecay(const Parallel& parallel, const AdamWeightDecayArgs& args);
void GlobalNorm(const Parallel& parallel, const GlobalNormArgs& args);

// The copies process elements [begin, end) of one tensor.
BERT_TF_DECLARE_FOR_ISAS(
    // `step` is the learning rate times the correction, `decay` that times the weight decay.
    void UpdateElements(const AdamWeightDecayArgs& args, const AdamTensor& tensor, float step,
                        float decay, int64_t begin, int64_t end);
    float SumOfSquares(const FloatTensor& tensor, int64_t begin, int64_t end);)

#endif  // __CUDACC_RTC__

}  // namespace bert_tf
