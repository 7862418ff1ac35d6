#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

#include <cmath>

namespace bert_tf {

float AdamBiasCorrection(float beta_1, float beta_2, float steps) {
  if (!(steps > 0.0f)) return 1.0f;
  return static_cast<float>(std::sqrt(1.0 - std::pow(beta_2, steps)) /
                            (1.0 - std::pow(beta_1, steps)));
}

void AdamWeightDecay(const Parallel& parallel, const AdamWeightDecayArgs& args) {
  BERT_TF_DISPATCH(AdamWeightDecay, parallel, args);
}

}  // namespace bert_tf
