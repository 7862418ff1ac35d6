// Compiled once per instruction set (isa.bzl).
//
// A unit of work is a block of rows times some panels of W. The depth is processed in blocks. A
// block of x is copied to a buffer, so that strides and storage types do not matter. The block of W
// in each panel, which is then in the first-level cache, is multiplied by all rows of x, in tiles
// of kTileRows rows, whose sums stay in registers for the whole block. Between blocks, the sums
// have the layout [panel][row][kDensePanel]. The epilogue is computed for a panel after its last
// block, or for the rows of the unit after the last panel.
#include <utility>

#include "custom_ops/kernels/dense/dense_blocks.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// The number of rows and vectors whose sums are kept in registers.
#if defined(__AVX512F__)
constexpr int kTileRows = 14;  // 28 sums, 2 vectors of W and 1 of x: 31 of 32 registers
constexpr int kTileVectors = 2;
#elif defined(BERT_TF_NEON)
constexpr int kTileRows = 5;  // 20 sums, 4 vectors of W and 5 of x: 29 of 32 registers
constexpr int kTileVectors = 4;
#else
constexpr int kTileRows = 3;  // 12 sums, 3 vectors of W (the fourth from memory) and 1 of x: 16
constexpr int kTileVectors = 4;
#endif
constexpr int kTileColumns = kTileVectors * kLanes;
static_assert(kDensePanel % kTileColumns == 0, "a panel is whole tiles");

// The number of blocks of the depth. It is at least one, so that the epilogue is computed even if
// the depth is zero.
BERT_TF_INLINE int64_t DenseDepthBlocks(int64_t depth) {
  return Larger(1, CeilDivide(depth, kDenseDepth));
}

// sums[i, :] (+)= sum_k x[i, k] w[k, :]  for kRows rows, kTileColumns columns and `depth` terms.
// Rows of x are kDenseDepth apart, rows of w and sums kDensePanel. At the same time, the memory at
// `ahead`, two cache lines for every `ahead_step` bytes, is prefetched to the second-level cache.
template <typename W, int kRows>
__attribute__((noinline)) void Tile(int64_t depth, bool first, const float* __restrict x,
                                    const W* __restrict w, const char* ahead, int64_t ahead_step,
                                    float* __restrict sums) {
  // A smaller tile already waits for W.
  constexpr bool kPrefetches = kRows * kTileVectors >= 8;
  Vec sum[kRows][kTileVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) sum[i][v] = Vec{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    if (kPrefetches) {
      __builtin_prefetch(ahead + k * ahead_step, 0, 2);
      __builtin_prefetch(ahead + k * ahead_step + kCacheLine, 0, 2);
    }
    Vec row[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) row[v] = Load(w + k * kDensePanel + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const float factor = x[i * kDenseDepth + k];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) sum[i][v] += row[v] * factor;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      float* const p = sums + i * kDensePanel + v * kLanes;
      Store(p, first ? sum[i][v] : Load(p) + sum[i][v]);
    }
  }
}

template <typename W, int... i>
auto TileOf(int64_t rows, std::integer_sequence<int, i...>) {
  static constexpr decltype(&Tile<W, 1>) kTiles[] = {Tile<W, i + 1>...};
  return kTiles[rows - 1];
}

// One panel of W times `rows` rows of x. `next` is the panel after it. The last tile prefetches it:
// while the first tile waits for memory, the last one has its panel in the first-level cache.
template <typename W, typename T>
void Panel(int64_t rows, int64_t depth, bool first, const float* x, const W* w, const T* next,
           float* sums) {
  const int64_t tiles = CeilDivide(rows, kTileRows);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = PartBegin(rows, tiles, t);
    const int64_t count = PartBegin(rows, tiles, t + 1) - begin;
    const auto tile = TileOf<W>(count, std::make_integer_sequence<int, kTileRows>{});
    const bool last = t + 1 == tiles;
    const void* const ahead = last ? static_cast<const void*>(next) : x;
    const int64_t ahead_step = last ? kDensePanel * static_cast<int64_t>(sizeof(T)) : 0;
    for (int64_t column = 0; column < kDensePanel; column += kTileColumns) {
      tile(depth, first, x + begin * kDenseDepth, w + column, static_cast<const char*>(ahead),
           ahead_step, sums + begin * kDensePanel + column);
    }
  }
}

template <typename T>
void CopyRows(const T* x, int64_t stride, int64_t rows, int64_t count, float* copy) {
  for (int64_t i = 0; i < rows; ++i) {
    ForVectors(count, [&](auto lanes, int64_t k, int) BERT_TF_INLINE_LAMBDA {
      Store(copy + i * kDenseDepth + k, Load(x + i * stride + k, lanes), lanes);
    });
  }
}

// A block of W as float32.
BERT_TF_INLINE const float* Widened(const float* w, int64_t, float*) { return w; }
template <typename T>
BERT_TF_INLINE const float* Widened(const T* w, int64_t count, float* widened) {
  for (int64_t i = 0; i < count; i += kLanes) Store(widened + i, Load(w + i));
  return widened;
}

template <typename T>
void RunUnit(const FusedDenseArgs<T>& args, const DenseUnit& unit) {
  const auto [first_row, rows, first_panel, panels, sums, sums_rows] = unit;
  const int64_t all_panels = CeilDivide(args.columns, kDensePanel);
  const int64_t blocks = DenseDepthBlocks(args.depth);
  float* const x_block = ThreadScratch(1, rows * kDenseDepth + kDensePanel * kDenseDepth);
  float* const w_block = x_block + rows * kDenseDepth;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = PartBegin(args.depth, blocks, block);
    const int64_t depth = PartBegin(args.depth, blocks, block + 1) - first;
    CopyRows(args.x + first_row * args.depth + first, args.depth, rows, depth, x_block);
    const T* w = args.packed + (first * all_panels + first_panel * depth) * kDensePanel;
    for (int64_t p = 0; p < panels; ++p, w += depth * kDensePanel) {
      float* const panel_sums = sums + p * sums_rows * kDensePanel;
      const T* const next = w + depth * kDensePanel;
      if (rows <= kTileRows) {  // converting W first is only faster with several tiles
        Panel(rows, depth, block == 0, x_block, w, next, panel_sums);
      } else {
        Panel(rows, depth, block == 0, x_block, Widened(w, depth * kDensePanel, w_block), next,
              panel_sums);
      }
      if (block + 1 == blocks && args.gamma == nullptr) {
        PanelEpilogue(args, first_row, rows, (first_panel + p) * kDensePanel, panel_sums);
      }
    }
  }
}

// Rows [first, first + depth) of the panel of W that begins at `first_column`.
template <typename T>
void PackPanel(const PackDenseArgs<T>& args, int64_t first, int64_t depth, int64_t first_column,
               T* packed) {
  const int64_t columns = Smaller(kDensePanel, args.columns - first_column);
  if (columns < kDensePanel) {
    std::memset(packed, 0, static_cast<size_t>(depth * kDensePanel) * sizeof(T));
  }
  if (!args.transposed) {
    for (int64_t k = 0; k < depth; ++k) {
      std::memcpy(packed + k * kDensePanel, args.kernel + (first + k) * args.columns + first_column,
                  static_cast<size_t>(columns) * sizeof(T));
    }
    return;
  }
  constexpr int64_t kLine = 64 / sizeof(T);  // the elements of a cache line are read together
  for (int64_t begin = 0; begin < depth; begin += kLine) {
    const int64_t end = Smaller(depth, begin + kLine);
    for (int64_t j = 0; j < columns; ++j) {
      const T* const w = args.kernel + (first_column + j) * args.depth + first;
      for (int64_t k = begin; k < end; ++k) packed[k * kDensePanel + j] = w[k];
    }
  }
}

}  // namespace

template <typename T>
void PackDense(const Parallel& parallel, const PackDenseArgs<T>& args) {
  if (args.depth == 0) return;
  const int64_t panels = CeilDivide(args.columns, kDensePanel);
  const int64_t blocks = DenseDepthBlocks(args.depth);
  const int64_t cost = CeilDivide(args.depth, blocks) * kDensePanel / (args.transposed ? 1 : 4);
  parallel.For(blocks * panels, cost, [&args, panels, blocks](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = PartBegin(args.depth, blocks, unit / panels);
      const int64_t depth = PartBegin(args.depth, blocks, unit / panels + 1) - first;
      const int64_t first_column = unit % panels * kDensePanel;
      T* const packed = args.packed + (first * panels + unit % panels * depth) * kDensePanel;
      PackPanel(args, first, depth, first_column, packed);
    }
  });
}

template <typename T>
void FusedDense(const Parallel& parallel, const FusedDenseArgs<T>& args) {
  // Two vectors of W take 2 cycles per row of x, and a panel is read from the third-level cache or
  // from memory at about 8 bytes per cycle.
  const auto panel_cycles = [](int64_t rows) {
    return Larger(2 * rows, kDensePanel * static_cast<int64_t>(sizeof(T)) / 8);
  };
  constexpr int64_t kUnitPanels = 24;
  constexpr double kCopyCycles = 0.125;
  const DenseCosts<decltype(panel_cycles)> costs = {args.depth, kTileRows, kUnitPanels, kCopyCycles,
                                                    panel_cycles};
  RunUnits(parallel, args, costs, [&args](const DenseUnit& unit, bool) { RunUnit(args, unit); });
}

#define BERT_TF_INSTANTIATE(T)                                          \
  template void PackDense<T>(const Parallel&, const PackDenseArgs<T>&); \
  template void FusedDense<T>(const Parallel&, const FusedDenseArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(Float16)

}  // namespace bert_tf::BERT_TF_ISA
