// Compares varlen_attention with float64: odd lengths, heads and head sizes, every mask, dropout
// against a scalar Philox, all storage types, products in bfloat16, numbers that are not finite,
// and equal bits for every number of threads and every plan, with every instruction set of this
// processor.
#include "custom_ops/kernels/attention/varlen_attention.h"

#include <utility>
#include <vector>

#include "custom_ops/kernels/attention/attention_test_util.h"
#include "custom_ops/kernels/attention/varlen_attention_units.h"
#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/base/thread_scratch.h"

namespace bert_tf {
namespace testing {
namespace {

// A copy of the kernel, and whether it rounds factors to bfloat16 although T is another type.
struct Variant : Path {
  bool bfloat16_products;
};

std::string Describe(const Variant& variant) {
  return Name(variant) + (variant.bfloat16_products ? " with products in bfloat16 " : " ");
}

template <typename T>
struct Tensors {
  Tensors(const Case& c, uint32_t random_seed)
      : random(random_seed),
        qkv(3 * c.Rows() * c.heads * c.head_size, random, 1.0f),
        d_output(c.Rows() * c.heads * c.head_size, random, 1.0f),
        output(d_output.size(), FromFloat<T>(7.0f)),
        d_qkv(qkv.size(), FromFloat<T>(7.0f)),
        logsumexp(c.Rows() * c.heads) {}
  std::mt19937 random;
  Buffer<T> qkv, d_output, output, d_qkv;
  Buffer<float> logsumexp;
};

template <typename T>
VarlenAttentionArgs<T> Args(const Case& c, const std::vector<int64_t>& splits,
                            bool bfloat16_products, Tensors<T>* t) {
  VarlenAttentionArgs<T> args{Options(c, splits)};
  args.bfloat16_products = bfloat16_products;
  args.qkv = t->qkv.data();
  args.output = t->output.data();
  args.logsumexp = t->logsumexp.data();
  args.d_output = t->d_output.data();
  args.d_qkv = t->d_qkv.data();
  return args;
}

struct Expected {
  std::vector<double> output, logsumexp, d_qkv;
};

template <typename T>
Expected Reference(const Case& c, const Tensors<T>& t) {
  const int64_t d_model = c.heads * c.head_size;
  Expected e{std::vector<double>(c.Rows() * d_model), std::vector<double>(c.Rows() * c.heads),
             std::vector<double>(3 * c.Rows() * d_model)};
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_size));
  const double keep_scale = 1.0 / (1.0 - static_cast<double>(c.dropout_rate));
  const uint32_t threshold = static_cast<uint32_t>(c.dropout_rate * 4294967296.0);
  const std::vector<int64_t> splits = c.RowSplits();
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      const auto at = [&](int64_t position, int64_t part) {
        return ((splits[b] + position) * 3 + part) * d_model + n * c.head_size;
      };
      for (int64_t i = 0; i < c.lengths[b]; ++i) {
        const int64_t row = splits[b] + i;
        const int64_t out = row * d_model + n * c.head_size;
        std::vector<double> p(c.lengths[b], 0.0), keep(c.lengths[b], 1.0), dp(c.lengths[b], 0.0);
        double maximum = -INFINITY, sum = 0.0, delta = 0.0;
        for (int64_t j = 0; j < c.lengths[b]; ++j) {
          if (!c.Sees(i, j)) continue;
          for (int64_t d = 0; d < c.head_size; ++d) {
            p[j] += scale * t.qkv[at(i, 0) + d] * t.qkv[at(j, 1) + d];
            dp[j] += t.d_output[out + d] * t.qkv[at(j, 2) + d];
          }
          maximum = std::max(maximum, p[j]);
        }
        for (int64_t j = 0; j < c.lengths[b]; ++j) {
          p[j] = c.Sees(i, j) ? std::exp(p[j] - maximum) : 0.0;
          sum += p[j];
        }
        e.logsumexp[row * c.heads + n] = maximum + std::log(sum);
        for (int64_t j = 0; j < c.lengths[b]; ++j) {
          p[j] /= sum;
          if (c.dropout_rate > 0.0f) {
            keep[j] = ElementBits(kSeed, row * c.heads + n, j) >= threshold ? keep_scale : 0.0;
          }
          delta += p[j] * keep[j] * dp[j];
          for (int64_t d = 0; d < c.head_size; ++d) {
            e.output[out + d] += p[j] * keep[j] * t.qkv[at(j, 2) + d];
          }
        }
        for (int64_t j = 0; j < c.lengths[b]; ++j) {
          const double ds = p[j] * (keep[j] * dp[j] - delta) * scale;
          for (int64_t d = 0; d < c.head_size; ++d) {
            e.d_qkv[at(i, 0) + d] += ds * t.qkv[at(j, 1) + d];
            e.d_qkv[at(j, 1) + d] += ds * t.qkv[at(i, 0) + d];
            e.d_qkv[at(j, 2) + d] += p[j] * keep[j] * t.d_output[out + d];
          }
        }
      }
    }
  }
  return e;
}

// The same for inputs that are rounded to bfloat16.
template <typename T>
Expected RoundedReference(const Case& c, Tensors<T> t) {
  for (Buffer<T>* buffer : {&t.qkv, &t.d_output}) {
    for (int64_t i = 0; i < buffer->size(); ++i) {
      buffer->at(i) = FromFloat<T>(ToFloat(FromFloat<BFloat16>(ToFloat(buffer->at(i)))));
    }
  }
  return Reference(c, t);
}

// Runs the units with one instruction set, one after another. In the gradient, the units are blocks
// or whole sequences.
template <typename T>
void RunUnits(const Variant& variant, const Case& c, bool blocks, Tensors<T>* t) {
  const std::vector<int64_t> splits = c.RowSplits();
  const VarlenAttentionArgs<T> args = Args(c, splits, variant.bfloat16_products, t);
  std::vector<AttentionUnit> forward, backward;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      for (int64_t i = 0; i < c.lengths[b]; i += kAttentionTile) {
        AttentionUnit unit = {splits[b], c.lengths[b], n, i, AttentionUnit::kQueryBlock};
        forward.push_back(unit);
        if (blocks) backward.push_back(unit);
        unit.kind = AttentionUnit::kKeyBlock;
        if (blocks) backward.push_back(unit);
      }
      if (!blocks && c.lengths[b] > 0) {
        backward.push_back({splits[b], c.lengths[b], n, 0, AttentionUnit::kSequence});
      }
    }
  }
  // The scratch is filled with NaN, because it must be written before it is read.
  constexpr int64_t kScratch = 1 << 19;
  std::fill_n(ThreadScratch(0, kScratch), kScratch, std::nanf(""));
  BERT_TF_CALL_ISA(variant.isa, AttentionForwardUnits, args, forward.data(),
                   static_cast<int64_t>(forward.size()), variant.has_instruction);
  std::fill_n(ThreadScratch(0, kScratch), kScratch, std::nanf(""));
  BERT_TF_CALL_ISA(variant.isa, AttentionBackwardUnits, args, backward.data(),
                   static_cast<int64_t>(backward.size()), variant.has_instruction);
}

template <typename T>
void RunPublic(const Case& c, bool bfloat16_products, int threads, Tensors<T>* t) {
  const std::vector<int64_t> splits = c.RowSplits();
  const VarlenAttentionArgs<T> args = Args(c, splits, bfloat16_products, t);
  const ThreadParallel parallel(threads);
  VarlenAttention(parallel, args);
  VarlenAttentionGrad(parallel, args);
}

template <typename T>
bool SameResults(const Tensors<T>& a, const Tensors<T>& b) {
  return a.output.SameBits(b.output) && a.logsumexp.SameBits(b.logsumexp) &&
         a.d_qkv.SameBits(b.d_qkv);
}

template <typename T>
void TestCase(const Variant& variant, const Case& c) {
  const std::string context = Describe(variant) + TypeName<T>() + " " + c.Describe();
  Tensors<T> t(c, 17);
  const bool rounds = variant.bfloat16_products;
  const Expected expected = rounds ? RoundedReference(c, t) : Reference(c, t);
  RunUnits(variant, c, false, &t);
  // With products in bfloat16, the weights and the gradients of the scores are rounded.
  const double rounding = rounds ? RoundingError<BFloat16>() : RoundingError<T>();
  CheckNear(t.output, expected.output, 2e-6 + rounding, context + "output");
  CheckNear(t.logsumexp, expected.logsumexp, 2e-6, context + "logsumexp");
  // The gradient reads the rounded output, so its error is a few roundings of the storage type.
  CheckNear(t.d_qkv, expected.d_qkv, 5e-6 + 3 * rounding, context + "d_qkv");
  Tensors<T> blocks(c, 17);
  RunUnits(variant, c, true, &blocks);
  Check(SameResults(t, blocks), context + "blocks");
  if (variant.has_instruction) {
    Tensors<T> other(c, 17);
    RunUnits({{variant.isa, false}, rounds}, c, false, &other);
    Check(SameResults(t, other), context + "without the instruction");
  }
  if (variant.isa != BestIsa() || variant.has_instruction != HasBfloat16()) return;
  for (int threads : {1, 2, 3, 7, 64}) {
    Tensors<T> threaded(c, 17);
    RunPublic(c, rounds, threads, &threaded);
    Check(SameResults(t, threaded), context + std::to_string(threads) + " threads");
  }
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
}

// Float32 numbers that are bfloat16 numbers give the results of bfloat16 tensors.
void TestTypes(const Path& path) {
  const Case c{{70, 3}, 2, 33, false, -1, 0, 0.3f};
  Tensors<BFloat16> t(c, 6);
  Tensors<float> wide(c, 6);
  for (int64_t i = 0; i < t.qkv.size(); ++i) wide.qkv.at(i) = ToFloat(t.qkv.at(i));
  RunUnits({path, false}, c, false, &t);
  RunUnits({path, true}, c, false, &wide);
  Buffer<BFloat16> rounded(t.output.size(), FromFloat<BFloat16>(7.0f));
  for (int64_t i = 0; i < rounded.size(); ++i) {
    rounded.at(i) = FromFloat<BFloat16>(wide.output.at(i));
  }
  Check(rounded.SameBits(t.output) && t.logsumexp.SameBits(wide.logsumexp),
        Name(path) + "float32 and bfloat16 tensors");
}

// Numbers that are not finite affect only the rows that attend to them.
void TestNotFinite(const Variant& variant) {
  const Variant other{{variant.isa, false}, variant.bfloat16_products};
  for (const auto& [causal, window] :
       std::vector<std::pair<bool, int64_t>>{{false, -1}, {false, 60}, {true, 60}}) {
    for (int part : {0, 1, 2}) {
      for (float bad : {std::nanf(""), INFINITY}) {
        const Case c{{20, 91}, 1, 8, causal, window, 0};
        const std::vector<int64_t> splits = c.RowSplits();
        const int64_t bad_position = 50;
        Tensors<float> t(c, 3);
        t.qkv.at(((splits[1] + bad_position) * 3 + part) * c.head_size + 2) = bad;
        RunUnits(variant, c, false, &t);
        Tensors<float> blocks(c, 3);
        blocks.qkv = t.qkv;
        RunUnits(other, c, true, &blocks);
        for (int64_t row = 0; row < c.Rows(); ++row) {
          const int64_t i = row - splits[1];
          const bool own = i >= 0;
          const bool reached = own && (part == 0 ? i == bad_position : c.Sees(i, bad_position));
          bool finite = true, d_query_finite = true, same = true;
          for (int64_t d = 0; d < c.head_size; ++d) {
            finite = finite && std::isfinite(t.output[row * c.head_size + d]);
            d_query_finite = d_query_finite && std::isfinite(t.d_qkv[row * 3 * c.head_size + d]);
            for (int64_t p = 0; p < 3; ++p) {
              const double a = t.d_qkv[(row * 3 + p) * c.head_size + d];
              const double b = blocks.d_qkv[(row * 3 + p) * c.head_size + d];
              same = same && (a == b || (a != a && b != b));
            }
          }
          const std::string context = Describe(variant) + (causal ? " causal" : "") + " part " +
                                      std::to_string(part) + " row " + std::to_string(row);
          // The score of an infinite key is minus infinity for half of the queries. Its probability
          // is then 0 and the output is finite.
          const bool may_be_finite = part == 1 && bad == INFINITY;
          Check(reached ? !finite || may_be_finite : finite, context + " output");
          Check(reached || d_query_finite, context + " d_query");
          Check(same, context + " blocks");
        }
      }
    }
  }
}

// If all scores are minus infinity, the result is NaN, as in a plain softmax. If one score is minus
// infinity, its probability is 0, also in the gradient.
void TestInfiniteScores(const Variant& variant) {
  const Case c{{2, 3}, 1, 1};
  Tensors<float> t(c, 4);
  const float qkv[] = {1, -INFINITY, 1, 1, -INFINITY, 1, 1, -INFINITY, 1, 1, 0, 5, 1, 0, 5};
  for (int i = 0; i < 15; ++i) t.qkv.at(i) = qkv[i];
  RunUnits(variant, c, false, &t);
  Check(std::isnan(t.output[0]) && std::isnan(t.output[1]), "all scores minus infinity");
  bool right = true;
  for (int i = 2; i < 5; ++i) right = right && t.output[i] == 5.0;
  Check(right, Describe(variant) + "one score minus infinity");
  Check(t.d_qkv[7] == 0.0 && t.d_qkv[8] == 0.0, Describe(variant) + "its gradients");
}

void TestLarge(const Variant& variant) {
  // Scores in the hundreds: the maximum is subtracted before exp2.
  const Case c{{130}, 1, 16};
  Tensors<float> t(c, 5);
  for (int64_t i = 0; i < t.qkv.size(); ++i) t.qkv.at(i) *= 12.0f;
  RunUnits(variant, c, false, &t);
  const bool rounds = variant.bfloat16_products;
  const Expected expected = rounds ? RoundedReference(c, t) : Reference(c, t);
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
    TestCases<bert_tf::BFloat16>({path, false});
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
  }
  return Report("varlen_attention_test");
}
