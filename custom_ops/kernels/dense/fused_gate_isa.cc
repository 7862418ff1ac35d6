// Compiled once per instruction set (isa.bzl).
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/fused_gate.h"
#include "custom_ops/kernels/gelu/gelu.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int64_t kCyclesPerElement = 6;

template <typename Form, typename T>
void Rows(const GateArgs<T>& args, int64_t begin, int64_t end) {
  const int64_t columns = args.columns;
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = args.x + 2 * row * columns;
    if (args.dy == nullptr) {
      T* const y = args.result + row * columns;
      // y = f(s) * factor
      ForVectors(columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
        Store(y + j, Gelu<Form>(Load(x + j, lanes)) * Load(x + columns + j, lanes), lanes);
      });
      continue;
    }
    const T* const dy = args.dy + row * columns;
    T* const dx = args.result + 2 * row * columns;
    // dx = [dy * factor * f'(s), dy * f(s)]
    ForVectors(columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
      const Vec d = Load(dy + j, lanes), s = Load(x + j, lanes);
      const Vec d_activated = d * Load(x + columns + j, lanes);
      Store(dx + j, d_activated * GeluSlope<Form>(s), lanes);
      Store(dx + columns + j, d * Gelu<Form>(s), lanes);
    });
  }
}

}  // namespace

template <typename T>
void FusedGate(const Parallel& parallel, const GateArgs<T>& args) {
  const int64_t rows = args.columns > 0 ? args.rows : 0;
  parallel.For(rows, kCyclesPerElement * args.columns, [&args](int64_t begin, int64_t end) {
    switch (args.activation) {
      case DenseActivation::kGelu:
        return Rows<ErfForm>(args, begin, end);
      case DenseActivation::kApproximateGelu:
        return Rows<TanhForm>(args, begin, end);
      default:
        return Rows<SiluForm>(args, begin, end);
    }
  });
}

BERT_TF_INSTANTIATE_KERNEL(FusedGate, GateArgs)

}  // namespace bert_tf::BERT_TF_ISA
