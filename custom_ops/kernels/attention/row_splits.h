// Checks the row splits of a packed batch, so that kernels can use them as offsets in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert_tf {

// Copies `count` int64 or int32 row splits of `rows` rows. Returns an error message, which is empty
// if they are valid. `name` is that of the row splits, `of` that of the tensor with the rows.
inline std::string ReadRowSplits(const std::string& name, const std::string& of, const void* values,
                                 bool are_int64, int64_t count, int64_t rows,
                                 std::vector<int64_t>* row_splits) {
  const auto copy = [&](const auto* typed) { row_splits->assign(typed, typed + count); };
  are_int64 ? copy(static_cast<const int64_t*>(values)) : copy(static_cast<const int32_t*>(values));
  const std::vector<int64_t>& splits = *row_splits;
  const auto element = [&](int64_t i) {
    return name + "[" + std::to_string(i) + "]=" + std::to_string(splits[i]);
  };
  if (splits[0] != 0) return "`" + name + "` must begin with 0. Received: " + element(0);
  for (int64_t i = 1; i < count; ++i) {
    if (splits[i] < splits[i - 1]) {
      return "`" + name + "` must never decrease. Received: " + element(i - 1) + ", " + element(i);
    }
  }
  if (splits[count - 1] != rows) {
    return "`" + name + "` must end with the number of rows of `" + of + "`, " +
           std::to_string(rows) + ". Received: " + element(count - 1);
  }
  return "";
}

}  // namespace bert_tf
