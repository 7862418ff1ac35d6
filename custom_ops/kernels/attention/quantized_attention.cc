#include "custom_ops/kernels/attention/quantized_attention.h"

#include <algorithm>
#include <cstdint>

#include "custom_ops/kernels/attention/attention_plan.h"

namespace bert_tf {
namespace {

// The keys and values of a unit are quantized again for every block of queries, so a block has many
// queries; but a sequence has several blocks if it is so long that threads would wait for it.
AttentionPlan Plan(const VarlenAttentionOptions& options) {
  // Estimated costs with AVX-512: a pair of positions has 2 D products, 128 per cycle, and a
  // softmax; a key is quantized with its value.
  const int64_t pair = options.head_size / 64 + 2;
  const int64_t key = options.head_size + 40;
  AttentionPlan plan;
  for (int64_t b = 0; b < options.num_sequences; ++b) {
    const RowRange rows = RowsOfSequence(options.row_splits, b);
    const int64_t length = rows.count;
    if (length == 0) continue;  // there may be 2^40 heads of nothing
    for (int64_t head = 0; head < options.num_heads; ++head) {
      for (int64_t begin = 0; begin < length; begin += kQuantizedAttentionQueries) {
        const int64_t queries = std::min(kQuantizedAttentionQueries, length - begin);
        plan.push_back({rows, rows, head, begin, AttentionUnit::kQueryBlock,
                        length * key + queries * length * pair});
      }
    }
  }
  return plan;
}

}  // namespace

template <typename T>
void QuantizedAttention(const Parallel& parallel, const VarlenAttentionArgs<T>& args) {
  RunPlan(parallel, Plan(args), [&](const AttentionUnit* units, int64_t count) {
    BERT_TF_DISPATCH(QuantizedAttentionUnits, args, units, count, BestByteInstructions());
  });
}

BERT_TF_INSTANTIATE_KERNEL(QuantizedAttention, VarlenAttentionArgs)

}  // namespace bert_tf
