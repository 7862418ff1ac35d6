// Products of bytes with AVX2's vpmaddubsw. It multiplies unsigned by signed bytes and saturates
// the sum of two products to int16. Here it never saturates, so the sums are exact.
//
// W becomes unsigned: w + 128, at most 255. x becomes signed: s = u - center. A pair of bytes of x
// is safe if both are at most 127 in magnitude and, with equal signs, at most 128 together, because
// 255 * 128 < 2^15. The words of a row keep the safe part of every pair. What is left of a word
// becomes a further word for the same place of W, a residue, or several:
//
//   sum_k w u = sum_k (w + 128) safe + sum (w + 128) residue - 128 sum_k s + center sum_k w
//
// Few words have a residue: the center is the mean of the row, and most of its numbers are small
// compared with the largest ones. If a row has many, `Pairs` multiplies its tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/byte_products.h"
#include "custom_ops/kernels/dense/word_products.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#define BERT_TF_BYTE_PAIRS

namespace bert_tf::BERT_TF_ISA {
namespace {

struct BytePairs {
  using Sum = VecI32;
  static constexpr int64_t kNumbers = kQuad;
  static constexpr int kTileRows = 5;  // 10 sums, 2 vectors of W, 1 of x, 1 product, 2 constants
  static constexpr int64_t kRowCycles = 4;
  static constexpr int64_t kPlanes = 4;  // u, the safe parts, and the residues, which need two
  static constexpr bool kMultipliesTiles = false;
  static constexpr bool kPrefetches = true;

  static BERT_TF_INLINE VecI32 LoadW(const char* w) {
    return LoadAs<VecI32>(w) ^ static_cast<int32_t>(0x80808080);
  }
  static BERT_TF_INLINE VecI32 LoadX(const uint8_t* words, int64_t stride) {
    return VecI32{} + LoadAs<int32_t>(words + stride / kPlanes);
  }
  static BERT_TF_INLINE void MultiplyAdd(VecI32 x, VecI32 w, VecI32& sum) {
    sum += MultiplyAddPairs((VecI16)_mm256_maddubs_epi16((__m256i)w, (__m256i)x), VecI16{} + 1);
  }
};

struct Residue {
  int32_t word;   // its place in the row
  int32_t bytes;  // four signed bytes
};

// A row whose `zero` is that of u minus the center.
struct CenteredRow : RowScale {
  static constexpr int64_t kNotSplit = -1;

  int32_t excess = 0;         // 128 sum_k s
  int64_t count = kNotSplit;  // of the residues
  const Residue* residues = nullptr;

  // Computes what the tiles of a panel, whose words are `w`, leave out.
  void WriteRest(const char* w, int32_t* rest) const {
    constexpr int kVectors = kDensePanel / kLanes;
    VecI32 sums[kVectors];
    for (VecI32& sum : sums) sum = VecI32{} - excess;
    for (int64_t r = 0; r < count; ++r) {
      const char* const row = w + residues[r].word * kPanelWordBytes;
      const VecI32 x = VecI32{} + residues[r].bytes;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        BytePairs::MultiplyAdd(x, BytePairs::LoadW(row + v * kVectorBytes), sums[v]);
      }
    }
    std::memcpy(rest, sums, sizeof(sums));
  }
};

constexpr int64_t kSplitWords = 4;  // in a step

// The bytes of four words minus the center.
BERT_TF_INLINE VecI16 Centered(const uint8_t* u, int32_t center) {
  return (VecI16)_mm256_cvtepu8_epi16(LoadAs<__m128i>(u)) - static_cast<int16_t>(center);
}

BERT_TF_INLINE VecI16 Clamp(VecI16 v, VecI16 least, VecI16 most) {
  return (VecI16)_mm256_max_epi16(_mm256_min_epi16((__m256i)v, (__m256i)most), (__m256i)least);
}

// The safe part of four words: the second number of a pair gets what the first one leaves to it.
BERT_TF_INLINE VecI16 SafePart(VecI16 s) {
  const VecI16 zeros = {};
  s = Clamp(s, zeros - 127, zeros + 127);
  const VecI16 first = (VecI16)((VecI32)s << 16);  // in the places of the second ones
  return Clamp(s, -128 - Clamp(first, zeros - 128, zeros), 128 - Clamp(first, zeros, zeros + 128));
}

BERT_TF_INLINE bool IsZero(VecI16 v) { return _mm256_testz_si256((__m256i)v, (__m256i)v) != 0; }

// The bytes of four words, whose numbers fit into signed bytes.
BERT_TF_INLINE __m128i SignedBytes(VecI16 v) {
  return _mm_packs_epi16(_mm256_castsi256_si128((__m256i)v),
                         _mm256_extracti128_si256((__m256i)v, 1));
}

// Stores those of four words that are not zero. Returns where the next residue is stored.
BERT_TF_INLINE Residue* StoreResidues(VecI16 v, int64_t first_word, Residue* residues) {
  const __m128i bytes = SignedBytes(v);
  int32_t words[kSplitWords];
  std::memcpy(words, &bytes, sizeof(words));
  for (int64_t i = 0; i < kSplitWords; ++i) {
    *residues = {static_cast<int32_t>(first_word + i), words[i]};
    residues += words[i] != 0;  // without a branch, which would be mispredicted
  }
  return residues;
}

inline int32_t Sum(const uint8_t* bytes, int64_t count) {
  using Sums = int64_t __attribute__((vector_size(kVectorBytes)));
  Sums sums = {};
  int64_t k = 0;
  for (; k + kVectorBytes <= count; k += kVectorBytes) {
    sums += (Sums)_mm256_sad_epu8(LoadAs<__m256i>(bytes + k), __m256i{});
  }
  int64_t sum = sums[0] + sums[1] + sums[2] + sums[3];
  for (; k < count; ++k) sum += bytes[k];
  return static_cast<int32_t>(sum);
}

// Splits a row into safe parts and residues, `stride` / kPlanes bytes after u. Returns false, with
// the row as it was, if a quarter of its words or more have a residue: `Pairs` is then faster.
inline bool SplitRow(uint8_t* u, int64_t stride, int64_t words, CenteredRow* row) {
  const int64_t bytes = words * kQuad, plane = stride / BytePairs::kPlanes;
  const int32_t sum = Sum(u, bytes);
  // With a center in [64, 191], numbers on the short side of it are safe together.
  const auto mean = sum / Larger(bytes, 1);
  const auto center = static_cast<int32_t>(Smaller(Larger(mean, 64), 191));
  const int64_t end = CeilDivide(words, kSplitWords) * kSplitWords * kQuad;
  std::memset(u + bytes, center, static_cast<size_t>(end - bytes));  // become zeros
  auto* const residues = reinterpret_cast<Residue*>(u + 2 * plane);
  Residue* next = residues;
  for (int64_t q = 0; q < words; q += kSplitWords) {
    VecI16 rest = Centered(u + q * kQuad, center);
    VecI16 part = SafePart(rest);
    const __m128i safe = SignedBytes(part);
    std::memcpy(u + plane + q * kQuad, &safe, sizeof(safe));
    for (rest -= part; !IsZero(rest); rest -= part) {
      part = SafePart(rest);
      next = StoreResidues(part, q, next);
      if (next - residues >= words / 4) return false;
    }
  }
  row->zero -= center;
  row->excess = 128 * (sum - center * static_cast<int32_t>(bytes));
  row->count = next - residues;
  row->residues = residues;
  return true;
}

// `Pairs` for rows that are not split.
struct UnsplitPairs : Pairs {
  static constexpr int kTileRows = BytePairs::kTileRows;
};

// Adds to the sums of a tile what it leaves out, and stores them as floats.
struct CenteredDequantizer : DequantizerOf<CenteredRow> {
  int32_t rest[BytePairs::kTileRows][kDensePanel];

  BERT_TF_INLINE void operator()(int i, int vector, VecI32 sums) const {
    sums += LoadAs<VecI32>(rest[i] + column + vector * kLanes);
    DequantizerOf::operator()(i, vector, sums);
  }
};

// The parts of a Format (word_dense.h) with BytePairs.
struct BytePairRows {
  using Method = BytePairs;
  using Scale = CenteredRow;
  using Output = CenteredDequantizer;

  static void SplitRows(uint8_t* words, int64_t stride, int64_t row_words, int64_t rows,
                        CenteredRow* scales) {
    CenteredRow split[BytePairs::kTileRows];
    int64_t i = 0;
    for (; i < rows; ++i) {
      split[i] = scales[i];
      if (!SplitRow(words + i * stride, stride, row_words, split + i)) break;
    }
    if (i == rows) {
      std::copy_n(split, rows, scales);
    } else {
      for (i = 0; i < rows; ++i) Pairs::Split(words + i * stride, stride / Pairs::kPlanes);
    }
  }
  static auto TileFor(const CenteredRow* scales, int64_t rows) {
    return scales->count == CenteredRow::kNotSplit ? TileOf<UnsplitPairs, Output>(rows)
                                                   : TileOf<BytePairs, Output>(rows);
  }
  static CenteredDequantizer OutputOf(const CenteredRow* rows, int64_t count,
                                      const PanelScales* panel, const int8_t* words, float* z) {
    CenteredDequantizer output;
    static_cast<DequantizerOf<CenteredRow>&>(output) = {rows, panel, 0, z, kDensePanel};
    for (int64_t i = 0; i < count; ++i) {
      rows[i].WriteRest(reinterpret_cast<const char*>(words), output.rest[i]);
    }
    return output;
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA

#endif  // defined(__AVX2__) && !defined(__AVX512F__)
