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
Ahead NormalizedRows(const DenseArgs<T>& args, const DenseUnit& unit, int64_t part, int64_t parts,
                     int64_t iterations) {
  const int64_t bytes = unit.rows * args.columns * static_cast<int64_t>(sizeof(T));
  const int64_t begin = PartBegin(2 * bytes, parts, part);
  const int64_t size = PartBegin(2 * bytes, parts, part + 1) - begin;
  const bool is_residual = args.residual != nullptr && begin < bytes;
  const T* const matrix = (is_residual ? args.residual : args.y) + unit.first_row * args.columns;
  return {reinterpret_cast<const char*>(matrix) + begin % bytes,
          CeilDivide(size, Larger(iterations, 1))};
}

// Rows of x in bytes, in a scratch of the thread: the RowScales, then the words.
template <typename Method>
class RowBuffer {
 public:
  RowBuffer(int slot, int64_t rows, int64_t depth) : stride_(Stride(depth)) {
    const int64_t scales = CeilDivide(rows * 2, kLanes) * kLanes;
    float* const scratch = ThreadScratch(slot, scales + rows * stride_ / 4);
    scales_ = reinterpret_cast<RowScale*>(scratch);
    words_ = reinterpret_cast<uint8_t*>(scratch + scales);
  }

  RowScale& Scale(int64_t i) const { return scales_[i]; }
  uint8_t* Words(int64_t i) const { return words_ + i * stride_; }
  void Split(int64_t i) const { Method::Split(Words(i), stride_ / Method::kPlanes); }
  QuantizedRows Rows() const { return {{words_, stride_}, scales_}; }

 private:
  // An odd number of cache lines, so that the rows of a tile fall into different sets of the
  // first-level cache.
  static int64_t Stride(int64_t depth) {
    const int64_t plane = CeilDivide(depth, kQuad) * kQuad;
    return (CeilDivide(Method::kPlanes * plane, kCacheLine) | 1) * kCacheLine;
  }

  int64_t stride_;
  RowScale* scales_;
  uint8_t* words_;
};

// Writes y = activation(z + bias) (+ residual) for tiles.
template <typename T>
struct StoreResults {
  const DenseArgs<T>& args;
  int64_t first_row;

  // Prefetches what a tile will write. Otherwise its stores may wait for memory until the loads of
  // the next tile wait for them: if the rows of y are a multiple of 4 KB apart, the processor takes
  // loads 4 KB from a store for loads of its result.
  void Fetch(int64_t row, int64_t rows, int64_t column) const {
    const T* y = args.y + (first_row + row) * args.columns + column;
    for (int64_t i = 0; i < rows; ++i, y += args.columns) {
      __builtin_prefetch(y, 1, 2);
      __builtin_prefetch(reinterpret_cast<const char*>(y) + kCacheLine, 1, 2);
    }
  }

  void operator()(int64_t row, int64_t rows, int64_t column, const float* z) const {
    PanelEpilogue(args, first_row + row, rows, column, z);
  }
};

// One panel of W times `rows` rows. The sums are stored in `sums` for LayerNorm, or else `finish`
// follows every tile immediately: y is then written while the next tile is computed. The last tile
// prefetches the next panel: while the first tile waits for memory, the last one has its panel in a
// cache.
template <typename Method, typename T, typename Finish>
void Panel(const QuantizedDenseArgs<T>& args, const DenseUnit& unit, const QuantizedRows& x,
           int64_t panel, float* sums, const Finish& finish) {
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
  const int64_t tiles = CeilDivide(unit.rows, Method::kTileRows);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = PartBegin(unit.rows, tiles, t);
    const int64_t count = PartBegin(unit.rows, tiles, t + 1) - begin;
    const auto tile = TileOf<Method, Dequantizer>(count);
    const ByteRows bytes = {x.bytes.words + begin * x.bytes.stride, x.bytes.stride};
    float* const z = has_layer_norm ? sums + begin * kDensePanel : tile_sums;
    Ahead ahead = {reinterpret_cast<const char*>(w), 0};
    if (t + 1 < tiles && has_layer_norm) {
      ahead = NormalizedRows(args, unit, panel * (tiles - 1) + t, panels * (tiles - 1), quads);
    } else if (t + 1 == tiles && panel + 1 < panels) {
      ahead = {reinterpret_cast<const char*>(w + quads * kQuadBytes), kQuadBytes};
    }
    if (!has_layer_norm) finish.Fetch(begin, count, first_column);
    for (int column = 0; column < kDensePanel; column += kTileColumns) {
      tile(quads, bytes, w + column * kQuad, ahead.first, ahead.step,
           {x.scales + begin, &scales, column, z, kDensePanel});
    }
    if (!has_layer_norm) finish(begin, count, first_column, tile_sums);
  }
}

template <typename Method, typename T, typename Finish>
void MultiplyRows(const QuantizedDenseArgs<T>& args, const DenseUnit& unit, const QuantizedRows& x,
                  const Finish& finish) {
  for (int64_t p = 0; p < unit.panels; ++p) {
    float* const sums = unit.sums + p * unit.sums_rows * kDensePanel;
    Panel<Method>(args, unit, x, unit.first_panel + p, sums, finish);
  }
}

// Quantizes rows of x, unless `has_rows` says that this thread did so the last time.
template <typename Method, typename T>
RowBuffer<Method> QuantizeX(const QuantizedDenseArgs<T>& args, int64_t first_row, int64_t rows,
                            bool has_rows) {
  const RowBuffer<Method> buffer(1, rows, args.depth);
  for (int64_t i = 0; i < rows && !has_rows; ++i) {
    const T* const x = args.x + (first_row + i) * args.depth;
    const auto smoothed = [&](int64_t k, auto lanes) BERT_TF_INLINE_LAMBDA {
      return Load(x + k, lanes) * Load(args.smoothing + k, lanes);
    };
    uint8_t* const words = buffer.Words(i);
    buffer.Scale(i) =
        args.static_scale == nullptr
            ? QuantizeRow(smoothed, args.depth, words)
            : QuantizeRow(smoothed, StaticScale(args.static_scale), args.depth, words);
    buffer.Split(i);
  }
  return buffer;
}

template <typename Method, typename T>
void RunUnit(const QuantizedDenseArgs<T>& args, const DenseUnit& unit, bool has_rows) {
  const auto x = QuantizeX<Method>(args, unit.first_row, unit.rows, has_rows);
  MultiplyRows<Method>(args, unit, x.Rows(), StoreResults<T>{args, unit.first_row});
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

// The results of the first layer of a block in the type of x, as other ops store them.
template <typename T>
T* ResultsBetween(int64_t rows, int64_t columns) {
  constexpr int64_t kNumbers = sizeof(float) / sizeof(T);
  return reinterpret_cast<T*>(ThreadScratch(3, CeilDivide(rows * columns, kNumbers)));
}

// Turns activation(z + bias) of the first layer into bytes for the second one, which has a static
// scale, with the bits of storing and quantizing it.
template <typename Method, typename T>
struct QuantizeResults {
  const DenseArgs<T>& args;
  const float* smoothing;
  StaticScale scale;
  RowBuffer<Method> rows;
  Vec* poison;  // of each row: NaN if a result is not finite

  void Fetch(int64_t, int64_t, int64_t) const {}

  void operator()(int64_t row, int64_t count, int64_t column, const float* z) const {
    T y[Method::kTileRows * kDensePanel];
    DenseArgs<T> tile = args;
    tile.columns = Smaller(kDensePanel, args.columns - column);
    tile.bias = args.bias + column;
    tile.y = y;
    PanelEpilogue(tile, 0, count, 0, z);
    for (int64_t i = 0; i < count; ++i) {
      uint8_t* const words = rows.Words(row + i) + column;
      ForSingleVectors(tile.columns, [&](auto lanes, int64_t j) BERT_TF_INLINE_LAMBDA {
        const Vec v = Load(y + i * tile.columns + j, lanes) * Load(smoothing + column + j, lanes);
        poison[row + i] += v * 0.0f;
        StoreBytes(words + j, scale.quantizer(v), lanes);
      });
    }
  }
};

// The first layer of a block, up to the bytes of the second one's x.
template <typename Method, typename T>
RowBuffer<Method> QuantizedBetween(const QuantizedDenseArgs<T>& first,
                                   const QuantizedDenseArgs<T>& second, const DenseUnit& unit) {
  const RowBuffer<Method> between(3, unit.rows, second.depth);
  for (int64_t i = 0; i < unit.rows; ++i) PadRow(second.depth, between.Words(i));
  Vec poison[kFeedForwardRows] = {};
  const StaticScale scale(second.static_scale);
  const auto x = QuantizeX<Method>(first, 0, unit.rows, false);
  MultiplyRows<Method>(first, unit, x.Rows(),
                       QuantizeResults<Method, T>{first, second.smoothing, scale, between, poison});
  for (int64_t i = 0; i < unit.rows; ++i) {
    between.Scale(i) = scale.Row(ReduceAdd(poison[i]));
    between.Split(i);
  }
  return between;
}

// Both layers for a block of all rows of the arguments.
template <typename Method, typename T>
void RunFeedForwardBlock(QuantizedDenseArgs<T> first, QuantizedDenseArgs<T> second) {
  const int64_t rows = first.rows;
  const int64_t panels = CeilDivide(second.columns, kDensePanel);
  const DenseUnit wide = {0, rows, 0, CeilDivide(first.columns, kDensePanel), nullptr, 0};
  const DenseUnit narrow = {0,   rows, 0, panels, ThreadScratch(0, panels * rows * kDensePanel),
                            rows};
  if (second.static_scale != nullptr) {
    const auto between = QuantizedBetween<Method>(first, second, wide);
    MultiplyRows<Method>(second, narrow, between.Rows(), StoreResults<T>{second, 0});
  } else {
    second.x = first.y = ResultsBetween<T>(rows, first.columns);
    RunUnit<Method>(first, wide, false);
    RunUnit<Method>(second, narrow, false);
  }
  NormalizeRows(second, 0, rows, narrow.sums, rows);
}

template <typename Method, typename T>
void RunFeedForward(const Parallel& parallel, const QuantizedFeedForwardArgs<T>& args) {
  const QuantizedDenseArgs<T>&first = args.first, &second = args.second;
  const int64_t rows = first.rows;
  const int64_t threads = parallel.NumThreads();
  if (second.columns == 0) return;
  if (rows < threads * kLeastFeedForwardRows) {
    QuantizedDenseArgs<T> one = first, other = second;
    other.x = one.y = ResultsBetween<T>(rows, first.columns);
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
      QuantizedDenseArgs<T> one = first, other = second;
      one.rows = other.rows = PartBegin(rows, blocks, b + 1) - first_row;
      one.x += first_row * first.depth;
      if (other.residual != nullptr) other.residual += first_row * second.columns;
      other.y += first_row * second.columns;
      RunFeedForwardBlock<Method>(one, other);
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
