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

// Calls body(row, first_column, count) for tiles that cover a matrix of `rows` rows, each of which
// may be a block of rows. `cycles` is the work per column.
template <typename Body>
void ForTiles(const Parallel& parallel, int64_t rows, int64_t columns, int64_t cycles,
              const Body& body) {
  const int64_t tiles = CeilDivide(columns, kTileColumns);
  const int64_t cost = cycles * Smaller(columns, kTileColumns);
  parallel.For(rows * tiles, cost, [&body, tiles, columns](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % tiles * kTileColumns;
      body(unit / tiles, first, Smaller(columns - first, kTileColumns));
    }
  });
}

template <typename Form, typename T>
void Forward(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  ForTiles(parallel, args.rows, args.columns, kCyclesPerElement,
           [&args](int64_t row, int64_t first, int64_t count) {
             const T* const x = args.x + row * args.columns + first;
             const T* const bias = args.bias + first;
             T* const y = args.y + row * args.columns + first;
             // y = gelu(x + bias)
             ForVectors(count, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
               Store(y + j, Gelu<Form>(Load(x + j, lanes) + Load(bias + j, lanes)), lanes);
             });
           });
}

template <typename Form, typename T>
void Backward(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  const int64_t columns = args.columns;
  const int64_t rows_in_block = RowsInBlock(args.rows);
  const int64_t blocks = NumRowBlocks(args.rows);
  const auto block_tile = [&args, columns, rows_in_block](int64_t block, int64_t first,
                                                          int64_t count) {
    const T* const bias = args.bias + first;
    float* const sums = args.scratch + block * columns + first;
    FillZeros(sums, count);
    const int64_t first_row = block * rows_in_block;
    const int64_t last_row = Smaller(first_row + rows_in_block, args.rows);
    for (int64_t row = first_row; row < last_row; ++row) {
      const int64_t offset = row * columns + first;
      const T* const x = args.x + offset;
      const T* const dy = args.dy + offset;
      T* const dx = args.dx + offset;
      // dx = dy * gelu'(x + bias),  dbias += dx
      ForVectors(count, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
        const Vec slope = GeluSlope<Form>(Load(x + j, lanes) + Load(bias + j, lanes));
        const Vec d = Load(dy + j, lanes) * slope;
        Store(dx + j, d, lanes);
        AddTo(sums + j, d, lanes);
      });
    }
  };
  ForTiles(parallel, blocks, columns, kCyclesPerElement * rows_in_block, block_tile);
  SumRowBlocks(parallel, args.scratch, blocks, columns, {args.dbias});
}

}  // namespace

template <typename T>
void FusedBiasGelu(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  args.approximate ? Forward<TanhForm>(parallel, args) : Forward<ErfForm>(parallel, args);
}

template <typename T>
void FusedBiasGeluGrad(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  args.approximate ? Backward<TanhForm>(parallel, args) : Backward<ErfForm>(parallel, args);
}

BERT_TF_INSTANTIATE_KERNEL(FusedBiasGelu, BiasGeluArgs)
BERT_TF_INSTANTIATE_KERNEL(FusedBiasGeluGrad, BiasGeluGradArgs)

}  // namespace bert_tf::BERT_TF_ISA
