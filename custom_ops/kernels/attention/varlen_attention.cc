#include "custom_ops/kernels/attention/varlen_attention.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/kernels/attention/attention_plan.h"
#include "custom_ops/kernels/attention/varlen_attention_units.h"

namespace bert_tf {
namespace {

// Estimated costs, on which only the division of the work depends: the products of a pair of
// positions, 16 per cycle; the softmax of a pair and its random bits; copying a row to scratch;
// starting a unit.
constexpr int64_t kProductsPerCycle = 16;
constexpr int64_t kPairCycles = 2;
constexpr int64_t kRowCycles = 40;
constexpr int64_t kUnitCycles = 500;

// The cost of a block of queries, which attends to keys, or of keys, to which queries attend.
int64_t BlockCycles(const VarlenAttentionOptions& options, const AttentionUnit& unit, int64_t begin,
                    int products, bool of_queries) {
  if (options.distance_vectors != nullptr) products += 2;
  const int64_t length = of_queries ? unit.queries.count : unit.keys.count;
  const int64_t others = of_queries ? unit.keys.count : unit.queries.count;
  int64_t visible = others;  // about how many keys or queries the block meets
  if (options.causal) {
    const int64_t end = unit.MaskPosition(begin) + kAttentionTile;  // of the visible keys
    visible = std::clamp<int64_t>(of_queries ? end : length - begin, 0, others);
  }
  if (options.window_size >= 0 && begin >= options.num_global_tokens) {
    const int64_t window = std::min(options.window_size, others);
    visible = std::min(visible, 2 * window + kAttentionTile + options.num_global_tokens);
  }
  const int64_t rows = std::min<int64_t>(kAttentionTile, length - begin);
  const int64_t pair = products * options.head_size / kProductsPerCycle + kPairCycles;
  return kUnitCycles + rows * visible * pair + (rows + visible) * kRowCycles;
}

AttentionUnit UnitOfSequence(const VarlenAttentionOptions& options, int64_t sequence,
                             AttentionUnit::Kind kind) {
  return {RowsOfSequence(options.row_splits, sequence),
          RowsOfSequence(options.key_row_splits, sequence), 0, 0, kind};
}

void AddBlocks(const VarlenAttentionOptions& options, AttentionUnit unit, int products,
               AttentionPlan* plan) {
  const bool of_queries = unit.kind == AttentionUnit::kQueryBlock;
  const int64_t length = of_queries ? unit.queries.count : unit.keys.count;
  for (unit.begin = 0; unit.begin < length; unit.begin += kAttentionTile) {
    unit.cycles = BlockCycles(options, unit, unit.begin, products, of_queries);
    plan->push_back(unit);
  }
}

// With vectors of distances, the units of a head follow each other: they share what is computed
// from its vectors.
void SortByHead(const VarlenAttentionOptions& options, AttentionPlan* plan) {
  if (options.distance_vectors == nullptr) return;
  std::stable_sort(plan->begin(), plan->end(),
                   [](const AttentionUnit& a, const AttentionUnit& b) { return a.head < b.head; });
}

AttentionPlan ForwardPlan(const VarlenAttentionOptions& options) {
  AttentionPlan plan;
  for (int64_t b = 0; b < options.num_sequences; ++b) {
    AttentionUnit unit = UnitOfSequence(options, b, AttentionUnit::kQueryBlock);
    if (unit.queries.count == 0) continue;  // there may be 2^40 heads of nothing
    for (unit.head = 0; unit.head < options.num_heads; ++unit.head) {
      AddBlocks(options, unit, 2, &plan);
    }
  }
  SortByHead(options, &plan);
  return plan;
}

// With a distance bias or vectors of distances, one unit processes one head of one sequence, so
// that its sums have one order.
//
// If one unit processes one head of one sequence, it computes five products per tile. If a sequence
// is so long that threads would wait for its last head, it is divided into blocks of queries (dq:
// three products) and blocks of keys (dk, dv: four products). The order of the sums is the same in
// both cases.
AttentionPlan BackwardPlan(const VarlenAttentionOptions& options, int num_threads) {
  std::vector<int64_t> head_cycles(options.num_sequences, 0);
  double all_cycles = 0;
  for (int64_t b = 0; b < options.num_sequences; ++b) {
    const AttentionUnit unit = UnitOfSequence(options, b, AttentionUnit::kSequence);
    if (unit.queries.count == 0) head_cycles[b] = unit.keys.count * kRowCycles;  // only zeros
    for (int64_t begin = 0; begin < unit.queries.count; begin += kAttentionTile) {
      head_cycles[b] += BlockCycles(options, unit, begin, 5, true);
    }
    all_cycles += static_cast<double>(head_cycles[b]) * options.num_heads;
  }
  AttentionPlan plan;
  for (int64_t b = 0; b < options.num_sequences; ++b) {
    AttentionUnit unit = UnitOfSequence(options, b, AttentionUnit::kSequence);
    const int64_t longest = std::max(unit.queries.count, unit.keys.count);
    if (longest == 0) continue;
    const bool cut = options.distance_bias == nullptr && options.distance_vectors == nullptr &&
                     longest > kAttentionTile &&
                     static_cast<double>(head_cycles[b]) * num_threads > all_cycles;
    for (unit.head = 0; unit.head < options.num_heads; ++unit.head) {
      if (cut) {
        unit.kind = AttentionUnit::kQueryBlock;
        AddBlocks(options, unit, 3, &plan);
        unit.kind = AttentionUnit::kKeyBlock;
        AddBlocks(options, unit, 4, &plan);
      } else {
        unit.cycles = head_cycles[b];
        plan.push_back(unit);
      }
    }
  }
  SortByHead(options, &plan);
  return plan;
}

// Runs all units of a head in one thread, which adds to the gradients of the vectors of the head.
template <typename T, typename Run>
void RunHeads(const Parallel& parallel, const VarlenAttentionGradArgs<T>& args,
              const AttentionPlan& plan, const Run& run) {
  std::fill_n(args.d_distance_vectors,
              args.num_distance_vectors * 2 * args.num_heads * args.head_size, 0.0f);
  if (plan.empty()) return;
  const int64_t units = static_cast<int64_t>(plan.size()) / args.num_heads;  // of a head
  int64_t cycles = 0;
  for (int64_t i = 0; i < units; ++i) cycles += plan[i].cycles;
  parallel.For(args.num_heads, cycles, [&](int64_t first_head, int64_t last_head) {
    run(plan.data() + first_head * units, (last_head - first_head) * units);
  });
}

// Sums the parts of all sequences, in float64, to the gradient of the distance bias.
void SumDistanceParts(const Parallel& parallel, const VarlenAttentionOptions& options,
                      const std::vector<float>& parts, float* d_distance_bias) {
  const int64_t cycles =
      static_cast<int64_t>(parts.size()) / std::max<int64_t>(1, options.num_heads);
  parallel.For(options.num_heads, cycles, [&](int64_t first_head, int64_t last_head) {
    std::vector<double> sums(options.NumDistances());
    for (int64_t head = first_head; head < last_head; ++head) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t b = 0; b < options.num_sequences; ++b) {
        const RowRange rows = RowsOfSequence(options.row_splits, b);
        if (rows.count == 0) continue;
        const auto [begin, reach] = DistancePartOf(options, rows, head);
        for (int64_t i = 0; i <= 2 * reach; ++i) {
          sums[options.max_distance - reach + i] += parts[begin + i];
        }
      }
      std::copy(sums.begin(), sums.end(), d_distance_bias + head * options.NumDistances());
    }
  });
}

}  // namespace

template <typename T>
void VarlenAttention(const Parallel& parallel, const VarlenAttentionArgs<T>& args) {
  RunPlan(parallel, ForwardPlan(args), [&](const AttentionUnit* units, int64_t count) {
    BERT_TF_DISPATCH(AttentionForwardUnits, args, units, count, HasBfloat16());
  });
}

template <typename T>
void VarlenAttentionGrad(const Parallel& parallel, const VarlenAttentionGradArgs<T>& args) {
  const AttentionPlan plan = BackwardPlan(args, parallel.NumThreads());
  std::vector<float> parts;
  VarlenAttentionGradArgs<T> with_parts = args;
  if (args.distance_bias != nullptr) {
    parts.resize(2 * args.row_splits[args.num_sequences] * args.num_heads);
    with_parts.d_distance_bias_parts = parts.data();
  }
  const auto run = [&](const AttentionUnit* units, int64_t count) {
    BERT_TF_DISPATCH(AttentionBackwardUnits, with_parts, units, count, HasBfloat16());
  };
  if (args.distance_vectors == nullptr) {
    RunPlan(parallel, plan, run);
  } else {
    RunHeads(parallel, args, plan, run);
  }
  if (args.distance_bias != nullptr) {
    SumDistanceParts(parallel, args, parts, args.d_distance_bias);
  }
}

BERT_TF_INSTANTIATE_KERNEL(VarlenAttention, VarlenAttentionArgs)
BERT_TF_INSTANTIATE_KERNEL(VarlenAttentionGrad, VarlenAttentionGradArgs)

}  // namespace bert_tf
