// The ops under XLA on the CPU (jit_compile=True).
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/xla/custom_call_op.h"

namespace bert_tf {
namespace {

constexpr char kDevice[] = "XLA_CPU_JIT";  // tensorflow::DEVICE_CPU_XLA_JIT

bool Lower(const char* op, ScratchSize scratch_size = nullptr) {
  return RegisterLowering(op, kDevice, scratch_size);
}

[[maybe_unused]] const bool kRegistered[] = {
    RegisterAdamWeightDecayLowering(kDevice),
    Lower("BertTf>Bfloat16Dense"),
    Lower("BertTf>Bfloat16FeedForward"),
    Lower("BertTf>FusedBiasGelu"),
    Lower("BertTf>FusedBiasGeluGrad", ScratchOfMatrix<BiasGeluGradScratchSize>),
    Lower("BertTf>FusedDense"),
    Lower("BertTf>FusedGate"),
    Lower("BertTf>FusedGateGrad"),
    Lower("BertTf>FusedResidualLayerNorm"),
    Lower("BertTf>FusedResidualLayerNormGrad", ScratchOfMatrix<ResidualLayerNormGradScratchSize>),
    Lower("BertTf>GlobalNorm", GlobalNormScratch),
    Lower("BertTf>PackDense"),
    Lower("BertTf>QuantizedAttention"),
    Lower("BertTf>QuantizedDense"),
    Lower("BertTf>QuantizedFeedForward"),
    Lower("BertTf>VarlenAttention"),
    Lower("BertTf>VarlenAttentionGrad"),
    Lower("BertTf>VarlenCrossAttention"),
    Lower("BertTf>VarlenCrossAttentionGrad"),
};

}  // namespace
}  // namespace bert_tf
