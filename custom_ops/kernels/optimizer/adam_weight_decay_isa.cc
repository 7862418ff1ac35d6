// Compiled once per instruction set (isa.bzl).
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int64_t kBlock = 4096;  // elements of a unit of work
constexpr int64_t kCyclesPerElement = 4;

BERT_TF_INLINE Vec Sqrt(Vec v) {
#if defined(__AVX512F__)
  return (Vec)_mm512_sqrt_ps((__m512)v);
#elif defined(__AVX2__)
  return (Vec)_mm256_sqrt_ps((__m256)v);
#elif defined(BERT_TF_NEON)
  return (Vec)vsqrtq_f32((float32x4_t)v);
#else
  for (int lane = 0; lane < kLanes; ++lane) v[lane] = __builtin_sqrtf(v[lane]);
  return v;
#endif
}

}  // namespace

void AdamWeightDecay(const Parallel& parallel, const AdamWeightDecayArgs& args) {
  const int64_t units = CeilDivide(args.count, kBlock);
  parallel.For(units, kBlock * kCyclesPerElement, [&args](int64_t begin, int64_t end) {
    const int64_t first = begin * kBlock;
    const int64_t last = Smaller(end * kBlock, args.count);
    const Vec rest_1 = Broadcast(1.0f - args.beta_1);
    const Vec rest_2 = Broadcast(1.0f - args.beta_2);
    const Vec scale = Broadcast(args.gradient_scale);
    const Vec epsilon = Broadcast(args.epsilon);
    const Vec step = Broadcast(args.step);
    const Vec decay = Broadcast(args.decay);
    const float* const gradient = args.gradient + first;
    float* const variable = args.variable + first;
    float* const mean = args.m + first;
    float* const square = args.v + first;
    ForVectors(last - first, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
      const Vec g = scale * Load(gradient + j, lanes);
      Vec m = Load(mean + j, lanes);
      Vec v = Load(square + j, lanes);
      m += rest_1 * (g - m);
      v += rest_2 * (g * g - v);
      Store(mean + j, m, lanes);
      Store(square + j, v, lanes);
      const Vec x = Load(variable + j, lanes);
      Store(variable + j, x - (step * m / (Sqrt(v) + epsilon) + decay * x), lanes);
    });
  });
}

}  // namespace bert_tf::BERT_TF_ISA
