// The calls of varlen_attention that its test makes, with one instruction set or with the public
// functions, and the results that float64 gives for the same inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "custom_ops/kernels/attention/attention_test_util.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/attention/varlen_attention_units.h"
#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/base/thread_scratch.h"

namespace bert_tf {
namespace testing {

// A copy of the kernel, and whether it rounds factors to bfloat16 although T is another type.
struct Variant : Path {
  bool bfloat16_products;
};

inline std::string Describe(const Variant& variant) {
  return Name(variant) + (variant.bfloat16_products ? " with products in bfloat16 " : " ");
}

// The input is qkv or, for cross-attention, the queries and, after them, the keys and values.
template <typename T>
struct Tensors {
  Tensors(const Case& c, uint32_t random_seed)
      : case_(c),
        splits(c.RowSplits()),
        key_splits(c.KeyRowSplits()),
        random(random_seed),
        input((splits.back() + 2 * key_splits.back()) * c.heads * c.head_size, random, 1.0f),
        d_output(splits.back() * c.heads * c.head_size, random, 1.0f),
        output(d_output.size(), FromFloat<T>(7.0f)),
        d_input(input.size(), FromFloat<T>(7.0f)),
        logsumexp(splits.back() * c.heads),
        distance_bias(c.DistanceBias()),
        d_distance_bias(static_cast<int64_t>(distance_bias.size()), 7.0f),
        rotation(c.Rotation()),
        distance_vectors(c.DistanceVectors()),
        distance_rows(c.DistanceRows()),
        d_distance_vectors(static_cast<int64_t>(distance_vectors.size()), 7.0f) {}
  const Case case_;
  std::vector<int64_t> splits, key_splits;
  std::mt19937 random;
  Buffer<T> input, d_output, output, d_input;
  Buffer<float> logsumexp;
  std::vector<float> distance_bias;
  Buffer<float> d_distance_bias;
  std::vector<float> rotation, distance_vectors;
  std::vector<int32_t> distance_rows;
  Buffer<float> d_distance_vectors;
};

// Sets the inputs of the forward pass or of the gradient. T is the type of `t` or, for the
// reference, double.
template <typename T, typename Stored>
void SetInputs(const Tensors<Stored>& t, const T* input, VarlenAttentionInputs<T>* args) {
  static_cast<VarlenAttentionOptions&>(*args) = Options(t.case_, t.splits, t.distance_bias);
  if (t.case_.rotation_size > 0) {
    args->rotation = t.rotation.data();
    args->rotation_size = t.case_.rotation_size;
  }
  if (t.case_.max_row_distance >= 0) {
    args->distance_vectors = t.distance_vectors.data();
    args->num_distance_vectors =
        static_cast<int64_t>(t.distance_vectors.size()) / (2 * t.case_.heads * t.case_.head_size);
    args->distance_rows = t.distance_rows.data();
    args->max_row_distance = t.case_.max_row_distance;
  }
  if (t.case_.key_lengths) {
    args->key_row_splits = t.key_splits.data();
    args->SetQueryKeyValue(input, input + t.output.size());
  } else {
    args->SetQkv(input);
  }
}

template <typename T>
VarlenAttentionArgs<T> Args(bool bfloat16_products, Tensors<T>* t) {
  VarlenAttentionArgs<T> args;
  SetInputs(*t, std::as_const(t->input).data(), &args);
  args.bfloat16_products = bfloat16_products;
  args.output = t->output.data();
  args.logsumexp = t->logsumexp.data();
  return args;
}

template <typename T, typename Stored>
VarlenAttentionGradArgs<T> GradInputs(const Tensors<Stored>& t, const T* input, T* d_input) {
  VarlenAttentionGradArgs<T> args;
  SetInputs(t, input, &args);
  if (t.case_.key_lengths) {
    args.SetQueryKeyValueGradient(d_input, d_input + t.output.size());
  } else {
    args.SetQkvGradient(d_input);
  }
  return args;
}

template <typename T>
VarlenAttentionGradArgs<T> GradArgs(bool bfloat16_products, Tensors<T>* t) {
  VarlenAttentionGradArgs<T> args =
      GradInputs(*t, std::as_const(t->input).data(), t->d_input.data());
  args.bfloat16_products = bfloat16_products;
  args.output = t->output.data();
  args.logsumexp = t->logsumexp.data();
  args.d_output = t->d_output.data();
  args.d_distance_bias = t->d_distance_bias.data();
  args.d_distance_vectors = t->d_distance_vectors.data();
  return args;
}

// The D numbers of a head in a row.
template <typename T>
T* At(const TensorColumn<T>& column, const Case& c, int64_t row, int64_t head) {
  return column.tensor +
         ((row * column.num_columns + column.column) * c.heads + head) * c.head_size;
}

struct Expected {
  std::vector<double> output, logsumexp, d_input, d_distance_bias;
  std::vector<double> d_score_sums;  // the absolute values of all terms of d_distance_bias
  std::vector<double> d_distance_vectors, d_vector_sums;  // the same
};

// Turns the queries and keys of qkv, or their gradients, by their angles times `direction`.
template <typename T>
void RotateQkv(const Tensors<T>& t, double direction, std::vector<double>* qkv) {
  const Case& c = t.case_;
  const int64_t half = c.rotation_size / 2;
  if (half == 0) return;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    for (int64_t i = 0; i < 2 * c.heads * c.lengths[b]; ++i) {  // of two thirds of a row
      const int64_t place = i / (2 * c.heads), head = i % (2 * c.heads);
      const float* const of_place = t.rotation.data() + place * c.rotation_size;
      double* const x = qkv->data() + ((t.splits[b] + place) * 3 * c.heads + head) * c.head_size;
      for (int64_t d = 0; d < half; ++d) {
        const double first = x[d], second = x[half + d];
        const double cosine = of_place[d], sine = direction * of_place[half + d];
        x[d] = first * cosine - second * sine;
        x[half + d] = second * cosine + first * sine;
      }
    }
  }
}

// The results in float64. If the kernel `rounds`, the factors of its products are rounded to
// bfloat16, but not those that it computes from others.
template <typename T>
Expected Reference(const Case& c, const Tensors<T>& t, bool rounds) {
  Expected e{
      std::vector<double>(t.output.size()),          std::vector<double>(t.logsumexp.size()),
      std::vector<double>(t.input.size()),           std::vector<double>(t.distance_bias.size()),
      std::vector<double>(t.distance_bias.size()),   std::vector<double>(t.distance_vectors.size()),
      std::vector<double>(t.distance_vectors.size())};
  const auto numbers = [](const Buffer<T>& buffer) {
    std::vector<double> all(buffer.size());
    for (int64_t i = 0; i < buffer.size(); ++i) all[i] = buffer[i];
    return all;
  };
  const auto round = [rounds](std::vector<double>* all) {
    if (!rounds) return;
    for (double& x : *all) x = ToFloat(FromFloat<BFloat16>(static_cast<float>(x)));
  };
  std::vector<double> input = numbers(t.input), d_output = numbers(t.d_output);
  RotateQkv(t, 1.0, &input);
  round(&input);
  round(&d_output);
  const auto args = GradInputs<double>(t, input.data(), e.d_input.data());
  const bool has_vectors = c.max_row_distance >= 0;
  // Where the query (part 0) or the key (1) of the distance of two tokens begins in the vectors.
  const auto vector_index = [&](int64_t head, int part, int64_t query, int64_t key) {
    const int64_t reach = c.max_row_distance;
    const int64_t row = t.distance_rows[reach + std::clamp(query - key, -reach, reach)];
    return ((row * 2 + part) * c.heads + head) * c.head_size;
  };
  const double scale = 1.0 / std::sqrt((has_vectors ? 3.0 : 1.0) * c.head_size);
  const double keep_scale = 1.0 / (1.0 - static_cast<double>(c.dropout_rate));
  const uint32_t threshold = static_cast<uint32_t>(c.dropout_rate * 4294967296.0);
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    const int64_t first_key = t.key_splits[b], keys = t.key_splits[b + 1] - first_key;
    for (int64_t n = 0; n < c.heads; ++n) {
      for (int64_t i = 0; i < c.lengths[b]; ++i) {
        const int64_t row = t.splits[b] + i, position = i + keys - c.lengths[b];
        const int64_t out = (row * c.heads + n) * c.head_size;
        const double* const query = At(args.query, c, row, n);
        std::vector<double> p(keys, 0.0), keep(keys, 1.0), dp(keys, 0.0);
        double maximum = -INFINITY, sum = 0.0, delta = 0.0;
        for (int64_t j = 0; j < keys; ++j) {
          if (!c.Sees(position, j)) continue;
          for (int64_t d = 0; d < c.head_size; ++d) {
            p[j] += scale * query[d] * At(args.key, c, first_key + j, n)[d];
            dp[j] += d_output[out + d] * At(args.value, c, first_key + j, n)[d];
          }
          for (int64_t d = 0; has_vectors && d < c.head_size; ++d) {
            const double key = At(args.key, c, first_key + j, n)[d];
            p[j] += scale * query[d] * t.distance_vectors[vector_index(n, 1, position, j) + d];
            p[j] += scale * key * t.distance_vectors[vector_index(n, 0, position, j) + d];
          }
          if (c.max_distance >= 0) p[j] += t.distance_bias[c.BiasIndex(n, position, j)];
          maximum = std::max(maximum, p[j]);
        }
        for (int64_t j = 0; j < keys; ++j) {
          p[j] = c.Sees(position, j) ? std::exp(p[j] - maximum) : 0.0;
          sum += p[j];
        }
        e.logsumexp[row * c.heads + n] = maximum + std::log(sum);
        if (sum == 0.0) continue;  // a query without keys
        for (int64_t j = 0; j < keys; ++j) {
          p[j] /= sum;
          if (c.dropout_rate > 0.0f) {
            keep[j] = ElementBits(kSeed, row * c.heads + n, j) >= threshold ? keep_scale : 0.0;
          }
          delta += p[j] * keep[j] * dp[j];
          for (int64_t d = 0; d < c.head_size; ++d) {
            e.output[out + d] += p[j] * keep[j] * At(args.value, c, first_key + j, n)[d];
          }
        }
        for (int64_t j = 0; j < keys; ++j) {
          const double d_score = p[j] * (keep[j] * dp[j] - delta);
          const double ds = d_score * scale;
          if (c.max_distance >= 0) {
            e.d_distance_bias[c.BiasIndex(n, position, j)] += d_score;
            e.d_score_sums[c.BiasIndex(n, position, j)] +=
                p[j] * (keep[j] * std::fabs(dp[j]) + std::fabs(delta));
          }
          for (int64_t d = 0; d < c.head_size; ++d) {
            At(args.d_query, c, row, n)[d] += ds * At(args.key, c, first_key + j, n)[d];
            At(args.d_key, c, first_key + j, n)[d] += ds * query[d];
            At(args.d_value, c, first_key + j, n)[d] += p[j] * keep[j] * d_output[out + d];
          }
          const double d_sum = p[j] * (keep[j] * std::fabs(dp[j]) + std::fabs(delta)) * scale;
          for (int64_t d = 0; has_vectors && d < c.head_size; ++d) {
            const double key = At(args.key, c, first_key + j, n)[d];
            const int64_t of_query = vector_index(n, 0, position, j) + d;
            const int64_t of_key = vector_index(n, 1, position, j) + d;
            At(args.d_query, c, row, n)[d] += ds * t.distance_vectors[of_key];
            At(args.d_key, c, first_key + j, n)[d] += ds * t.distance_vectors[of_query];
            e.d_distance_vectors[of_key] += ds * query[d];
            e.d_distance_vectors[of_query] += ds * key;
            e.d_vector_sums[of_key] += d_sum * std::fabs(query[d]);
            e.d_vector_sums[of_query] += d_sum * std::fabs(key);
          }
        }
      }
    }
  }
  RotateQkv(t, -1.0, &e.d_input);
  return e;
}

// Runs the units with one instruction set, one after another. In the gradient, the units are blocks
// or whole sequences.
template <typename T>
void RunUnits(const Variant& variant, const Case& c, bool blocks, Tensors<T>* t) {
  const VarlenAttentionArgs<T> args = Args(variant.bfloat16_products, t);
  std::vector<AttentionUnit> forward, backward;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    AttentionUnit unit = {RowsOfSequence(args.row_splits, b),
                          RowsOfSequence(args.key_row_splits, b), 0, 0, AttentionUnit::kQueryBlock};
    for (unit.head = 0; unit.head < c.heads; ++unit.head) {
      unit.kind = AttentionUnit::kQueryBlock;
      for (unit.begin = 0; unit.begin < unit.queries.count; unit.begin += kAttentionTile) {
        forward.push_back(unit);
        if (blocks) backward.push_back(unit);
      }
      unit.kind = AttentionUnit::kKeyBlock;
      for (unit.begin = 0; unit.begin < unit.keys.count; unit.begin += kAttentionTile) {
        if (blocks) backward.push_back(unit);
      }
      unit.kind = AttentionUnit::kSequence;
      unit.begin = 0;
      if (!blocks) backward.push_back(unit);
    }
  }
  // The scratch is filled with NaN, because it must be written before it is read.
  constexpr int64_t kScratch = 1 << 19;
  std::fill_n(ThreadScratch(0, kScratch), kScratch, std::nanf(""));
  BERT_TF_CALL_ISA(variant.isa, AttentionForwardUnits, args, forward.data(),
                   static_cast<int64_t>(forward.size()), variant.has_instruction);
  std::fill_n(ThreadScratch(0, kScratch), kScratch, std::nanf(""));
  BERT_TF_CALL_ISA(variant.isa, AttentionBackwardUnits, GradArgs(variant.bfloat16_products, t),
                   backward.data(), static_cast<int64_t>(backward.size()), variant.has_instruction);
}

template <typename T>
void RunPublic(bool bfloat16_products, int threads, Tensors<T>* t) {
  const ThreadParallel parallel(threads);
  VarlenAttention(parallel, Args(bfloat16_products, t));
  VarlenAttentionGrad(parallel, GradArgs(bfloat16_products, t));
}

template <typename T>
bool SameResults(const Tensors<T>& a, const Tensors<T>& b) {
  return a.output.SameBits(b.output) && a.logsumexp.SameBits(b.logsumexp) &&
         a.d_input.SameBits(b.d_input);
}

}  // namespace testing
}  // namespace bert_tf
