// The gradient of fused_residual_layer_norm on the GPU; fused_residual_layer_norm.h has the
// formulas.
#include "custom_ops/kernels/cuda/cuda_column_sums.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/layer_norm/cuda_layer_norm.h"

namespace bert_tf::cuda {
namespace {

// What a thread reads of a row.
template <typename T, int kPacks>
struct GradInputs {
  Addends<T, kPacks> addends;
  Pack<T, kVectorWidth<T>> dy[kPacks];
  float mean, rstd;
};

template <typename T>
BERT_TF_DEVICE T RoundedSum(T a, T b) {
  T sum;
  Round(ToFloat(a) + ToFloat(b), &sum);
  return sum;
}

// Adds other_dy to dy. It is not read ahead, which would need more registers.
template <typename T, int kWarps, int kPacks>
BERT_TF_DEVICE void AddOtherDy(const Part<T, kWarps, kPacks>& part,
                               const ResidualLayerNormGradArgs<T>& args, int64_t row,
                               GradInputs<T, kPacks>* inputs) {
  if (args.other_dy == nullptr) return;
  constexpr int kWidth = kVectorWidth<T>;
  part.ForEachPack(args.columns, [&](int pack, int64_t column) {
    const auto other = LoadPack<kWidth>(args.other_dy + row * args.columns + column);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      T& dy = inputs->dy[pack].values[e];
      dy = RoundedSum(dy, other.values[e]);
    }
  });
}

template <typename T, int kWarps, int kPacks>
BERT_TF_DEVICE void Load(const Part<T, kWarps, kPacks>& part,
                         const ResidualLayerNormGradArgs<T>& args, int64_t row,
                         GradInputs<T, kPacks>* inputs) {
  if (row >= args.rows) return;
  constexpr int kWidth = kVectorWidth<T>;
  part.ForEachPack(args.columns, [&](int pack, int64_t column) {
    inputs->dy[pack] = LoadPack<kWidth>(args.dy + row * args.columns + column);
  });
  Load(part, args, row, &inputs->addends);
  inputs->mean = args.mean[row];
  inputs->rstd = args.rstd[row];
}

// A thread reads its next row while it processes a row, where the registers allow that.
template <typename T, int kPacks, bool kDropout>
constexpr bool kReadAhead = sizeof(Pack<T, kVectorWidth<T>>) * kPacks <= (kDropout ? 32 : 48);

template <typename T, int kWarps, int kPacks, bool kDropout>
__global__ void __launch_bounds__(kBlockThreads<kWarps>)
    BackwardKernel(ResidualLayerNormGradArgs<T> args, Dropout dropout) {
  const Part<T, kWarps, kPacks> part;
  constexpr int kWidth = part.kWidth;
  const int row_in_block = kWarps == 1 ? static_cast<int>(threadIdx.x) / kWarp : 0;
  const uint64_t seed = kDropout ? *dropout.seed : 0;
  float* const shared = reinterpret_cast<float*>(SharedMemory());
  const float inverse = 1.0f / static_cast<float>(args.columns);
  constexpr bool kAhead = kReadAhead<T, kPacks, kDropout>;
  float sums[3][part.kCount] = {};  // of dgamma, dbeta, dbias
  const int64_t row_step = static_cast<int64_t>(gridDim.x) * kBlockRows<kWarps>;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> + row_in_block;
  GradInputs<T, kPacks> inputs;
  Load(part, args, row, &inputs);
  for (; row < args.rows; row += row_step) {
    GradInputs<T, kPacks> next;
    if (kAhead) Load(part, args, row + row_step, &next);
    AddOtherDy(part, args, row, &inputs);
    const int64_t offset = row * args.columns;
    const float mean = inputs.mean, rstd = inputs.rstd;
    float n[part.kCount];
    uint32_t keep;
    Sum<kDropout>(part, args, dropout, seed, row, inputs.addends, n, &keep);
    // n = (z - mean) * rstd,  g = dy * gamma
    float means[2] = {};  // of g and g * n
    part.ForEachPack(args.columns, [&](int pack, int64_t column) {
      float gamma[kWidth];
      LoadFloats<kWidth>(args.gamma + column, gamma);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const int i = pack * kWidth + e;
        const float dy = ToFloat(inputs.dy[pack].values[e]);
        n[i] = (n[i] - mean) * rstd;
        sums[0][i] += dy * n[i];
        sums[1][i] += dy;
        means[0] += dy * gamma[e];
        means[1] += dy * gamma[e] * n[i];
      }
    });
    RowSums<kWarps>(means, shared);
    means[0] *= inverse;
    means[1] *= inverse;
    // dz = rstd * (g - mean(g) - n * mean(g * n))
    part.ForEachPack(args.columns, [&](int pack, int64_t column) {
      float dz[kWidth], gamma[kWidth];
      LoadFloats<kWidth>(args.gamma + column, gamma);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float g = ToFloat(inputs.dy[pack].values[e]) * gamma[e];
        dz[e] = (g - means[0] - n[pack * kWidth + e] * means[1]) * rstd;
      }
      if (kDropout && args.residual != nullptr) {
        StoreFloats<kWidth>(args.dresidual + offset + column, dz);
      }
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const int i = pack * kWidth + e;
        if (kDropout) dz[e] = keep >> i & 1u ? dz[e] * dropout.scale : 0.0f;
        sums[2][i] += dz[e];
      }
      StoreFloats<kWidth>(args.dx + offset + column, dz);
    });
    if (kAhead) {
      inputs = next;
    } else {
      Load(part, args, row + row_step, &inputs);
    }
  }

  float* const partial = args.scratch + static_cast<int64_t>(blockIdx.x) * 3 * args.columns;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    if (kWarps > 1) {  // each column is processed by one thread
      part.ForEachPack(args.columns, [&](int pack, int64_t column) {
#pragma unroll
        for (int e = 0; e < kWidth; ++e) {
          partial[k * args.columns + column + e] = sums[k][pack * kWidth + e];
        }
      });
      continue;
    }
    SyncThreads();  // `shared`, [kNarrowRows, columns], is not in use anymore
    part.ForEachPack(args.columns, [&](int pack, int64_t column) {
#pragma unroll
      for (int e = 0; e < kWidth; e += 4) {
        StoreFloats<4>(shared + row_in_block * args.columns + column + e,
                       &sums[k][pack * kWidth + e]);
      }
    });
    SyncThreads();
    for (int64_t column = threadIdx.x; column < args.columns; column += kBlockThreads<kWarps>) {
      float sum = shared[column];
#pragma unroll
      for (int other = 1; other < kNarrowRows; ++other) {
        sum += shared[other * args.columns + column];
      }
      partial[k * args.columns + column] = sum;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kAnyThreads)
    AnyBackwardKernel(ResidualLayerNormGradArgs<T> args, Dropout dropout) {
  const uint64_t seed = dropout.seed != nullptr ? *dropout.seed : 0;
  void* const shared = SharedMemory();
  const float inverse = 1.0f / static_cast<float>(args.columns);
  float* const partial = args.scratch + static_cast<int64_t>(blockIdx.x) * 3 * args.columns;
  for (int64_t j = threadIdx.x; j < 3 * args.columns; j += kAnyThreads) partial[j] = 0.0f;
  SyncThreads();
  const auto dy_at = [&](int64_t i) {
    return ToFloat(args.other_dy == nullptr ? args.dy[i]
                                            : RoundedSum(args.dy[i], args.other_dy[i]));
  };
  bool kept;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const float mean = args.mean[row];
    const float rstd = args.rstd[row];
    float means[2] = {};  // of g and g * n
    for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
      const float dy = dy_at(row * args.columns + j);
      const float g = dy * ToFloat(args.gamma[j]);
      const float n = (SumAt(args, dropout, seed, row, j, &kept) - mean) * rstd;
      partial[j] += dy * n;
      partial[args.columns + j] += dy;
      means[0] += g;
      means[1] += g * n;
    }
    RowSums<kWideWarps>(means, shared);
    means[0] *= inverse;
    means[1] *= inverse;
    for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
      const float g = dy_at(row * args.columns + j) * ToFloat(args.gamma[j]);
      const float n = (SumAt(args, dropout, seed, row, j, &kept) - mean) * rstd;
      const float dz = (g - means[0] - n * means[1]) * rstd;
      const float dx = kept ? dz * dropout.scale : 0.0f;
      if (dropout.seed != nullptr && args.residual != nullptr) {
        Round(dz, args.dresidual + row * args.columns + j);
      }
      Round(dx, args.dx + row * args.columns + j);
      partial[2 * args.columns + j] += dx;
    }
  }
}

// The number of blocks of the gradient, each of which writes the sums of its rows. It depends only
// on the sizes, and is about as many as the largest GPUs can run at a time. With more blocks, more
// sums are written and read.
inline int64_t RowBlocks(int64_t rows, int64_t columns) {
  constexpr int64_t kNarrowBlocks = 256, kWideBlocks = 512;
  return columns > kNarrowColumns ? Smaller(kWideBlocks, CeilDivide(rows, 2))
                                  : Smaller(kNarrowBlocks, CeilDivide(rows, 2 * kNarrowRows));
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf::cuda {
namespace {

template <typename T>
int Backward(const ResidualLayerNormGradArgs<T>& args, const Dropout& dropout, void* stream) {
  const int64_t blocks = RowBlocks(args.rows, args.columns);
  const dim3 grid(static_cast<unsigned>(blocks));
  int status;
  if (!FitsRegisters(args.columns) ||
      !Aligned<T>(args.columns, args.dy, args.x, args.residual, args.bias, args.gamma, args.dx,
                  args.dresidual, args.other_dy)) {
    status = Launch<AnyBackwardKernel<T>>(grid, kAnyThreads, 2 * kWideWarps * sizeof(float), stream,
                                          args, dropout);
  } else {
    status = WithPart<T>(
        args.columns, dropout.seed != nullptr, [&](auto warps, auto packs, auto with_dropout) {
          const size_t shared_bytes =
              warps.value == 1 ? kNarrowRows * static_cast<size_t>(args.columns) * sizeof(float)
                               : 2 * kWideWarps * sizeof(float);
          return Launch<BackwardKernel<T, warps.value, packs.value, with_dropout.value>>(
              grid, kBlockThreads<warps.value>, shared_bytes, stream, args, dropout);
        });
  }
  T* const sums[] = {args.dgamma, args.dbeta, args.bias != nullptr ? args.dbias : nullptr};
  for (int k = 0; k < 3 && status == 0; ++k) {
    if (sums[k] == nullptr) continue;
    status = ColumnSums(args.scratch + k * args.columns, blocks, 3 * args.columns, args.columns,
                        sums[k], stream);
  }
  return status;
}

}  // namespace
}  // namespace bert_tf::cuda

extern "C" {

int64_t BertTfCudaResidualLayerNormGradScratch(int64_t rows, int64_t columns) {
  return bert_tf::SizeProduct(bert_tf::cuda::RowBlocks(rows, columns) * 3, columns);
}

int BertTfCudaResidualLayerNormGrad(int type,
                                    const bert_tf::ResidualLayerNormGradArgs<bert_tf::Gpu>& call,
                                    void* stream) {
  using namespace bert_tf::cuda;
  return WithTypedArgs(type, call, [&](const auto& args) {
    return Backward(args, MakeDropout(call.dropout_rate, call.seed), stream);
  });
}

}  // extern "C"

#endif  // __CUDACC_RTC__
