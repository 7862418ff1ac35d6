// Compares varlen_attention with float64: odd lengths, heads and head sizes, keys of other lengths
// than the queries, every mask, distance biases, rotations, dropout against a scalar Philox, all
// storage types, products in bfloat16, numbers that are not finite, and equal bits for every number
// of threads and every plan, with every instruction set of this processor.
#include "custom_ops/kernels/attention/varlen_attention.h"

#include <string>
#include <utility>
#include <vector>

#include "custom_ops/kernels/attention/attention_test_util.h"
#include "custom_ops/kernels/attention/varlen_attention_test_util.h"
#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

void CheckLogsumexp(const Buffer<float>& actual, std::vector<double> expected, double tolerance,
                    const std::string& context) {
  Buffer<float> finite = actual;
  bool right = true;
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (expected[i] != -INFINITY) continue;  // of a query without keys
    right = right && actual[i] == -INFINITY;
    finite.at(i) = 0.0f;
    expected[i] = 0.0;
  }
  Check(right, context + "logsumexp of no keys");
  CheckNear(finite, expected, tolerance, context + "logsumexp");
}

// Compares sums; `sums` are those of the absolute values of their terms.
void CheckDistances(const Buffer<float>& actual, const std::vector<double>& expected,
                    const std::vector<double>& sums, double tolerance, const std::string& what) {
  double worst = 0.0;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(actual[i] - expected[i]);
    const double relative = error == 0.0 ? 0.0 : error / sums[i];
    worst = relative <= worst ? worst : relative;
    if (relative != relative) worst = INFINITY;
  }
  Check(worst <= tolerance, what + " error " + std::to_string(worst));
}

template <typename T>
void TestCase(const Variant& variant, const Case& c) {
  const std::string context = Describe(variant) + TypeName<T>() + " " + c.Describe();
  Tensors<T> t(c, 17);
  const bool rounds = variant.bfloat16_products;
  const Expected expected = Reference(c, t, rounds || std::is_same_v<T, BFloat16>);
  RunUnits(variant, c, false, &t);
  const double rounding = rounds ? RoundingError<BFloat16>() : RoundingError<T>();
  // The output is rounded to T, and the weights to bfloat16, if that is the type of the products.
  const int roundings = rounds || std::is_same_v<T, BFloat16> ? 2 : 1;
  CheckNear(t.output, expected.output, 2e-6 + roundings * rounding, context + "output");
  // A rotated number halfway between two bfloat16 numbers may be rounded to the other one.
  CheckLogsumexp(t.logsumexp, expected.logsumexp, rounds && c.rotation_size > 0 ? 1e-4 : 2e-6,
                 context);
  // The gradient reads the rounded output, so its error is a few roundings of the storage type.
  CheckNear(t.d_input, expected.d_input, 5e-6 + 3 * rounding, context + "d_input");
  Tensors<T> blocks(c, 17);
  RunUnits(variant, c, true, &blocks);
  Check(SameResults(t, blocks), context + "blocks");
  if (variant.has_instruction) {
    Tensors<T> other(c, 17);
    RunUnits({{variant.isa, false}, rounds}, c, false, &other);
    Check(SameResults(t, other), context + "without the instruction");
  }
  if (variant.isa != BestIsa() || variant.has_instruction != HasBfloat16()) return;
  Tensors<T> single(c, 17);  // the public functions also compute the gradients of distances
  RunPublic(rounds, 1, &single);
  CheckDistances(single.d_distance_bias, expected.d_distance_bias, expected.d_score_sums,
                 2e-5 + 3 * rounding, context + "d_distance_bias");
  CheckDistances(single.d_distance_vectors, expected.d_distance_vectors, expected.d_vector_sums,
                 2e-5 + 3 * rounding, context + "d_distance_vectors");
  for (int threads : {1, 2, 3, 7, 16, 64}) {
    Tensors<T> threaded(c, 17);
    RunPublic(rounds, threads, &threaded);
    Check(SameResults(t, threaded) && single.d_distance_bias.SameBits(threaded.d_distance_bias) &&
              single.d_distance_vectors.SameBits(threaded.d_distance_vectors),
          context + std::to_string(threads) + " threads");
  }
}

Case Rotated(Case c, int64_t rotation_size) {
  c.rotation_size = rotation_size;
  return c;
}

Case Disentangled(Case c, int64_t max_row_distance) {
  c.max_row_distance = max_row_distance;
  return c;
}

template <typename T>
void TestCases(const Variant& variant) {
  for (int64_t head_size : {1, 5, 16, 32, 40, 64, 80, 128}) {
    TestCase<T>(variant, {{3, 0, 1, 17, 65}, 2, head_size});
    TestCase<T>(variant, {{70, 1}, 1, head_size, true, -1, 0, 0.3f});
  }
  for (int64_t length : {1, 2, 15, 16, 31, 63, 64, 66, 127, 128, 129, 200}) {
    TestCase<T>(variant, {{length}, 3, 8});
    TestCase<T>(variant, {{length}, 1, 64, false, -1, 0, 0.1f});
  }
  for (float rate : {0.0f, 0.5f}) {
    for (bool causal : {false, true}) {
      for (int64_t window : {0, 1, 7, 40, 64, 100}) {
        for (int64_t globals : {0, 1, 5, 70}) {
          TestCase<T>(variant, {{150, 3, 67}, 1, 6, causal, window, globals, rate});
        }
      }
      TestCase<T>(variant, {{150, 3, 67}, 3, 6, causal, -1, 0, rate});
    }
  }
  TestCase<T>(variant, {{}, 2, 8});
  TestCase<T>(variant, {{0, 0}, 2, 8});
  const auto test_biased = [&](std::vector<int64_t> lengths, int64_t head_size, bool causal,
                               int64_t window, float rate) {
    for (int64_t max_distance : {0, 1, 40, 128, 500}) {
      TestCase<T>(variant, {lengths, 2, head_size, causal, window, window < 0 ? 0 : 2, rate,
                            std::nullopt, max_distance});
    }
  };
  test_biased({3, 0, 1, 17, 65, 200}, 8, false, -1, 0.0f);
  test_biased({150, 1, 66}, 5, true, -1, 0.3f);
  test_biased({150, 3, 129}, 40, false, 20, 0.3f);
  test_biased({}, 8, false, -1, 0.0f);
  test_biased({0, 0}, 8, false, -1, 0.0f);
  for (auto [head_size, size] : {std::pair<int64_t, int64_t>{2, 2},
                                 {5, 4},
                                 {16, 16},
                                 {33, 20},
                                 {40, 40},
                                 {64, 64},
                                 {80, 34},
                                 {128, 128}}) {
    TestCase<T>(variant, Rotated({{3, 0, 1, 17, 65}, 2, head_size}, size));
    TestCase<T>(variant, Rotated({{150, 0, 66}, 1, head_size, true, 20, 2, 0.3f}, size));
  }
  TestCase<T>(variant, Rotated({{130, 3}, 2, 8, false, 20, 0, 0.0f, std::nullopt, 40}, 6));
  TestCase<T>(variant, Rotated({{0, 0}, 2, 8}, 8));
  for (int64_t head_size : {1, 5, 16, 33, 64, 128}) {
    TestCase<T>(variant, Disentangled({{3, 0, 1, 17, 65}, 2, head_size}, 40));
    TestCase<T>(variant, Disentangled({{150, 0, 66}, 1, head_size, true, 20, 2, 0.3f}, 100));
  }
  for (int64_t max_row_distance : {0, 1, 63, 600}) {
    TestCase<T>(variant, Disentangled({{130, 64}, 3, 8}, max_row_distance));
  }
  TestCase<T>(variant, Disentangled({{1500, 3}, 1, 6}, 600));  // more tiles than are kept
  TestCase<T>(variant, Disentangled({{0, 0}, 2, 8}, 5));
  TestCase<T>(variant, Disentangled({{}, 2, 8}, 5));
  Case all = Rotated({{130, 3}, 2, 8, false, 20, 0, 0.0f, std::nullopt, 40}, 6);
  TestCase<T>(variant, Disentangled(all, 50));
}

// Sequences with other numbers of keys than of queries.
template <typename T>
void TestCrossCases(const Variant& variant) {
  const auto test = [&](std::vector<int64_t> queries, std::vector<int64_t> keys, int64_t heads,
                        int64_t head_size) {
    for (bool causal : {false, true}) {
      for (float rate : {0.0f, 0.3f}) {
        TestCase<T>(variant, {queries, heads, head_size, causal, -1, 0, rate, keys});
      }
    }
  };
  for (int64_t head_size : {1, 5, 33, 64, 128}) test({3, 0, 70, 1}, {66, 5, 7, 0}, 2, head_size);
  for (int64_t length : {1, 2, 16, 63, 64, 65, 150}) {
    test({length, 0, 1}, {1, length, 130}, 1, 8);
    test({1, 1, length}, {length, 200, 0}, 3, 8);
    test({length}, {90}, 1, 6);
  }
  test({150, 130, 3}, {20, 300, 150}, 1, 6);  // blocks of queries and tiles without keys
  test({0, 0}, {0, 0}, 2, 8);
  test({0, 4}, {3, 0}, 2, 8);
  test({}, {}, 2, 8);
}

// Self-attention in separate tensors gives the same bits.
template <typename T>
void TestSelfAttention(const Variant& variant) {
  for (bool causal : {false, true}) {
    Case c{{150, 0, 3, 67}, 2, 33, causal, -1, 0, 0.3f};
    Tensors<T> t(c, 8);
    RunUnits(variant, c, false, &t);
    c.key_lengths = c.lengths;
    Tensors<T> separate(c, 8);
    // The place of number i of qkv in `separate`.
    const int64_t width = c.heads * c.head_size;
    const auto place = [&](int64_t i) {
      const int64_t row = i / (3 * width), rest = i % (3 * width);
      return rest < width ? row * width + rest : t.output.size() + row * 2 * width + rest - width;
    };
    for (int64_t i = 0; i < t.input.size(); ++i) separate.input.at(place(i)) = t.input.at(i);
    separate.d_output = t.d_output;
    RunUnits(variant, c, false, &separate);
    Buffer<T> d_qkv = t.d_input;
    for (int64_t i = 0; i < d_qkv.size(); ++i) d_qkv.at(i) = separate.d_input.at(place(i));
    Check(t.output.SameBits(separate.output) && t.logsumexp.SameBits(separate.logsumexp) &&
              t.d_input.SameBits(d_qkv),
          Describe(variant) + TypeName<T>() + " self-attention in separate tensors");
  }
}

// Float32 numbers that are bfloat16 numbers give the results of bfloat16 tensors.
void TestTypes(const Path& path) {
  const Case c{{70, 3}, 2, 33, false, -1, 0, 0.3f};
  Tensors<BFloat16> t(c, 6);
  Tensors<float> wide(c, 6);
  for (int64_t i = 0; i < t.input.size(); ++i) {
    wide.input.at(i) = ToFloat(t.input.at(i));
  }
  RunUnits({path, false}, c, false, &t);
  RunUnits({path, true}, c, false, &wide);
  Buffer<BFloat16> rounded(t.output.size(), FromFloat<BFloat16>(7.0f));
  for (int64_t i = 0; i < rounded.size(); ++i) {
    rounded.at(i) = FromFloat<BFloat16>(wide.output.at(i));
  }
  Check(rounded.SameBits(t.output) && t.logsumexp.SameBits(wide.logsumexp),
        Name(path) + "float32 and bfloat16 tensors");
}

// A number that is not finite affects only the rows that attend to it. It is at `place` of the
// second sequence, in its queries (part 0), keys (1) or values (2).
void TestNotFinite(const Variant& variant, const Case& c, int64_t place, int part, float bad) {
  Tensors<float> t(c, 3), blocks(c, 3);
  for (Tensors<float>* each : {&t, &blocks}) {
    const VarlenAttentionArgs<float> args = Args(false, each);
    const auto column = part == 0 ? args.query : part == 1 ? args.key : args.value;
    const int64_t first = part == 0 ? t.splits[1] : t.key_splits[1];
    const_cast<float*>(At(column, c, first + place, 0))[2] = bad;
  }
  RunUnits(variant, c, false, &t);
  RunUnits({{variant.isa, false}, variant.bfloat16_products}, c, true, &blocks);
  const std::string context = Describe(variant) + c.Describe() + "place " + std::to_string(place) +
                              " part " + std::to_string(part);
  bool same = true;
  for (int64_t i = 0; i < t.d_input.size(); ++i) {
    const double a = t.d_input[i], b = blocks.d_input[i];
    same = same && (a == b || (a != a && b != b));
  }
  Check(same, context + " blocks");
  const int64_t shift = t.key_splits[2] - t.key_splits[1] - c.lengths[1];
  const auto d_query = GradArgs(false, &t).d_query;
  for (int64_t row = 0; row < c.Rows(); ++row) {
    const int64_t i = row - t.splits[1];
    const bool sees_it = part == 0 ? i == place && c.Sees(i + shift, 0) : c.Sees(i + shift, place);
    const bool reached = i >= 0 && sees_it;
    bool finite = true, d_query_finite = true;
    for (int64_t d = 0; d < c.head_size; ++d) {
      finite = finite && std::isfinite(t.output[row * c.head_size + d]);
      d_query_finite = d_query_finite && std::isfinite(At(d_query, c, row, 0)[d]);
    }
    // The score of an infinite key is minus infinity for half of the queries. Its probability is
    // then 0 and the output is finite.
    const bool may_be_finite = part == 1 && bad == INFINITY;
    Check(reached ? !finite || may_be_finite : finite,
          context + " row " + std::to_string(row) + " output");
    Check(reached || d_query_finite, context + " row " + std::to_string(row) + " d_query");
  }
}

void TestNotFinite(const Variant& variant) {
  const std::vector<std::pair<Case, int64_t>> cases = {
      {{{20, 91}, 1, 8}, 50},
      {{{20, 91}, 1, 8, false, 60}, 50},
      {{{20, 91}, 1, 8, true, 60}, 50},
      {Rotated({{20, 91}, 1, 8, false, 60}, 6), 50},
      {Disentangled({{20, 91}, 1, 8, false, 60}, 30), 50},
      {Disentangled({{20, 91}, 1, 8, true, 60}, 30), 50},
      {{{20, 91}, 1, 8, false, -1, 0, 0.0f, {{5, 70}}}, 50},
      {{{20, 91}, 1, 8, true, -1, 0, 0.0f, {{5, 70}}}, 50},
      {{{20, 91}, 1, 8, true, -1, 0, 0.0f, {{5, 70}}}, 10},  // a query that attends to no key
      {{{3, 1}, 1, 8, true, -1, 0, 0.0f, {{5, 200}}}, 0},
  };
  for (const auto& [c, place] : cases) {
    for (int part : {0, 1, 2}) {
      for (float bad : {std::nanf(""), INFINITY}) TestNotFinite(variant, c, place, part, bad);
    }
  }
}

// If all scores are minus infinity, the result is NaN, as in a plain softmax. If one score is minus
// infinity, its probability is 0, also in the gradient.
void TestInfiniteScores(const Variant& variant) {
  const Case c{{2, 3}, 1, 1};
  Tensors<float> t(c, 4);
  const float qkv[] = {1, -INFINITY, 1, 1, -INFINITY, 1, 1, -INFINITY, 1, 1, 0, 5, 1, 0, 5};
  for (int i = 0; i < 15; ++i) t.input.at(i) = qkv[i];
  RunUnits(variant, c, false, &t);
  Check(std::isnan(t.output[0]) && std::isnan(t.output[1]), "all scores minus infinity");
  bool right = true;
  for (int i = 2; i < 5; ++i) right = right && t.output[i] == 5.0;
  Check(right, Describe(variant) + "one score minus infinity");
  Check(t.d_input[7] == 0.0 && t.d_input[8] == 0.0, Describe(variant) + "its gradients");
}

void TestLarge(const Variant& variant) {
  // Scores in the hundreds: the maximum is subtracted before exp2.
  const Case c{{130}, 1, 16};
  Tensors<float> t(c, 5);
  for (int64_t i = 0; i < t.input.size(); ++i) t.input.at(i) *= 12.0f;
  RunUnits(variant, c, false, &t);
  const bool rounds = variant.bfloat16_products;
  const Expected expected = Reference(c, t, rounds);
  CheckNear(t.output, expected.output, rounds ? RoundingError<BFloat16>() : 3e-5,
            Describe(variant) + "large scores");
  TestCase<float>(variant, {{2048}, 1, 8, true, 100, 2, 0.1f});
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  for (const Path& path : SupportedPaths(bert_tf::HasBfloat16())) {
    TestCases<float>({path, true});
    TestCrossCases<float>({path, true});
    TestCases<bert_tf::BFloat16>({path, false});
    TestCrossCases<bert_tf::BFloat16>({path, false});
    TestSelfAttention<bert_tf::BFloat16>({path, false});
    TestTypes(path);
    for (bool bfloat16_products : {false, true}) {
      const Variant variant{path, bfloat16_products};
      TestNotFinite(variant);
      TestInfiniteScores(variant);
      TestLarge(variant);
      TestCase<bert_tf::Float16>(variant, {{70, 3}, 2, 33, false, -1, 0, 0.3f});
    }
    if (path.has_instruction) continue;  // which float32 products do not use
    TestCases<float>({path, false});
    TestCases<bert_tf::Float16>({path, false});
    TestCrossCases<float>({path, false});
    TestCrossCases<bert_tf::Float16>({path, false});
    TestSelfAttention<float>({path, false});
  }
  return Report("varlen_attention_test");
}
