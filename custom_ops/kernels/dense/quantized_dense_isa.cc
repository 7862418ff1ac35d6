// Compiled once per instruction set (isa.bzl).
//
// A unit of work is a block of rows times some panels of W. Its rows are quantized first. Then
// every panel is multiplied by all rows, in tiles of rows, whose integer sums stay in registers for
// the whole depth and are stored as float32. The depth is not divided into blocks: a panel has a
// quarter of the bytes of a float32 panel, and a tile reads few of them per cycle, so the
// second-level cache is fast enough for them.
#include "custom_ops/kernels/dense/byte_products.h"
#include "custom_ops/kernels/dense/dense_blocks.h"
#include "custom_ops/kernels/dense/quantized_dense.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// The quantized rows of a unit.
struct QuantizedRows {
  ByteRows bytes;
  const RowScale* scales;
};

// What a tile prefetches: two cache lines per iteration, the next ones `step` bytes after them.
struct Ahead {
  const char* first;
  int64_t step;
};

// Part `part` of `parts` of the residual and then y of a unit, which its LayerNorm will need.
template <typename T>
Ahead NormalizedRows(const DenseArgs<T>& args, int64_t first_row, int64_t rows, int64_t part,
                     int64_t parts, int64_t iterations) {
  const int64_t bytes = rows * args.columns * static_cast<int64_t>(sizeof(T));
  const int64_t begin = PartBegin(2 * bytes, parts, part);
  const int64_t size = PartBegin(2 * bytes, parts, part + 1) - begin;
  const bool is_residual = args.residual != nullptr && begin < bytes;
  const T* const matrix = (is_residual ? args.residual : args.y) + first_row * args.columns;
  return {reinterpret_cast<const char*>(matrix) + begin % bytes,
          CeilDivide(size, Larger(iterations, 1))};
}

// Prefetches the columns of a panel in `rows` rows of y for writing. Otherwise, the stores of a
// tile may wait for memory until the loads of the next tile wait for them: if the rows of y are a
// multiple of 4 KB apart, the processor takes loads 4 KB from a store for loads of its result.
template <typename T>
void FetchResults(const DenseArgs<T>& args, int64_t first_row, int64_t rows, int64_t first_column) {
  const T* y = args.y + first_row * args.columns + first_column;
  for (int64_t i = 0; i < rows; ++i, y += args.columns) {
    __builtin_prefetch(y, 1, 2);
    __builtin_prefetch(reinterpret_cast<const char*>(y) + kCacheLine, 1, 2);
  }
}

// One panel of W times `rows` rows, whose first is row `first_row` of x. The sums are stored in
// `sums` for LayerNorm, or else the epilogue of a tile follows immediately: y is then written while
// the next tile is computed. The last tile prefetches the next panel: while the first tile waits
// for memory, the last one has its panel in a cache.
template <typename Method, typename T>
void Panel(const QuantizedDenseArgs<T>& args, const QuantizedRows& x, int64_t first_row,
           int64_t rows, int64_t panel, float* sums) {
  const int64_t quads = CeilDivide(args.depth, kQuad);
  const int8_t* const w = args.packed + panel * quads * kQuadBytes;
  const int64_t panels = CeilDivide(args.columns, kDensePanel);
  const int64_t first_column = panel * kDensePanel;
  const size_t columns = static_cast<size_t>(Smaller(kDensePanel, args.columns - first_column));
  PanelScales scales;
  std::memcpy(scales.scale, args.column_scale + first_column, columns * sizeof(float));
  std::memcpy(scales.sum, args.column_sums + first_column, columns * sizeof(int32_t));
  const bool has_layer_norm = args.gamma != nullptr;
  alignas(kCacheLine) float tile_sums[Method::kTileRows * kDensePanel];
  const int64_t tiles = CeilDivide(rows, Method::kTileRows);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = PartBegin(rows, tiles, t);
    const int64_t count = PartBegin(rows, tiles, t + 1) - begin;
    const auto tile = TileOf<Method, Dequantizer>(count);
    const ByteRows bytes = {x.bytes.words + begin * x.bytes.stride, x.bytes.stride};
    float* const z = has_layer_norm ? sums + begin * kDensePanel : tile_sums;
    Ahead ahead = {reinterpret_cast<const char*>(w), 0};
    if (t + 1 < tiles && has_layer_norm) {
      ahead = NormalizedRows(args, first_row, rows, panel * (tiles - 1) + t, panels * (tiles - 1),
                             quads);
    } else if (t + 1 == tiles && panel + 1 < panels) {
      ahead = {reinterpret_cast<const char*>(w + quads * kQuadBytes), kQuadBytes};
    }
    if (!has_layer_norm) FetchResults(args, first_row + begin, count, first_column);
    for (int column = 0; column < kDensePanel; column += kTileColumns) {
      tile(quads, bytes, w + column * kQuad, ahead.first, ahead.step,
           {x.scales + begin, &scales, column, z, kDensePanel});
    }
    if (!has_layer_norm) {
      PanelEpilogue(args, first_row + begin, count, first_column, tile_sums);
    }
  }
}

// The bytes of a quantized row. An odd number of cache lines, so that the rows of a tile fall into
// different sets of the first-level cache.
template <typename Method>
int64_t RowStride(int64_t depth) {
  const int64_t plane = CeilDivide(depth, kQuad) * kQuad;
  return (CeilDivide(Method::kPlanes * plane, kCacheLine) | 1) * kCacheLine;
}

template <typename Method, typename T>
void RunUnit(const QuantizedDenseArgs<T>& args, const DenseUnit& unit, bool has_rows) {
  // The RowScales of the rows, then their words.
  const int64_t stride = RowStride<Method>(args.depth);
  const int64_t scales_size = CeilDivide(unit.rows * 2, kLanes) * kLanes;
  float* const scratch = ThreadScratch(1, scales_size + unit.rows * stride / 4);
  RowScale* const scales = reinterpret_cast<RowScale*>(scratch);
  uint8_t* const words = reinterpret_cast<uint8_t*>(scratch + scales_size);
  if (!has_rows) {
    for (int64_t i = 0; i < unit.rows; ++i) {
      const T* const x = args.x + (unit.first_row + i) * args.depth;
      const auto smoothed = [&](int64_t k, auto lanes) BERT_TF_INLINE_LAMBDA {
        return Load(x + k, lanes) * Load(args.smoothing + k, lanes);
      };
      scales[i] = QuantizeRow(smoothed, args.depth, words + i * stride);
      Method::Split(words + i * stride, stride / Method::kPlanes);
    }
  }
  for (int64_t p = 0; p < unit.panels; ++p) {
    Panel<Method>(args, {{words, stride}, scales}, unit.first_row, unit.rows, unit.first_panel + p,
                  unit.sums + p * unit.sums_rows * kDensePanel);
  }
}

template <typename Method, typename T>
void Run(const Parallel& parallel, const QuantizedDenseArgs<T>& args) {
  // A panel is read from the third-level cache or from memory at about 8 bytes per cycle.
  const auto panel_cycles = [](int64_t rows) {
    return Larger(Method::kRowCycles * rows, kQuadBytes / 8);
  };
  // The rows of a unit are quantized once for all panels.
  const int64_t unit_panels = CeilDivide(args.columns, kDensePanel);
  constexpr double kQuantizeCycles = 1.2;  // for four numbers
  const DenseCosts<decltype(panel_cycles)> costs = {
      CeilDivide(args.depth, kQuad), Method::kTileRows, unit_panels, kQuantizeCycles, panel_cycles};
  RunUnits(parallel, args, costs, [&args](const DenseUnit& unit, bool has_rows) {
    RunUnit<Method>(args, unit, has_rows);
  });
}

// Rows of a block of the feed-forward network: at F = 3,072, the float32 numbers between the layers
// take half of a second-level cache of 1 MB.
constexpr int64_t kFeedForwardRows = 56;
// With fewer rows per thread, the threads divide the columns too, one layer after the other.
constexpr int64_t kLeastFeedForwardRows = 28;

template <typename Method, typename T>
void RunFeedForward(const Parallel& parallel, const QuantizedFeedForwardArgs<T>& args) {
  const QuantizedDenseArgs<T>&first = args.first, &second = args.second;
  const int64_t rows = first.rows;
  const int64_t threads = parallel.NumThreads();
  if (second.columns == 0) return;
  const auto between = [&](int64_t count) {
    constexpr int64_t kNumbers = sizeof(float) / sizeof(T);
    return reinterpret_cast<T*>(ThreadScratch(3, CeilDivide(count * first.columns, kNumbers)));
  };
  if (rows < threads * kLeastFeedForwardRows) {
    QuantizedDenseArgs<T> one = first, other = second;
    other.x = one.y = between(rows);
    Run<Method>(parallel, one);
    return Run<Method>(parallel, other);
  }
  // About equal blocks, whose number is a multiple of the number of threads.
  const int64_t blocks = CeilDivide(CeilDivide(rows, kFeedForwardRows), threads) * threads;
  const int64_t cycles = Method::kRowCycles * CeilDivide(rows, blocks) * (first.depth / kQuad + 8) *
                         (first.columns / kDensePanel + 1) * 2;
  parallel.For(blocks, cycles, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first_row = PartBegin(rows, blocks, b);
      const int64_t count = PartBegin(rows, blocks, b + 1) - first_row;
      QuantizedDenseArgs<T> one = first, other = second;
      one.x += first_row * first.depth;
      other.x = one.y = between(count);
      if (other.residual != nullptr) other.residual += first_row * second.columns;
      other.y += first_row * second.columns;
      for (QuantizedDenseArgs<T>* layer : {&one, &other}) {
        const int64_t panels = CeilDivide(layer->columns, kDensePanel);
        layer->rows = count;
        RunUnit<Method>(
            *layer, {0, count, 0, panels, ThreadScratch(0, panels * count * kDensePanel), count},
            false);
      }
      NormalizeRows(other, 0, count, ThreadScratch(0, 0), count);
    }
  });
}

}  // namespace

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args,
                    [[maybe_unused]] bool has_vnni) {
#if defined(__AVX512F__)
  if (has_vnni) return Run<Vnni>(parallel, args);
#endif
  Run<Pairs>(parallel, args);
}

template <typename T>
void QuantizedFeedForward(const Parallel& parallel, const QuantizedFeedForwardArgs<T>& args,
                          [[maybe_unused]] bool has_vnni) {
#if defined(__AVX512F__)
  if (has_vnni) return RunFeedForward<Vnni>(parallel, args);
#endif
  RunFeedForward<Pairs>(parallel, args);
}

#define BERT_TF_INSTANTIATE(T)                                                          \
  template void QuantizedDense<T>(const Parallel&, const QuantizedDenseArgs<T>&, bool); \
  template void QuantizedFeedForward<T>(const Parallel&, const QuantizedFeedForwardArgs<T>&, bool);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
