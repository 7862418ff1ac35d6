// Compares fused_bias_gelu with float64: accuracy over all exponents, special values, odd shapes,
// unaligned data, all storage types, and equal bits for every number of threads, with every
// instruction set of this processor.
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"

#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

template <typename T>
void Run(Isa isa, const Parallel& parallel, const BiasGeluArgs<T>& args) {
  BERT_TF_CALL_ISA(isa, FusedBiasGelu, parallel, args);
}

template <typename T>
void Run(Isa isa, const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  BERT_TF_CALL_ISA(isa, FusedBiasGeluGrad, parallel, args);
}

std::string Context(Isa isa, const char* type, bool approximate, const std::string& rest) {
  return std::string(Name(isa)) + " " + type + (approximate ? " tanh " : " erf ") + rest;
}

// Normal results must be within 8 ulp of float64. The slope, which crosses zero, must be within 16
// ulp of the larger of itself and 2^-24 of its largest value.
void TestUlps(Isa isa, bool approximate, bool flush_to_zero) {
  const std::vector<float> inputs = FloatsOfAllExponents();
  const int64_t n = static_cast<int64_t>(inputs.size());
  const std::vector<float> zeros(inputs.size(), 0.0f);
  std::vector<float> y(inputs.size());
  std::vector<float> ones(inputs.size(), 1.0f), slopes(inputs.size()), dbias(inputs.size());
  std::vector<float> scratch(static_cast<size_t>(BiasGeluGradScratchSize(1, n)));
  SetFlushToZero(flush_to_zero);
  Run(isa, SerialParallel(),
      BiasGeluArgs<float>{inputs.data(), zeros.data(), 1, n, approximate, y.data()});
  Run(isa, SerialParallel(),
      BiasGeluGradArgs<float>{ones.data(), inputs.data(), zeros.data(), 1, n, approximate,
                              slopes.data(), dbias.data(), scratch.data()});
  SetFlushToZero(false);
  double worst = 0.0, worst_at = 0.0, worst_slope = 0.0, worst_slope_at = 0.0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double expected = GeluReference(inputs[i], approximate);
    if (std::fabs(expected) >= 0x1p-126) {
      const double error = std::fabs(y[i] - expected) / Ulp(expected);
      if (error > worst) worst = error, worst_at = inputs[i];
    } else {
      Check(std::fabs(y[i]) <= 0x1p-125, Context(isa, "", approximate, "subnormal result"));
    }
    const double slope = GeluSlopeReference(inputs[i], approximate);
    const double unit = std::max(Ulp(slope), 0x1p-24 * (inputs[i] > -1.5 ? 1.0 : 0.0));
    if (std::fabs(slope) >= 0x1p-126) {
      const double error = std::fabs(slopes[i] - slope) / unit;
      if (error > worst_slope) worst_slope = error, worst_slope_at = inputs[i];
    }
  }
  std::printf("%-8s %-4s worst of %lld: %.2f ulp at %.9g, slope %.2f at %.9g\n", Name(isa),
              approximate ? "tanh" : "erf", static_cast<long long>(n), worst, worst_at, worst_slope,
              worst_slope_at);
  Check(worst <= 8.0, Context(isa, "float32", approximate, "ulps"));
  Check(worst_slope <= 16.0, Context(isa, "float32", approximate, "slope ulps"));
}

void TestSpecialValues(Isa isa, bool approximate) {
  const float infinity = INFINITY, nan = std::nanf(""), largest = 3.4028235e38f;
  const std::vector<float> x = {infinity, -infinity, nan, largest, -largest, 0.0f, -0.0f, 1.0f};
  const std::vector<float> zeros(8, 0.0f), ones(8, 1.0f);
  std::vector<float> y(8), dx(8), dbias(8), scratch(8);
  Run(isa, SerialParallel(),
      BiasGeluArgs<float>{x.data(), zeros.data(), 1, 8, approximate, y.data()});
  Run(isa, SerialParallel(),
      BiasGeluGradArgs<float>{ones.data(), x.data(), zeros.data(), 1, 8, approximate, dx.data(),
                              dbias.data(), scratch.data()});
  Check(y[0] == infinity && y[1] == 0.0f && y[2] != y[2] && y[3] == largest && y[4] == 0.0f &&
            y[5] == 0.0f && y[6] == 0.0f,
        Context(isa, "float32", approximate, "special values"));
  Check(dx[0] == 1.0f && dx[1] == 0.0f && dx[2] != dx[2] && dx[3] == 1.0f && dx[4] == 0.0f &&
            dx[5] == 0.5f && dx[6] == 0.5f,
        Context(isa, "float32", approximate, "slopes at special values"));
}

// A float16 may be subnormal although TensorFlow's threads flush float32's subnormal numbers.
void TestFloat16Subnormals(Isa isa, bool approximate) {
  std::vector<Float16> x(1024), zeros(1024, Float16{0}), y(1024);
  for (uint16_t i = 0; i < 1024; ++i) {
    x[i].bits = static_cast<uint16_t>(i | (i % 2 == 0 ? 0u : 0x8000u));
  }
  SetFlushToZero(true);
  Run(isa, SerialParallel(),
      BiasGeluArgs<Float16>{x.data(), zeros.data(), 1, 1024, approximate, y.data()});
  SetFlushToZero(false);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = GeluReference(ToFloat(x[i]), approximate);
    Check(std::fabs(ToFloat(y[i]) - expected) <= RoundingErrorAt<Float16>(expected) * 1.0001,
          Context(isa, "float16", approximate, "subnormal"));
  }
}

template <typename T>
void TestShape(Isa isa, bool approximate, int64_t rows, int64_t columns) {
  const std::string context =
      Context(isa, TypeName<T>(), approximate,
              "[" + std::to_string(rows) + ", " + std::to_string(columns) + "] ");
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + columns));
  const int64_t n = rows * columns;
  const Buffer<T> x(n, random, 2.0f), bias(columns, random, 1.0f), dy(n, random, 1.0f);
  Buffer<T> y(n), dx(n), dbias(columns, FromFloat<T>(7.0f));
  Buffer<float> scratch(BiasGeluGradScratchSize(rows, columns));
  Run(isa, SerialParallel(),
      BiasGeluArgs<T>{x.data(), bias.data(), rows, columns, approximate, y.data()});
  Run(isa, SerialParallel(),
      BiasGeluGradArgs<T>{dy.data(), x.data(), bias.data(), rows, columns, approximate, dx.data(),
                          dbias.data(), scratch.data()});
  for (int64_t j = 0; j < columns; ++j) {
    double sum = 0.0, magnitude = 0.0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row * columns + j;
      const double s = static_cast<float>(x[i] + bias[j]);
      const double expected = GeluReference(s, approximate);
      Check(std::fabs(y[i] - expected) <=
                RoundingErrorAt<T>(expected) + 8 * 0x1p-24 * std::fabs(expected),
            context + "y");
      const double slope = dy[i] * GeluSlopeReference(s, approximate);
      Check(std::fabs(dx[i] - slope) <= RoundingErrorAt<T>(slope) + 1e-6 * std::fabs(dy[i]),
            context + "dx");
      sum += slope;
      magnitude += std::fabs(dy[i]);
    }
    Check(std::fabs(dbias[j] - sum) <= RoundingErrorAt<T>(sum) + 2e-6 * magnitude,
          context + "dbias");
  }
  // The bits are the same in place and with any number of threads.
  for (int threads : {1, 2, 3, 7}) {
    const ThreadParallel parallel(threads);
    Buffer<T> y2 = x, dx2 = dy, dbias2(columns);
    Run(isa, parallel,
        BiasGeluArgs<T>{y2.data(), bias.data(), rows, columns, approximate, y2.data()});
    Run(isa, parallel,
        BiasGeluGradArgs<T>{dx2.data(), x.data(), bias.data(), rows, columns, approximate,
                            dx2.data(), dbias2.data(), scratch.data()});
    Check(y.SameBits(y2) && dx.SameBits(dx2) && dbias.SameBits(dbias2),
          context + std::to_string(threads) + " threads");
  }
}

template <typename T>
void TestShapes(Isa isa, bool approximate) {
  for (int64_t columns : {1, 3, 17, 63, 65, 768, 1000}) {
    for (int64_t rows : {1, 2, 9, 131}) TestShape<T>(isa, approximate, rows, columns);
  }
  TestShape<T>(isa, approximate, 2, 20001);
  TestShape<T>(isa, approximate, 1500, 5);
  TestShape<T>(isa, approximate, 0, 5);
  TestShape<T>(isa, approximate, 5, 0);
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  for (bert_tf::Isa isa : SupportedIsas()) {
    for (bool approximate : {false, true}) {
      TestUlps(isa, approximate, false);
      TestUlps(isa, approximate, true);
      TestSpecialValues(isa, approximate);
      TestFloat16Subnormals(isa, approximate);
      TestShapes<float>(isa, approximate);
      TestShapes<bert_tf::BFloat16>(isa, approximate);
      TestShapes<bert_tf::Float16>(isa, approximate);
    }
  }
  return Report("fused_bias_gelu_test");
}
