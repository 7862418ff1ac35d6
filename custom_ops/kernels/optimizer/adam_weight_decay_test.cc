// Compares adam_weight_decay with float64 over several steps, for odd sizes and several numbers of
// threads, with every instruction set of this processor.
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

constexpr float kScale = 0.25f, kBeta1 = 0.9f, kBeta2 = 0.999f, kEpsilon = 1e-6f, kStep = 0.01f,
                kDecay = 1e-4f;

void Run(Isa isa, const Parallel& parallel, const AdamWeightDecayArgs& args) {
  BERT_TF_CALL_ISA(isa, AdamWeightDecay, parallel, args);
}

void TestCount(Isa isa, int64_t count, int threads) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::normal_distribution<float> normal;
  std::vector<float> gradient(count), x(count), m(count), v(count);
  for (float& value : x) value = normal(random);
  std::vector<double> x64(x.begin(), x.end()), m64(count), v64(count);
  for (int step = 0; step < 5; ++step) {
    for (float& value : gradient) value = normal(random);
    Run(isa, ThreadParallel(threads),
        AdamWeightDecayArgs{gradient.data(), count, kScale, kBeta1, kBeta2, kEpsilon, kStep, kDecay,
                            x.data(), m.data(), v.data()});
    for (int64_t i = 0; i < count; ++i) {
      const double g = static_cast<double>(kScale) * gradient[i];
      m64[i] += (1.0 - kBeta1) * (g - m64[i]);
      v64[i] += (1.0 - kBeta2) * (g * g - v64[i]);
      x64[i] -= kStep * m64[i] / (std::sqrt(v64[i]) + kEpsilon) + kDecay * x64[i];
    }
  }
  const std::string context = std::string(Name(isa)) + " count " + std::to_string(count) + ", " +
                              std::to_string(threads) + " threads ";
  for (int64_t i = 0; i < count; ++i) {
    Check(std::fabs(x[i] - x64[i]) <= 2e-6 * (1.0 + std::fabs(x64[i])), context + "variable");
    Check(std::fabs(m[i] - m64[i]) <= 1e-6, context + "m");
    Check(std::fabs(v[i] - v64[i]) <= 1e-6 * (1e-3 + v64[i]), context + "v");
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  for (bert_tf::Isa isa : SupportedIsas()) {
    for (int threads : {1, 2, 3}) {
      for (int64_t count : {0, 1, 15, 17, 4095, 4096, 4097, 20000}) TestCount(isa, count, threads);
    }
  }
  return Report("adam_weight_decay_test");
}
