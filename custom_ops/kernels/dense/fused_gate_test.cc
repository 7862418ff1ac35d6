// Compares fused_gate with float64: accuracy over all exponents, special values, odd shapes,
// unaligned data, all storage types, and equal bits in place and for every number of threads, with
// every instruction set of this processor.
#include "custom_ops/kernels/dense/fused_gate.h"

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/dense/dense_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

double Slope(DenseActivation activation, double s) {
  if (activation != DenseActivation::kSilu) {
    return GeluSlopeReference(s, activation == DenseActivation::kApproximateGelu);
  }
  const double sigmoid = 1.0 / (1.0 + std::exp(-s)), other = 1.0 / (1.0 + std::exp(s));
  return sigmoid * (1.0 + s * other);
}

template <typename T>
void Run(Isa isa, const Parallel& parallel, const GateArgs<T>& args) {
  BERT_TF_CALL_ISA(isa, FusedGate, parallel, args);
}

std::string Context(Isa isa, const char* type, DenseActivation activation) {
  static constexpr const char* kNames[] = {"none", "gelu", "tanh gelu", "silu"};
  return std::string(Name(isa)) + " " + type + " " + kNames[static_cast<int>(activation)] + " ";
}

// The activations of numbers, then their slopes, which are the gradients with dy = factor = 1.
std::vector<float> OfNumbers(Isa isa, DenseActivation activation, std::vector<float> x) {
  const int64_t n = static_cast<int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  x.insert(x.end(), ones.begin(), ones.end());
  std::vector<float> y(ones.size()), dx(x.size());
  Run(isa, SerialParallel(), GateArgs<float>{nullptr, x.data(), 1, n, activation, y.data()});
  Run(isa, SerialParallel(), GateArgs<float>{ones.data(), x.data(), 1, n, activation, dx.data()});
  y.insert(y.end(), dx.begin(), dx.begin() + n);
  return y;
}

// Normal results must be within 8 ulp of float64. The slope, which crosses zero, must be within 16
// ulp of the larger of itself and 2^-24 of its largest value.
void TestUlps(Isa isa, DenseActivation activation, bool flush_to_zero) {
  const std::vector<float> inputs = FloatsOfAllExponents();
  SetFlushToZero(flush_to_zero);
  const std::vector<float> y = OfNumbers(isa, activation, inputs);
  SetFlushToZero(false);
  double worst = 0.0, worst_slope = 0.0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double expected = Activation(activation, inputs[i]), slope = Slope(activation, inputs[i]);
    if (std::fabs(expected) >= 0x1p-126) {
      worst = std::max(worst, std::fabs(y[i] - expected) / Ulp(expected));
    } else {
      Check(std::fabs(y[i]) <= 0x1p-125, Context(isa, "float32", activation) + "subnormal");
    }
    if (std::fabs(slope) >= 0x1p-126) {
      const double unit = std::max(Ulp(slope), inputs[i] > -1.5f ? 0x1p-24 : 0.0);
      worst_slope = std::max(worst_slope, std::fabs(y[inputs.size() + i] - slope) / unit);
    }
  }
  std::printf("%sworst of %zu: %.2f ulp, slope %.2f\n", Context(isa, "", activation).c_str(),
              inputs.size(), worst, worst_slope);
  Check(worst <= 8.0 && worst_slope <= 16.0, Context(isa, "float32", activation) + "ulps");
}

void TestSpecialValues(Isa isa, DenseActivation activation) {
  const float largest = 3.4028235e38f;
  const std::vector<float> y = OfNumbers(
      isa, activation, {INFINITY, -INFINITY, std::nanf(""), largest, -largest, 0.0f, -0.0f});
  const float expected[14] = {INFINITY, 0, 7, largest, 0, 0, 0, 1, 0, 7, 1, 0, 0.5f, 0.5f};
  for (int i = 0; i < 14; ++i) {
    Check(i % 7 == 2 ? y[i] != y[i] : y[i] == expected[i],
          Context(isa, "float32", activation) + "special value " + std::to_string(i));
  }
}

template <typename T>
void TestShape(Isa isa, DenseActivation activation, int64_t rows, int64_t columns) {
  const std::string context = Context(isa, TypeName<T>(), activation) + std::to_string(rows) +
                              " x " + std::to_string(columns) + " ";
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + columns));
  const Buffer<T> x(2 * rows * columns, random, 2.0f), dy(rows * columns, random, 1.0f);
  // The bits are the same in place and with any number of threads.
  Buffer<T> y[2] = {Buffer<T>(dy.size()), Buffer<T>(dy.size())}, dx[2] = {Buffer<T>(x.size()), x};
  for (int threads : {1, 2, 3, 7}) {
    const bool again = threads > 1;
    const ThreadParallel parallel(threads);
    if (again) dx[1] = x;
    const T* const of_gradient = again ? dx[1].data() : x.data();
    Run(isa, parallel, GateArgs<T>{nullptr, x.data(), rows, columns, activation, y[again].data()});
    Run(isa, parallel,
        GateArgs<T>{dy.data(), of_gradient, rows, columns, activation, dx[again].data()});
    if (again) {
      Check(y[0].SameBits(y[1]) && dx[0].SameBits(dx[1]), context + std::to_string(threads));
    }
  }
  const auto check = [&](double actual, double expected, double scale, const char* what) {
    const double error = RoundingErrorAt<T>(expected) + 1e-6 * std::fabs(scale);
    Check(std::fabs(actual - expected) <= error, context + what);
  };
  for (int64_t i = 0; i < dy.size(); ++i) {
    const int64_t place = i / columns * 2 * columns + i % columns;
    const double s = x[place], factor = x[place + columns], f = Activation(activation, s);
    const double ds = dy[i] * factor * Slope(activation, s);
    check(y[0][i], f * factor, f * factor, "y");
    check(dx[0][place], ds, dy[i] * factor, "ds");
    check(dx[0][place + columns], dy[i] * f, dy[i] * f, "dfactor");
  }
}

template <typename T>
void TestShapes(Isa isa, DenseActivation activation) {
  for (int64_t columns : {0, 1, 3, 17, 65, 1000}) {
    for (int64_t rows : {0, 1, 2, 9, 131}) TestShape<T>(isa, activation, rows, columns);
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  using bert_tf::DenseActivation;
  for (bert_tf::Isa isa : SupportedIsas()) {
    for (const DenseActivation activation :
         {DenseActivation::kGelu, DenseActivation::kApproximateGelu, DenseActivation::kSilu}) {
      for (bool flush_to_zero : {false, true}) TestUlps(isa, activation, flush_to_zero);
      TestSpecialValues(isa, activation);
      TestShapes<float>(isa, activation);
      TestShapes<bert_tf::BFloat16>(isa, activation);
      TestShapes<bert_tf::Float16>(isa, activation);
    }
  }
  return Report("fused_gate_test");
}
