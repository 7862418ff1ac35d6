// Compiled once per instruction set (isa.bzl).
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

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

// Returns function(pointer to the elements of the tensor).
template <typename Function>
BERT_TF_INLINE auto WithType(const FloatTensor& tensor, const Function& function) {
  switch (tensor.type) {
    case FloatType::kBFloat16:
      return function(static_cast<const BFloat16*>(tensor.data));
    case FloatType::kFloat16:
      return function(static_cast<const Float16*>(tensor.data));
    default:
      return function(static_cast<const float*>(tensor.data));
  }
}

}  // namespace

void UpdateElements(const AdamWeightDecayArgs& args, const AdamTensor& tensor, float step,
                    float decay, int64_t begin, int64_t end) {
  const Vec rest_1 = Broadcast(1.0f - args.beta_1);
  const Vec rest_2 = Broadcast(1.0f - args.beta_2);
  const Vec scale = Broadcast(*args.gradient_scale);
  const Vec epsilon = Broadcast(args.epsilon);
  const Vec steps = Broadcast(step);
  const Vec decays = Broadcast(decay);
  WithType(tensor.gradient, [&](const auto* gradient) {
    ForVectors(end - begin, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
      const int64_t i = begin + j;
      const Vec g = scale * Load(gradient + i, lanes);
      Vec m = Load(tensor.m + i, lanes);
      Vec v = Load(tensor.v + i, lanes);
      m += rest_1 * (g - m);
      v += rest_2 * (g * g - v);
      Store(tensor.new_m + i, m, lanes);
      Store(tensor.new_v + i, v, lanes);
      const Vec x = Load(tensor.variable + i, lanes);
      Store(tensor.new_variable + i, x - (steps * m / (Sqrt(v) + epsilon) + decays * x), lanes);
    });
  });
}

float SumOfSquares(const FloatTensor& tensor, int64_t begin, int64_t end) {
  return WithType(tensor, [&](const auto* data) {
    Vec sums[kAccumulators] = {};
    ForVectors(end - begin, [&](auto lanes, int64_t j, int k) BERT_TF_INLINE_LAMBDA {
      const Vec x = Load(data + begin + j, lanes);
      sums[k] += x * x;
    });
    return ReduceAdd(sums);
  });
}

}  // namespace bert_tf::BERT_TF_ISA
