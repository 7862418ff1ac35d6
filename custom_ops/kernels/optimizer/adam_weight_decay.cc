#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

#include <algorithm>
#include <cmath>

namespace bert_tf {
namespace {

constexpr int64_t kCyclesPerElement = 4;

const FloatTensor& GradientOf(const FloatTensor& tensor) { return tensor; }
const FloatTensor& GradientOf(const AdamTensor& tensor) { return tensor.gradient; }

// Calls fn(tensor, begin, end, block) with elements [begin, end) of a tensor, whose first block is
// number `block` of all. The threads share the blocks of all tensors.
template <typename Tensor, typename Function>
void ForTensors(const Parallel& parallel, const std::vector<Tensor>& tensors, const Function& fn) {
  int64_t total = 0;
  for (const Tensor& tensor : tensors) total += NumBlocks(GradientOf(tensor).count);
  parallel.For(total, kTensorBlock * kCyclesPerElement, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (size_t i = 0; i < tensors.size() && first < end; ++i) {
      const int64_t count = GradientOf(tensors[i]).count;
      const int64_t last = first + NumBlocks(count);
      const int64_t from = std::max(begin, first), to = std::min(end, last);
      if (from < to) {
        fn(i, (from - first) * kTensorBlock, std::min((to - first) * kTensorBlock, count), from);
      }
      first = last;
    }
  });
}

float BiasCorrection(float beta_1, float beta_2, float steps) {
  if (!(steps > 0.0f)) return 1.0f;
  return static_cast<float>(std::sqrt(1.0 - std::pow(beta_2, steps)) /
                            (1.0 - std::pow(beta_1, steps)));
}

}  // namespace

void AdamWeightDecay(const Parallel& parallel, const AdamWeightDecayArgs& args) {
  const float correction = BiasCorrection(args.beta_1, args.beta_2, *args.steps);
  ForTensors(parallel, args.tensors, [&](size_t i, int64_t begin, int64_t end, int64_t) {
    const float step = args.learning_rates[i] * correction;
    const float decay = args.learning_rates[i] * args.weight_decays[i];
    BERT_TF_DISPATCH(UpdateElements, args, args.tensors[i], step, decay, begin, end);
  });
}

void GlobalNorm(const Parallel& parallel, const GlobalNormArgs& args) {
  ForTensors(parallel, args.tensors, [&](size_t i, int64_t begin, int64_t end, int64_t block) {
    for (; begin < end; begin += kTensorBlock) {
      const int64_t block_end = std::min(begin + kTensorBlock, end);
      args.scratch[block++] = BERT_TF_DISPATCH(SumOfSquares, args.tensors[i], begin, block_end);
    }
  });
  double sum = 0.0;
  for (int64_t block = 0; block < NumBlocks(args.tensors); ++block) sum += args.scratch[block];
  *args.norm = static_cast<float>(std::sqrt(sum));
}

}  // namespace bert_tf
