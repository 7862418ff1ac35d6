// fused_residual_layer_norm and its gradient on the GPU; fused_residual_layer_norm.h has the
// formulas.
//
// Rows of up to 768 columns are processed by one warp, rows of up to 3,072 columns by a block of
// four warps. A lane keeps at most 24 numbers in registers (32 numbers and their three sums would
// spill), so a row is read once. Other rows (wider, not aligned, or with a width that is not a
// multiple of 64) are processed by one block per row, which reads the row again in every pass.
#include <cfloat>
#include <type_traits>

#include "custom_ops/kernels/base/sizes.h"
#include "custom_ops/kernels/cuda/cuda_column_sums.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/cuda/cuda_philox.h"

namespace bert_tf {
namespace cuda {
namespace {

constexpr int kWideWarps = 4;
constexpr int kNarrowRows = 4;    // rows of a block, one per warp
constexpr int kLaneColumns = 24;  // at most
constexpr int64_t kNarrowColumns = kWarp * kLaneColumns;
constexpr int64_t kWideColumns = kWideWarps * kNarrowColumns;

// The number of blocks of the gradient, each of which writes the sums of its rows. It is about as
// many as the largest GPUs can run at a time. With more blocks, more sums are written and read.
constexpr int64_t kNarrowRowBlocks = 256;
constexpr int64_t kWideRowBlocks = 512;

// The number of rows that a block processes at a time, and of its threads, with kWarps warps per
// row.
template <int kWarps>
constexpr int kBlockRows = kWarps == 1 ? kNarrowRows : 1;
template <int kWarps>
constexpr int kBlockThreads = kBlockRows<kWarps> * kWarps * kWarp;

template <typename T>
struct ForwardArgs {
  const T* x;
  const T* residual;
  const T* bias;
  const T* gamma;
  const T* beta;
  int64_t rows, columns;
  float epsilon;
  Dropout dropout;
  T* y;
  float* mean;
  float* rstd;
};

template <typename T>
struct BackwardArgs {
  const T* dy;
  const T* x;
  const T* residual;
  const T* bias;
  const T* gamma;
  const float* mean;
  const float* rstd;
  int64_t rows, columns;
  Dropout dropout;
  T* dx;
  T* dresidual;
  float* partial;  // [blocks, 3, columns]: dgamma, dbeta, dbias
};

// The sum of the values of all threads of a row, with the same bits in all threads. `shared` has
// room for one V per warp.
template <int kWarps, typename V>
BERT_TF_DEVICE V RowSum(V value, void* shared) {
  value = WarpSum(value);
  if (kWarps == 1) return value;
  V* const of_warp = static_cast<V*>(shared);
  SyncThreads();  // all threads have read an earlier sum
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  SyncThreads();
  V sum = of_warp[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) sum += of_warp[warp];
  return sum;
}

// The part of a row that a thread processes: kPacks packs, 32 * kWarps packs apart.
template <typename T, int kWarps, int kPacks>
struct Part {
  static constexpr int kWidth = kVectorWidth<T>;
  static constexpr int kCount = kPacks * kWidth;
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int in_row = kWarps == 1 ? lane : static_cast<int>(threadIdx.x);

  BERT_TF_DEVICE int64_t Column(int pack) const {
    return static_cast<int64_t>(pack * kWarps * kWarp + in_row) * kWidth;
  }
};

// z = residual + dropout(x + bias), and zeros after the end of the row. `keep` receives one bit per
// element.
template <bool kDropout, typename T, int kWarps, int kPacks, typename Args>
BERT_TF_DEVICE void Sum(const Part<T, kWarps, kPacks>& part, const Args& args, uint64_t seed,
                        int64_t row, float* z, uint32_t* keep) {
  constexpr int kWidth = kVectorWidth<T>;
  const int64_t offset = row * args.columns;
  Pack<T, kWidth> xs[kPacks], residuals[kPacks];
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    const int64_t column = part.Column(pack);
    if (column < args.columns) {
      xs[pack] = LoadPack<kWidth>(args.x + offset + column);
      if (args.residual != nullptr) {
        residuals[pack] = LoadPack<kWidth>(args.residual + offset + column);
      }
    }
  }
  *keep = 0;
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    const int64_t column = part.Column(pack);
    float* const v = z + pack * kWidth;
    uint32_t kept = 0;
    if (kDropout) {  // all lanes draw, because they exchange their bits
      kept = KeepPack<kWidth>(seed, static_cast<uint64_t>(offset + column), args.dropout.threshold,
                              part.lane);
      *keep |= kept << (pack * kWidth);
    }
    if (column < args.columns) {
      float b[kWidth] = {};
      if (args.bias != nullptr) LoadFloats<kWidth>(args.bias + column, b);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        v[e] = ToFloat(xs[pack].values[e]) + b[e];
        if (kDropout) v[e] = kept >> e & 1u ? v[e] * args.dropout.scale : 0.0f;
        if (args.residual != nullptr) v[e] += ToFloat(residuals[pack].values[e]);
      }
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) v[e] = 0.0f;
    }
  }
}

// Whether float32 can represent variance + epsilon with all digits, and the variance is not just a
// rounding error of the mean (layer_norm_row.h). Otherwise, the row is computed in float64.
BERT_TF_DEVICE bool FitsFloat32(float variance, float epsilon, float mean) {
  const float sum = variance + epsilon;
  return sum >= 1e-30f && sum <= FLT_MAX && !(variance < 1e-8f * mean * mean);
}

template <typename T, int kWarps, int kPacks, bool kDropout>
__global__ void __launch_bounds__(kBlockThreads<kWarps>) ForwardKernel(ForwardArgs<T> args) {
  const Part<T, kWarps, kPacks> part;
  constexpr int kWidth = part.kWidth;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> +
                      (kWarps == 1 ? static_cast<int>(threadIdx.x) / kWarp : 0);
  if (row >= args.rows) return;
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;
  void* const shared = SharedMemory();
  float z[part.kCount];
  uint32_t keep;
  Sum<kDropout>(part, args, seed, row, z, &keep);

  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < part.kCount; ++i) sum += z[i];
  const float inverse = 1.0f / static_cast<float>(args.columns);
  float mean = RowSum<kWarps>(sum, shared) * inverse;
  // variance = mean((z - mean)^2)
  float squares = 0.0f;
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    if (part.Column(pack) < args.columns) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float d = z[pack * kWidth + e] - mean;
        squares += d * d;
      }
    }
  }
  const float variance = RowSum<kWarps>(squares, shared) * inverse;
  float rstd = 1.0f / sqrtf(variance + args.epsilon);
  if (FitsFloat32(variance, args.epsilon, mean)) {
#pragma unroll
    for (int i = 0; i < part.kCount; ++i) z[i] = (z[i] - mean) * rstd;
  } else {
    double sum64 = 0.0;
    for (int i = 0; i < part.kCount; ++i) sum64 += z[i];
    const double mean64 = RowSum<kWarps>(sum64, shared) / static_cast<double>(args.columns);
    double squares64 = 0.0;
    for (int i = 0; i < part.kCount; ++i) {
      const double d = part.Column(i / kWidth) < args.columns ? z[i] - mean64 : 0.0;
      squares64 += d * d;
    }
    const double variance64 =
        RowSum<kWarps>(squares64, shared) / static_cast<double>(args.columns) + args.epsilon;
    const double rstd64 = 1.0 / sqrt(variance64);
    for (int i = 0; i < part.kCount; ++i) z[i] = static_cast<float>((z[i] - mean64) * rstd64);
    mean = static_cast<float>(mean64);
    rstd = static_cast<float>(rstd64);
  }
  // y = gamma * (z - mean) * rstd + beta
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    const int64_t column = part.Column(pack);
    if (column >= args.columns) continue;
    float gamma[kWidth], beta[kWidth];
    LoadFloats<kWidth>(args.gamma + column, gamma);
    LoadFloats<kWidth>(args.beta + column, beta);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) gamma[e] = z[pack * kWidth + e] * gamma[e] + beta[e];
    StoreFloats<kWidth>(args.y + row * args.columns + column, gamma);
  }
  if (part.in_row == 0) {
    args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
}

template <typename T, int kWarps, int kPacks, bool kDropout>
__global__ void __launch_bounds__(kBlockThreads<kWarps>) BackwardKernel(BackwardArgs<T> args) {
  const Part<T, kWarps, kPacks> part;
  constexpr int kWidth = part.kWidth;
  const int row_in_block = kWarps == 1 ? static_cast<int>(threadIdx.x) / kWarp : 0;
  const uint64_t seed = kDropout ? *args.dropout.seed : 0;
  float* const shared = reinterpret_cast<float*>(SharedMemory());
  const float inverse = 1.0f / static_cast<float>(args.columns);
  float sums[3][part.kCount] = {};  // of dgamma, dbeta, dbias
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> + row_in_block;
       row < args.rows; row += static_cast<int64_t>(gridDim.x) * kBlockRows<kWarps>) {
    const int64_t offset = row * args.columns;
    Pack<T, kWidth> dys[kPacks];
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int64_t column = part.Column(pack);
      if (column < args.columns) dys[pack] = LoadPack<kWidth>(args.dy + offset + column);
    }
    float n[part.kCount];
    uint32_t keep;
    Sum<kDropout>(part, args, seed, row, n, &keep);
    const float mean = args.mean[row];
    const float rstd = args.rstd[row];
    // n = (z - mean) * rstd,  g = dy * gamma
    float g_sum = 0.0f, gn_sum = 0.0f;
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int64_t column = part.Column(pack);
      if (column >= args.columns) continue;
      float gamma[kWidth];
      LoadFloats<kWidth>(args.gamma + column, gamma);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const int i = pack * kWidth + e;
        const float dy = ToFloat(dys[pack].values[e]);
        n[i] = (n[i] - mean) * rstd;
        sums[0][i] += dy * n[i];
        sums[1][i] += dy;
        g_sum += dy * gamma[e];
        gn_sum += dy * gamma[e] * n[i];
      }
    }
    const float g_mean = RowSum<kWarps>(g_sum, shared) * inverse;
    const float gn_mean = RowSum<kWarps>(gn_sum, shared) * inverse;
    // dz = rstd * (g - mean(g) - n * mean(g * n))
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int64_t column = part.Column(pack);
      if (column >= args.columns) continue;
      float dz[kWidth], gamma[kWidth];
      LoadFloats<kWidth>(args.gamma + column, gamma);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float g = ToFloat(dys[pack].values[e]) * gamma[e];
        dz[e] = (g - g_mean - n[pack * kWidth + e] * gn_mean) * rstd;
      }
      if (kDropout && args.residual != nullptr) {
        StoreFloats<kWidth>(args.dresidual + offset + column, dz);
      }
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const int i = pack * kWidth + e;
        if (kDropout) dz[e] = keep >> i & 1u ? dz[e] * args.dropout.scale : 0.0f;
        sums[2][i] += dz[e];
      }
      StoreFloats<kWidth>(args.dx + offset + column, dz);
    }
  }

  float* const partial = args.partial + static_cast<int64_t>(blockIdx.x) * 3 * args.columns;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    if (kWarps > 1) {  // each column is processed by one thread
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t column = part.Column(pack);
        if (column >= args.columns) continue;
#pragma unroll
        for (int e = 0; e < kWidth; ++e) {
          partial[k * args.columns + column + e] = sums[k][pack * kWidth + e];
        }
      }
      continue;
    }
    SyncThreads();  // `shared`, [kNarrowRows, columns], is not in use anymore
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int64_t column = part.Column(pack);
      if (column >= args.columns) continue;
      StoreFloats<4>(shared + row_in_block * args.columns + column, &sums[k][pack * kWidth]);
      if (kWidth == 8) {  // the other half
        StoreFloats<4>(shared + row_in_block * args.columns + column + 4,
                       &sums[k][pack * kWidth + kWidth - 4]);
      }
    }
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

constexpr int kAnyThreads = kWideWarps * kWarp;

// One element of z, for the kernels of any width.
template <typename T, typename Args>
BERT_TF_DEVICE float SumAt(const Args& args, uint64_t seed, int64_t row, int64_t column,
                           bool* kept) {
  const int64_t i = row * args.columns + column;
  float z = ToFloat(args.x[i]);
  if (args.bias != nullptr) z += ToFloat(args.bias[column]);
  *kept = true;
  if (args.dropout.seed != nullptr) {
    *kept = KeepElement(seed, 0, static_cast<uint64_t>(i), args.dropout.threshold);
    z = *kept ? z * args.dropout.scale : 0.0f;
  }
  if (args.residual != nullptr) z += ToFloat(args.residual[i]);
  return z;
}

template <typename T>
__global__ void __launch_bounds__(kAnyThreads) AnyForwardKernel(ForwardArgs<T> args) {
  const int64_t row = blockIdx.x;
  const uint64_t seed = args.dropout.seed != nullptr ? *args.dropout.seed : 0;
  void* const shared = SharedMemory();
  bool kept;
  double sum = 0.0;
  for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
    sum += SumAt<T>(args, seed, row, j, &kept);
  }
  const double mean = RowSum<kWideWarps>(sum, shared) / static_cast<double>(args.columns);
  double squares = 0.0;
  for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
    const double d = SumAt<T>(args, seed, row, j, &kept) - mean;
    squares += d * d;
  }
  const double variance =
      RowSum<kWideWarps>(squares, shared) / static_cast<double>(args.columns) + args.epsilon;
  const double rstd = 1.0 / sqrt(variance);
  for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
    const float n = static_cast<float>((SumAt<T>(args, seed, row, j, &kept) - mean) * rstd);
    Round(n * ToFloat(args.gamma[j]) + ToFloat(args.beta[j]), args.y + row * args.columns + j);
  }
  if (threadIdx.x == 0) {
    args.mean[row] = static_cast<float>(mean);
    args.rstd[row] = static_cast<float>(rstd);
  }
}

template <typename T>
__global__ void __launch_bounds__(kAnyThreads) AnyBackwardKernel(BackwardArgs<T> args) {
  const uint64_t seed = args.dropout.seed != nullptr ? *args.dropout.seed : 0;
  void* const shared = SharedMemory();
  const float inverse = 1.0f / static_cast<float>(args.columns);
  float* const partial = args.partial + static_cast<int64_t>(blockIdx.x) * 3 * args.columns;
  for (int64_t j = threadIdx.x; j < 3 * args.columns; j += kAnyThreads) partial[j] = 0.0f;
  SyncThreads();
  bool kept;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const float mean = args.mean[row];
    const float rstd = args.rstd[row];
    const T* const dys = args.dy + row * args.columns;
    float g_sum = 0.0f, gn_sum = 0.0f;
    for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
      const float dy = ToFloat(dys[j]);
      const float g = dy * ToFloat(args.gamma[j]);
      const float n = (SumAt<T>(args, seed, row, j, &kept) - mean) * rstd;
      partial[j] += dy * n;
      partial[args.columns + j] += dy;
      g_sum += g;
      gn_sum += g * n;
    }
    const float g_mean = RowSum<kWideWarps>(g_sum, shared) * inverse;
    const float gn_mean = RowSum<kWideWarps>(gn_sum, shared) * inverse;
    for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
      const float g = ToFloat(dys[j]) * ToFloat(args.gamma[j]);
      const float n = (SumAt<T>(args, seed, row, j, &kept) - mean) * rstd;
      const float dz = (g - g_mean - n * gn_mean) * rstd;
      const float dx = kept ? dz * args.dropout.scale : 0.0f;
      if (args.dropout.seed != nullptr && args.residual != nullptr) {
        Round(dz, args.dresidual + row * args.columns + j);
      }
      Round(dx, args.dx + row * args.columns + j);
      partial[2 * args.columns + j] += dx;
    }
  }
}

// The number of blocks of the gradient, which depends only on the sizes.
inline int64_t RowBlocks(int64_t rows, int64_t columns) {
  return columns > kNarrowColumns ? Smaller(kWideRowBlocks, CeilDivide(rows, 2))
                                  : Smaller(kNarrowRowBlocks, CeilDivide(rows, 2 * kNarrowRows));
}

// Calls function(warps, packs, dropout), where the types hold the template arguments for a width.
template <int value>
struct Int {
  static constexpr int kValue = value;
};

template <typename T, typename Function>
int WithPart(int64_t columns, bool dropout, const Function& function) {
  constexpr int kEight = 8 / kVectorWidth<T>;  // packs of eight columns
  const auto with_packs = [&](auto warps, auto with_dropout) {
    switch (CeilDivide(columns, 8 * kWarp * decltype(warps)::kValue)) {
      case 1:
        return function(warps, Int<kEight>{}, with_dropout);
      case 2:
        return function(warps, Int<2 * kEight>{}, with_dropout);
      default:
        return function(warps, Int<3 * kEight>{}, with_dropout);
    }
  };
  const auto with_warps = [&](auto with_dropout) {
    return columns > kNarrowColumns ? with_packs(Int<kWideWarps>{}, with_dropout)
                                    : with_packs(Int<1>{}, with_dropout);
  };
  return dropout ? with_warps(Int<1>{}) : with_warps(Int<0>{});
}

inline bool FitsRegisters(int64_t columns) {
  return columns > 0 && columns % 64 == 0 && columns <= kWideColumns;
}

template <typename T>
int Forward(const ForwardArgs<T>& args, void* stream) {
  const size_t shared_bytes = kWideWarps * sizeof(double);
  if (!FitsRegisters(args.columns) ||
      !Aligned<T>(args.columns, args.x, args.residual, args.bias, args.gamma, args.beta, args.y)) {
    return Launch(AnyForwardKernel<T>, dim3(static_cast<unsigned>(args.rows)), kAnyThreads,
                  shared_bytes, stream, args);
  }
  return WithPart<T>(
      args.columns, args.dropout.seed != nullptr, [&](auto warps, auto packs, auto dropout) {
        constexpr int kWarps = decltype(warps)::kValue;
        const dim3 grid(static_cast<unsigned>(CeilDivide(args.rows, kBlockRows<kWarps>)));
        return Launch(
            ForwardKernel<T, kWarps, decltype(packs)::kValue, decltype(dropout)::kValue != 0>, grid,
            kBlockThreads<kWarps>, shared_bytes, stream, args);
      });
}

template <typename T>
int Backward(const BackwardArgs<T>& args, void* dbias, void* dgamma, void* dbeta, void* stream) {
  const int64_t blocks = RowBlocks(args.rows, args.columns);
  const dim3 grid(static_cast<unsigned>(blocks));
  int status;
  if (!FitsRegisters(args.columns) || !Aligned<T>(args.columns, args.dy, args.x, args.residual,
                                                  args.bias, args.gamma, args.dx, args.dresidual)) {
    status =
        Launch(AnyBackwardKernel<T>, grid, kAnyThreads, kWideWarps * sizeof(double), stream, args);
  } else {
    status = WithPart<T>(
        args.columns, args.dropout.seed != nullptr, [&](auto warps, auto packs, auto dropout) {
          constexpr int kWarps = decltype(warps)::kValue;
          const size_t shared_bytes =
              kWarps == 1 ? kNarrowRows * static_cast<size_t>(args.columns) * sizeof(float)
                          : kWideWarps * sizeof(float);
          return Launch(
              BackwardKernel<T, kWarps, decltype(packs)::kValue, decltype(dropout)::kValue != 0>,
              grid, kBlockThreads<kWarps>, shared_bytes, stream, args);
        });
  }
  void* const sums[] = {dgamma, dbeta, args.bias != nullptr ? dbias : nullptr};
  for (int k = 0; k < 3 && status == 0; ++k) {
    if (sums[k] == nullptr) continue;
    status = ColumnSums(args.partial + k * args.columns, blocks, 3 * args.columns, args.columns,
                        static_cast<T*>(sums[k]), stream);
  }
  return status;
}

// Calls function with a T* of the named type.
template <typename Function>
int WithType(int type, const Function& function) {
  switch (type) {
    case kBertTfFloat32:
      return function(static_cast<float*>(nullptr));
    case kBertTfBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    case kBertTfFloat16:
      return function(static_cast<Float16*>(nullptr));
  }
  return kInvalidValue;
}

}  // namespace
}  // namespace cuda
}  // namespace bert_tf

extern "C" {

int BertTfCudaResidualLayerNorm(int type, const void* x, const void* residual, const void* bias,
                                const void* gamma, const void* beta, int64_t rows, int64_t columns,
                                float epsilon, float dropout_rate, const int64_t* seed, void* y,
                                float* mean, float* rstd, void* stream) {
  using namespace bert_tf::cuda;
  if (rows == 0) return 0;
  return WithType(type, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    ForwardArgs<T> args;
    args.x = static_cast<const T*>(x);
    args.residual = static_cast<const T*>(residual);
    args.bias = static_cast<const T*>(bias);
    args.gamma = static_cast<const T*>(gamma);
    args.beta = static_cast<const T*>(beta);
    args.rows = rows;
    args.columns = columns;
    args.epsilon = epsilon;
    args.dropout = MakeDropout(dropout_rate, dropout_rate > 0.0f ? seed : nullptr);
    args.y = static_cast<T*>(y);
    args.mean = mean;
    args.rstd = rstd;
    return Forward(args, stream);
  });
}

int64_t BertTfCudaResidualLayerNormGradScratch(int64_t rows, int64_t columns) {
  return bert_tf::SizeProduct(bert_tf::cuda::RowBlocks(rows, columns) * 3, columns);
}

int BertTfCudaResidualLayerNormGrad(int type, const void* dy, const void* x, const void* residual,
                                    const void* bias, const void* gamma, const float* mean,
                                    const float* rstd, int64_t rows, int64_t columns,
                                    float dropout_rate, const int64_t* seed, void* dx,
                                    void* dresidual, void* dbias, void* dgamma, void* dbeta,
                                    float* scratch, void* stream) {
  using namespace bert_tf::cuda;
  return WithType(type, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    BackwardArgs<T> args;
    args.dy = static_cast<const T*>(dy);
    args.x = static_cast<const T*>(x);
    args.residual = static_cast<const T*>(residual);
    args.bias = static_cast<const T*>(bias);
    args.gamma = static_cast<const T*>(gamma);
    args.mean = mean;
    args.rstd = rstd;
    args.rows = rows;
    args.columns = columns;
    args.dropout = MakeDropout(dropout_rate, dropout_rate > 0.0f ? seed : nullptr);
    args.dx = static_cast<T*>(dx);
    args.dresidual = static_cast<T*>(dresidual);
    args.partial = scratch;
    return Backward(args, dbias, dgamma, dbeta, stream);
  });
}

}  // extern "C"
