#include "custom_ops/kernels/adam_weight_decay.h"

#include "custom_ops/kernels/isa.h"

namespace bert_tf {

void AdamWeightDecay(const Parallel& parallel, const AdamWeightDecayArgs& args) {
  BERT_TF_DISPATCH(AdamWeightDecay, parallel, args);
}

}  // namespace bert_tf
