// Compares fused_residual_layer_norm with float64: every combination of the optional inputs, odd
// shapes, unaligned data, all storage types, rows of huge and tiny numbers, dropout masks against a
// scalar Philox, and equal bits for every number of threads, with every instruction set of this
// processor.
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"

#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

void TestPhilox() {
  // Known answers from kat_vectors of Random123 1.14: philox4x32 10.
  const PhiloxWords zeros = Philox(0, 0, 0);
  const uint32_t expected_zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const PhiloxWords ones = Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  const uint32_t expected_ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  const PhiloxWords pi = Philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e);
  const uint32_t expected_pi[] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  Check(std::equal(zeros.words, zeros.words + 4, expected_zeros), "philox of zeros");
  Check(std::equal(ones.words, ones.words + 4, expected_ones), "philox of ones");
  Check(std::equal(pi.words, pi.words + 4, expected_pi), "philox of pi");
}

struct Case {
  int64_t rows;
  int64_t columns;
  bool has_residual;
  bool has_bias;
  float dropout_rate;
  uint64_t seed;
  bool is_rms = false;
  bool has_other_dy = false;
};

template <typename T>
void Run(Isa isa, const Parallel& parallel, const ResidualLayerNormArgs<T>& args) {
  BERT_TF_CALL_ISA(isa, FusedResidualLayerNorm, parallel, args);
}

template <typename T>
void Run(Isa isa, const Parallel& parallel, const ResidualLayerNormGradArgs<T>& args) {
  BERT_TF_CALL_ISA(isa, FusedResidualLayerNormGrad, parallel, args);
}

constexpr float kEpsilon = 1e-12f;

template <typename T>
struct Tensors {
  Tensors(const Case& c, std::mt19937& random)
      : x(c.rows * c.columns, random, 1.5f, 0.5f),
        residual(c.rows * c.columns, random, 1.0f),
        bias(c.columns, random, 1.0f),
        gamma(c.columns, random, 0.3f, 1.0f),
        beta(c.columns, random, 0.3f),
        dy(c.rows * c.columns, random, 1.0f),
        other_dy(c.rows * c.columns, random, 1.0f),
        y(c.rows * c.columns),
        dx(c.rows * c.columns),
        dresidual(c.rows * c.columns),
        dbias(c.columns),
        dgamma(c.columns),
        dbeta(c.columns),
        mean(c.rows),
        rstd(c.rows),
        scratch(ResidualLayerNormGradScratchSize(c.rows, c.columns)) {}

  ResidualLayerNormArgs<T> ForwardArgs(const Case& c) {
    return {x.data(),
            c.has_residual ? residual.data() : nullptr,
            c.has_bias ? bias.data() : nullptr,
            gamma.data(),
            beta.data(),
            c.rows,
            c.columns,
            kEpsilon,
            c.dropout_rate,
            c.seed,
            y.data(),
            mean.data(),
            rstd.data(),
            c.is_rms};
  }

  ResidualLayerNormGradArgs<T> BackwardArgs(const Case& c) {
    const bool separate = c.has_residual && c.dropout_rate > 0.0f;
    return {dy.data(),
            x.data(),
            c.has_residual ? residual.data() : nullptr,
            c.has_bias ? bias.data() : nullptr,
            gamma.data(),
            mean.data(),
            rstd.data(),
            c.rows,
            c.columns,
            c.dropout_rate,
            c.seed,
            dx.data(),
            separate ? dresidual.data() : nullptr,
            c.has_bias ? dbias.data() : nullptr,
            dgamma.data(),
            dbeta.data(),
            scratch.data(),
            c.is_rms,
            c.has_other_dy ? other_dy.data() : nullptr};
  }

  Buffer<T> x, residual, bias, gamma, beta, dy, other_dy;
  Buffer<T> y, dx, dresidual, dbias, dgamma, dbeta;
  Buffer<float> mean, rstd, scratch;
};

template <typename T>
void TestCase(Isa isa, const Case& c) {
  const std::string context = std::string(Name(isa)) + " " + TypeName<T>() + " [" +
                              std::to_string(c.rows) + ", " + std::to_string(c.columns) + "]" +
                              (c.has_residual ? " residual" : "") + (c.has_bias ? " bias" : "") +
                              (c.dropout_rate > 0.0f ? " dropout " : " ") +
                              (c.is_rms ? "rms " : "") + (c.has_other_dy ? "other dy " : "");
  std::mt19937 random(static_cast<uint32_t>(c.rows * 10007 + c.columns));
  Tensors<T> t(c, random);
  Run(isa, SerialParallel(), t.ForwardArgs(c));
  Run(isa, SerialParallel(), t.BackwardArgs(c));

  // The float64 reference, and its sums over the rows.
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  std::vector<double> dgamma(size(c.columns)), dbeta(dgamma), dbias(dgamma);
  const auto threshold = static_cast<uint32_t>(static_cast<double>(c.dropout_rate) * 4294967296.0);
  const double scale = 1.0 / (1.0 - c.dropout_rate);
  const double n = static_cast<double>(c.columns);
  // The variance of a row of one or two numbers may be zero or almost zero. Its gradients are then
  // differences of huge numbers, and only y is compared.
  const bool gradients = c.columns > 2;
  Buffer<T> dy = t.dy;
  for (int64_t i = 0; i < dy.size() && c.has_other_dy; ++i) {
    dy.at(i) = FromFloat<T>(static_cast<float>(t.dy[i] + t.other_dy[i]));
  }
  for (int64_t row = 0; row < c.rows; ++row) {
    std::vector<double> z(size(c.columns)), kept(z), g(z);
    double mean = 0.0, variance = 0.0;
    for (int64_t j = 0; j < c.columns; ++j) {
      const int64_t i = row * c.columns + j;
      kept[size(j)] = c.dropout_rate == 0.0f                                          ? 1.0
                      : ElementBits(c.seed, 0, static_cast<uint64_t>(i)) >= threshold ? scale
                                                                                      : 0.0;
      z[size(j)] = (t.x[i] + (c.has_bias ? t.bias[j] : 0.0)) * kept[size(j)] +
                   (c.has_residual ? t.residual[i] : 0.0);
      mean += c.is_rms ? 0.0 : z[size(j)] / n;
    }
    for (double v : z) variance += (v - mean) * (v - mean) / n;
    const double rstd = 1.0 / std::sqrt(variance + kEpsilon);
    // The error of n = (z - mean) * rstd due to the rounding of z and of the mean to float32.
    const double error = 1e-6 * (1.0 + std::fabs(mean)) * (rstd + 1.0);
    double g_mean = 0.0, gn_mean = 0.0;
    for (int64_t j = 0; j < c.columns; ++j) {
      const int64_t i = row * c.columns + j;
      const double normalized = (z[size(j)] - mean) * rstd;
      const double y = normalized * t.gamma[j] + t.beta[j];
      Check(std::fabs(t.y[i] - y) <= RoundingErrorAt<T>(y) + error * (1.0 + std::fabs(y)),
            context + "y");
      g[size(j)] = dy[i] * t.gamma[j];
      g_mean += c.is_rms ? 0.0 : g[size(j)] / n;
      gn_mean += g[size(j)] * normalized / n;
      dgamma[size(j)] += dy[i] * normalized;
      dbeta[size(j)] += dy[i];
    }
    if (!gradients) continue;
    for (int64_t j = 0; j < c.columns; ++j) {
      const int64_t i = row * c.columns + j;
      const double normalized = (z[size(j)] - mean) * rstd;
      const double dz = rstd * (g[size(j)] - g_mean - normalized * gn_mean);
      const double dx = dz * kept[size(j)];
      dbias[size(j)] += dx;
      const double tolerance = 4.0 * error * (1.0 + rstd) * (1.0 + std::fabs(g[size(j)]));
      Check(std::fabs(t.dx[i] - dx) <= RoundingErrorAt<T>(dx) + tolerance, context + "dx");
      if (c.has_residual && c.dropout_rate > 0.0f) {
        Check(std::fabs(t.dresidual[i] - dz) <= RoundingErrorAt<T>(dz) + tolerance,
              context + "dresidual");
      }
    }
  }
  for (int64_t j = 0; gradients && j < c.columns; ++j) {
    const double tolerance = 1e-4 + 1e-6 * static_cast<double>(c.rows);
    const auto check = [&](double actual, double expected, const char* what) {
      Check(std::fabs(actual - expected) <=
                RoundingErrorAt<T>(expected) + tolerance * (1.0 + std::fabs(expected)),
            context + what);
    };
    check(t.dgamma[j], dgamma[size(j)], "dgamma");
    check(t.dbeta[j], dbeta[size(j)], "dbeta");
    if (c.has_bias) check(t.dbias[j], dbias[size(j)], "dbias");
  }

  // The bits are the same in place and with any number of threads.
  for (int threads : {1, 2, 3, 7}) {
    const ThreadParallel parallel(threads);
    Tensors<T> t2 = t;
    ResidualLayerNormArgs<T> forward = t2.ForwardArgs(c);
    t2.y = t2.x;
    forward.x = t2.y.data();
    Run(isa, parallel, forward);
    ResidualLayerNormGradArgs<T> backward = t2.BackwardArgs(c);
    t2.dx = t2.dy;
    backward.dy = t2.dx.data();
    t2.dresidual = t2.x;
    if (backward.dresidual != nullptr) backward.x = t2.dresidual.data();
    Run(isa, parallel, backward);
    Check(t.y.SameBits(t2.y) && t.mean.SameBits(t2.mean) && t.rstd.SameBits(t2.rstd) &&
              t.dx.SameBits(t2.dx) && t.dgamma.SameBits(t2.dgamma) && t.dbeta.SameBits(t2.dbeta) &&
              (!c.has_bias || t.dbias.SameBits(t2.dbias)) &&
              (backward.dresidual == nullptr || t.dresidual.SameBits(t2.dresidual)),
          context + std::to_string(threads) + " threads");
  }
}

template <typename T>
void TestCases(Isa isa) {
  const uint64_t seed = 0xFEDCBA9876543210u;
  for (bool has_residual : {false, true}) {
    for (bool has_bias : {false, true}) {
      for (float rate : {0.0f, 0.1f}) {
        for (int64_t columns : {1, 3, 17, 63, 65, 768, 1000}) {
          for (int64_t rows : {1, 9, 67}) {
            TestCase<T>(isa, {rows, columns, has_residual, has_bias, rate, seed});
          }
        }
        TestCase<T>(isa, {9, 65, has_residual, has_bias, rate, seed, true});
        TestCase<T>(isa, {2, 20001, has_residual, has_bias, rate, seed});
        TestCase<T>(isa, {1100, 33, has_residual, has_bias, rate, seed});
        TestCase<T>(isa, {0, 5, has_residual, has_bias, rate, seed});
        TestCase<T>(isa, {5, 0, has_residual, has_bias, rate, seed});
      }
    }
  }
  TestCase<T>(isa, {3, 768, true, true, 0.999f, seed});
  for (int64_t columns : {1, 17, 768}) {
    TestCase<T>(isa, {67, columns, true, false, 0.0f, seed, true});
    TestCase<T>(isa, {67, columns, true, true, 0.1f, seed, false, true});
  }
}

// A row scaled by any power of two normalizes to the same numbers when epsilon is zero.
void TestScales(Isa isa) {
  for (bool is_rms : {false, true}) {
    const Case c{4, 100, false, false, 0.0f, 0, is_rms};
    for (float scale : {1e-30f, 1e-22f, 1e-18f, 1e18f, 1e19f, 1e30f, 1e37f}) {
      std::mt19937 random(5);
      Tensors<float> t(c, random);
      Tensors<float> scaled = t;
      for (int64_t i = 0; i < c.rows * c.columns; ++i) scaled.x.at(i) *= scale;
      ResidualLayerNormArgs<float> args = t.ForwardArgs(c), scaled_args = scaled.ForwardArgs(c);
      args.epsilon = scaled_args.epsilon = 0.0f;
      Run(isa, SerialParallel(), args);
      Run(isa, SerialParallel(), scaled_args);
      Run(isa, SerialParallel(), t.BackwardArgs(c));
      Run(isa, SerialParallel(), scaled.BackwardArgs(c));
      for (int64_t i = 0; i < c.rows * c.columns; ++i) {
        const std::string context = std::string(Name(isa)) + " scale " + std::to_string(scale);
        Check(std::fabs(t.y[i] - scaled.y[i]) <= 2e-6 * (1.0 + std::fabs(t.y[i])), context + " y");
        Check(std::fabs(t.dx[i] - scaled.dx[i] * scale) <= 1e-5, context + " dx");
      }
    }
  }
}

// A NaN or an infinity makes only its own row NaN. The result of a constant row is beta.
void TestSpecialRows(Isa isa) {
  const Case c{4, 70, true, true, 0.0f, 0};
  std::mt19937 random(6);
  Tensors<float> t(c, random);
  t.x.at(0 * c.columns + 69) = std::nanf("");
  t.x.at(1 * c.columns + 3) = INFINITY;
  for (int64_t j = 0; j < c.columns; ++j) {
    t.x.at(2 * c.columns + j) = 3.0f - t.bias.at(j);
    t.residual.at(2 * c.columns + j) = 0.0f;
  }
  Run(isa, SerialParallel(), t.ForwardArgs(c));
  for (int64_t j = 0; j < c.columns; ++j) {
    Check(std::isnan(t.y[j]) && std::isnan(t.y[c.columns + j]),
          std::string(Name(isa)) + " rows with NaN and infinity");
    Check(std::isfinite(t.y[2 * c.columns + j]) && std::isfinite(t.y[3 * c.columns + j]),
          std::string(Name(isa)) + " finite rows");
  }
  for (int64_t i = 0; i < t.x.size(); ++i) t.x.at(i) = 3.0f;
  Case plain = c;
  plain.has_residual = plain.has_bias = false;
  Run(isa, SerialParallel(), t.ForwardArgs(plain));
  for (int64_t i = 0; i < t.x.size(); ++i) {
    Check(std::fabs(t.y[i] - t.beta[i % c.columns]) <= 1e-6,
          std::string(Name(isa)) + " constant row");
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  TestPhilox();
  for (bert_tf::Isa isa : SupportedIsas()) {
    TestCases<float>(isa);
    TestCases<bert_tf::BFloat16>(isa);
    TestCases<bert_tf::Float16>(isa);
    TestScales(isa);
    TestSpecialRows(isa);
  }
  return Report("fused_residual_layer_norm_test");
}
