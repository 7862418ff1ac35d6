// Compiled once per instruction set (isa.bzl).
//
// A unit of work is a block of rows times some panels of W. Its rows are quantized first. Then
// every panel is multiplied by all rows, in tiles of rows, whose integer sums stay in registers for
// the whole depth and are stored as float32. The depth is not divided into blocks: a panel has a
// quarter of the bytes of a float32 panel, and a tile reads few of them per cycle, so the
// second-level cache is fast enough for them.
#include <utility>

#include "custom_ops/kernels/dense/dense_blocks.h"
#include "custom_ops/kernels/dense/quantized_dense.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int kTileVectors = 2;
constexpr int kTileColumns = kTileVectors * kLanes;
static_assert(kDensePanel % kTileColumns == 0, "a panel is whole tiles");

constexpr int64_t kQuad = 4;  // numbers of x, or of a column of W, in a 32-bit word
constexpr int64_t kQuadBytes = kQuad * kDensePanel;  // bytes of a panel for four rows of W

using VecI16 = int16_t __attribute__((vector_size(kVectorBytes)));

// a[2i] * b[2i] + a[2i + 1] * b[2i + 1]
BERT_TF_INLINE VecI32 MultiplyAddPairs(VecI16 a, VecI16 b) {
#if defined(__AVX512BW__)
  return (VecI32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (VecI32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (VecI32)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  const VecI32 p = reinterpret_cast<VecI32>(a), q = reinterpret_cast<VecI32>(b);
  return ((p << 16) >> 16) * ((q << 16) >> 16) + (p >> 16) * (q >> 16);
#endif
}

// Rounds to the nearest integer, ties to even, for |v| < 2^31.
BERT_TF_INLINE VecI32 RoundToInt(Vec v) {
#if defined(__AVX512F__)
  return (VecI32)_mm512_cvtps_epi32((__m512)v);
#elif defined(__AVX2__)
  return (VecI32)_mm256_cvtps_epi32((__m256)v);
#elif defined(__SSE2__)
  return (VecI32)_mm_cvtps_epi32((__m128)v);
#else
  VecI32 n;
  for (int i = 0; i < kLanes; ++i) n[i] = static_cast<int32_t>(__builtin_rintf(v[i]));
  return n;
#endif
}

// The scale and the zero point of a row.
struct RowScale {
  float scale;
  int32_t zero;
};

// Smooths a row of x and quantizes it to bytes, padded with zeros to whole words.
template <typename T>
RowScale QuantizeRow(const T* x, const float* smoothing, int64_t depth, uint8_t* u) {
  using Bytes = uint8_t __attribute__((vector_size(kLanes)));
  Vec least = {}, largest = {}, poison = {};
  ForVectors(depth, [&](auto lanes, int64_t k, int) BERT_TF_INLINE_LAMBDA {
    const Vec v = Load(x + k, lanes) * Load(smoothing + k, lanes);
    least = Min(least, v);
    largest = Max(largest, v);
    poison += v * 0.0f;  // NaN from an infinity or a NaN
  });
  const float low = -ReduceMax(-least), high = ReduceMax(largest);
  const double span = static_cast<double>(high) - static_cast<double>(low);
  const int64_t padded = CeilDivide(depth, kQuad) * kQuad;
  const bool is_finite = ReduceAdd(poison) == 0.0f;
  if (!is_finite || !(span >= static_cast<double>(kSmallestSpan))) {
    std::memset(u, 0, static_cast<size_t>(padded));
    return {is_finite ? 0.0f : __builtin_nanf(""), 0};
  }
  const double step = span / 255.0;
  const float inverse = static_cast<float>(1.0 / step);
  const int32_t zero = static_cast<int32_t>(__builtin_rint(-static_cast<double>(low) / step));
  const auto quantized = [&](Vec v) BERT_TF_INLINE_LAMBDA {
    VecI32 n = RoundToInt(v * inverse) + zero;
    n = n > 0 ? n : 0;
    n = n < 255 ? n : 255;
    return __builtin_convertvector(n, Bytes);
  };
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    const Bytes bytes = quantized(Load(x + k) * Load(smoothing + k));
    std::memcpy(u + k, &bytes, sizeof(bytes));
  }
  if (k < padded) {
    const SomeLanes rest{depth - k};
    const Bytes bytes = quantized(Load(x + k, rest) * Load(smoothing + k, rest));
    std::memset(u + k, 0, static_cast<size_t>(padded - k));
    std::memcpy(u + k, &bytes, static_cast<size_t>(depth - k));
  }
  return {static_cast<float>(step), zero};
}

// The scales and sums of the columns of a panel, padded with zeros.
struct PanelScales {
  float scale[kDensePanel] = {};
  int32_t sum[kDensePanel] = {};
};

// z = row_scale * column_scale * (sums - zero * column_sums). The row scale is applied last,
// because only this factor may be huge or tiny.
BERT_TF_INLINE void StoreDequantized(float* z, VecI32 sums, RowScale row, const PanelScales& panel,
                                     int column) {
  const auto column_sums = LoadAs<VecI32>(panel.sum + column);
  const Vec bracket = __builtin_convertvector(sums - row.zero * column_sums, Vec);
  Store(z, bracket * Load(panel.scale + column) * row.scale);
}

// The quantized rows of a unit.
struct QuantizedRows {
  const uint8_t* words;  // in the form that the method reads, `stride` bytes per row
  int64_t stride;
  const RowScale* scales;
};

#if defined(__AVX512F__)
// Four products of bytes and their sum in one instruction.
struct Vnni {
  static constexpr int kTileRows = 14;  // 28 sums, 2 vectors of W and 1 of x: 31 of 32 registers
  static constexpr int64_t kRowCycles = 2;  // per panel and quad
  static constexpr int64_t kPlanes = 1;
  static constexpr bool kPrefetches = true;

  static BERT_TF_INLINE void Split(uint8_t*, int64_t) {}
  static BERT_TF_INLINE VecI32 LoadW(const int8_t* w) { return LoadAs<VecI32>(w); }
  static BERT_TF_INLINE VecI32 LoadX(const uint8_t* words, int64_t) {
    return VecI32{} + LoadAs<int32_t>(words);
  }
  static BERT_TF_INLINE void MultiplyAdd(VecI32 x, VecI32 w, VecI32& sum) {
    // With the intrinsic, GCC 12 moves sums out of the registers, at half the speed.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  }
};
#endif

// Bytes are converted to int16, separately for even and odd positions: W in the inner loop, once
// for all rows of a tile, and x in advance.
struct Pairs {
#if defined(__AVX512F__)
  static constexpr int kTileRows = 10;  // 20 sums, 4 vectors of W, 2 of x
#else
  static constexpr int kTileRows = 4;  // 8 sums, 4 vectors of W, 2 of x
#endif
  static constexpr int64_t kRowCycles = 256 / kVectorBytes;
  static constexpr int64_t kPlanes = 2;
  static constexpr bool kPrefetches = false;

  struct Numbers {
    VecI16 even, odd;
  };

  // [u0 u1 u2 u3] -> int16 [u0 u2], and `stride` bytes later [u1 u3].
  static BERT_TF_INLINE void Split(uint8_t* words, int64_t stride) {
    for (int64_t k = 0; k < stride; k += kQuad) {
      const auto word = LoadAs<uint32_t>(words + k);
      const uint32_t even = word & 0x00FF00FFu, odd = (word >> 8) & 0x00FF00FFu;
      std::memcpy(words + k, &even, sizeof(even));
      std::memcpy(words + stride + k, &odd, sizeof(odd));
    }
  }
  static BERT_TF_INLINE Numbers LoadW(const int8_t* w) {
    const auto row = LoadAs<VecI16>(w);
    return {(row << 8) >> 8, row >> 8};
  }
  static BERT_TF_INLINE Numbers LoadX(const uint8_t* words, int64_t stride) {
    return {reinterpret_cast<VecI16>(VecI32{} + LoadAs<int32_t>(words)),
            reinterpret_cast<VecI16>(VecI32{} + LoadAs<int32_t>(words + stride / kPlanes))};
  }
  static BERT_TF_INLINE void MultiplyAdd(const Numbers& x, const Numbers& w, VecI32& sum) {
    sum += MultiplyAddPairs(w.even, x.even);
    sum += MultiplyAddPairs(w.odd, x.odd);
  }
};

// z = x W for kRows rows and kTileColumns columns. At the same time, the memory at `ahead`, two
// cache lines for every `ahead_step` bytes, is prefetched to the second-level cache.
template <typename Method, int kRows>
__attribute__((noinline)) void Tile(int64_t quads, QuantizedRows x, const int8_t* w,
                                    const char* ahead, int64_t ahead_step, const PanelScales& panel,
                                    int column, float* z) {
  VecI32 sum[kRows][kTileVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) sum[i][v] = VecI32{};
  }
  w += column * kQuad;
  for (int64_t q = 0; q < quads; ++q, w += kQuadBytes) {
    if (Method::kPrefetches) {
      __builtin_prefetch(ahead + q * ahead_step, 0, 2);
      __builtin_prefetch(ahead + q * ahead_step + kCacheLine, 0, 2);
    }
    decltype(Method::LoadW(w)) row[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) row[v] = Method::LoadW(w + v * kVectorBytes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto factor = Method::LoadX(x.words + i * x.stride + q * kQuad, x.stride);
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) Method::MultiplyAdd(factor, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      StoreDequantized(z + i * kDensePanel + column + v * kLanes, sum[i][v], x.scales[i], panel,
                       column + v * kLanes);
    }
  }
}

template <typename Method, int... i>
auto TileOf(int64_t rows, std::integer_sequence<int, i...>) {
  static constexpr decltype(&Tile<Method, 1>) kTiles[] = {Tile<Method, i + 1>...};
  return kTiles[rows - 1];
}

// One panel of W times `rows` rows. The last tile prefetches the next panel: while the first tile
// waits for memory, the last one has its panel in a cache.
template <typename Method, typename T>
void Panel(const QuantizedDenseArgs<T>& args, const QuantizedRows& x, int64_t rows, int64_t panel,
           float* z) {
  const int64_t quads = CeilDivide(args.depth, kQuad);
  const int8_t* const w = args.packed + panel * quads * kQuadBytes;
  const int64_t first_column = panel * kDensePanel;
  const size_t columns = static_cast<size_t>(Smaller(kDensePanel, args.columns - first_column));
  PanelScales scales;
  std::memcpy(scales.scale, args.column_scale + first_column, columns * sizeof(float));
  std::memcpy(scales.sum, args.column_sums + first_column, columns * sizeof(int32_t));
  const int64_t tiles = CeilDivide(rows, Method::kTileRows);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = PartBegin(rows, tiles, t);
    const auto tile = TileOf<Method>(PartBegin(rows, tiles, t + 1) - begin,
                                     std::make_integer_sequence<int, Method::kTileRows>{});
    const bool fetches = t + 1 == tiles && first_column + kDensePanel < args.columns;
    const int8_t* const ahead = fetches ? w + quads * kQuadBytes : w;
    for (int column = 0; column < kDensePanel; column += kTileColumns) {
      tile(quads, {x.words + begin * x.stride, x.stride, x.scales + begin}, w,
           reinterpret_cast<const char*>(ahead), fetches ? kQuadBytes : 0, scales, column,
           z + begin * kDensePanel);
    }
  }
}

template <typename Method, typename T>
void RunUnit(const QuantizedDenseArgs<T>& args, const DenseUnit& unit, bool has_rows) {
  // The RowScales of the rows, then their words.
  const int64_t stride = Method::kPlanes * CeilDivide(args.depth, kQuad) * kQuad;
  const int64_t scales_size = CeilDivide(unit.rows * 2, kLanes) * kLanes;
  float* const scratch = ThreadScratch(1, scales_size + unit.rows * stride / 4);
  RowScale* const scales = reinterpret_cast<RowScale*>(scratch);
  uint8_t* const words = reinterpret_cast<uint8_t*>(scratch + scales_size);
  if (!has_rows) {
    for (int64_t i = 0; i < unit.rows; ++i) {
      scales[i] = QuantizeRow(args.x + (unit.first_row + i) * args.depth, args.smoothing,
                              args.depth, words + i * stride);
      Method::Split(words + i * stride, stride / Method::kPlanes);
    }
  }
  for (int64_t p = 0; p < unit.panels; ++p) {
    const int64_t panel = unit.first_panel + p;
    if (args.gamma != nullptr) {
      Panel<Method>(args, {words, stride, scales}, unit.rows, panel,
                    unit.sums + p * unit.sums_rows * kDensePanel);
    } else {  // the sums of a panel are used immediately, and all panels share one buffer
      Panel<Method>(args, {words, stride, scales}, unit.rows, panel, unit.sums);
      PanelEpilogue(args, unit.first_row, unit.rows, panel * kDensePanel, unit.sums);
    }
  }
}

template <typename Method, typename T>
void Run(const Parallel& parallel, const QuantizedDenseArgs<T>& args) {
  // A panel is read from the third-level cache or from memory at about 8 bytes per cycle.
  const auto panel_cycles = [](int64_t rows) {
    return Larger(Method::kRowCycles * rows, kQuadBytes / 8);
  };
  RunUnits(
      parallel, args, CeilDivide(args.depth, kQuad), Method::kTileRows, panel_cycles,
      [&args](const DenseUnit& unit, bool has_rows) { RunUnit<Method>(args, unit, has_rows); });
}

}  // namespace

template <typename T>
void QuantizedDense(const Parallel& parallel, const QuantizedDenseArgs<T>& args,
                    [[maybe_unused]] bool has_vnni) {
#if defined(__AVX512F__)
  if (has_vnni) return Run<Vnni>(parallel, args);
#endif
  Run<Pairs>(parallel, args);
}

#define BERT_TF_INSTANTIATE(T) \
  template void QuantizedDense<T>(const Parallel&, const QuantizedDenseArgs<T>&, bool);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
