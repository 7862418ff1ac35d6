#include "custom_ops/kernels/dense/fused_gate.h"

namespace bert_tf {

BERT_TF_SELECT_COPY(FusedGate, GateArgs)

}  // namespace bert_tf
