// Compares quantized_dense with its formula in int64 and float64: every number of rows up to 40,
// odd sizes, all epilogues and storage types, the largest sums, far bytes, special values, and
// equal bits for every number of threads and with any other rows, with every instruction set of
// this processor.
#include "custom_ops/kernels/dense/quantized_dense.h"

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/dense/avx_vnni_test_util.h"
#include "custom_ops/kernels/dense/dense_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

std::string Describe(const BytePath& path, const Case& c) { return Name(path) + Describe(c); }

template <typename T>
struct Tensors : EpilogueTensors<T> {
  Tensors(const Case& c, std::mt19937& random, bool has_static = false)
      : EpilogueTensors<T>(c, random),
        x(c.rows * c.depth, random, 1.0f, 0.3f),
        kernel(static_cast<size_t>(c.depth * c.columns)),
        packed(static_cast<size_t>(PackedQuantizedDenseSize(c.depth, c.columns)), 0),
        scale(c.columns, random, 0.001f, 0.01f),
        sums(static_cast<size_t>(c.columns), 0),
        smoothing(c.depth, random, 0.3f, 1.0f),
        is_static(has_static) {
    std::uniform_int_distribution<int> integers(-127, 127);
    for (int8_t& value : kernel) value = static_cast<int8_t>(integers(random));
    Pack(c);
  }

  void Pack(const Case& c) {
    const int64_t quads = (c.depth + 3) / 4;
    for (int64_t j = 0; j < c.columns; ++j) {
      sums[static_cast<size_t>(j)] = 0;
      for (int64_t k = 0; k < c.depth; ++k) {
        const int8_t v = kernel[static_cast<size_t>(k * c.columns + j)];
        packed[static_cast<size_t>(((j / 32 * quads + k / 4) * 32 + j % 32) * 4 + k % 4)] = v;
        sums[static_cast<size_t>(j)] += v;
      }
    }
  }

  QuantizedDenseArgs<T> Args(const Case& c) {
    QuantizedDenseArgs<T> args;
    this->SetArgs(c, &args);
    args.x = x.data();
    args.packed = packed.data();
    args.column_scale = scale.data();
    args.column_sums = sums.data();
    args.smoothing = smoothing.data();
    args.static_scale = is_static ? static_scale : nullptr;
    return args;
  }

  Buffer<T> x;
  std::vector<int8_t> kernel, packed;
  Buffer<float> scale;
  std::vector<int32_t> sums;
  Buffer<float> smoothing;
  bool is_static;
  float static_scale[2] = {0.0123f, 93.0f};  // so that a few numbers of x are clamped
};

template <typename T>
void Run(const BytePath& path, const Parallel& parallel, const QuantizedDenseArgs<T>& args) {
  BERT_TF_CALL_ISA(path.isa, QuantizedDense, parallel, args, path.instructions);
}

struct QuantizedRow {
  std::vector<int64_t> u;
  int64_t zero;
  float scale;
};

// The formula of quantized_dense.h.
template <typename T>
QuantizedRow Quantize(const Tensors<T>& t, int64_t first, int64_t depth) {
  std::vector<float> smoothed(static_cast<size_t>(depth));
  double least = 0.0, largest = 0.0;
  for (int64_t k = 0; k < depth; ++k) {
    const float s = static_cast<float>(t.x[first + k]) * static_cast<float>(t.smoothing[k]);
    smoothed[static_cast<size_t>(k)] = s;
    least = std::min<double>(least, s);
    largest = std::max<double>(largest, s);
  }
  QuantizedRow row{std::vector<int64_t>(static_cast<size_t>(depth), 0), 0, 0.0f};
  float inverse;
  if (t.is_static) {
    row.scale = t.static_scale[0];
    row.zero = static_cast<int64_t>(t.static_scale[1]);
    inverse = 1.0f / row.scale;
  } else {
    if (largest - least < kSmallestSpan) return row;
    const double step = (largest - least) / 255.0;
    row.scale = static_cast<float>(step);
    row.zero = static_cast<int64_t>(std::nearbyint(-least / step));
    inverse = static_cast<float>(1.0 / step);
  }
  for (int64_t k = 0; k < depth; ++k) {
    volatile const float scaled = smoothed[static_cast<size_t>(k)] * inverse;
    const double n = std::nearbyint(scaled) + static_cast<double>(row.zero);
    row.u[static_cast<size_t>(k)] = static_cast<int64_t>(std::clamp(n, 0.0, 255.0));
  }
  return row;
}

template <typename T>
void CheckValues(const Case& c, const Tensors<T>& t, const std::string& context) {
  std::vector<double> z(static_cast<size_t>(c.columns));
  const bool is_plain =
      !c.has_bias && !c.has_residual && !c.layer_norm && c.activation == DenseActivation::kNone;
  for (int64_t i = 0; i < c.rows; ++i) {
    const QuantizedRow row = Quantize(t, i * c.depth, c.depth);
    double largest = 0.0;
    for (int64_t j = 0; j < c.columns; ++j) {
      int64_t bracket = 0;
      for (int64_t k = 0; k < c.depth; ++k) {
        bracket += (row.u[static_cast<size_t>(k)] - row.zero) *
                   t.kernel[static_cast<size_t>(k * c.columns + j)];
      }
      if (is_plain) {  // there is only one way to round, so equal integers give equal bits
        volatile const float scaled = static_cast<float>(bracket) * static_cast<float>(t.scale[j]);
        Buffer<T> expected(1, FromFloat<T>(scaled * row.scale));
        Check(std::memcmp(expected.data(), t.y.data() + i * c.columns + j, sizeof(T)) == 0,
              context + "bits of y[" + std::to_string(i) + ", " + std::to_string(j) +
                  "]: " + std::to_string(t.y[i * c.columns + j]) + ", expected " +
                  std::to_string(expected[0]));
      }
      const double product = static_cast<double>(bracket) * row.scale * t.scale[j];
      const double sum = product + (c.has_bias ? t.bias[j] : 0.0);
      double value = Activation(c.activation, sum);
      double tolerance = 0x1p-21 * (std::fabs(product) + std::fabs(sum) + std::fabs(value));
      if (c.has_residual) {
        value += t.residual[i * c.columns + j];
        tolerance += 0x1p-23 * std::fabs(value);
      }
      z[static_cast<size_t>(j)] = value;
      largest = std::max(largest, tolerance);
    }
    t.CheckRow(c, i, z, std::vector<double>(z.size(), largest + 1e-30), context);
  }
}

template <typename T>
void TestCase(const BytePath& path, const Case& c, bool is_static = false) {
  const std::string context =
      std::string(TypeName<T>()) + " " + Describe(path, c) + (is_static ? "static " : "");
  std::mt19937 random(static_cast<uint32_t>(c.rows * 10007 + c.depth * 101 + c.columns));
  Tensors<T> t(c, random, is_static);
  Run(path, SerialParallel(), t.Args(c));
  // The LayerNorm of a row of one or two numbers may consist of rounding errors only.
  if (!c.layer_norm || c.columns > 2) CheckValues(c, t, context);
  Check(ToFloat(t.y.data()[-1]) == 7.0f && ToFloat(t.y.data()[t.y.size()]) == 7.0f,
        context + "wrote outside of y");
  for (int threads : {2, 7, 16}) {
    const ThreadParallel parallel(threads);
    Tensors<T> t2 = t;
    QuantizedDenseArgs<T> args = t2.Args(c);
    if (c.has_residual) {
      t2.y = t2.residual;  // in place
      args.residual = t2.y.data();
    }
    Run(path, parallel, args);
    Check(t.y.SameBits(t2.y), context + std::to_string(threads) + " threads");
  }
}

template <typename T>
void TestCases(const BytePath& path) {
  const DenseActivation none = DenseActivation::kNone;
  for (int64_t rows = 0; rows <= 40; ++rows) {
    for (const auto& [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 33}, {31, 5}, {67, 100}, {514, 17}}) {
      TestCase<T>(path, {rows, depth, columns, false, none, false, false});
      TestCase<T>(path, {rows, depth, columns, rows % 3 == 0, none, rows % 2 == 0, true},
                  rows % 5 == 0);
    }
  }
  for (int64_t rows : {1, 150, 333}) {
    for (const auto& [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{70, 130}, {300, 67}}) {
      TestCase<T>(path, {rows, depth, columns, false, none, false, false});
      TestCase<T>(path, {rows, depth, columns, false, none, false, false}, true);
      TestCase<T>(path, {rows, depth, columns, true, DenseActivation::kGelu, false, false}, true);
      TestCase<T>(path, {rows, depth, columns, true, DenseActivation::kGelu, false, false});
      TestCase<T>(path,
                  {rows, depth, columns, true, DenseActivation::kApproximateGelu, false, false});
      TestCase<T>(path, {rows, depth, columns, true, DenseActivation::kSilu, false, false});
      TestCase<T>(path, {rows, depth, columns, true, none, true, false});
      TestCase<T>(path, {rows, depth, columns, true, none, true, true});
    }
  }
  TestCase<T>(path, {5, 0, 37, true, DenseActivation::kGelu, false, false});
  TestCase<T>(path, {5, 0, 37, true, none, true, true});
  TestCase<T>(path, {5, 7, 0, true, none, true, true});
  TestCase<T>(path, {3, 2, 3000, true, none, true, true});
  TestCase<T>(path, {2000, 9, 40, true, none, true, true});
}

template <typename T>
void TestGate(const BytePath& path) {
  CheckGate<T>(
      std::string(Name(path)) + TypeName<T>() + " ",
      [](const Case& c, std::mt19937* random) { return Tensors<T>(c, *random); },
      [&path](const Parallel& parallel, const auto& args) { Run(path, parallel, args); });
}

// The feed-forward network has the bits of its two layers, one after the other, also in place.
template <typename T>
void TestFeedForward(const BytePath& path) {
  for (int64_t rows : {0, 1, 5, 27, 28, 69, 70, 71, 141, 300}) {
    for (int i = 0; i < 4; ++i) {
      const DenseActivation activation = i % 2 ? DenseActivation::kGelu : DenseActivation::kNone;
      const bool is_static = i < 2;
      const Case wide{rows, 35, 71, true, activation, false, false};
      const Case narrow{rows, 71, 35, true, DenseActivation::kNone, true, true};
      std::mt19937 random(5);
      Tensors<T> one(wide, random, rows % 2 == 0), other(narrow, random, is_static);
      if (rows > 30) one.x.at(29 * wide.depth) = FromFloat<T>(INFINITY);
      QuantizedDenseArgs<T> first = one.Args(wide), second = other.Args(narrow);
      second.x = first.y;
      second.residual = first.x;
      Run(path, SerialParallel(), first);
      Run(path, SerialParallel(), second);
      first.y = nullptr;
      second.x = nullptr;
      for (int threads : {1, 2, 5}) {
        Buffer<T> y = one.x;
        first.x = second.residual = second.y = y.data();
        BERT_TF_CALL_ISA(path.isa, QuantizedFeedForward, ThreadParallel(threads),
                         QuantizedFeedForwardArgs<T>{first, second}, path.instructions);
        Check(y.SameBits(other.y), std::string(TypeName<T>()) + " " + Describe(path, wide) +
                                       "feed forward, " + (is_static ? "static, " : "") +
                                       std::to_string(threads) + " threads");
      }
    }
  }
}

// With the largest possible sums, no instruction saturates or overflows.
void TestLargestSums(const BytePath& path) {
  for (int64_t depth : {int64_t{3072}, kQuantizedDenseDepth}) {
    const Case c{3, depth, 3, false, DenseActivation::kNone, false, false};
    std::mt19937 random(4);
    Tensors<float> t(c, random);
    for (int64_t k = 0; k < depth; ++k) {
      t.smoothing.at(k) = 1.0f;
      t.x.at(k) = 2.0f;           // all 255, zero point 0
      t.x.at(depth + k) = -2.0f;  // all 0, zero point 255
      t.x.at(2 * depth + k) = k % 2 ? 1.0f : 0.0f;
      const size_t first = static_cast<size_t>(k * 3);
      t.kernel[first] = 127;
      t.kernel[first + 1] = -127;
      t.kernel[first + 2] = k % 2 ? 127 : -127;
    }
    t.Pack(c);
    Run(path, SerialParallel(), t.Args(c));
    CheckValues(c, t, Describe(path, c) + "largest sums ");
  }
}

// Products of pairs of bytes could saturate where bytes are far from the others of their row
// (byte_pairs.h): in no, some, many or all places of the rows of a tile, of W all or both ends.
void TestFarBytes(const BytePath& path) {
  for (const auto& [depth, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 5}, {16, 32}, {35, 33}, {262, 37}}) {
    for (int order = 0; order < 2; ++order) {
      const Case c{20, depth, columns, false, DenseActivation::kNone, false, false};
      std::mt19937 random(6);
      Tensors<float> t(c, random, true);
      t.static_scale[0] = 1.0f;  // so that u = x + 128
      t.static_scale[1] = 128.0f;
      std::fill(t.smoothing.data(), t.smoothing.data() + depth, 1.0f);
      std::uniform_int_distribution<int> one_in(0, 63), near(-60, 60), any(-128, 127);
      for (int64_t i = 0; i < c.rows; ++i) {
        const int64_t kind = order == 0 ? i / 5 : i % 4;  // one kind per tile, or all in a tile
        for (int64_t k = 0; k < depth; ++k) {
          const float end = any(random) < 0 ? -128.0f : 127.0f;
          const bool is_far = kind == 1 ? one_in(random) == 0 : kind == 2;
          t.x.at(i * depth + k) = kind == 3 ? (i % 2 ? -128.0f : 127.0f)
                                  : is_far  ? end
                                            : static_cast<float>(near(random));
        }
      }
      for (size_t k = 0; k < t.kernel.size(); ++k) {
        const bool is_least = k % static_cast<size_t>(columns) % 2 || any(random) < 0;
        t.kernel[k] = is_least ? -127 : 127;
      }
      t.Pack(c);
      Run(path, SerialParallel(), t.Args(c));
      CheckValues(c, t, Describe(path, c) + "far bytes ");
    }
  }
}

// The bits of a row do not depend on the other rows.
template <typename T>
void TestRowsAlone(const BytePath& path) {
  std::mt19937 random(2);
  for (bool layer_norm : {false, true}) {
    const Case c{45, 600, 70, true, DenseActivation::kNone, true, layer_norm};
    Tensors<T> t(c, random);
    Run(path, SerialParallel(), t.Args(c));
    for (int64_t i = 0; i < c.rows; ++i) {
      Buffer<T> row(c.columns);
      QuantizedDenseArgs<T> args = t.Args(c);
      args.x += i * c.depth;
      args.residual += i * c.columns;
      args.rows = 1;
      args.y = row.data();
      Run(path, SerialParallel(), args);
      Check(std::memcmp(row.data(), t.y.data() + i * c.columns,
                        static_cast<size_t>(c.columns) * sizeof(T)) == 0,
            Describe(path, c) + "a row alone");
    }
  }
}

// A row with a NaN or an infinity is NaN. Rows of the largest numbers, of the smallest numbers and
// of zeros are not, and no other row changes.
void TestSpecialValues(const BytePath& path) {
  std::mt19937 random(3);
  for (bool layer_norm : {false, true}) {
    const Case c{12, 41, 37, true, DenseActivation::kNone, true, layer_norm};
    Tensors<float> t(c, random);
    for (int64_t j = 0; j < c.columns; ++j) t.scale.at(j) *= 0.01f;  // so that row 10 is finite
    for (int64_t k = 0; k < c.depth; ++k) t.smoothing.at(k) = 0.5f;
    Run(path, SerialParallel(), t.Args(c));
    const Buffer<float> before = t.y;
    t.x.at(2 * c.depth + 40) = std::nanf("");
    t.x.at(5 * c.depth + 1) = INFINITY;
    t.x.at(6 * c.depth + 2) = -INFINITY;
    for (int64_t k = 0; k < c.depth; ++k) {
      t.x.at(8 * c.depth + k) = 0.0f;
      t.x.at(9 * c.depth + k) = k % 2 ? 1e-38f : 1e-44f;
      t.x.at(10 * c.depth + k) = k % 2 ? 3.4e38f : -3.4e38f;
    }
    Run(path, SerialParallel(), t.Args(c));
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        const double y = t.y[i * c.columns + j];
        const bool is_nan = i == 2 || i == 5 || i == 6;
        const std::string context = Describe(path, c) + "special values, row " + std::to_string(i);
        Check(std::isnan(y) == is_nan && (is_nan || layer_norm || std::isfinite(y)), context);
        if (i < 8 && !is_nan) Check(y == before[i * c.columns + j], context + " changed");
        if ((i == 8 || i == 9) && !layer_norm) {
          const float sum =
              static_cast<float>(t.bias[j]) + static_cast<float>(t.residual[i * c.columns + j]);
          Check(y == sum, context + " counts as zeros");
        }
      }
    }
  }
}

// With a static scale, the largest numbers are clamped, and a row with a NaN or an infinity is NaN.
void TestSpecialValuesStatic(const BytePath& path) {
  std::mt19937 random(3);
  const Case c{4, 41, 37, false, DenseActivation::kNone, false, false};
  Tensors<float> t(c, random, true);
  for (int64_t k = 0; k < c.depth; ++k) t.x.at(c.depth + k) = k % 2 ? 1e38f : -1e38f;
  Run(path, SerialParallel(), t.Args(c));
  CheckValues(c, t, Describe(path, c) + "static, largest numbers ");
  const Buffer<float> before = t.y;
  t.x.at(40) = std::nanf("");
  t.x.at(2 * c.depth + 1) = -INFINITY;
  Run(path, SerialParallel(), t.Args(c));
  for (int64_t i = 0; i < c.rows * c.columns; ++i) {
    const bool is_nan = i / c.columns % 2 == 0;
    const float y = t.y[i];
    Check(is_nan ? std::isnan(y) : y == before[i], Describe(path, c) + "static, special values");
  }
}

// AVX-VNNI on a processor without it, where each of its instructions is a signal.
void TestEmulatedAvxVnni() {
#if defined(__x86_64__)
  if (BestIsa() != Isa::kAvx2 || BestByteInstructions() != ByteInstructions::kNone) return;
  EmulateAvxVnni();
  const BytePath path = {Isa::kAvx2, ByteInstructions::kVnni};
  TestLargestSums(path);
  TestFarBytes(path);
  for (int64_t rows : {1, 6, 13}) {
    TestCase<float>(path, {rows, 67, 37, true, DenseActivation::kNone, true, true});
  }
#endif
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  TestEmulatedAvxVnni();
  for (bool flush_to_zero : {false, true}) {
    SetFlushToZero(flush_to_zero);
    for (const BytePath& path : SupportedBytePaths()) {
      if (!flush_to_zero) {
        TestCases<float>(path);
        TestGate<float>(path);
        TestCases<bert_tf::BFloat16>(path);
        TestGate<bert_tf::BFloat16>(path);
        TestCases<bert_tf::Float16>(path);
        TestGate<bert_tf::Float16>(path);
        TestRowsAlone<float>(path);
        TestRowsAlone<bert_tf::BFloat16>(path);
        TestFeedForward<float>(path);
        TestFeedForward<bert_tf::BFloat16>(path);
        TestFeedForward<bert_tf::Float16>(path);
        TestLargestSums(path);
        TestFarBytes(path);
      }
      TestSpecialValues(path);
      TestSpecialValuesStatic(path);
    }
  }
  return Report("quantized_dense_test");
}
