// fused_bias_gelu and its gradient on the GPU; fused_bias_gelu.h has the formulas.
//
// A block of eight warps processes 256 columns of a range of rows. A lane keeps the bias of its
// columns in registers, and in the gradient also their sums. It processes the rows in order, with
// several 16-byte accesses in flight.
#define BERT_TF_CUDA
#include <type_traits>

#include "custom_ops/kernels/cuda/cuda_column_sums.h"
#include "custom_ops/kernels/cuda/cuda_dispatch.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/gelu/cuda_gelu.h"

namespace bert_tf::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kLaneColumns = 8;
constexpr int kTileColumns = kWarp * kLaneColumns;

// The division of the rows, which depends only on the sizes.
struct RowTiles {
  int64_t column_tiles;
  int64_t row_blocks;
  int64_t rows_in_block;
};

inline RowTiles CutRows(int64_t rows, int64_t columns) {
  constexpr int64_t kBlocks = 2048;           // twice as many as every current GPU needs
  constexpr int64_t kLeastRows = 4 * kWarps;  // so that reading the bias pays off
  const int64_t column_tiles = CeilDivide(columns, kTileColumns);
  const int64_t wanted = CeilDivide(kBlocks, Larger(column_tiles, 1));
  const int64_t rows_in_block = Larger(CeilDivide(rows, wanted), kLeastRows);
  return {column_tiles, CeilDivide(rows, rows_in_block), rows_in_block};
}

// The part of one lane of a block: packs of kWidth columns, 32 packs apart, of every eighth row.
template <int kWidth>
struct LaneView {
  static constexpr int kPacks = kLaneColumns / kWidth;
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int warp = static_cast<int>(threadIdx.x) / kWarp;
  int64_t first_row, last_row;

  BERT_TF_DEVICE LaneView(int64_t rows, int64_t rows_in_block)
      : first_row(static_cast<int64_t>(blockIdx.y) * rows_in_block),
        last_row(Smaller(first_row + rows_in_block, rows)) {}
  BERT_TF_DEVICE int InTile(int pack) const { return (pack * kWarp + lane) * kWidth; }
  BERT_TF_DEVICE int64_t Column(int pack) const {
    return static_cast<int64_t>(blockIdx.x) * kTileColumns + InTile(pack);
  }
};

template <int kWidth, typename T>
BERT_TF_DEVICE void LoadBias(const LaneView<kWidth>& view, const T* bias, int64_t columns,
                             float (&values)[kLaneColumns]) {
#pragma unroll
  for (int pack = 0; pack < view.kPacks; ++pack) {
    if (view.Column(pack) < columns) {
      LoadFloats<kWidth>(bias + view.Column(pack), values + pack * kWidth);
    }
  }
}

template <typename T, bool kApproximate, int kWidth>
__global__ void __launch_bounds__(kWarps* kWarp)
    ForwardKernel(const T* x, const T* bias, int64_t rows, int64_t columns, int64_t rows_in_block,
                  T* y) {
  using Form = std::conditional_t<kApproximate, TanhFormOf<T>, ErfFormOf<T>>;
  constexpr int kRows = sizeof(T) == 2 ? 4 : 2;  // 64 bytes in flight per lane
  const LaneView<kWidth> view(rows, rows_in_block);
  constexpr int kPacks = LaneView<kWidth>::kPacks;
  float b[kLaneColumns];
  LoadBias(view, bias, columns, b);
  for (int64_t row = view.first_row + view.warp; row < view.last_row; row += kRows * kWarps) {
    Pack<T, kWidth> xs[kRows][kPacks];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t column = view.Column(pack);
        if (row + i * kWarps < view.last_row && column < columns) {
          xs[i][pack] = LoadPack<kWidth>(x + (row + i * kWarps) * columns + column);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t column = view.Column(pack);
        if (row + i * kWarps < view.last_row && column < columns) {
          float values[kWidth];
          // y = gelu(x + bias)
#pragma unroll
          for (int e = 0; e < kWidth; ++e) {
            values[e] = Gelu<Form>(ToFloat(xs[i][pack].values[e]) + b[pack * kWidth + e]);
          }
          StoreFloats<kWidth>(y + (row + i * kWarps) * columns + column, values);
        }
      }
    }
  }
}

template <typename T, bool kApproximate, int kWidth>
__global__ void __launch_bounds__(kWarps* kWarp)
    BackwardKernel(const T* dy, const T* x, const T* bias, int64_t rows, int64_t columns,
                   int64_t rows_in_block, T* dx, float* partial) {
  using Form = std::conditional_t<kApproximate, TanhFormOf<T>, ErfFormOf<T>>;
  constexpr int kRows = sizeof(T) == 2 ? 2 : 1;
  const LaneView<kWidth> view(rows, rows_in_block);
  constexpr int kPacks = LaneView<kWidth>::kPacks;
  float b[kLaneColumns];
  LoadBias(view, bias, columns, b);
  float sums[kLaneColumns] = {};
  for (int64_t row = view.first_row + view.warp; row < view.last_row; row += kRows * kWarps) {
    Pack<T, kWidth> xs[kRows][kPacks], dys[kRows][kPacks];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t column = view.Column(pack);
        if (row + i * kWarps < view.last_row && column < columns) {
          const int64_t offset = (row + i * kWarps) * columns + column;
          xs[i][pack] = LoadPack<kWidth>(x + offset);
          dys[i][pack] = LoadPack<kWidth>(dy + offset);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t column = view.Column(pack);
        if (row + i * kWarps < view.last_row && column < columns) {
          float values[kWidth];
          // dx = dy * gelu'(x + bias),  dbias += dx
#pragma unroll
          for (int e = 0; e < kWidth; ++e) {
            const float s = ToFloat(xs[i][pack].values[e]) + b[pack * kWidth + e];
            values[e] = ToFloat(dys[i][pack].values[e]) * GeluSlope<Form>(s);
            sums[pack * kWidth + e] += values[e];
          }
          StoreFloats<kWidth>(dx + (row + i * kWarps) * columns + column, values);
        }
      }
    }
  }
  float* const of_warp = reinterpret_cast<float*>(SharedMemory());  // [kWarps, kTileColumns]
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) {
    of_warp[view.warp * kTileColumns + view.InTile(i / kWidth) + i % kWidth] = sums[i];
  }
  SyncThreads();
  const int64_t column =
      static_cast<int64_t>(blockIdx.x) * kTileColumns + static_cast<int>(threadIdx.x);
  if (column >= columns) return;
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    sum += of_warp[warp * kTileColumns + static_cast<int>(threadIdx.x)];
  }
  partial[blockIdx.y * columns + column] = sum;
}
static_assert(kTileColumns == kWarps * kWarp, "a thread adds up one column");

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf::cuda {
namespace {

dim3 Grid(const RowTiles& tiles) {
  return dim3(static_cast<unsigned>(tiles.column_tiles), static_cast<unsigned>(tiles.row_blocks));
}

// Calls function(approximate, width), where the types hold the template arguments of the kernels.
template <typename T, typename Function>
int WithForm(bool approximate, bool aligned, const Function& function) {
  const auto with_width = [&](auto width) {
    return approximate ? function(std::true_type{}, width) : function(std::false_type{}, width);
  };
  return aligned ? with_width(Int<kVectorWidth<T>>{}) : with_width(Int<1>{});
}

template <typename T>
int Forward(const BiasGeluArgs<T>& args, void* stream) {
  const RowTiles tiles = CutRows(args.rows, args.columns);
  const bool aligned = Aligned<T>(args.columns, args.x, args.bias, args.y);
  return WithForm<T>(args.approximate, aligned, [&](auto approximate, auto width) {
    return Launch<ForwardKernel<T, approximate.value, width.value>>(
        Grid(tiles), kWarps * kWarp, 0, stream, args.x, args.bias, args.rows, args.columns,
        tiles.rows_in_block, args.y);
  });
}

template <typename T>
int Backward(const BiasGeluGradArgs<T>& args, void* stream) {
  const RowTiles tiles = CutRows(args.rows, args.columns);
  const bool aligned = Aligned<T>(args.columns, args.dy, args.x, args.bias, args.dx);
  const int status = WithForm<T>(args.approximate, aligned, [&](auto approximate, auto width) {
    return Launch<BackwardKernel<T, approximate.value, width.value>>(
        Grid(tiles), kWarps * kWarp, kWarps * kTileColumns * sizeof(float), stream, args.dy, args.x,
        args.bias, args.rows, args.columns, tiles.rows_in_block, args.dx, args.scratch);
  });
  if (status != 0) return status;
  return ColumnSums(args.scratch, tiles.row_blocks, args.columns, args.columns, args.dbias, stream);
}

}  // namespace
}  // namespace bert_tf::cuda

extern "C" {

int BertTfCudaBiasGelu(int type, const bert_tf::BiasGeluArgs<bert_tf::Gpu>& call, void* stream) {
  using namespace bert_tf::cuda;
  return WithTypedArgs(type, call, [&](const auto& args) { return Forward(args, stream); });
}

int64_t BertTfCudaBiasGeluGradScratch(int64_t rows, int64_t columns) {
  return bert_tf::SizeProduct(bert_tf::cuda::CutRows(rows, columns).row_blocks, columns);
}

int BertTfCudaBiasGeluGrad(int type, const bert_tf::BiasGeluGradArgs<bert_tf::Gpu>& call,
                           void* stream) {
  using namespace bert_tf::cuda;
  return WithTypedArgs(type, call, [&](const auto& args) { return Backward(args, stream); });
}

}  // extern "C"

#endif  // __CUDACC_RTC__
