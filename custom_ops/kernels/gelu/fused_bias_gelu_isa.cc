// Compiled once per instruction set (isa.bzl).
#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/gelu/gelu.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int64_t kCyclesPerElement = 4;

// Long rows are divided, so that all threads get work even if there are few rows.
constexpr int64_t kTileColumns = 8192;

// A unit of work: one row or block of rows, of at most kTileColumns columns.
struct Tile {
  int64_t row;
  int64_t first_column;
  int64_t columns;
};

BERT_TF_INLINE Tile TileOf(int64_t unit, int64_t columns) {
  const int64_t tiles = CeilDivide(columns, kTileColumns);
  const int64_t first = unit % tiles * kTileColumns;
  return {unit / tiles, first, Smaller(columns - first, kTileColumns)};
}

template <typename Form, typename T>
void Forward(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  const int64_t columns = args.columns;
  const int64_t units = args.rows * CeilDivide(columns, kTileColumns);
  const int64_t cost = kCyclesPerElement * Smaller(columns, kTileColumns);
  parallel.For(units, cost, [&args, columns](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Tile tile = TileOf(unit, columns);
      const T* const x = args.x + tile.row * columns + tile.first_column;
      const T* const bias = args.bias + tile.first_column;
      T* const y = args.y + tile.row * columns + tile.first_column;
      // y = gelu(x + bias)
      ForVectors(tile.columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
        Store(y + j, Gelu<Form>(Load(x + j, lanes) + Load(bias + j, lanes)), lanes);
      });
    }
  });
}

template <typename Form, typename T>
void Backward(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  const int64_t rows = args.rows;
  const int64_t columns = args.columns;
  const int64_t rows_in_block = RowsInBlock(rows);
  const int64_t blocks = NumRowBlocks(rows);
  const int64_t units = blocks * CeilDivide(columns, kTileColumns);
  const int64_t cost = kCyclesPerElement * rows_in_block * Smaller(columns, kTileColumns);
  parallel.For(units, cost, [&args, rows, columns, rows_in_block](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Tile tile = TileOf(unit, columns);
      const T* const bias = args.bias + tile.first_column;
      float* const sums = args.scratch + tile.row * columns + tile.first_column;
      FillZeros(sums, tile.columns);
      const int64_t first_row = tile.row * rows_in_block;
      const int64_t last_row = Smaller(first_row + rows_in_block, rows);
      for (int64_t row = first_row; row < last_row; ++row) {
        const int64_t offset = row * columns + tile.first_column;
        const T* const x = args.x + offset;
        const T* const dy = args.dy + offset;
        T* const dx = args.dx + offset;
        // dx = dy * gelu'(x + bias),  dbias += dx
        ForVectors(tile.columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
          const Vec slope = GeluSlope<Form>(Load(x + j, lanes) + Load(bias + j, lanes));
          const Vec d = Load(dy + j, lanes) * slope;
          Store(dx + j, d, lanes);
          AddTo(sums + j, d, lanes);
        });
      }
    }
  });
  SumRowBlocks(parallel, args.scratch, blocks, columns, {args.dbias});
}

}  // namespace

template <typename T>
void FusedBiasGelu(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  if (args.approximate) {
    Forward<TanhForm>(parallel, args);
  } else {
    Forward<ErfForm>(parallel, args);
  }
}

template <typename T>
void FusedBiasGeluGrad(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  if (args.approximate) {
    Backward<TanhForm>(parallel, args);
  } else {
    Backward<ErfForm>(parallel, args);
  }
}

BERT_TF_INSTANTIATE_KERNEL(FusedBiasGelu, BiasGeluArgs)
BERT_TF_INSTANTIATE_KERNEL(FusedBiasGeluGrad, BiasGeluGradArgs)

}  // namespace bert_tf::BERT_TF_ISA
