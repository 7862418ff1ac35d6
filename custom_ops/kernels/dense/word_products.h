// Products of rows of x and panels of W whose numbers are packed in 32-bit words: four bytes, or
// two bfloat16 numbers.
//
// A word of x is multiplied by the words of kDensePanel columns of W, and the products of its
// numbers are added to one sum per column. A Method does this with the instructions at hand:
//   kNumbers      the numbers in a word
//   Sum           a vector with the sums of kLanes columns
//   kTileRows     the most rows whose sums are kept in registers
//   kRowCycles    cycles to multiply a word by a panel
//   kPlanes       the planes of a row of x: its words may be unpacked in advance
//   kPrefetches   whether its tiles prefetch
//   Split         unpacks the words of a row of x, whose planes are `stride` bytes; not for
//                 BytePairs, which needs the rows of a tile (byte_pairs.h)
//   LoadW, LoadX  a vector of words of W, and a word of x for all lanes
//   MultiplyAdd   adds the products to the sums
// or, if kMultipliesTiles, instead of the last three
//   MultiplyTile  does all that `Tile` does, without prefetching
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/fused_dense.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int kTileVectors = 2;
constexpr int kTileColumns = kTileVectors * kLanes;
static_assert(kDensePanel % kTileColumns == 0, "a panel is whole tiles");

// Whether every tile prefetches its part of the next panel, one line in a step. Otherwise the last
// tile prefetches all of it, two lines in a step: with AVX2 it would wait for memory, because it
// has few rows.
#if defined(__AVX512F__) || defined(BERT_TF_NEON)
constexpr bool kTilesSharePanel = false;
#else
constexpr bool kTilesSharePanel = true;
#endif

constexpr int64_t kWordBytes = 4;
constexpr int64_t kQuad = kWordBytes;  // the bytes of x, or of a column of W, in a word of bytes
constexpr int64_t kPanelWordBytes = kWordBytes * kDensePanel;  // of a panel, for one word of x

// Fails to compile if a type is not a Method.
template <typename Method>
constexpr bool CheckMethod() {
  static_assert(Method::kNumbers == 2 || Method::kNumbers == 4, "kNumbers");
  static_assert(Method::kTileRows > 0 && Method::kRowCycles > 0, "kTileRows, kRowCycles");
  static_assert(Method::kPlanes == 1 || Method::kPlanes == 2 || Method::kPlanes == 4, "kPlanes");
  static_assert(std::is_same_v<decltype(Method::kPrefetches), const bool>, "kPrefetches");
  if constexpr (!Method::kMultipliesTiles) {
    using X = decltype(Method::LoadX(nullptr, 0));
    using W = decltype(Method::LoadW(nullptr));
    using Sum = typename Method::Sum;
    static_assert(sizeof(Sum) == kVectorBytes, "Sum");
    static_assert(std::is_invocable_r_v<void, decltype(Method::MultiplyAdd), X, W, Sum&>,
                  "MultiplyAdd");
  }
  return true;
}

// Rows of words in the form that the method reads, `stride` bytes per row.
struct WordRows {
  const uint8_t* words;
  int64_t stride;
};

// Zeros after a row of `bytes` bytes, up to whole words.
BERT_TF_INLINE void PadRow(int64_t bytes, uint8_t* words) {
  const int64_t end = CeilDivide(bytes, kWordBytes) * kWordBytes;
  std::memset(words + bytes, 0, static_cast<size_t>(end - bytes));
}

// Calls output(i, v, sums) with the sums of x W for kRows rows and the kTileVectors vectors of
// columns that begin at `panel`. At the same time, the memory at `ahead` is prefetched to the
// second-level cache, a place every `ahead_step` bytes.
template <typename Method, int kRows, typename Output>
__attribute__((noinline)) void Tile(int64_t words, WordRows x, const void* panel, const void* ahead,
                                    int64_t ahead_step, const Output& output) {
  static_assert(CheckMethod<Method>());
  const char* w = static_cast<const char*>(panel);
  if constexpr (Method::kMultipliesTiles) {
    Method::template MultiplyTile<kRows>(words, x, w, output);
  } else {
    const char* const ahead_bytes = static_cast<const char*>(ahead);
    using Sum = typename Method::Sum;
    Sum sum[kRows][kTileVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) sum[i][v] = Sum{};
    }
    for (int64_t q = 0; q < words; ++q, w += kPanelWordBytes) {
      if (Method::kPrefetches) {
        __builtin_prefetch(ahead_bytes + q * ahead_step, 0, 2);
        if (!kTilesSharePanel) __builtin_prefetch(ahead_bytes + q * ahead_step + kCacheLine, 0, 2);
      }
      decltype(Method::LoadW(w)) row[kTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) row[v] = Method::LoadW(w + v * kVectorBytes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const auto factor = Method::LoadX(x.words + i * x.stride + q * kWordBytes, x.stride);
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) Method::MultiplyAdd(factor, row[v], sum[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) output(i, v, sum[i][v]);
    }
  }
}

// The Tile for 1 <= rows <= Method::kTileRows.
template <typename Method, typename Output, int... i>
auto TileOf(int64_t rows, std::integer_sequence<int, i...>) {
  static constexpr decltype(&Tile<Method, 1, Output>) kTiles[] = {Tile<Method, i + 1, Output>...};
  return kTiles[rows - 1];
}
template <typename Method, typename Output>
auto TileOf(int64_t rows) {
  return TileOf<Method, Output>(rows, std::make_integer_sequence<int, Method::kTileRows>{});
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
