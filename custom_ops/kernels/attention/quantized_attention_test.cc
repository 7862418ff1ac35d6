// Compares quantized_attention with its formula in int64 and float64, and with attention that is
// not quantized: odd lengths, heads and head sizes, every mask, all storage types, special values,
// and equal bits for every number of threads, with every instruction set of this processor.
#include "custom_ops/kernels/attention/quantized_attention.h"

#include "custom_ops/kernels/attention/attention_test_util.h"
#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/base/thread_scratch.h"

namespace bert_tf {
namespace testing {
namespace {

template <typename T>
struct Tensors {
  Tensors(const Case& c, uint32_t random_seed)
      : random(random_seed),
        qkv(3 * c.Rows() * c.heads * c.head_size, random, 1.0f, 0.5f),
        output(c.Rows() * c.heads * c.head_size, FromFloat<T>(7.0f)),
        distance_bias(c.DistanceBias()) {}
  std::mt19937 random;
  Buffer<T> qkv, output;
  std::vector<float> distance_bias;
};

template <typename T>
VarlenAttentionArgs<T> Args(const Case& c, const std::vector<int64_t>& splits, Tensors<T>* t) {
  VarlenAttentionArgs<T> args;
  static_cast<VarlenAttentionOptions&>(args) = Options(c, splits, t->distance_bias);
  args.SetQkv(t->qkv.data());
  args.output = t->output.data();
  return args;
}

// The formula. `slack` is how far an output may be off, because a weight is so close to the middle
// of two integers that it may be rounded to either.
struct Expected {
  std::vector<double> output, slack, exact;
};

// One head of one sequence: the formula with `get(i, part, d)`, the numbers of qkv, and `bias(i,
// j)`.
template <typename Get, typename Bias>
void ReferenceHead(const Case& c, int64_t length, const Get& get, const Bias& bias, double* output,
                   double* slack, double* exact, int64_t stride) {
  const int64_t D = c.head_size;
  const auto rounded = [](float v) { return static_cast<int64_t>(std::nearbyint(v)); };
  std::vector<float> mean(D), value_scale(D);
  std::vector<int64_t> b(length * D), v(length * D);
  std::vector<double> key_scale(length);
  for (int64_t d = 0; d < D; ++d) {
    float sum = 0.0f, largest = 0.0f;
    for (int64_t j = 0; j < length; ++j) sum += get(j, 1, d);
    mean[d] = sum * (1.0f / static_cast<float>(length));
    for (int64_t j = 0; j < length; ++j) largest = std::max(largest, std::fabs(get(j, 2, d)));
    const float inverse = largest >= 0x1p-100f ? 127.0f / largest : 0.0f;
    value_scale[d] = inverse == 0.0f ? 0.0f : largest / 127.0f;
    for (int64_t j = 0; j < length; ++j) v[j * D + d] = rounded(get(j, 2, d) * inverse);
  }
  for (int64_t j = 0; j < length; ++j) {
    float largest = 0.0f;
    for (int64_t d = 0; d < D; ++d) largest = std::max(largest, std::fabs(get(j, 1, d) - mean[d]));
    const float inverse = largest >= 0x1p-100f ? 127.0f / largest : 0.0f;
    key_scale[j] = inverse == 0.0f ? 0.0 : largest / 127.0f;
    for (int64_t d = 0; d < D; ++d) b[j * D + d] = rounded((get(j, 1, d) - mean[d]) * inverse);
  }
  for (int64_t i = 0; i < length; ++i) {
    double low = 0.0, high = 0.0;
    for (int64_t d = 0; d < D; ++d) {
      low = std::min<double>(low, get(i, 0, d));
      high = std::max<double>(high, get(i, 0, d));
    }
    const double step = (high - low) / 255.0;
    const int64_t zero = rounded(static_cast<float>(std::nearbyint(-low / step)));
    std::vector<double> s(length, -INFINITY), t(length, -INFINITY);
    double largest = -INFINITY, exact_largest = -INFINITY;
    for (int64_t j = 0; j < length; ++j) {
      if (!c.Sees(i, j)) continue;
      int64_t sum = 0;
      double product = 0.0;
      for (int64_t d = 0; d < D; ++d) {
        const float q = get(i, 0, d);
        const int64_t a =
            std::clamp<int64_t>(rounded(q * static_cast<float>(1.0 / step)) + zero, 0, 255);
        sum += (a - zero) * b[j * D + d];
        product += static_cast<double>(q) * get(j, 1, d);
      }
      s[j] = step * key_scale[j] * static_cast<double>(sum) / std::sqrt(static_cast<double>(D));
      t[j] = product / std::sqrt(static_cast<double>(D));
      s[j] += bias(i, j);
      t[j] += bias(i, j);
      largest = std::max(largest, s[j]);
      exact_largest = std::max(exact_largest, t[j]);
    }
    double total = 0.0, uncertain = 0.0, exact_total = 0.0;
    std::vector<double> p(length, 0.0), e(length, 0.0);
    for (int64_t j = 0; j < length; ++j) {
      const double weight = 255.0 * std::exp(s[j] - largest);
      p[j] = std::nearbyint(weight);
      total += p[j];
      if (std::fabs(weight - std::floor(weight) - 0.5) < 2e-3) uncertain += 1.0;
      e[j] = std::exp(t[j] - exact_largest);
      exact_total += e[j];
    }
    for (int64_t d = 0; d < D; ++d) {
      double sum = 0.0, exact_sum = 0.0;
      for (int64_t j = 0; j < length; ++j) {
        sum += p[j] * static_cast<double>(v[j * D + d]);
        exact_sum += e[j] * get(j, 2, d);
      }
      output[i * stride + d] = value_scale[d] * sum / total;
      slack[i * stride + d] = uncertain * 2.0 * 127.0 * value_scale[d] / total;
      exact[i * stride + d] = exact_sum / exact_total;
    }
  }
}

template <typename T>
Expected Reference(const Case& c, const Tensors<T>& t) {
  const size_t size = static_cast<size_t>(t.output.size());
  Expected e{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
  const std::vector<int64_t> splits = c.RowSplits();
  const int64_t hidden = c.heads * c.head_size;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      const auto get = [&](int64_t i, int64_t part, int64_t d) {
        return static_cast<float>(
            t.qkv[((splits[b] + i) * 3 + part) * hidden + n * c.head_size + d]);
      };
      const auto bias = [&](int64_t i, int64_t j) {
        return c.max_distance < 0 ? 0.0f : t.distance_bias[c.BiasIndex(n, i, j)];
      };
      const int64_t at = splits[b] * hidden + n * c.head_size;
      ReferenceHead(c, c.lengths[b], get, bias, e.output.data() + at, e.slack.data() + at,
                    e.exact.data() + at, hidden);
    }
  }
  return e;
}

template <typename T>
void RunUnits(const BytePath& path, const Case& c, Tensors<T>* t) {
  const std::vector<int64_t> splits = c.RowSplits();
  std::vector<AttentionUnit> units;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      for (int64_t i = 0; i < c.lengths[b]; i += kQuantizedAttentionQueries) {
        const RowRange rows = RowsOfSequence(splits.data(), b);
        units.push_back({rows, rows, n, i, AttentionUnit::kQueryBlock});
      }
    }
  }
  // The scratch is filled with NaN, because it must be written before it is read.
  constexpr int64_t kScratch = 1 << 20;
  std::fill_n(ThreadScratch(0, kScratch), kScratch, std::nanf(""));
  BERT_TF_CALL_ISA(path.isa, QuantizedAttentionUnits, Args(c, splits, t), units.data(),
                   static_cast<int64_t>(units.size()), path.instructions);
}

template <typename T>
void TestCase(const BytePath& path, const Case& c) {
  const std::string context = Name(path) + TypeName<T>() + " " + c.Describe();
  Tensors<T> t(c, 17);
  const Expected expected = Reference(c, t);
  RunUnits(path, c, &t);
  double squares = 0.0, exact_squares = 0.0;
  for (int64_t i = 0; i < t.output.size(); ++i) {
    const double error = std::fabs(t.output[i] - expected.output[i]);
    const double tolerance = expected.slack[i] + (1e-5 + 2 * RoundingError<T>()) *
                                                     std::max(1.0, std::fabs(expected.output[i]));
    Check(error <= tolerance, context + "[" + std::to_string(i) + "] error " +
                                  std::to_string(error) + " of at most " +
                                  std::to_string(tolerance));
    squares += std::pow(t.output[i] - expected.exact[i], 2);
    exact_squares += std::pow(expected.exact[i], 2);
  }
  if (c.head_size >= 16) {
    Check(squares <= 0.02 * 0.02 * exact_squares,
          context + "relative error " + std::to_string(std::sqrt(squares / exact_squares)));
  }
  // All else being equal, the integers are exact. (Global keys are summed apart from the others
  // or not, which depends on the number of rows of a tile.)
  if (path.instructions != ByteInstructions::kNone && c.globals == 0) {
    Tensors<T> other(c, 17);
    RunUnits({path.isa, ByteInstructions::kNone}, c, &other);
    Check(t.output.SameBits(other.output), context + "without the instructions");
  }
  if (path.isa != BestIsa() || path.instructions != BestByteInstructions()) return;
  const std::vector<int64_t> splits = c.RowSplits();
  for (int threads : {1, 3, 64}) {
    Tensors<T> threaded(c, 17);
    QuantizedAttention(ThreadParallel(threads), Args(c, splits, &threaded));
    Check(t.output.SameBits(threaded.output), context + std::to_string(threads) + " threads");
  }
}

template <typename T>
void TestCases(const BytePath& path) {
  for (int64_t head_size : {1, 2, 5, 16, 31, 32, 33, 40, 64, 80, 128}) {
    TestCase<T>(path, {{3, 0, 1, 17, 65}, 2, head_size});
    TestCase<T>(path, {{70, 1}, 1, head_size, true});
  }
  for (int64_t length : {1, 2, 13, 14, 15, 28, 29, 31, 32, 33, 63, 64, 66, 129, 200, 513}) {
    TestCase<T>(path, {{length}, 3, 8});
  }
  for (bool causal : {false, true}) {
    for (int64_t window : {0, 1, 7, 40, 64, 100}) {
      for (int64_t globals : {0, 1, 5, 70}) {
        TestCase<T>(path, {{150, 3, 67}, 1, 16, causal, window, globals});
      }
    }
    TestCase<T>(path, {{1200}, 1, 16, causal, 30, 40});
    for (int64_t max_distance : {0, 1, 40, 128, 500}) {
      TestCase<T>(path, {{150, 3, 67}, 2, 16, causal, -1, 0, 0.0f, std::nullopt, max_distance});
      TestCase<T>(path, {{600}, 2, 16, causal, 100, 70, 0.0f, std::nullopt, max_distance});
    }
  }
  TestCase<T>(path, {{}, 2, 8});
  TestCase<T>(path, {{0, 0}, 2, 8});
}

// Whether each row of the second sequence, in the first of two heads, is finite.
std::vector<bool> FiniteRows(const BytePath& path, const Case& c, Tensors<float>* t) {
  RunUnits(path, c, t);
  std::vector<bool> finite;
  for (int64_t row = 0; row < c.Rows(); ++row) {
    for (int64_t n = 0; n < c.heads; ++n) {
      bool all = true, none = true;
      for (int64_t d = 0; d < c.head_size; ++d) {
        const bool is_finite = std::isfinite(t->output[(row * c.heads + n) * c.head_size + d]);
        all = all && is_finite;
        none = none && !is_finite;
      }
      Check(all || none, Name(path) + "a row is partly finite");
      finite.push_back(all);
    }
  }
  return finite;
}

void TestNotFinite(const BytePath& path) {
  const Case c{{5, 40, 7}, 2, 8, true};
  for (int part : {0, 1, 2}) {
    for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      Tensors<float> t(c, 3);
      const int64_t row = 5 + 20;
      t.qkv.at((row * 3 + part) * c.heads * c.head_size + 2) = bad;  // of the first head
      const std::vector<bool> finite = FiniteRows(path, c, &t);
      for (int64_t i = 0; i < c.Rows(); ++i) {
        const bool reached = part == 0 ? i == row : i >= 5 && i < 45;
        Check(finite[i * 2] == !reached && finite[i * 2 + 1],
              Name(path) + "part " + std::to_string(part) + " row " + std::to_string(i));
      }
    }
  }
  Case biased = c;
  biased.max_distance = 3;
  Tensors<float> t(biased, 3);
  t.distance_bias.back() = std::nanf("");  // of the second head
  const std::vector<bool> finite = FiniteRows(path, biased, &t);
  for (size_t i = 0; i < finite.size(); ++i) {
    Check(finite[i] == (i % 2 == 0), Name(path) + "distance bias " + std::to_string(i));
  }
}

void TestSpecialValues(const BytePath& path) {
  const Case c{{40}, 1, 8};
  // All keys equal, and queries and keys of zeros: the mean of the values.
  for (float key : {0.0f, 3.0f, 1e10f}) {
    Tensors<float> t(c, 4);
    for (int64_t i = 0; i < t.qkv.size(); ++i) {
      const int64_t part = i / c.head_size % 3;
      t.qkv.at(i) = part == 0 ? key : part == 1 ? key : 2.0f;
    }
    RunUnits(path, c, &t);
    for (int64_t i = 0; i < t.output.size(); ++i) {
      Check(std::fabs(t.output[i] - 2.0) < 1e-6, Name(path) + "equal keys");
    }
  }
  // Scores beyond float32's range give NaN and no error of memory.
  Tensors<float> t(c, 5);
  for (int64_t i = 0; i < t.qkv.size(); ++i) t.qkv.at(i) *= 1e37f;
  RunUnits(path, c, &t);
  // Large scores: the softmax takes one key.
  for (int64_t i = 0; i < t.qkv.size(); ++i) t.qkv.at(i) *= 1e-35f;
  const Expected expected = Reference(c, t);
  RunUnits(path, c, &t);
  CheckNear(t.output, expected.output, 1e-4, Name(path) + "large scores");
}

// The largest sums: all weights are 255 and all values 127.
void TestLongest(const BytePath& path) {
  const Case c{{kQuantizedAttentionLength}, 1, 1, false, 0, 1};
  Tensors<float> t(c, 6);
  for (int64_t i = 0; i < t.qkv.size(); ++i) t.qkv.at(i) = 1.0f;
  RunUnits(path, c, &t);
  Check(t.output[0] == 1.0, Name(path) + "the longest sequence");
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  for (const BytePath& path : SupportedBytePaths()) {
    TestCases<float>(path);
    TestCases<bert_tf::BFloat16>(path);
    TestCases<bert_tf::Float16>(path);
    TestNotFinite(path);
    TestSpecialValues(path);
    TestLongest(path);
  }
  return Report("quantized_attention_test");
}
