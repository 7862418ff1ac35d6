// The ops with GPU kernels under XLA on a GPU (jit_compile=True).
#include <cstdint>
#include <vector>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/xla/custom_call_op.h"
#include "custom_ops/xla/gpu_platform.h"

namespace bert_tf {
namespace {

// The inputs of BertTf>VarlenAttentionGrad: d_output [R, N, D] is the first one, the row splits are
// the fifth, and the distance bias [N, 2 M + 1] may be the seventh.
int64_t AttentionScratch(const std::vector<Sizes>& inputs) {
  const int64_t distances = inputs.size() > 6 ? inputs[6][1] : 0;
  return BertTfCudaVarlenAttentionGradScratch(inputs[0][0], inputs[0][1], inputs[4][0] - 1,
                                              distances);
}

// The priority is only needed in a build for tests, where the CPU also has its own lowerings.
constexpr int kPriority = 1;

bool Lower(const char* op, ScratchSize scratch_size = nullptr) {
  return RegisterLowering(op, kGpuXlaDevice, scratch_size, kPriority);
}

[[maybe_unused]] const bool kRegistered[] = {
    RegisterAdamWeightDecayLowering(kGpuXlaDevice, kPriority),
    Lower("BertTf>FusedBiasGelu"),
    Lower("BertTf>FusedBiasGeluGrad", ScratchOfMatrix<BertTfCudaBiasGeluGradScratch>),
    Lower("BertTf>FusedGate"),
    Lower("BertTf>FusedGateGrad"),
    Lower("BertTf>FusedResidualLayerNorm"),
    Lower("BertTf>FusedResidualLayerNormGrad",
          ScratchOfMatrix<BertTfCudaResidualLayerNormGradScratch>),
    Lower("BertTf>GlobalNorm", GlobalNormScratch),
    Lower("BertTf>VarlenAttention"),
    Lower("BertTf>VarlenAttentionGrad", AttentionScratch),
};

}  // namespace
}  // namespace bert_tf
