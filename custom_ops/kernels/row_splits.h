// Checks where the sequences of a packed batch begin, before a kernel trusts it with memory.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_ROW_SPLITS_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_ROW_SPLITS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace bert_tf {

// Copies `count` row splits of `rows` rows. Returns what is wrong with them; empty if nothing is.
template <typename Splits>
std::string ReadRowSplits(const Splits* values, int64_t count, int64_t rows,
                          std::vector<int64_t>* row_splits) {
  const auto element = [values](int64_t i) {
    return "row_splits[" + std::to_string(i) + "]=" + std::to_string(values[i]);
  };
  if (values[0] != 0) return "Expected row_splits to begin with 0. Received: " + element(0);
  for (int64_t i = 1; i < count; ++i) {
    if (values[i] < values[i - 1]) {
      return "Expected row_splits that never decrease. Received: " + element(i - 1) + ", " +
             element(i);
    }
  }
  if (values[count - 1] != rows) {
    return "Expected row_splits to end with the number of rows of qkv, " + std::to_string(rows) +
           ". Received: " + element(count - 1);
  }
  row_splits->assign(values, values + count);
  return "";
}

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_ROW_SPLITS_H_
