// Divides the units of an attention among the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/kernels/attention/varlen_attention_units.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

using AttentionPlan = std::vector<AttentionUnit>;

// Runs the units in groups of about equal cost. A pool that divides a range into equal numbers of
// items then divides the work evenly, even if the lengths of the sequences are very different.
template <typename Run>
void RunPlan(const Parallel& parallel, const AttentionPlan& plan, const Run& run) {
  // Estimates, on which only the speed depends: enough groups that all threads finish at about the
  // same time, and groups that take much longer than handing one over.
  constexpr int kGroupsPerThread = 8;
  constexpr int64_t kMinGroupCycles = 50000;
  if (plan.empty()) return;
  int64_t all_cycles = 0;
  for (const AttentionUnit& unit : plan) all_cycles += unit.cycles;
  const int64_t wanted = all_cycles / (kGroupsPerThread * parallel.NumThreads());
  const int64_t group_cycles = std::max(wanted, kMinGroupCycles);
  std::vector<int64_t> group_begin;
  int64_t filled = group_cycles;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (filled >= group_cycles) {
      group_begin.push_back(static_cast<int64_t>(i));
      filled = 0;
    }
    filled += plan[i].cycles;
  }
  const int64_t groups = static_cast<int64_t>(group_begin.size());
  group_begin.push_back(static_cast<int64_t>(plan.size()));
  parallel.For(groups, all_cycles / groups, [&](int64_t begin, int64_t end) {
    const int64_t first = group_begin[begin];
    run(plan.data() + first, group_begin[end] - first);
  });
}

}  // namespace bert_tf
