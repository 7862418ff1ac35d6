// Compiled once per instruction set (isa.bzl). word_dense.h has the matmul.
#include "custom_ops/kernels/dense/byte_pairs.h"
#include "custom_ops/kernels/dense/byte_products.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/kernels/dense/word_dense.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// The parts of ByteFormat that depend on the method.
template <typename Method>
struct ByteRows : PlainRows<Method, RowScale, Dequantizer> {
  static Dequantizer OutputOf(const RowScale* rows, int64_t, const PanelScales* panel,
                              const int8_t*, float* z) {
    return {rows, panel, 0, z, kDensePanel};
  }
};
#if defined(BERT_TF_BYTE_PAIRS)
template <>
struct ByteRows<BytePairs> : BytePairRows {};
#endif

// Dense layers in bytes, as word_dense.h describes it.
template <typename Method, typename T>
struct ByteFormat : ByteRows<Method> {
  using Element = T;
  using Args = QuantizedDenseArgs<T>;
  using Scale = typename ByteRows<Method>::Scale;
  static constexpr double kRowCycles = 1.2;

  static Scale WriteRow(const Args& args, const T* x, uint8_t* words) {
    const auto smoothed = [&](int64_t k, auto lanes) BERT_TF_INLINE_LAMBDA {
      return Load(x + k, lanes) * Load(args.smoothing + k, lanes);
    };
    return Scale{args.static_scale == nullptr
                     ? QuantizeRow(smoothed, args.depth, words)
                     : QuantizeRow(smoothed, StaticScale(args.static_scale), args.depth, words)};
  }

  struct Columns {
    Columns(const Args& args, int64_t first)
        : words(args.packed + first * CeilDivide(args.depth, kQuad) * kQuad) {
      const size_t count = static_cast<size_t>(Smaller(kDensePanel, args.columns - first));
      std::memcpy(scales.scale, args.column_scale + first, count * sizeof(float));
      std::memcpy(scales.sum, args.column_sums + first, count * sizeof(int32_t));
    }
    auto Output(const Scale* rows, int64_t count, float* z) const {
      return ByteRows<Method>::OutputOf(rows, count, &scales, words, z);
    }

    PanelScales scales;
    const int8_t* words;
  };

  // With a static scale, results become bytes without waiting for the rest of their row.
  struct Results {
    static bool CanWrite(const Args& next) { return next.static_scale != nullptr; }

    explicit Results(const Args& next) : smoothing(next.smoothing), scale(next.static_scale) {}

    void Write(int64_t row, int64_t column, int64_t count, const T* y, uint8_t* words) {
      ForSingleVectors(count, [&](auto lanes, int64_t j) BERT_TF_INLINE_LAMBDA {
        const Vec v = Load(y + j, lanes) * Load(smoothing + column + j, lanes);
        poison[row] += v * 0.0f;
        StoreBytes(words + column + j, scale.quantizer(v), lanes);
      });
    }
    Scale Finish(int64_t row) const { return Scale{scale.Row(ReduceAdd(poison[row]))}; }

    const float* smoothing;
    StaticScale scale;
    Vec poison[kFeedForwardRows] = {};  // of each row: NaN if a result is not finite
  };
};

// As WithByteMethod, but with BytePairs where they replace Pairs: for long rows only.
template <typename Function>
void WithDenseMethod([[maybe_unused]] ByteInstructions instructions, const Function& function) {
#if defined(BERT_TF_BYTE_PAIRS)
  if (instructions == ByteInstructions::kVnni) return function(Vnni{});
  function(BytePairs{});
#else
  WithByteMethod(instructions, function);
#endif
}

}  // namespace

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args,
                    ByteInstructions instructions) {
  WithDenseMethod(instructions,
                  [&](auto method) { Run<ByteFormat<decltype(method), T>>(parallel, args); });
}

template <typename T>
void QuantizedFeedForward(const Parallel& parallel, const QuantizedFeedForwardArgs<T>& args,
                          ByteInstructions instructions) {
  WithDenseMethod(instructions, [&](auto method) {
    RunFeedForward<ByteFormat<decltype(method), T>>(parallel, args.first, args.second);
  });
}

#define BERT_TF_INSTANTIATE(T)                                                               \
  template void QuantizedDense<T>(const Parallel&, const QuantizedDenseArgs<T>&,             \
                                  ByteInstructions);                                         \
  template void QuantizedFeedForward<T>(const Parallel&, const QuantizedFeedForwardArgs<T>&, \
                                        ByteInstructions);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
