// Compares adam_weight_decay over several steps and the global norm with float64: lists of tensors
// of every type and of odd sizes, several numbers of threads, every instruction set of this
// processor.
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

constexpr float kScale = 0.25f, kBeta1 = 0.9f, kBeta2 = 0.999f, kEpsilon = 1e-6f, kStep = 0.01f,
                kDecay = 1e-4f;
const std::vector<int64_t> kCounts = {0, 1, 15, 17, 4095, 0, 4096, 4097, 20000, 0};

template <typename T>
constexpr FloatType kFloatType = std::is_same_v<T, float>      ? FloatType::kFloat32
                                 : std::is_same_v<T, BFloat16> ? FloatType::kBFloat16
                                                               : FloatType::kFloat16;

template <typename T>
FloatTensor TensorOf(const Buffer<T>& buffer) {
  return {buffer.data(), static_cast<int64_t>(buffer.size()), kFloatType<T>};
}

// A variable and its means, also in float64.
struct Variable {
  explicit Variable(int64_t count, std::mt19937& random)
      : x(count, random, 1.0f), m(count), v(count), x64(count), m64(count), v64(count) {
    for (int64_t i = 0; i < count; ++i) x64[i] = x[i];
  }

  // In place, or with new values in `next`.
  AdamTensor Tensor(const FloatTensor& gradient, Variable* next) {
    return {gradient, x.data(), m.data(), v.data(), next->x.data(), next->m.data(), next->v.data()};
  }

  template <typename T>
  void Step64(const Buffer<T>& gradient, double step, double decay) {
    for (size_t i = 0; i < x64.size(); ++i) {
      const double g = static_cast<double>(kScale) * ToFloat(gradient.data()[i]);
      m64[i] += (1.0 - kBeta1) * (g - m64[i]);
      v64[i] += (1.0 - kBeta2) * (g * g - v64[i]);
      x64[i] -= step * m64[i] / (std::sqrt(v64[i]) + kEpsilon) + decay * x64[i];
    }
  }

  void CheckNear(const std::string& context) const {
    for (size_t i = 0; i < x64.size(); ++i) {
      Check(std::fabs(x[i] - x64[i]) <= 2e-6 * (1.0 + std::fabs(x64[i])), context + "variable");
      Check(std::fabs(m[i] - m64[i]) <= 1e-6, context + "m");
      Check(std::fabs(v[i] - v64[i]) <= 1e-6 * (1e-3 + v64[i]), context + "v");
    }
  }

  Buffer<float> x, m, v;
  std::vector<double> x64, m64, v64;
};

template <typename T>
void TestIsa(Isa isa, int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  Variable variable(count, random);
  AdamWeightDecayArgs args;
  args.gradient_scale = &kScale;
  args.beta_1 = kBeta1;
  args.beta_2 = kBeta2;
  args.epsilon = kEpsilon;
  const std::string context =
      std::string(Name(isa)) + " " + TypeName<T>() + " count " + std::to_string(count) + " ";
  for (int step = 0; step < 5; ++step) {
    const Buffer<T> gradient(count, random, 1.0f);
    const AdamTensor tensor = variable.Tensor(TensorOf(gradient), &variable);
    double squares = 0.0;
    for (int64_t i = 0; i < count; ++i) squares += std::pow(ToFloat(gradient.data()[i]), 2.0);
    float sum = 0.0f;
    for (int part = 0; part < 2; ++part) {
      const int64_t begin = part * (count / 3), end = part == 0 ? count / 3 : count;
      BERT_TF_CALL_ISA(isa, UpdateElements, args, tensor, kStep, kDecay, begin, end);
      sum += BERT_TF_CALL_ISA(isa, SumOfSquares, tensor.gradient, begin, end);
    }
    Check(std::fabs(sum - squares) <= 2e-6 * squares, context + "squares");
    variable.Step64(gradient, kStep, kDecay);
  }
  variable.CheckNear(context);
}

void TestLists(int threads) {
  std::mt19937 random(7);
  std::vector<Variable> variables, next;
  std::vector<float> rates, decays;
  for (const int64_t count : kCounts) {
    variables.emplace_back(count, random);
    rates.push_back(0.001f * static_cast<float>(variables.size()));
    decays.push_back(variables.size() % 2 ? 0.01f : 0.0f);
  }
  next = variables;
  const std::string context = std::to_string(threads) + " threads ";
  for (int number = 1; number <= 3; ++number) {
    std::vector<Buffer<BFloat16>> halves;
    std::vector<Buffer<float>> gradients;
    AdamWeightDecayArgs args;
    GlobalNormArgs norm_args;
    double squares = 0.0;
    for (size_t i = 0; i < variables.size(); ++i) {
      const bool is_half = i % 3 == 1;
      halves.emplace_back(kCounts[i], random, 1.0f);
      gradients.emplace_back(kCounts[i], random, 1.0f);
      const double rate = rates[i], correction = std::sqrt(1.0 - std::pow(kBeta2, number)) /
                                                 (1.0 - std::pow(kBeta1, number));
      if (is_half) {
        variables[i].Step64(halves[i], rate * correction, rate * decays[i]);
      } else {
        variables[i].Step64(gradients[i], rate * correction, rate * decays[i]);
      }
      for (int64_t e = 0; e < kCounts[i]; ++e) {
        squares += std::pow(is_half ? ToFloat(halves[i].data()[e]) : gradients[i][e], 2.0);
      }
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      norm_args.tensors.push_back(i % 3 == 1 ? TensorOf(halves[i]) : TensorOf(gradients[i]));
      Variable* const target = number == 2 ? &next[i] : &variables[i];
      args.tensors.push_back(variables[i].Tensor(norm_args.tensors.back(), target));
    }
    const float steps = static_cast<float>(number);
    args.learning_rates = rates.data();
    args.weight_decays = decays.data();
    args.gradient_scale = &kScale;
    args.steps = &steps;
    args.beta_1 = kBeta1;
    args.beta_2 = kBeta2;
    args.epsilon = kEpsilon;
    AdamWeightDecay(ThreadParallel(threads), args);
    for (size_t i = 0; number == 2 && i < variables.size(); ++i) {
      variables[i].x = next[i].x;
      variables[i].m = next[i].m;
      variables[i].v = next[i].v;
    }
    std::vector<float> scratch(NumBlocks(norm_args.tensors));
    float norm = 0.0f, serial_norm = 0.0f;
    norm_args.scratch = scratch.data();
    norm_args.norm = &norm;
    GlobalNorm(ThreadParallel(threads), norm_args);
    norm_args.norm = &serial_norm;
    GlobalNorm(SerialParallel(), norm_args);
    Check(std::fabs(norm - std::sqrt(squares)) <= 1e-7 * std::sqrt(squares), context + "norm");
    Check(norm == serial_norm, context + "the norm depends on the threads");
  }
  for (const Variable& variable : variables) variable.CheckNear(context);
}

void TestNotFinite() {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Buffer<float> gradient(5000);
    gradient.at(4321) = bad;
    std::vector<float> scratch(2);
    float norm = 0.0f;
    GlobalNorm(SerialParallel(), {{TensorOf(gradient)}, scratch.data(), &norm});
    Check(std::isnan(bad) ? std::isnan(norm) : std::isinf(norm), "a norm that is not finite");
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  for (bert_tf::Isa isa : SupportedIsas()) {
    for (int64_t count : kCounts) {
      TestIsa<float>(isa, count);
      TestIsa<bert_tf::BFloat16>(isa, count);
      TestIsa<bert_tf::Float16>(isa, count);
    }
  }
  for (int threads : {1, 2, 3}) TestLists(threads);
  TestNotFinite();
  return Report("adam_weight_decay_test");
}
