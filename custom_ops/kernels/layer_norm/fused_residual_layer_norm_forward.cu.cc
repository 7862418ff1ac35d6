// fused_residual_layer_norm on the GPU; fused_residual_layer_norm.h has the formula.
#include <cfloat>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/layer_norm/cuda_layer_norm.h"

namespace bert_tf::cuda {
namespace {

// Whether float32 can represent variance + epsilon with all digits, and the variance is not just a
// rounding error of the mean (layer_norm_row.h). Otherwise, the row is computed in float64.
BERT_TF_DEVICE bool FitsFloat32(float variance, float epsilon, float mean) {
  const float sum = variance + epsilon;
  return sum >= 1e-30f && sum <= FLT_MAX && !(variance < 1e-8f * mean * mean);
}

template <typename T, int kWarps, int kPacks, bool kDropout>
__global__ void __launch_bounds__(kBlockThreads<kWarps>)
    ForwardKernel(ResidualLayerNormArgs<T> args, Dropout dropout) {
  const Part<T, kWarps, kPacks> part;
  constexpr int kWidth = part.kWidth;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> +
                      (kWarps == 1 ? static_cast<int>(threadIdx.x) / kWarp : 0);
  if (row >= args.rows) return;
  const uint64_t seed = kDropout ? *dropout.seed : 0;
  void* const shared = SharedMemory();
  Addends<T, kPacks> addends;
  Load(part, args, row, &addends);
  float z[part.kCount];
  uint32_t keep;
  Sum<kDropout>(part, args, dropout, seed, row, addends, z, &keep);

  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < part.kCount; ++i) sum += z[i];
  const float inverse = 1.0f / static_cast<float>(args.columns);
  float mean = RowSum<kWarps>(sum, shared) * inverse;
  // variance = mean((z - mean)^2)
  float squares = 0.0f;
  part.ForEachPack(args.columns, [&](int pack, int64_t) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float d = z[pack * kWidth + e] - mean;
      squares += d * d;
    }
  });
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
  part.ForEachPack(args.columns, [&](int pack, int64_t column) {
    float gamma[kWidth], beta[kWidth];
    LoadFloats<kWidth>(args.gamma + column, gamma);
    LoadFloats<kWidth>(args.beta + column, beta);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) gamma[e] = z[pack * kWidth + e] * gamma[e] + beta[e];
    StoreFloats<kWidth>(args.y + row * args.columns + column, gamma);
  });
  if (part.in_row == 0) {
    args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
}

template <typename T>
__global__ void __launch_bounds__(kAnyThreads)
    AnyForwardKernel(ResidualLayerNormArgs<T> args, Dropout dropout) {
  const int64_t row = blockIdx.x;
  const uint64_t seed = dropout.seed != nullptr ? *dropout.seed : 0;
  void* const shared = SharedMemory();
  bool kept;
  double sum = 0.0;
  for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
    sum += SumAt(args, dropout, seed, row, j, &kept);
  }
  const double mean = RowSum<kWideWarps>(sum, shared) / static_cast<double>(args.columns);
  double squares = 0.0;
  for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
    const double d = SumAt(args, dropout, seed, row, j, &kept) - mean;
    squares += d * d;
  }
  const double variance =
      RowSum<kWideWarps>(squares, shared) / static_cast<double>(args.columns) + args.epsilon;
  const double rstd = 1.0 / sqrt(variance);
  for (int64_t j = threadIdx.x; j < args.columns; j += kAnyThreads) {
    const float n = static_cast<float>((SumAt(args, dropout, seed, row, j, &kept) - mean) * rstd);
    Round(n * ToFloat(args.gamma[j]) + ToFloat(args.beta[j]), args.y + row * args.columns + j);
  }
  if (threadIdx.x == 0) {
    args.mean[row] = static_cast<float>(mean);
    args.rstd[row] = static_cast<float>(rstd);
  }
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

namespace bert_tf::cuda {
namespace {

template <typename T>
int Forward(const ResidualLayerNormArgs<T>& args, const Dropout& dropout, void* stream) {
  const size_t shared_bytes = kWideWarps * sizeof(double);
  if (!FitsRegisters(args.columns) ||
      !Aligned<T>(args.columns, args.x, args.residual, args.bias, args.gamma, args.beta, args.y)) {
    return Launch<AnyForwardKernel<T>>(dim3(static_cast<unsigned>(args.rows)), kAnyThreads,
                                       shared_bytes, stream, args, dropout);
  }
  return WithPart<T>(
      args.columns, dropout.seed != nullptr, [&](auto warps, auto packs, auto with_dropout) {
        const dim3 grid(static_cast<unsigned>(CeilDivide(args.rows, kBlockRows<warps.value>)));
        return Launch<ForwardKernel<T, warps.value, packs.value, with_dropout.value>>(
            grid, kBlockThreads<warps.value>, shared_bytes, stream, args, dropout);
      });
}

}  // namespace
}  // namespace bert_tf::cuda

extern "C" int BertTfCudaResidualLayerNorm(int type,
                                           const bert_tf::ResidualLayerNormArgs<bert_tf::Gpu>& call,
                                           void* stream) {
  using namespace bert_tf::cuda;
  if (call.rows == 0) return 0;
  return WithTypedArgs(type, call, [&](const auto& args) {
    return Forward(args, MakeDropout(call.dropout_rate, call.seed), stream);
  });
}

#endif  // __CUDACC_RTC__
