// Compiled once per instruction set (isa.bzl).
#include "custom_ops/kernels/fused_bias_gelu.h"
#include "custom_ops/kernels/row_blocks.h"
#include "custom_ops/kernels/simd.h"

namespace bert_tf {
namespace BERT_TF_ISA {
namespace {

// Both forms are s times a smooth step from 0 to 1 that is odd around 1/2. With t = |s| and
// tail(t) = step(-t), which goes from 1/2 to 0 and keeps all its digits on the way,
//
//   gelu(s)  = max(s, 0) - t * tail(t)                      for either sign of s
//   gelu'(s) = s < 0 ? slope(t) : 1 - slope(t),   slope(t) = tail(t) + t * tail'(t)
//
// Above kLargest, t * tail(t) is below the smallest float32, so t stops there: no infinity comes
// up inside. An error of the exponential's argument is a relative error of the tail, so that
// argument is carried as a sum of two float32; and the power of two comes last, because
// t * tail(t) may be a normal number where tail(t) is not (and TensorFlow flushes those to zero).

// Phi by the normal distribution:
//   tail(t)  = 0.5 * erfc(t / sqrt(2)) = exp(-t^2 / 2) * ratio(t)
//   tail'(t) = -exp(-t^2 / 2) / sqrt(2 pi)
struct ErfForm {
  static constexpr float kLargest = 15.0f;

  // 0.5 * erfcx(t / sqrt(2)) on [0, 15], a minimax rational function: relative error 6.3e-9, and
  // with positive coefficients only, so that nothing cancels. Fitted to SciPy's erfcx by least
  // squares, reweighted towards the largest errors.
  static BERT_TF_INLINE Vec Ratio(Vec t) {
    Vec p = Broadcast(4.153178662e-3f);
    p = p * t + 4.088080715e-2f;
    p = p * t + 0.1839682265f;
    p = p * t + 0.4392822632f;
    p = p * t + 0.5f;
    Vec q = Broadcast(1.04103634e-2f);
    q = q * t + 0.1024791038f;
    q = q * t + 0.4714062798f;
    q = q * t + 1.205544595f;
    q = q * t + 1.676449533f;
    q = q * t + 1.0f;
    return p / q;
  }

  static BERT_TF_INLINE ExpParts Bell(Vec t) {  // exp(-t^2 / 2)
    const Vec square = t * t;
    return ExpInParts(-0.5f * square, -0.5f * ProductError(t, t, square));
  }

  static BERT_TF_INLINE Vec TailTimesT(Vec t) {
    const ExpParts bell = Bell(t);
    return ScaleByPowerOfTwo(bell.mantissa * (t * Ratio(t)), bell.exponent);
  }

  static BERT_TF_INLINE Vec Slope(Vec t) {
    constexpr float kInvSqrt2Pi = 0.398942280f;
    const ExpParts bell = Bell(t);
    return ScaleByPowerOfTwo(bell.mantissa * (Ratio(t) - kInvSqrt2Pi * t), bell.exponent);
  }
};

// sigmoid(2 u):
//   a(t) = 2 u(t) = t * (k0 + k1 t^2),  e = exp(-a),  tail(t) = e / (1 + e)
//   tail'(t) = -a'(t) * tail / (1 + e),  a'(t) = k0 + 3 k1 t^2
struct TanhForm {
  static constexpr float kLargest = 11.0f;

  // 2 sqrt(2 / pi) and that times 0.044715, each in two parts. kHigh0 has 20 bits: then
  // kHigh0 - w below is exact.
  static constexpr float kHigh0 = 1.59576988220214844f;
  static constexpr float kLow0 = -7.60596418e-7f;
  static constexpr float kHigh1 = 0.0713548138737678528f;
  static constexpr float kLow1 = 2.39883240e-9f;

  static BERT_TF_INLINE ExpParts Exponential(Vec t) {  // exp(-a(t))
    const Vec square = t * t;
    const Vec square_error = ProductError(t, t, square);
    const Vec w = Fma(Broadcast(kHigh1), square, Broadcast(kHigh0));
    const Vec w_error = Fma(Broadcast(kHigh1), square, kHigh0 - w) +
                        (kLow0 + (kLow1 * square + kHigh1 * square_error));
    const Vec a = t * w;
    const Vec a_error = ProductError(t, w, a) + t * w_error;
    return ExpInParts(-a, -a_error);
  }

  static BERT_TF_INLINE Vec TailTimesT(Vec t) {
    const ExpParts e = Exponential(t);
    const Vec quotient = t / (1.0f + ScaleByPowerOfTwo(e.mantissa, e.exponent));
    return ScaleByPowerOfTwo(e.mantissa * quotient, e.exponent);
  }

  static BERT_TF_INLINE Vec Slope(Vec t) {
    const ExpParts e = Exponential(t);
    const Vec inverse = 1.0f / (1.0f + ScaleByPowerOfTwo(e.mantissa, e.exponent));
    const Vec a_slope = (3.0f * kHigh1) * (t * t) + (kHigh0 + kLow0);
    return ScaleByPowerOfTwo(e.mantissa * (inverse * (1.0f - t * a_slope * inverse)), e.exponent);
  }
};

template <typename Form>
BERT_TF_INLINE Vec Gelu(Vec s) {
  const Vec t = Min(Broadcast(Form::kLargest), Abs(s));
  return Max(Vec{}, s) - Form::TailTimesT(t);
}

template <typename Form>
BERT_TF_INLINE Vec GeluSlope(Vec s) {
  const Vec slope = Form::Slope(Min(Broadcast(Form::kLargest), Abs(s)));
  return s < 0.0f ? slope : 1.0f - slope;
}

constexpr int64_t kCyclesPerElement = 4;

// Few long rows are cut too, so that all threads get work.
constexpr int64_t kTileColumns = 8192;

// A unit of work: one row or block of rows, of at most kTileColumns columns.
struct Tile {
  int64_t row;
  int64_t first_column;
  int64_t columns;
};

BERT_TF_INLINE Tile TileOf(int64_t unit, int64_t columns) {
  const int64_t tiles = CeilDivide(columns, kTileColumns);
  const int64_t first = unit % tiles * kTileColumns;
  return {unit / tiles, first, columns - first < kTileColumns ? columns - first : kTileColumns};
}

template <typename Form, typename T>
void Forward(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  const int64_t columns = args.columns;
  const int64_t units = args.rows * CeilDivide(columns, kTileColumns);
  const int64_t cost = kCyclesPerElement * (columns < kTileColumns ? columns : kTileColumns);
  parallel.For(units, cost, [&args, columns](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Tile tile = TileOf(unit, columns);
      const T* const x = args.x + tile.row * columns + tile.first_column;
      const T* const bias = args.bias + tile.first_column;
      T* const y = args.y + tile.row * columns + tile.first_column;
      // y = gelu(x + bias)
      ForVectors(tile.columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
        Store(y + j, Gelu<Form>(Load(x + j, lanes) + Load(bias + j, lanes)), lanes);
      });
    }
  });
}

template <typename Form, typename T>
void Backward(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  const int64_t rows = args.rows;
  const int64_t columns = args.columns;
  const int64_t rows_in_block = RowsInBlock(rows);
  const int64_t blocks = NumRowBlocks(rows);
  const int64_t units = blocks * CeilDivide(columns, kTileColumns);
  const int64_t cost =
      kCyclesPerElement * rows_in_block * (columns < kTileColumns ? columns : kTileColumns);
  parallel.For(units, cost, [&args, rows, columns, rows_in_block](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Tile tile = TileOf(unit, columns);
      const T* const bias = args.bias + tile.first_column;
      float* const sums = args.scratch + tile.row * columns + tile.first_column;
      FillZeros(sums, tile.columns);
      const int64_t first_row = tile.row * rows_in_block;
      const int64_t last_row = first_row + rows_in_block < rows ? first_row + rows_in_block : rows;
      for (int64_t row = first_row; row < last_row; ++row) {
        const int64_t offset = row * columns + tile.first_column;
        const T* const x = args.x + offset;
        const T* const dy = args.dy + offset;
        T* const dx = args.dx + offset;
        // dx = dy * gelu'(x + bias),  dbias += dx
        ForVectors(tile.columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
          const Vec slope = GeluSlope<Form>(Load(x + j, lanes) + Load(bias + j, lanes));
          const Vec d = Load(dy + j, lanes) * slope;
          Store(dx + j, d, lanes);
          AddTo(sums + j, d, lanes);
        });
      }
    }
  });
  SumRowBlocks(parallel, args.scratch, blocks, columns, columns, args.dbias);
}

}  // namespace

template <typename T>
void FusedBiasGelu(const Parallel& parallel, const BiasGeluArgs<T>& args) {
  if (args.approximate) {
    Forward<TanhForm>(parallel, args);
  } else {
    Forward<ErfForm>(parallel, args);
  }
}

template <typename T>
void FusedBiasGeluGrad(const Parallel& parallel, const BiasGeluGradArgs<T>& args) {
  if (args.approximate) {
    Backward<TanhForm>(parallel, args);
  } else {
    Backward<ErfForm>(parallel, args);
  }
}

#define BERT_TF_INSTANTIATE(T)                                             \
  template void FusedBiasGelu<T>(const Parallel&, const BiasGeluArgs<T>&); \
  template void FusedBiasGeluGrad<T>(const Parallel&, const BiasGeluGradArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(BFloat16)
BERT_TF_INSTANTIATE(Float16)
#undef BERT_TF_INSTANTIATE

}  // namespace BERT_TF_ISA
}  // namespace bert_tf
