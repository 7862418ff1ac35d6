// Shared by the tests of the attention kernels: their cases, and the comparison with float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {

struct Case {
  std::vector<int64_t> lengths;
  int64_t heads;
  int64_t head_size;
  bool causal = false;
  int64_t window = -1;
  int64_t globals = 0;
  float dropout_rate = 0.0f;
  std::optional<std::vector<int64_t>> key_lengths = std::nullopt;  // for cross-attention
  int64_t max_distance = -1;      // of the distance bias; negative for none
  int64_t rotation_size = 0;      // 0 for no rotation
  int64_t max_row_distance = -1;  // of the vectors of distances; negative for none

  // The row of each distance, [2 max_row_distance + 1]: distances share rows in threes.
  std::vector<int32_t> DistanceRows() const {
    std::vector<int32_t> rows(max_row_distance < 0 ? 0 : 2 * max_row_distance + 1);
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<int32_t>(rows.size() - 1 - i) / 3;
    return rows;
  }
  // The vectors, [V, 2, heads, head_size]; empty for none.
  std::vector<float> DistanceVectors() const {
    const int64_t kinds = max_row_distance < 0 ? 0 : 2 * max_row_distance / 3 + 1;
    std::vector<float> vectors(kinds * 2 * heads * head_size);
    for (size_t i = 0; i < vectors.size(); ++i)
      vectors[i] = std::sin(11.0f * static_cast<float>(i));
    return vectors;
  }
  // The distance bias, [heads, 2 max_distance + 1]; empty for none.
  std::vector<float> DistanceBias() const {
    std::vector<float> bias(max_distance < 0 ? 0 : heads * (2 * max_distance + 1));
    for (size_t i = 0; i < bias.size(); ++i)
      bias[i] = 2.0f * std::sin(7.0f * static_cast<float>(i));
    return bias;
  }
  // The rotation, [the longest length, rotation_size].
  std::vector<float> Rotation() const {
    int64_t places = 0;
    for (int64_t length : lengths) places = std::max(places, length);
    std::vector<float> rotation(places * rotation_size);
    const int64_t half = rotation_size / 2;
    for (int64_t place = 0; place < places; ++place) {
      for (int64_t c = 0; c < half; ++c) {
        const double angle = place * std::pow(10000.0, -c / static_cast<double>(half));
        rotation[place * rotation_size + c] = static_cast<float>(std::cos(angle));
        rotation[place * rotation_size + half + c] = static_cast<float>(std::sin(angle));
      }
    }
    return rotation;
  }
  // Where the number for a query and a key is in the distance bias.
  int64_t BiasIndex(int64_t head, int64_t query, int64_t key) const {
    return head * (2 * max_distance + 1) + max_distance +
           std::clamp(query - key, -max_distance, max_distance);
  }
  int64_t Rows() const { return RowSplits().back(); }
  std::vector<int64_t> RowSplits() const { return SplitsOf(lengths); }
  std::vector<int64_t> KeyRowSplits() const { return SplitsOf(key_lengths.value_or(lengths)); }
  // Whether a query at this position, counted as VarlenAttentionOptions does, attends to the key.
  bool Sees(int64_t query, int64_t key) const {
    if (causal && key > query) return false;
    return window < 0 || std::llabs(query - key) <= window || query < globals || key < globals;
  }
  std::string Describe() const {
    std::string text = "lengths";
    for (int64_t length : lengths) text += " " + std::to_string(length);
    if (key_lengths) {
      text += " keys";
      for (int64_t length : *key_lengths) text += " " + std::to_string(length);
    }
    return text + " N=" + std::to_string(heads) + " D=" + std::to_string(head_size) +
           (causal ? " causal" : "") + " window=" + std::to_string(window) +
           " globals=" + std::to_string(globals) + " rate=" + std::to_string(dropout_rate) +
           " M=" + std::to_string(max_distance) + " S=" + std::to_string(rotation_size) +
           " M'=" + std::to_string(max_row_distance) + " ";
  }

 private:
  static std::vector<int64_t> SplitsOf(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> splits = {0};
    for (int64_t length : lengths) splits.push_back(splits.back() + length);
    return splits;
  }
};

constexpr uint64_t kSeed = 0xFEDCBA9876543210u;

inline VarlenAttentionOptions Options(const Case& c, const std::vector<int64_t>& splits,
                                      const std::vector<float>& distance_bias) {
  VarlenAttentionOptions options;
  options.num_sequences = static_cast<int64_t>(c.lengths.size());
  options.row_splits = splits.data();
  options.num_heads = c.heads;
  options.head_size = c.head_size;
  options.causal = c.causal;
  options.window_size = c.window;
  options.num_global_tokens = c.globals;
  options.dropout_rate = c.dropout_rate;
  options.seed = kSeed;
  if (c.max_distance >= 0) {
    options.distance_bias = distance_bias.data();
    options.max_distance = c.max_distance;
  }
  return options;
}

template <typename T>
void CheckNear(const Buffer<T>& actual, const std::vector<double>& expected, double tolerance,
               const std::string& what) {
  double worst = 0.0, largest = 1.0;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(actual[i] - expected[i]);
    worst = error <= worst ? worst : error;  // NaN is an error
    if (error != error) worst = INFINITY;
    largest = std::max(largest, std::fabs(expected[i]));
  }
  Check(worst <= tolerance * largest, what + " error " + std::to_string(worst));
}

}  // namespace testing
}  // namespace bert_tf
