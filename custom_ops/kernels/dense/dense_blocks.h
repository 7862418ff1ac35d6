// Shared by the dense kernels: the division of the work, and the computation after the sums.
//
// Sums are float32 and have the layout [panel][row][kDensePanel].
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/parallel.h"
#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/base/thread_scratch.h"
#include "custom_ops/kernels/dense/fused_dense.h"
#include "custom_ops/kernels/gelu/gelu.h"
#include "custom_ops/kernels/layer_norm/layer_norm_row.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// What a tile prefetches to the second-level cache: the next lines are `step` bytes after the last.
struct Ahead {
  const char* first;
  int64_t step;
};

// The panel that is multiplied as number `i`. With a gate, each panel of the first half is followed
// by its factors.
template <typename T>
int64_t PanelAt(const DenseArgs<T>& args, int64_t i) {
  if (!args.is_gated) return i;
  return i / 2 + i % 2 * (args.columns / (2 * kDensePanel));
}

// Where the results begin that are complete after the panel with number `i`.
template <typename T>
int64_t ResultColumn(const DenseArgs<T>& args, int64_t i) {
  return (args.is_gated ? i / 2 : i) * kDensePanel;
}

// Whether no results are complete after the panel with number `i`, because its factors follow.
template <typename T>
bool WaitsForGate(const DenseArgs<T>& args, int64_t i) {
  return args.is_gated && i % 2 == 0;
}

// The first `columns` numbers of a panel's bias.
struct PanelBias {
  template <typename T>
  PanelBias(const DenseArgs<T>& args, int64_t first_column, int64_t columns) {
    if (args.bias == nullptr) return;
    ForVectors(columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
      Store(numbers + j, Load(args.bias + first_column + j, lanes), lanes);
    });
  }
  float numbers[kDensePanel] = {};
};

// y = activation(sums + bias) (+ residual) for `rows` rows and at most `most_columns` columns,
// which are in one panel.
template <typename Activation, typename T>
void PanelEpilogue(const Activation& activation, const DenseArgs<T>& args, int64_t first_row,
                   int64_t rows, int64_t first_column, int64_t most_columns, const float* sums) {
  const int64_t columns = Smaller(most_columns, args.columns - first_column);
  if (columns <= 0) return;  // the panel's last columns are padding
  const PanelBias bias(args, first_column, columns);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t offset = (first_row + i) * args.columns + first_column;
    ForSingleVectors(columns, [&](auto lanes, int64_t j) BERT_TF_INLINE_LAMBDA {
      Vec z = activation(Load(sums + i * kDensePanel + j) + Load(bias.numbers + j));
      if (args.residual != nullptr) z += Load(args.residual + offset + j, lanes);
      Store(args.y + offset + j, z, lanes);
    });
  }
}

// y = activation(sums + bias) * (factors + bias), of the panels of both halves.
template <typename Activation, typename T>
void GatedEpilogue(const Activation& activation, const DenseArgs<T>& args, int64_t first_row,
                   int64_t rows, int64_t first_column, int64_t columns, const float* sums,
                   const float* factors) {
  const int64_t half = args.ResultColumns();
  const PanelBias bias(args, first_column, columns),
      factor_bias(args, half + first_column, columns);
  for (int64_t i = 0; i < rows; ++i) {
    T* const y = args.y + (first_row + i) * half + first_column;
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t place = i * kDensePanel + j;
      Store(y + j, activation(Load(sums + place) + Load(bias.numbers + j)) *
                       (Load(factors + place) + Load(factor_bias.numbers + j)));
    }
  }
}

// `factors` is null without a gate.
template <typename T>
void PanelEpilogue(const DenseArgs<T>& args, int64_t first_row, int64_t rows, int64_t first_column,
                   int64_t most_columns, const float* sums, const float* factors) {
  const auto run = [&](const auto& activation) {
    if (factors == nullptr) {
      PanelEpilogue(activation, args, first_row, rows, first_column, most_columns, sums);
    } else {
      GatedEpilogue(activation, args, first_row, rows, first_column, most_columns, sums, factors);
    }
  };
  switch (args.activation) {
    case DenseActivation::kNone:
      return run([](Vec z) BERT_TF_INLINE_LAMBDA { return z; });
    case DenseActivation::kGelu:
      return run([](Vec z) BERT_TF_INLINE_LAMBDA { return Gelu<ErfForm>(z); });
    case DenseActivation::kApproximateGelu:
      return run([](Vec z) BERT_TF_INLINE_LAMBDA { return Gelu<TanhForm>(z); });
    case DenseActivation::kSilu:
      return run([](Vec z) BERT_TF_INLINE_LAMBDA { return Gelu<SiluForm>(z); });
  }
}

// y = LayerNorm(sums + bias + residual) for rows [first_row, first_row + rows). The sums have the
// layout [panel][sums_rows][kDensePanel].
template <typename T>
void NormalizeRows(const DenseArgs<T>& args, int64_t first_row, int64_t rows, const float* sums,
                   int64_t sums_rows) {
  float* const z = ThreadScratch(1, CeilDivide(args.columns, kDensePanel) * kDensePanel);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t offset = (first_row + i) * args.columns;
    Vec total[kAccumulators] = {};
    ForVectors(args.columns, [&](auto lanes, int64_t j, int k) BERT_TF_INLINE_LAMBDA {
      const float* const panel = sums + (j / kDensePanel * sums_rows + i) * kDensePanel;
      Vec v = Load(panel + j % kDensePanel);
      if (args.bias != nullptr) v += Load(args.bias + j, lanes);
      if (args.residual != nullptr) v += Load(args.residual + offset + j, lanes);
      v = ZeroOutside(v, lanes);
      Store(z + j, v, lanes);
      total[k] += v;
    });
    NormalizeRow(z, ReduceAdd(total), args.columns, args.gamma, args.beta, args.epsilon, false,
                 args.y + offset);
  }
}

// The most rows of a unit of work, chosen so that its block of x fits the second-level cache: 140
// KB of float32 numbers, or the quantized rows and their sums.
constexpr int64_t kUnitRows = 140;

// Estimated costs, which decide only the division of the work: all divisions give the same bits.
constexpr int64_t kLoopSteps = 8;    // to start and end a loop over the depth, in its steps
constexpr double kLateStart = 0.05;  // of a unit: how late the last thread starts
constexpr double kSecondRoundCycles = 40000;  // to wake the threads again: 10 us at 4 GHz

struct DenseGrid {
  int64_t row_blocks;
  int64_t panel_blocks;
};

// What the division of the work depends on. A step is one iteration of the inner loop over the
// depth of a panel.
template <typename PanelCycles>
struct DenseCosts {
  int64_t steps;
  int64_t tile_rows;
  int64_t unit_panels;       // the most panels of a unit without LayerNorm
  double row_cycles;         // per step, to prepare a row of x for a unit
  PanelCycles panel_cycles;  // per step, of this number of rows times a panel
};

// The number of panels that are in the same unit, because one waits for the other.
template <typename T>
int64_t PanelsTogether(const DenseArgs<T>& args) {
  return args.is_gated ? 2 : 1;
}

// Returns the division of the work with the shortest estimated time on `threads` threads. The
// blocks of rows and panels fit the caches and have about equal sizes, and there are one to four of
// them per thread if there is enough work.
template <typename T, typename PanelCycles>
DenseGrid ChooseGrid(const DenseArgs<T>& args, int64_t panels, const DenseCosts<PanelCycles>& costs,
                     int64_t threads) {
  const bool layer_norm = args.gamma != nullptr;
  // LayerNorm needs whole rows. Dividing them costs a second parallel loop, and memory.
  const int64_t least_panel_blocks = layer_norm ? 1 : CeilDivide(panels, costs.unit_panels);
  const int64_t most_panel_blocks =
      layer_norm && args.rows > 2 * kUnitRows ? 1 : panels / PanelsTogether(args);
  const int64_t least_row_blocks = CeilDivide(args.rows, kUnitRows);
  DenseGrid best = {least_row_blocks, least_panel_blocks};
  double best_cycles = 0.0;
  const auto consider = [&](int64_t row_blocks, int64_t panel_blocks) {
    const int64_t rows = CeilDivide(args.rows, row_blocks);
    const int64_t tiles = CeilDivide(rows, costs.tile_rows);
    // A tile costs one cycle more than its rows.
    const int64_t products = CeilDivide(panels, panel_blocks) * (costs.panel_cycles(rows) + tiles);
    const double unit_cycles =
        (static_cast<double>(products) + costs.row_cycles * static_cast<double>(rows)) *
        static_cast<double>(costs.steps + kLoopSteps);
    const int64_t rounds = CeilDivide(row_blocks * panel_blocks, threads);
    double cycles = (static_cast<double>(rounds) + kLateStart) * unit_cycles;
    if (layer_norm && panel_blocks > 1) cycles += kSecondRoundCycles;
    if (best_cycles == 0.0 || cycles < best_cycles) {
      best = {row_blocks, panel_blocks};
      best_cycles = cycles;
    }
  };
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t row_blocks = Smaller(
        args.rows, i < 4 ? least_row_blocks + i : CeilDivide(least_row_blocks, threads) * threads);
    consider(row_blocks, least_panel_blocks);
    for (int64_t units = 1; units <= 4; ++units) {
      const int64_t panel_blocks =
          Smaller(CeilDivide(units * threads, row_blocks), most_panel_blocks);
      consider(row_blocks, Larger(panel_blocks, least_panel_blocks));
    }
  }
  return best;
}

// A block of rows times some panels, whose numbers PanelAt explains. The sums of its panel p begin
// at sums + p * sums_rows * kDensePanel.
struct DenseUnit {
  int64_t first_row;
  int64_t rows;
  int64_t first_panel;
  int64_t panels;
  float* sums;
  int64_t sums_rows;
};

// Divides the work and calls run(unit, repeats_rows) for every unit. `repeats_rows` says whether
// the previous unit of this thread had the same rows. Then normalizes the rows, if LayerNorm is
// wanted: `run` stores the sums, and computes the epilogue of its panels only without LayerNorm.
template <typename T, typename PanelCycles, typename Run>
void RunUnits(const Parallel& parallel, const DenseArgs<T>& args,
              const DenseCosts<PanelCycles>& costs, const Run& run) {
  if (args.rows == 0 || args.columns == 0) return;
  const int64_t panels = CeilDivide(args.columns, kDensePanel);
  const DenseGrid grid = ChooseGrid(args, panels, costs, parallel.NumThreads());
  const int64_t cycles_per_unit = costs.panel_cycles(CeilDivide(args.rows, grid.row_blocks)) *
                                  CeilDivide(panels, grid.panel_blocks) *
                                  (costs.steps + kLoopSteps);
  // The sums of all units are kept if LayerNorm needs those of several units for a row.
  float* const shared_sums = args.gamma != nullptr && grid.panel_blocks > 1
                                 ? ThreadScratch(2, panels * args.rows * kDensePanel)
                                 : nullptr;
  const int64_t units = grid.row_blocks * grid.panel_blocks;
  const int64_t together = PanelsTogether(args);
  parallel.For(units, cycles_per_unit, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / grid.panel_blocks, p = i % grid.panel_blocks;
      DenseUnit unit;
      unit.first_row = PartBegin(args.rows, grid.row_blocks, r);
      unit.rows = PartBegin(args.rows, grid.row_blocks, r + 1) - unit.first_row;
      unit.first_panel = PartBegin(panels / together, grid.panel_blocks, p) * together;
      unit.panels =
          PartBegin(panels / together, grid.panel_blocks, p + 1) * together - unit.first_panel;
      unit.sums_rows = shared_sums != nullptr ? args.rows : unit.rows;
      unit.sums = shared_sums != nullptr
                      ? shared_sums + (unit.first_panel * args.rows + unit.first_row) * kDensePanel
                      : ThreadScratch(0, unit.panels * unit.rows * kDensePanel);
      run(unit, i > begin && p > 0);
      if (args.gamma != nullptr && shared_sums == nullptr) {
        NormalizeRows(args, unit.first_row, unit.rows, unit.sums, unit.sums_rows);
      }
    }
  });
  if (shared_sums == nullptr) return;
  parallel.For(args.rows, 4 * args.columns, [&](int64_t begin, int64_t end) {
    NormalizeRows(args, begin, end - begin, shared_sums + begin * kDensePanel, args.rows);
  });
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
