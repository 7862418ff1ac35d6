// A dense layer with a matmul of words (word_products.h), and two of them as a feed-forward
// network.
//
// A unit of work is a block of rows times some panels of W. Its rows become words first. Then every
// panel is multiplied by all rows, in tiles of rows, whose sums stay in registers for the whole
// depth. The depth is not divided into blocks: a tile reads few bytes of its panel per cycle, so
// the second-level cache is fast enough for them.
//
// A Format says what the numbers in the words are:
//   Method         how words are multiplied
//   Element, Args  T and the arguments: a DenseArgs<T> with `packed`
//   Scale          what a row of words needs besides, and may be empty
//   WriteRow       turns a row of x into words and returns its Scale
//   kRowCycles     the cycles of this for a word
//   SplitRows      unpacks the words of the rows of a tile
//   TileFor        the Tile for these rows
//   Columns        what the tiles of a panel need of its columns; Output(scales, rows, z) is what
//                  the Tiles of some rows call with their sums, after its `column` is set, and
//                  stores floats in rows of kDensePanel
//   Results        turns rows of results into the words of the next layer's x, if CanWrite(args):
//                  Write(row, column, count, y, words) a part of a row, and then Finish(row)
//                  returns its Scale
#pragma once

#include <cstdint>
#include <type_traits>

#include "custom_ops/kernels/dense/dense_blocks.h"
#include "custom_ops/kernels/dense/word_products.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// Fails to compile if a type is not a Format.
template <typename Format>
constexpr bool CheckFormat() {
  using Args = typename Format::Args;
  using Element = typename Format::Element;
  using Scale = typename Format::Scale;
  using Results = typename Format::Results;
  static_assert(CheckMethod<typename Format::Method>());
  static_assert(std::is_base_of_v<DenseArgs<Element>, Args>, "Args");
  static_assert(std::is_trivially_copyable_v<Scale>, "Scale");
  static_assert(Format::kRowCycles > 0.0, "kRowCycles");
  static_assert(std::is_invocable_r_v<Scale, decltype(Format::WriteRow), const Args&,
                                      const Element*, uint8_t*>,
                "WriteRow");
  static_assert(std::is_invocable_r_v<void, decltype(Format::SplitRows), uint8_t*, int64_t, int64_t,
                                      int64_t, Scale*>,
                "SplitRows");
  static_assert(std::is_constructible_v<typename Format::Columns, const Args&, int64_t>, "Columns");
  static_assert(
      std::is_invocable_r_v<typename Format::Output, decltype(&Format::Columns::Output),
                            const typename Format::Columns&, const Scale*, int64_t, float*>,
      "Columns::Output");
  static_assert(std::is_constructible_v<Results, const Args&>, "Results");
  static_assert(std::is_invocable_r_v<bool, decltype(Results::CanWrite), const Args&>, "CanWrite");
  static_assert(std::is_invocable_r_v<void, decltype(&Results::Write), Results&, int64_t, int64_t,
                                      int64_t, const Element*, uint8_t*>,
                "Results::Write");
  static_assert(std::is_invocable_r_v<Scale, decltype(&Results::Finish), const Results&, int64_t>,
                "Results::Finish");
  return true;
}

// The parts of a Format whose rows are unpacked one by one.
template <typename WordMethod, typename RowScale, typename TileOutput>
struct PlainRows {
  using Method = WordMethod;
  using Scale = RowScale;
  using Output = TileOutput;
  static_assert(std::is_same_v<decltype(Method::Split(nullptr, 0)), void>, "Split");

  static void SplitRows(uint8_t* words, int64_t stride, int64_t, int64_t rows, Scale*) {
    for (int64_t i = 0; i < rows; ++i) {
      Method::Split(words + i * stride, stride / Method::kPlanes);
    }
  }
  static auto TileFor(const Scale*, int64_t rows) { return TileOf<Method, Output>(rows); }
};

// The words of a unit's rows of x.
template <typename Format>
struct UnitRows {
  WordRows rows;
  const typename Format::Scale* scales;
};

// Rows of x in words, in a scratch of the thread: the Scales, then the words.
template <typename Format>
class RowBuffer {
 public:
  using Method = typename Format::Method;
  using Scale = typename Format::Scale;

  RowBuffer(int slot, int64_t rows, int64_t depth)
      : rows_(rows), row_words_(CeilDivide(depth, Method::kNumbers)), stride_(Stride(row_words_)) {
    const int64_t scales =
        CeilDivide(rows * static_cast<int64_t>(sizeof(Scale)), kVectorBytes) * kLanes;
    float* const scratch = ThreadScratch(slot, scales + rows * stride_ / kWordBytes);
    scales_ = reinterpret_cast<Scale*>(scratch);
    words_ = reinterpret_cast<uint8_t*>(scratch + scales);
  }

  uint8_t* Words(int64_t i) const { return words_ + i * stride_; }
  UnitRows<Format> Rows() const { return {{words_, stride_}, scales_}; }

  void SetScale(int64_t i, const Scale& scale) const { scales_[i] = scale; }

  // Unpacks the rows, whose words and Scales are written, for their tiles.
  void Finish() const {
    const int64_t tiles = CeilDivide(rows_, Method::kTileRows);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = PartBegin(rows_, tiles, t), end = PartBegin(rows_, tiles, t + 1);
      Format::SplitRows(Words(begin), stride_, row_words_, end - begin, scales_ + begin);
    }
  }

 private:
  // An odd number of cache lines, so that the rows of a tile fall into different sets of the
  // first-level cache.
  static int64_t Stride(int64_t words) {
    return (CeilDivide(Method::kPlanes * words * kWordBytes, kCacheLine) | 1) * kCacheLine;
  }

  int64_t rows_;
  int64_t row_words_;
  int64_t stride_;
  Scale* scales_;
  uint8_t* words_;
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

// Writes y = activation(z + bias) (+ residual) for tiles.
template <typename T>
struct StoreResults {
  const DenseArgs<T>& args;
  int64_t first_row;

  // Prefetches what a tile will write. Otherwise its stores may wait for memory until the loads of
  // the next tile wait for them: if the rows of y are a multiple of 4 KB apart, the processor takes
  // loads 4 KB from a store for loads of its result.
  void Fetch(int64_t row, int64_t rows, int64_t column) const {
    const int64_t stride = args.ResultColumns();
    const T* y = args.y + (first_row + row) * stride + column;
    for (int64_t i = 0; i < rows; ++i, y += stride) {
      __builtin_prefetch(y, 1, 2);
      __builtin_prefetch(reinterpret_cast<const char*>(y) + kCacheLine, 1, 2);
    }
  }

  void operator()(int64_t row, int64_t rows, int64_t column, const float* z,
                  const float* factors) const {
    PanelEpilogue(args, first_row + row, rows, column, kDensePanel, z, factors);
  }
};

// The panel of W with this number times the rows of a unit. The sums are stored in `sums` for
// LayerNorm or until their factors follow, or else `finish` follows every tile immediately: y is
// then written while the next tile is computed. If the tiles do not share the next panel, the last
// one prefetches it: while the first tile waits for memory, the last one has its panel in a cache.
template <typename Format, typename Finish>
void Panel(const typename Format::Args& args, const DenseUnit& unit, const UnitRows<Format>& x,
           int64_t number, float* sums, const Finish& finish) {
  using Method = typename Format::Method;
  const int64_t words = CeilDivide(args.depth, Method::kNumbers);
  const auto panel_at = [&](int64_t i) BERT_TF_INLINE_LAMBDA {
    return reinterpret_cast<const char*>(args.packed) + PanelAt(args, i) * words * kPanelWordBytes;
  };
  const char* const w = panel_at(number);
  const int64_t panels = CeilDivide(args.columns, kDensePanel);
  const int64_t result_column = ResultColumn(args, number);
  const typename Format::Columns columns(args, PanelAt(args, number) * kDensePanel);
  const bool has_layer_norm = args.gamma != nullptr;
  const bool keeps_sums = has_layer_norm || WaitsForGate(args, number);
  alignas(kCacheLine) float tile_sums[Method::kTileRows * kDensePanel];
  const int64_t tiles = CeilDivide(unit.rows, Method::kTileRows);
  constexpr int64_t kTiles = kDensePanel / kTileColumns;  // next to each other
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = PartBegin(unit.rows, tiles, t);
    const int64_t count = PartBegin(unit.rows, tiles, t + 1) - begin;
    const auto tile = Format::TileFor(x.scales + begin, count);
    const WordRows rows = {x.rows.words + begin * x.rows.stride, x.rows.stride};
    float* const z = keeps_sums ? sums + begin * kDensePanel : tile_sums;
    Ahead ahead = {w, 0};
    if constexpr (kTilesSharePanel) {
      const int64_t steps = kTiles * words;
      if (number + 1 < panels) {
        const int64_t part = CeilDivide(words * kPanelWordBytes, tiles);
        ahead = {panel_at(number + 1) + t * part, CeilDivide(part, Larger(steps, 1))};
      } else if (has_layer_norm) {
        ahead = NormalizedRows(args, unit, t, tiles, steps);
      }
    } else if (t + 1 < tiles && has_layer_norm) {
      ahead = NormalizedRows(args, unit, number * (tiles - 1) + t, panels * (tiles - 1), words);
    } else if (t + 1 == tiles && number + 1 < panels) {
      ahead = {panel_at(number + 1), kPanelWordBytes};
    }
    if (!keeps_sums) finish.Fetch(begin, count, result_column);
    auto output = columns.Output(x.scales + begin, count, z);
    for (output.column = 0; output.column < kDensePanel; output.column += kTileColumns) {
      tile(words, rows, w + output.column * kWordBytes, ahead.first, ahead.step, output);
      if (kTilesSharePanel) ahead.first += words * ahead.step;
    }
    if (keeps_sums) continue;
    if (args.is_gated) {
      finish(begin, count, result_column, sums + begin * kDensePanel, tile_sums);
    } else {
      finish(begin, count, result_column, tile_sums, nullptr);
    }
  }
}

template <typename Format, typename Finish>
void MultiplyRows(const typename Format::Args& args, const DenseUnit& unit,
                  const UnitRows<Format>& x, const Finish& finish) {
  for (int64_t p = 0; p < unit.panels; ++p) {
    // The sums that wait for their factors have one place, which stays in a cache.
    float* const sums = unit.sums + (args.is_gated ? 0 : p * unit.sums_rows * kDensePanel);
    Panel<Format>(args, unit, x, unit.first_panel + p, sums, finish);
  }
}

// Turns rows of x into words, unless `has_rows` says that this thread did so the last time.
template <typename Format>
RowBuffer<Format> WriteRows(const typename Format::Args& args, int64_t first_row, int64_t rows,
                            bool has_rows) {
  const RowBuffer<Format> buffer(1, rows, args.depth);
  if (has_rows) return buffer;
  for (int64_t i = 0; i < rows; ++i) {
    const auto* const x = args.x + (first_row + i) * args.depth;
    buffer.SetScale(i, Format::WriteRow(args, x, buffer.Words(i)));
  }
  buffer.Finish();
  return buffer;
}

template <typename Format>
void RunUnit(const typename Format::Args& args, const DenseUnit& unit, bool has_rows) {
  const auto x = WriteRows<Format>(args, unit.first_row, unit.rows, has_rows);
  MultiplyRows<Format>(args, unit, x.Rows(),
                       StoreResults<typename Format::Element>{args, unit.first_row});
}

template <typename Format>
void Run(const Parallel& parallel, const typename Format::Args& args) {
  static_assert(CheckFormat<Format>());
  using Method = typename Format::Method;
  // A panel is read from the third-level cache or from memory at about 8 bytes per cycle.
  const auto panel_cycles = [](int64_t rows) {
    return Larger(Method::kRowCycles * rows, kPanelWordBytes / 8);
  };
  // The rows of a unit become words once for all panels.
  const int64_t unit_panels = CeilDivide(args.columns, kDensePanel);
  const DenseCosts<decltype(panel_cycles)> costs = {CeilDivide(args.depth, Method::kNumbers),
                                                    Method::kTileRows, unit_panels,
                                                    Format::kRowCycles, panel_cycles};
  RunUnits(parallel, args, costs, [&args](const DenseUnit& unit, bool has_rows) {
    RunUnit<Format>(args, unit, has_rows);
  });
}

// Rows of a block of the feed-forward network. At F = 3,072 and H = 768, the words between the
// layers and the sums of the second one take 640 KB of a second-level cache of 1 MB in bfloat16.
constexpr int64_t kFeedForwardRows = 70;
// With fewer rows per thread, the threads divide the columns too, one layer after the other.
constexpr int64_t kLeastFeedForwardRows = 28;

// The results of the first layer of a block in the type of x, as other ops store them.
template <typename T>
T* ResultsBetween(int64_t rows, int64_t columns) {
  constexpr int64_t kNumbers = sizeof(float) / sizeof(T);
  return reinterpret_cast<T*>(ThreadScratch(3, CeilDivide(rows * columns, kNumbers)));
}

// Turns activation(z + bias) of the first layer into words for the second one, with the bits of
// storing it and reading it again.
template <typename Format>
struct WriteResults {
  const typename Format::Args& args;
  const RowBuffer<Format>& rows;
  typename Format::Results& results;

  void Fetch(int64_t, int64_t, int64_t) const {}

  void operator()(int64_t row, int64_t count, int64_t column, const float* z,
                  const float* factors) const {
    typename Format::Element y[Format::Method::kTileRows * kDensePanel];
    DenseArgs<typename Format::Element> tile = args;
    tile.columns = Smaller(kDensePanel, args.columns - column);
    if (args.bias != nullptr) tile.bias = args.bias + column;
    tile.y = y;
    PanelEpilogue(tile, 0, count, 0, kDensePanel, z, factors);
    for (int64_t i = 0; i < count; ++i) {
      results.Write(row + i, column, tile.columns, y + i * tile.columns, rows.Words(row + i));
    }
  }
};

// The first layer of a block, up to the words of the second one's x.
template <typename Format>
RowBuffer<Format> WordsBetween(const typename Format::Args& first,
                               const typename Format::Args& second, const DenseUnit& unit) {
  constexpr int64_t kNumberBytes = kWordBytes / Format::Method::kNumbers;
  const RowBuffer<Format> between(3, unit.rows, second.depth);
  for (int64_t i = 0; i < unit.rows; ++i) PadRow(second.depth * kNumberBytes, between.Words(i));
  typename Format::Results results(second);
  const auto x = WriteRows<Format>(first, 0, unit.rows, false);
  MultiplyRows<Format>(first, unit, x.Rows(), WriteResults<Format>{first, between, results});
  for (int64_t i = 0; i < unit.rows; ++i) between.SetScale(i, results.Finish(i));
  between.Finish();
  return between;
}

// Both layers for a block of all rows of the arguments.
template <typename Format>
void RunFeedForwardBlock(typename Format::Args first, typename Format::Args second) {
  const int64_t rows = first.rows;
  const int64_t panels = CeilDivide(second.columns, kDensePanel);
  const DenseUnit wide = {0, rows, 0, CeilDivide(first.columns, kDensePanel), nullptr, 0};
  const DenseUnit narrow = {0,   rows, 0, panels, ThreadScratch(0, panels * rows * kDensePanel),
                            rows};
  if (Format::Results::CanWrite(second)) {
    const auto between = WordsBetween<Format>(first, second, wide);
    MultiplyRows<Format>(second, narrow, between.Rows(),
                         StoreResults<typename Format::Element>{second, 0});
  } else {
    second.x = first.y = ResultsBetween<typename Format::Element>(rows, first.columns);
    RunUnit<Format>(first, wide, false);
    RunUnit<Format>(second, narrow, false);
  }
  NormalizeRows(second, 0, rows, narrow.sums, rows);
}

template <typename Format>
void RunFeedForward(const Parallel& parallel, const typename Format::Args& first,
                    const typename Format::Args& second) {
  using Method = typename Format::Method;
  using Args = typename Format::Args;
  const int64_t rows = first.rows;
  const int64_t threads = parallel.NumThreads();
  if (second.columns == 0) return;
  if (rows < threads * kLeastFeedForwardRows) {
    Args one = first, other = second;
    other.x = one.y = ResultsBetween<typename Format::Element>(rows, first.columns);
    Run<Format>(parallel, one);
    return Run<Format>(parallel, other);
  }
  // About equal blocks, whose number is a multiple of the number of threads.
  const int64_t blocks = CeilDivide(CeilDivide(rows, kFeedForwardRows), threads) * threads;
  const int64_t cycles = Method::kRowCycles * CeilDivide(rows, blocks) *
                         (first.depth / Method::kNumbers + kLoopSteps) *
                         (first.columns / kDensePanel + 1) * 2;
  parallel.For(blocks, cycles, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first_row = PartBegin(rows, blocks, b);
      Args one = first, other = second;
      one.rows = other.rows = PartBegin(rows, blocks, b + 1) - first_row;
      one.x += first_row * first.depth;
      if (other.residual != nullptr) other.residual += first_row * second.columns;
      other.y += first_row * second.columns;
      RunFeedForwardBlock<Format>(one, other);
    }
  });
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
