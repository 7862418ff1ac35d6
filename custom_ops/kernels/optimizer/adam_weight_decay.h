// One step of Adam with decoupled weight decay, in one pass over its four arrays, on the CPU.
//
//   g = gradient_scale * gradient
//   m = m + (1 - beta_1) * (g - m)
//   v = v + (1 - beta_2) * (g^2 - v)
//   variable = variable - step * m / (sqrt(v) + epsilon) - decay * variable
//
// Reference: google-research/bert optimization.py; Loshchilov and Hutter, arXiv 1711.05101.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

struct AdamWeightDecayArgs {
  const float* gradient = nullptr;
  int64_t count = 0;
  float gradient_scale = 0.0f;
  float beta_1 = 0.0f;
  float beta_2 = 0.0f;
  float epsilon = 0.0f;
  float step = 0.0f;   // the learning rate, times the bias correction
  float decay = 0.0f;  // the learning rate times the weight decay
  float* variable = nullptr;
  float* m = nullptr;
  float* v = nullptr;
};

// The factor of the learning rate that corrects the bias of m and v, which start at zero. `steps`
// is the number of the step, starting from 1. If it is 0, the factor is 1.
float AdamBiasCorrection(float beta_1, float beta_2, float steps);

void AdamWeightDecay(const Parallel& parallel, const AdamWeightDecayArgs& args);

BERT_TF_DECLARE_FOR_ISAS(void AdamWeightDecay(const Parallel&, const AdamWeightDecayArgs&);)

}  // namespace bert_tf
