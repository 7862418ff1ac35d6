// Compares bfloat16_dense with float64 and, without an epilogue, with the bits of its formula:
// every number of rows up to 40, odd sizes, all epilogues and storage types, unaligned data,
// special values, and equal bits for every number of threads and with any other rows, with every
// instruction set of this processor.
#include "custom_ops/kernels/dense/bfloat16_dense.h"

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/dense/amx_products.h"
#include "custom_ops/kernels/dense/dense_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

std::string Describe(const Path& path, const Case& c) { return Name(path) + Describe(c); }

template <typename T>
struct Tensors : EpilogueTensors<T> {
  Tensors(const Case& c, std::mt19937& random)
      : EpilogueTensors<T>(c, random),
        x(c.rows * c.depth, random, 1.0f),
        kernel(c.depth * c.columns, random, 1.0f),
        packed(PackedBfloat16DenseSize(c.depth, c.columns)) {
    Pack(c);
  }

  void Pack(const Case& c) {
    const int64_t pairs = (c.depth + 1) / 2;
    for (int64_t k = 0; k < c.depth; ++k) {
      for (int64_t j = 0; j < c.columns; ++j) {
        packed.at(((j / 32 * pairs + k / 2) * 32 + j % 32) * 2 + k % 2) =
            kernel.data()[k * c.columns + j];
      }
    }
  }

  Bfloat16DenseArgs<T> Args(const Case& c) {
    Bfloat16DenseArgs<T> args;
    this->SetArgs(c, &args);
    args.x = x.data();
    args.packed = packed.data();
    return args;
  }

  Buffer<BFloat16> RoundedX() const {
    Buffer<BFloat16> rounded(x.size());
    for (int64_t i = 0; i < x.size(); ++i) {
      rounded.at(i) = FromFloat<BFloat16>(static_cast<float>(x[i]));
    }
    return rounded;
  }

  Buffer<T> x;
  Buffer<BFloat16> kernel, packed;
};

Bfloat16Instructions InstructionsOf(const Path& path) {
  return path.has_instruction ? Bfloat16Instructions::kAvx512 : Bfloat16Instructions::kNone;
}

template <typename T>
void Run(const Path& path, const Parallel& parallel, const Bfloat16DenseArgs<T>& args) {
  BERT_TF_CALL_ISA(path.isa, Bfloat16Dense, parallel, args, InstructionsOf(path));
}

// The sums in the order of bfloat16_products.h.
template <typename T>
void CheckBits(const Case& c, const Tensors<T>& t, const std::string& context) {
  const Buffer<BFloat16> x = t.RoundedX();
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      float sum = 0.0f;
      for (int64_t pair = 0; pair < c.depth; pair += 2) {
        for (int64_t k : {pair + 1, pair}) {
          if (k == c.depth) continue;
          sum = std::fma(static_cast<float>(x[i * c.depth + k]),
                         static_cast<float>(t.kernel[k * c.columns + j]), sum);
        }
      }
      const T expected = FromFloat<T>(sum);
      Check(std::memcmp(&expected, t.y.data() + i * c.columns + j, sizeof(T)) == 0,
            context + "bits of y[" + std::to_string(i) + ", " + std::to_string(j) + "]");
    }
  }
}

template <typename T>
void TestCase(const Path& path, const Case& c) {
  const std::string context = std::string(TypeName<T>()) + " " + Describe(path, c);
  std::mt19937 random(static_cast<uint32_t>(c.rows * 10007 + c.depth * 101 + c.columns));
  Tensors<T> t(c, random);
  Run(path, SerialParallel(), t.Args(c));
  // The LayerNorm of a row of one or two numbers may consist of rounding errors only.
  if (!c.layer_norm || c.columns > 2) t.CheckProducts(c, t.RoundedX(), t.kernel, context);
  const bool is_plain =
      !c.has_bias && !c.has_residual && !c.layer_norm && c.activation == DenseActivation::kNone;
  if (is_plain && c.depth > 0) CheckBits(c, t, context);
  Check(ToFloat(t.y.data()[-1]) == 7.0f && ToFloat(t.y.data()[t.y.size()]) == 7.0f,
        context + "wrote outside of y");
  for (int threads : {2, 7, 16}) {
    const ThreadParallel parallel(threads);
    Tensors<T> t2 = t;
    Bfloat16DenseArgs<T> args = t2.Args(c);
    if (c.has_residual) {
      t2.y = t2.residual;  // in place
      args.residual = t2.y.data();
    }
    Run(path, parallel, args);
    Check(t.y.SameBits(t2.y), context + std::to_string(threads) + " threads");
  }
}

template <typename T>
void TestCases(const Path& path) {
  const DenseActivation none = DenseActivation::kNone;
  for (int64_t rows = 0; rows <= 40; ++rows) {
    for (const auto& [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 33}, {31, 5}, {67, 100}, {514, 17}}) {
      TestCase<T>(path, {rows, depth, columns, false, none, false, false});
      TestCase<T>(path, {rows, depth, columns, rows % 3 == 0, none, rows % 2 == 0, true});
    }
  }
  for (int64_t rows : {1, 150, 333}) {
    for (const auto& [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{70, 130}, {301, 67}}) {
      TestCase<T>(path, {rows, depth, columns, false, none, false, false});
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
  TestCase<T>(path, {29, 3100, 64, true, none, true, true});
  TestCase<T>(path, {3, 2, 3000, true, none, true, true});
  TestCase<T>(path, {2000, 9, 40, true, none, true, true});
}

template <typename T>
void TestGate(const Path& path) {
  CheckGate<T>(
      std::string(Name(path)) + TypeName<T>() + " ",
      [](const Case& c, std::mt19937* random) { return Tensors<T>(c, *random); },
      [&path](const Parallel& parallel, const auto& args) { Run(path, parallel, args); });
}

// The feed-forward network has the bits of its two layers, one after the other, also in place.
template <typename T>
void TestFeedForward(const Path& path) {
  for (int64_t rows : {0, 1, 5, 27, 28, 69, 70, 71, 141, 300}) {
    for (const DenseActivation activation : {DenseActivation::kNone, DenseActivation::kGelu}) {
      const Case wide{rows, 35, 71, true, activation, false, false};
      const Case narrow{rows, 71, 35, true, DenseActivation::kNone, true, true};
      std::mt19937 random(5);
      Tensors<T> one(wide, random), other(narrow, random);
      if (rows > 30) one.x.at(29 * wide.depth) = FromFloat<T>(INFINITY);
      Bfloat16DenseArgs<T> first = one.Args(wide), second = other.Args(narrow);
      second.x = first.y;
      second.residual = first.x;
      Run(path, SerialParallel(), first);
      Run(path, SerialParallel(), second);
      first.y = nullptr;
      second.x = nullptr;
      for (int threads : {1, 2, 5}) {
        Buffer<T> y = one.x;
        first.x = second.residual = second.y = y.data();
        BERT_TF_CALL_ISA(path.isa, Bfloat16FeedForward, ThreadParallel(threads),
                         Bfloat16FeedForwardArgs<T>{first, second}, InstructionsOf(path));
        Check(y.SameBits(other.y), std::string(TypeName<T>()) + " " + Describe(path, wide) +
                                       "feed forward, " + std::to_string(threads) + " threads");
      }
    }
  }
}

// A prepacked matrix or transpose has the layout of the header, on any number of threads.
void TestPack(Isa isa) {
  std::mt19937 random(1);
  for (const auto& [depth, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {1, 1}, {5, 33}, {64, 64}, {257, 31}}) {
    const Case c{0, depth, columns, false, DenseActivation::kNone, false, false};
    const Tensors<float> t(c, random);
    Buffer<BFloat16> transposed(depth * columns);
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        transposed.at(j * depth + k) = t.kernel.data()[k * columns + j];
      }
    }
    for (bool is_transposed : {false, true}) {
      for (int threads : {1, 2, 7}) {
        Buffer<BFloat16> packed(t.packed.size(), FromFloat<BFloat16>(7.0f));
        const Buffer<BFloat16>& kernel = is_transposed ? transposed : t.kernel;
        const PackDenseArgs<BFloat16> args{kernel.data(), is_transposed, depth, columns,
                                           packed.data()};
        BERT_TF_CALL_ISA(isa, PackBfloat16Dense, ThreadParallel(threads), args);
        Check(packed.SameBits(t.packed), std::string(Name(isa)) + " pack");
      }
    }
  }
}

// The bits of a row do not depend on the other rows.
template <typename T>
void TestRowsAlone(const Path& path) {
  std::mt19937 random(2);
  for (bool layer_norm : {false, true}) {
    const Case c{45, 601, 70, true, DenseActivation::kNone, true, layer_norm};
    Tensors<T> t(c, random);
    Run(path, SerialParallel(), t.Args(c));
    for (int64_t i = 0; i < c.rows; ++i) {
      Buffer<T> row(c.columns);
      Bfloat16DenseArgs<T> args = t.Args(c);
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

// A NaN or an infinity, or a number that bfloat16 rounds to infinity, affects only its own row
// (from x) or its own column (from W). Subnormal numbers count as themselves or as zeros.
void TestSpecialValues(const Path& path) {
  std::mt19937 random(3);
  const Case c{9, 41, 37, false, DenseActivation::kNone, false, false};
  Tensors<float> t(c, random);
  t.x.at(2 * c.depth + 40) = std::nanf("");
  t.x.at(5 * c.depth + 1) = INFINITY;
  t.x.at(6 * c.depth + 2) = 3.4e38f;
  for (int64_t k = 0; k < c.depth; ++k) t.x.at(7 * c.depth + k) = k % 2 ? 1e-44f : -1e-39f;
  t.kernel.at(7 * c.columns + 36) = FromFloat<BFloat16>(std::nanf(""));
  t.Pack(c);
  Run(path, SerialParallel(), t.Args(c));
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      const double y = t.y[i * c.columns + j];
      const bool ok = i == 2 || j == 36  ? std::isnan(y)
                      : i == 5 || i == 6 ? std::isinf(y)
                      : i == 7           ? std::fabs(y) < 1e-36
                                         : std::isfinite(y);
      Check(ok, Describe(path, c) + "special value at " + std::to_string(i) + ", " +
                    std::to_string(j) + ": " + std::to_string(y));
    }
  }
}

// AMX, emulated: every number of rows of a tile, and words that fill no tile.
void TestAmx() {
  using namespace ::bert_tf::portable;
  using Method = AmxPairs<EmulatedTiles>;
  std::mt19937 random(6);
  constexpr int64_t kMostRows = Method::kTileRows, kMostWords = 50;
  const Buffer<BFloat16> x(kMostRows * kMostWords * 2, random, 1.0f);
  const Buffer<BFloat16> w(kDensePanel * kMostWords * 2, random, 1.0f);
  for (int64_t words : {0, 1, 15, 16, 17, 48, 50}) {
    const auto check = [&](auto rows) {
      float z[kMostRows][kDensePanel];
      const WordRows x_rows = {reinterpret_cast<const uint8_t*>(x.data()), kMostWords * kWordBytes};
      Tile<Method, rows.value>(words, x_rows, w.data(), nullptr, 0, StoreSums{z[0], kDensePanel});
      for (int64_t i = 0; i < rows.value; ++i) {
        for (int64_t j = 0; j < kDensePanel; ++j) {
          double sum = 0.0, magnitude = 0.0;
          for (int64_t k = 0; k < 2 * words; ++k) {
            const double term =
                x[i * kMostWords * 2 + k] * w[(k / 2 * kDensePanel + j) * 2 + k % 2];
            sum += term;
            magnitude += std::fabs(term);
          }
          Check(std::fabs(z[i][j] - sum) <= 0x1p-20 * magnitude,
                "AMX, " + std::to_string(rows.value) + " rows, " + std::to_string(words) +
                    " words: " + std::to_string(z[i][j]) + ", expected " + std::to_string(sum));
        }
      }
    };
    check(std::integral_constant<int, 1>{});
    check(std::integral_constant<int, 15>{});
    check(std::integral_constant<int, 16>{});
    check(std::integral_constant<int, 17>{});
    check(std::integral_constant<int, 32>{});
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  TestAmx();
  for (bert_tf::Isa isa : SupportedIsas()) TestPack(isa);
  for (const Path& path : SupportedPaths(bert_tf::HasBfloat16())) {
    for (bool flush_to_zero : {false, true}) {
      SetFlushToZero(flush_to_zero);
      TestSpecialValues(path);
    }
    SetFlushToZero(false);
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
  }
  return Report("bfloat16_dense_test");
}
