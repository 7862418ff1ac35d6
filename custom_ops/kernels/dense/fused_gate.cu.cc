// fused_gate on the GPU; fused_gate.h has the formulas. A warp processes 32 packs of a row.
#define BERT_TF_CUDA
#include "custom_ops/kernels/cuda/cuda_dispatch.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/gelu/cuda_gelu.h"

namespace bert_tf::cuda {
namespace {

constexpr int kWarps = 8;

template <typename T, typename Form, int kWidth>
__global__ void __launch_bounds__(kWarps* kWarp) GateKernel(GateArgs<T> args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kWidth;
  if (column >= args.columns) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * kWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kWarps + warp; row < args.rows;
       row += step) {
    const int64_t one = row * args.columns + column, both = one + row * args.columns;
    float s[kWidth], factor[kWidth];
    LoadFloats<kWidth>(args.x + both, s);
    LoadFloats<kWidth>(args.x + both + args.columns, factor);
    if (args.dy == nullptr) {
      // y = f(s) * factor
#pragma unroll
      for (int e = 0; e < kWidth; ++e) factor[e] *= Gelu<Form>(s[e]);
      StoreFloats<kWidth>(args.result + one, factor);
      continue;
    }
    float d[kWidth];
    LoadFloats<kWidth>(args.dy + one, d);
    // dx = [dy * factor * f'(s), dy * f(s)]
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      factor[e] = d[e] * factor[e] * GeluSlope<Form>(s[e]);
      d[e] *= Gelu<Form>(s[e]);
    }
    StoreFloats<kWidth>(args.result + both, factor);
    StoreFloats<kWidth>(args.result + both + args.columns, d);
  }
}

}  // namespace
}  // namespace bert_tf::cuda

#ifndef __CUDACC_RTC__

namespace bert_tf::cuda {
namespace {

template <typename T, typename Form, int kWidth>
int LaunchGate(const GateArgs<T>& args, void* stream) {
  constexpr int64_t kMostRowBlocks = 65535;  // CUDA's limit of the second dimension
  const dim3 grid(static_cast<unsigned>(CeilDivide(args.columns, kWarp * kWidth)),
                  static_cast<unsigned>(Smaller(CeilDivide(args.rows, kWarps), kMostRowBlocks)));
  return Launch<GateKernel<T, Form, kWidth>>(grid, kWarps * kWarp, 0, stream, args);
}

template <typename Form, typename T>
int RunGate(const GateArgs<T>& args, void* stream) {
  return Aligned<T>(args.columns, args.dy, args.x, args.result)
             ? LaunchGate<T, Form, kVectorWidth<T>>(args, stream)
             : LaunchGate<T, Form, 1>(args, stream);
}

template <typename T>
int RunGate(const GateArgs<T>& args, void* stream) {
  switch (args.activation) {
    case DenseActivation::kGelu:
      return RunGate<ErfFormOf<T>>(args, stream);
    case DenseActivation::kApproximateGelu:
      return RunGate<TanhFormOf<T>>(args, stream);
    default:
      return RunGate<SiluFormOf<T>>(args, stream);
  }
}

}  // namespace
}  // namespace bert_tf::cuda

extern "C" int BertTfCudaGate(int type, const bert_tf::GateArgs<bert_tf::Gpu>& call, void* stream) {
  using namespace bert_tf::cuda;
  return WithTypedArgs(type, call, [&](const auto& args) { return RunGate(args, stream); });
}

#endif  // __CUDACC_RTC__
