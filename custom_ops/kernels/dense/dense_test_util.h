// Shared by the tests of the dense kernels: their cases, and the operations after the matmul.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/dense/fused_dense.h"

namespace bert_tf {
namespace testing {

struct Case {
  int64_t rows, depth, columns;
  bool has_bias;
  DenseActivation activation;
  bool has_residual;
  bool layer_norm;
};

inline std::string Describe(const Case& c) {
  return "[" + std::to_string(c.rows) + ", " + std::to_string(c.depth) + "] x [" +
         std::to_string(c.depth) + ", " + std::to_string(c.columns) + "]" +
         (c.has_bias ? " bias" : "") + (c.activation == DenseActivation::kGelu ? " gelu" : "") +
         (c.activation == DenseActivation::kApproximateGelu ? " tanh gelu" : "") +
         (c.activation == DenseActivation::kSilu ? " silu" : "") +
         (c.has_residual ? " residual" : "") + (c.layer_norm ? " layer norm" : "") + " ";
}

inline double Activation(DenseActivation activation, double s) {
  if (activation == DenseActivation::kNone) return s;
  if (activation == DenseActivation::kSilu) return s / (1.0 + std::exp(-s));
  return GeluReference(s, activation == DenseActivation::kApproximateGelu);
}

// The tensors of the operations after the matmul.
template <typename T>
struct EpilogueTensors {
  EpilogueTensors(const Case& c, std::mt19937& random)
      : bias(c.columns, random, 1.0f),
        residual(c.rows * c.columns, random, 1.0f),
        gamma(c.columns, random, 0.3f, 1.0f),
        beta(c.columns, random, 0.3f),
        y(c.rows * c.columns, FromFloat<T>(7.0f)) {}

  void SetArgs(const Case& c, DenseArgs<T>* args) {
    args->bias = c.has_bias ? bias.data() : nullptr;
    args->activation = c.activation;
    args->residual = c.has_residual ? residual.data() : nullptr;
    args->gamma = c.layer_norm ? gamma.data() : nullptr;
    args->beta = c.layer_norm ? beta.data() : nullptr;
    args->epsilon = kEpsilon;
    args->rows = c.rows;
    args->depth = c.depth;
    args->columns = c.columns;
    args->y = y.data();
  }

  // Checks row i of y. `z` is the row before LayerNorm in float64, of which y may differ by
  // `error`.
  void CheckRow(const Case& c, int64_t i, const std::vector<double>& z,
                const std::vector<double>& error, const std::string& context) const {
    double mean = 0.0, variance = 0.0, largest = 0.0;
    for (double value : z) mean += value / static_cast<double>(c.columns);
    for (double value : z) variance += (value - mean) * (value - mean);
    variance /= static_cast<double>(c.columns);
    const double rstd = 1.0 / std::sqrt(variance + kEpsilon);
    for (double value : error) largest = std::max(largest, value);
    for (int64_t j = 0; j < c.columns; ++j) {
      double expected = z[static_cast<size_t>(j)], tolerance = error[static_cast<size_t>(j)];
      if (c.layer_norm) {
        const double n = (expected - mean) * rstd;
        expected = gamma[j] * n + beta[j];
        tolerance =
            (4.0 * largest * rstd + 1e-6) * (1.0 + std::fabs(n)) * std::fabs(gamma[j]) + 1e-6;
      }
      const double actual = y[i * c.columns + j];
      Check(std::fabs(actual - expected) <= RoundingErrorAt<T>(expected) + tolerance,
            context + "y[" + std::to_string(i) + ", " + std::to_string(j) +
                "] = " + std::to_string(actual) + ", expected " + std::to_string(expected));
    }
  }

  // Checks y of epilogue(x W), of which the products may be summed in any order in float32.
  template <typename X, typename W>
  void CheckProducts(const Case& c, const Buffer<X>& x, const Buffer<W>& kernel,
                     const std::string& context) const {
    std::vector<double> z(static_cast<size_t>(c.columns)), error(z.size());
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        double sum = c.has_bias ? bias[j] : 0.0, magnitude = std::fabs(sum);
        for (int64_t k = 0; k < c.depth; ++k) {
          const double term = x[i * c.depth + k] * kernel[k * c.columns + j];
          sum += term;
          magnitude += std::fabs(term);
        }
        double value = Activation(c.activation, sum);
        double tolerance = (4.0 + std::sqrt(static_cast<double>(c.depth))) * 0x1p-24 * magnitude +
                           8 * 0x1p-24 * std::fabs(value);
        if (c.has_residual) {
          value += residual[i * c.columns + j];
          tolerance += 0x1p-24 * std::fabs(value);
        }
        z[static_cast<size_t>(j)] = value;
        error[static_cast<size_t>(j)] = tolerance;
      }
      CheckRow(c, i, z, error, context);
    }
  }

  static constexpr float kEpsilon = 1e-12f;

  Buffer<T> bias, residual, gamma, beta, y;
};

// Checks that a gate multiplies the halves of what the op gives without it: those of the activated
// columns by those of the others, for any number of threads, special values too. `make(c, &random)`
// makes the Tensors<T> of a test, and `run(parallel, args)` runs the op.
template <typename T, typename Make, typename Run>
void CheckGate(const std::string& name, const Make& make, const Run& run) {
  std::mt19937 random(6);
  int number = 0;
  for (int64_t rows : {0, 1, 5, 29, 150, 333}) {
    for (int64_t half : {32, 96, 160}) {
      const DenseActivation activation = static_cast<DenseActivation>(number++ % 4);
      const int64_t columns = 2 * half, depth = half == 96 ? 300 : 70;
      const Case c{rows, depth, columns, half != 32, activation, false, false};
      auto t = make(c, &random);
      if (rows > 5) {
        t.x.at(3 * depth) = FromFloat<T>(std::nanf(""));
        t.x.at(28 * depth + 5) = FromFloat<T>(INFINITY);
      }
      auto args = t.Args(c);
      run(SerialParallel(), args);
      Buffer<T> others(rows * columns);
      auto plain = args;
      plain.activation = DenseActivation::kNone;
      plain.y = others.data();
      run(SerialParallel(), plain);
      args.is_gated = true;
      for (int threads : {1, 2, 7}) {
        Buffer<T> gated(rows * half, FromFloat<T>(7.0f));
        args.y = gated.data();
        run(ThreadParallel(threads), args);
        const std::string context =
            name + Describe(c) + "gated, " + std::to_string(threads) + " threads, ";
        Check(ToFloat(gated.data()[-1]) == 7.0f && ToFloat(gated.data()[gated.size()]) == 7.0f,
              context + "wrote outside of y");
        for (int64_t i = 0; i < gated.size(); ++i) {
          const int64_t place = i / half * columns + i % half;
          const double first = t.y[place], factor = others[place + half];
          const double expected = first * factor, y = gated[i];
          // Without the gate, both factors are rounded to T.
          double tolerance = RoundingErrorAt<T>(expected);
          if (sizeof(T) < sizeof(float)) {
            tolerance += 1.01 * (RoundingErrorAt<T>(first) * std::fabs(factor) +
                                 RoundingErrorAt<T>(factor) * std::fabs(first));
          }
          const bool is_equal = y == expected || (std::isnan(y) && std::isnan(expected));
          Check(is_equal || std::fabs(y - expected) <= tolerance,
                context + "y[" + std::to_string(i) + "] = " + std::to_string(y) + ", expected " +
                    std::to_string(expected));
        }
      }
    }
  }
}

}  // namespace testing
}  // namespace bert_tf
