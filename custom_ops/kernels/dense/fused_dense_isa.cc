// Compiled once per instruction set (isa.bzl).
//
// A unit of work is a block of rows times some panels of W. The depth is processed in blocks. A
// block of x is copied to a buffer, so that strides and storage types do not matter. The block of W
// in each panel, which is then in the first-level cache, is multiplied by all rows of x, in tiles
// of rows, whose sums stay in registers for the whole block. Between blocks, the sums have the
// layout [panel][row][kDensePanel]. The epilogue is computed for a tile or a panel after its last
// block, or for the rows of the unit after the last panel.
#include <utility>

#include "custom_ops/kernels/dense/dense_blocks.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// A tile keeps the sums of kTileRows rows and kTileVectors vectors in registers. While it is
// computed, it prefetches kTileLines cache lines every kTileSteps steps of the depth.
template <int kTileRows, int kTileVectors, int kTileLines, int kTileSteps>
struct TileShape {
  static constexpr int kRows = kTileRows;
  static constexpr int kVectors = kTileVectors;
  static constexpr int kColumns = kTileVectors * kLanes;
  static constexpr int kLines = kTileLines;
  static constexpr int kSteps = kTileSteps;
  static_assert(kDensePanel % kColumns == 0, "a panel is whole tiles");
};

// The shapes for a few rows, for the rows of at most two tiles, and for more rows. kSharesPanel
// says whether every tile prefetches its part of the next panel, and whether the epilogue follows
// every tile. Otherwise the last tile of a panel prefetches all of it, and the epilogue follows the
// panel.
#if defined(__AVX512F__)
using ManyRows = TileShape<14, 2, 2, 1>;  // 28 sums, 2 vectors of W and 1 of x: 31 of 32 registers
using SomeRows = ManyRows;
using FewRows = ManyRows;
constexpr bool kSharesPanel = false;
#elif defined(BERT_TF_NEON)
using ManyRows = TileShape<5, 4, 2, 1>;  // 20 sums, 4 vectors of W and 5 of x: 29 of 32 registers
using SomeRows = ManyRows;
using FewRows = ManyRows;
constexpr bool kSharesPanel = false;
#else
// A step takes 6 cycles, in which memory delivers 25 bytes: one tile that prefetches a whole panel
// waits, and a prefetch in every step takes the place of a load.
using ManyRows = TileShape<6, 2, 1, 4>;  // 12 sums, 2 vectors of W and 1 of x: 15 of 16 registers
using SomeRows = TileShape<6, 2, 1, 1>;
using FewRows = TileShape<3, 4, 2, 1>;  // 12 sums, 3 vectors of W (the fourth from memory), 1 of x
constexpr bool kSharesPanel = true;
#endif
constexpr int kTileRows = ManyRows::kRows;

// The floats between rows of the copy of x. With a multiple of 1 KB, all rows of a tile would be in
// the same bank of the first-level cache.
constexpr int64_t kXStride = kDenseDepth + (kSharesPanel ? kLanes : 0);

// The number of blocks of the depth. It is at least one, so that the epilogue is computed even if
// the depth is zero.
BERT_TF_INLINE int64_t DenseDepthBlocks(int64_t depth) {
  return Larger(1, CeilDivide(depth, kDenseDepth));
}

// sums[i, :] (+)= sum_k x[i, k] w[k, :]  for kRows rows, Shape::kColumns columns and `depth` terms.
// Rows of x are kXStride apart, rows of w and sums kDensePanel.
template <typename Shape, typename W, int kRows>
__attribute__((noinline)) void Tile(int64_t depth, bool first, const float* __restrict x,
                                    const W* __restrict w, Ahead ahead, float* __restrict sums) {
  constexpr int kVectors = Shape::kVectors;
  // A smaller tile already waits for W.
  constexpr bool kPrefetches = kRows * kVectors >= 8;
  if (kSharesPanel && kRows > 1 && !first) {  // the sums may be in the third-level cache
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int line = 0; line < Shape::kColumns; line += 16) {
        __builtin_prefetch(sums + i * kDensePanel + line, 1, 3);
      }
    }
  }
  Vec sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Vec{};
  }
  const auto add_products = [&](int64_t k) BERT_TF_INLINE_LAMBDA {
    Vec row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = Load(w + k * kDensePanel + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const float factor = x[i * kXStride + k];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] += row[v] * factor;
    }
  };
  int64_t k = 0;
#pragma GCC unroll 1
  for (; k + Shape::kSteps <= depth; k += Shape::kSteps) {
    if (kPrefetches) {
#pragma GCC unroll 2
      for (int line = 0; line < Shape::kLines; ++line) {
        __builtin_prefetch(ahead.first + line * kCacheLine, 0, 2);
      }
      ahead.first += ahead.step;
    }
#pragma GCC unroll 8
    for (int step = 0; step < Shape::kSteps; ++step) add_products(k + step);
  }
  for (; k < depth; ++k) add_products(k);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* const p = sums + i * kDensePanel + v * kLanes;
      Store(p, first ? sum[i][v] : Load(p) + sum[i][v]);
    }
  }
}

template <typename Shape, typename W, int... i>
auto TileOf(int64_t rows, std::integer_sequence<int, i...>) {
  static constexpr decltype(&Tile<Shape, W, 1>) kTiles[] = {Tile<Shape, W, i + 1>...};
  return kTiles[rows - 1];
}

// The block of a panel's products: `rows` rows of x times w, of `depth` terms. The `next_bytes`
// bytes at `next` are needed after it.
template <typename W>
struct PanelBlock {
  int64_t rows;
  int64_t depth;
  bool first;
  const float* x;
  const W* w;
  const char* next;
  int64_t next_bytes;
  float* sums;
};

// Computes a block in tiles and prefetches what is next. epilogue.Fetch(...) precedes and
// epilogue(row, rows, column, columns) follows each part of the panel that is complete.
template <typename Shape, typename W, typename Epilogue>
void RunPanel(const PanelBlock<W>& block, const Epilogue& epilogue) {
  const int64_t tiles = CeilDivide(block.rows, Shape::kRows);
  const int64_t strips = kDensePanel / Shape::kColumns;
  const int64_t parts = kSharesPanel ? tiles * strips : 1;
  const int64_t part = CeilDivide(block.next_bytes, parts);
  Ahead ahead = {block.next, CeilDivide(Shape::kSteps * part, Larger(block.depth, 1))};
  // A few rows of x stay in the first-level cache together with a strip of the panel.
  const bool strip_by_strip = kSharesPanel && tiles <= 6;
  for (int64_t i = 0; i < tiles * strips; ++i) {
    const int64_t t = strip_by_strip ? i % tiles : i / strips;
    const int64_t column = (strip_by_strip ? i / tiles : i % strips) * Shape::kColumns;
    const int64_t begin = PartBegin(block.rows, tiles, t);
    const int64_t count = PartBegin(block.rows, tiles, t + 1) - begin;
    const auto tile = TileOf<Shape, W>(count, std::make_integer_sequence<int, Shape::kRows>{});
    const bool prefetches = kSharesPanel || t + 1 == tiles;
    if (kSharesPanel) epilogue.Fetch(begin, count, column);
    tile(block.depth, block.first, block.x + begin * kXStride, block.w + column,
         prefetches ? ahead : Ahead{block.next, 0}, block.sums + begin * kDensePanel + column);
    if (!kSharesPanel) continue;
    epilogue(begin, count, column, Shape::kColumns);
    ahead.first += part;
  }
  if (!kSharesPanel) epilogue(0, block.rows, 0, kDensePanel);
}

template <typename W, typename Epilogue>
void RunPanel(const PanelBlock<W>& block, const Epilogue& epilogue) {
  if (block.rows <= FewRows::kRows) return RunPanel<FewRows>(block, epilogue);
  if (block.rows <= 2 * SomeRows::kRows) return RunPanel<SomeRows>(block, epilogue);
  return RunPanel<ManyRows>(block, epilogue);
}

template <typename T>
void CopyRows(const T* x, int64_t stride, int64_t rows, int64_t count, float* copy) {
  for (int64_t i = 0; i < rows; ++i) {
    ForVectors(count, [&](auto lanes, int64_t k, int) BERT_TF_INLINE_LAMBDA {
      Store(copy + i * kXStride + k, Load(x + i * stride + k, lanes), lanes);
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

// Writes y for parts of a panel whose sums are complete, unless LayerNorm needs whole rows or the
// panel its factors.
template <typename T>
struct WriteResults {
  const DenseArgs<T>& args;
  int64_t first_row;
  int64_t first_column;
  const float* sums;
  const float* factors;  // or null
  bool is_complete;

  void Fetch(int64_t row, int64_t rows, int64_t column) const {
    if (!is_complete) return;
    const int64_t stride = args.ResultColumns();
    const T* y = args.y + (first_row + row) * stride + first_column + column;
    for (int64_t i = 0; i < rows; ++i, y += stride) __builtin_prefetch(y, 1, 2);
  }

  void operator()(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    if (!is_complete) return;
    const int64_t place = row * kDensePanel + column;
    PanelEpilogue(args, first_row + row, rows, first_column + column, columns, sums + place,
                  factors == nullptr ? nullptr : factors + place);
  }
};

template <typename T>
void RunUnit(const FusedDenseArgs<T>& args, const DenseUnit& unit) {
  const auto [first_row, rows, first_panel, panels, sums, sums_rows] = unit;
  const int64_t all_panels = CeilDivide(args.columns, kDensePanel);
  const int64_t blocks = DenseDepthBlocks(args.depth);
  const int64_t x_size = CeilDivide(rows * kXStride, kLanes) * kLanes;
  float* const x_block = ThreadScratch(1, x_size + kDensePanel * kDenseDepth);
  float* const w_block = x_block + x_size;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = PartBegin(args.depth, blocks, block);
    const int64_t end = PartBegin(args.depth, blocks, block + 1);
    const int64_t depth = end - first;
    const bool is_last = block + 1 == blocks;
    CopyRows(args.x + first_row * args.depth + first, args.depth, rows, depth, x_block);
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t number = first_panel + p;
      const T* const w =
          args.packed + (first * all_panels + PanelAt(args, number) * depth) * kDensePanel;
      float* const panel_sums = sums + p * sums_rows * kDensePanel;
      // The next panel of this block, or the unit's first panel of the next block.
      const T* next =
          args.packed + (first * all_panels + PanelAt(args, number + 1) * depth) * kDensePanel;
      if (p + 1 == panels && !is_last) {
        const int64_t next_depth = PartBegin(args.depth, blocks, block + 2) - end;
        next = args.packed +
               (end * all_panels + PanelAt(args, first_panel) * next_depth) * kDensePanel;
      }
      const int64_t next_bytes = depth * kDensePanel * static_cast<int64_t>(sizeof(T));
      const float* const waiting = sums + p / 2 * 2 * sums_rows * kDensePanel;  // for its factors
      const bool is_complete = is_last && args.gamma == nullptr && !WaitsForGate(args, number);
      const WriteResults<T> epilogue = {args,
                                        first_row,
                                        ResultColumn(args, number),
                                        args.is_gated ? waiting : panel_sums,
                                        args.is_gated ? panel_sums : nullptr,
                                        is_complete};
      const auto run = [&](const auto* weights) {
        RunPanel<std::decay_t<decltype(*weights)>>(
            {rows, depth, block == 0, x_block, weights, reinterpret_cast<const char*>(next),
             next_bytes, panel_sums},
            epilogue);
      };
      if (rows <= kTileRows) {  // converting W first is only faster with several tiles
        run(w);
      } else {
        run(Widened(w, depth * kDensePanel, w_block));
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
