// Matrix products of the tiles of varlen_attention, in float32 or in bfloat16.
//
// A Format says how the factors of a product are packed in words of 32 bits:
//   Float32         float32 numbers
//   RoundedFloat32  the same, rounded to bfloat16
//   Bfloat16Words   two bfloat16 numbers per word, for AVX512-BF16
// The last two give the same bits, as bfloat16_products.h describes it: AVX512-BF16 adds the
// product of the high halves of two words first, so the number that comes first in a sum is the
// high half.
//
// A matrix whose rows are multiplied by something, because a sum is over its columns, is packed by
// PackRows: [rows, columns / kNumbers]. If a sum is over its rows, it is packed by PackColumns:
// [rows / kNumbers, columns]. If a word is one number, both are the same. Rows are padded with
// zeros to whole words, and words to whole vectors.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/bfloat16_products.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

struct Float32 {
  using Words = Float32;              // how words are multiplied
  static constexpr int kNumbers = 1;  // in a word
  static constexpr bool kRounds = false;

  static BERT_TF_INLINE Vec Pack(Vec v) { return v; }
  static BERT_TF_INLINE Vec Numbers(Vec words, int) { return words; }
  static BERT_TF_INLINE void MultiplyAdd(Vec a, Vec b, Vec& sum) { sum += a * b; }
};

struct RoundedFloat32 : Float32 {
  static constexpr bool kRounds = true;

  static BERT_TF_INLINE Vec Pack(Vec v) { return RoundToBfloat16(v); }
};

#if defined(__AVX512F__)
struct Bfloat16Words {
  using Words = Bfloat16Words;
  static constexpr int kNumbers = 2;
  static constexpr bool kRounds = true;

  // The words of 2 kLanes numbers in a row.
  static BERT_TF_INLINE Vec PackRow(Vec first, Vec second) {
    return (Vec)_mm512_rol_epi32(Halves(first, second), 16);
  }
  // The words of the numbers of two rows.
  static BERT_TF_INLINE Vec PackColumns(Vec first, Vec second) {
    constexpr int kHalf = 0x00100000;  // lane i of `first` is half 16 + i after that of `second`
    VecI32 order;
    for (int i = 0; i < kLanes; ++i) order[i] = kHalf + i * 0x00010001;
    return (Vec)_mm512_permutexvar_epi16((__m512i)order, Halves(second, first));
  }
  // Number i of each word.
  static BERT_TF_INLINE Vec Numbers(Vec words, int i) {
    return FromBits(i == 0 ? Bits(words) & static_cast<int32_t>(0xFFFF0000) : Bits(words) << 16);
  }
  static BERT_TF_INLINE void MultiplyAdd(Vec a, Vec b, Vec& sum) {
    Bfloat16Pairs::MultiplyAdd(Bits(a), Bits(b), sum);
  }

 private:
  // The lanes of `first` and then those of `second`, rounded to bfloat16.
  static BERT_TF_INLINE __m512i Halves(Vec first, Vec second) {
    __m512i halves;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(first), "v"(second));
    return halves;
  }
};
#endif

BERT_TF_INLINE int64_t RoundUpToLanes(int64_t n) { return CeilDivide(n, kLanes) * kLanes; }

// Fails to compile if a type is not a Format.
template <typename Format>
constexpr bool CheckFormat() {
  static_assert(Format::kNumbers == 1 || Format::kNumbers == 2, "kNumbers");
  static_assert(std::is_same_v<decltype(Format::kRounds), const bool>, "kRounds");
  static_assert(std::is_invocable_r_v<Vec, decltype(Format::Numbers), Vec, int>, "Numbers");
  static_assert(std::is_invocable_r_v<void, decltype(Format::Words::MultiplyAdd), Vec, Vec, Vec&>,
                "Words");
  if constexpr (Format::kNumbers == 1) {
    static_assert(std::is_invocable_r_v<Vec, decltype(Format::Pack), Vec>, "Pack");
  } else {
    static_assert(std::is_invocable_r_v<Vec, decltype(Format::PackRow), Vec, Vec>, "PackRow");
    static_assert(std::is_invocable_r_v<Vec, decltype(Format::PackColumns), Vec, Vec>,
                  "PackColumns");
  }
  return true;
}

// The bits of a word in every lane.
BERT_TF_INLINE Vec BroadcastWord(const float* word) {
  return FromBits(VecI32{} + LoadAs<int32_t>(word));
}

// The words of n numbers.
template <typename Format>
BERT_TF_INLINE int64_t WordsOf(int64_t n) {
  return CeilDivide(n, Format::kNumbers);
}

// Zeros after the first `count` lanes, which may be negative or more than there are.
template <typename T>
BERT_TF_INLINE Vec LoadFirst(const T* p, int64_t count) {
  if (count >= kLanes) return Load(p);
  return count > 0 ? Load(p, SomeLanes{count}) : Vec{};
}

// Packs a matrix as the factor of a product whose sums are over its columns. `packed` may be p.
template <typename Format, typename T>
void PackRows(const T* p, int64_t stride, int64_t rows, int64_t columns, float* packed,
              int64_t packed_stride) {
  for (int64_t i = 0; i < rows; ++i, p += stride, packed += packed_stride) {
    if constexpr (Format::kNumbers == 1) {
      ForSingleVectors(columns, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
        Store(packed + d, Format::Pack(Load(p + d, lanes)));
      });
    } else {
      int64_t d = 0;
      for (; d + 2 * kLanes <= columns; d += 2 * kLanes) {
        Store(packed + d / 2, Format::PackRow(Load(p + d), Load(p + d + kLanes)));
      }
      if (d < columns) {
        const Vec first = LoadFirst(p + d, columns - d);
        const Vec second = LoadFirst(p + d + kLanes, columns - d - kLanes);
        Store(packed + d / 2, Format::PackRow(first, second));
      }
    }
  }
}

// Packs a matrix as the factor of a product whose sums are over its rows. `packed` may be p, if the
// strides are equal.
template <typename Format, typename T>
void PackColumns(const T* p, int64_t stride, int64_t rows, int64_t columns, float* packed,
                 int64_t packed_stride) {
  if constexpr (Format::kNumbers == 1) {
    PackRows<Format>(p, stride, rows, columns, packed, packed_stride);
  } else {
    for (int64_t i = 0; i < rows; i += 2, p += 2 * stride, packed += packed_stride) {
      ForSingleVectors(columns, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
        const Vec second = i + 1 < rows ? Load(p + stride + d, lanes) : Vec{};
        Store(packed + d, Format::PackColumns(Load(p + d, lanes), second));
      });
    }
  }
}

// The number of rows and vectors that a product keeps in registers.
#if defined(__AVX512F__)
constexpr int kMicroRows = 6;
constexpr int kMicroVectors = 4;  // 24 sums of 32 registers
#elif defined(BERT_TF_NEON)
constexpr int kMicroRows = 5;
constexpr int kMicroVectors = 4;  // 20 sums of 32 registers: factors take registers too
#else
constexpr int kMicroRows = 6;
constexpr int kMicroVectors = 2;  // 12 sums of 16 registers
#endif

// The size of the next part of `left` items: at most `most`, and the last two parts have about
// equal sizes.
BERT_TF_INLINE int64_t NextPart(int64_t left, int64_t most) {
  if (left >= 2 * most || left == most) return most;
  return left > most ? (left + 1) / 2 : left;
}

// A factor of a product whose sums are over its columns: [rows, depth] by PackRows, with rows that
// are `stride` words apart, or the transpose of [depth, rows] by PackColumns.
template <bool kTransposed>
struct Factor {
  const float* words;
  int64_t stride;

  // Word `word` of row i.
  BERT_TF_INLINE const float* At(int64_t i, int64_t word) const {
    return kTransposed ? words + word * stride + i : words + i * stride + word;
  }
};

BERT_TF_INLINE Factor<false> Rows(const float* packed, int64_t stride) { return {packed, stride}; }
BERT_TF_INLINE Factor<true> Transposed(const float* packed, int64_t stride) {
  return {packed, stride};
}

// Where a product goes: c (+)= sums * scale, with rows that are `stride` floats apart.
struct Sums {
  float* c;
  int64_t stride;
  bool added = false;
  float scale = 1.0f;
};

// The Product of kRows rows and kVectors vectors of lanes, with `depth` words.
template <typename Words, int kRows, int kVectors, bool kTransposed>
void MicroProduct(int64_t depth, Factor<kTransposed> a, const float* b, const Sums& sums) {
  Vec sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = sums.added ? Load(sums.c + i * sums.stride + v * kLanes) : Vec{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = Load(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec factor = BroadcastWord(a.At(i, 0));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Words::MultiplyAdd(factor, row[v], sum[i][v]);
    }
    a.words = a.At(0, 1);
    b += sums.stride;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(sums.c + i * sums.stride + v * kLanes, sum[i][v] * sums.scale);
    }
  }
}

// Calls function(n) for 1 <= n <= kMost, with a type that holds n.
template <int kMost, typename Function>
BERT_TF_INLINE void WithConstant(int64_t n, const Function& function) {
  if constexpr (kMost > 1) {
    if (n < kMost) return WithConstant<kMost - 1>(n, function);
  }
  function(std::integral_constant<int, kMost>{});
}

// c[i, :] (+)= sum_k a(i, k) b[k, :] * scale for i < rows, k < depth and `columns` lanes, a
// multiple of kLanes. b is packed by PackColumns, and its rows are as far apart as those of c.
template <typename Format, bool kTransposed>
void Product(int64_t rows, int64_t columns, int64_t depth, Factor<kTransposed> a, const float* b,
             const Sums& sums) {
  const int64_t words = WordsOf<Format>(depth);
  for (int64_t v = 0, vectors; v < columns / kLanes; v += vectors) {
    vectors = NextPart(columns / kLanes - v, kMicroVectors);
    for (int64_t i = 0, part; i < rows; i += part) {
      part = NextPart(rows - i, kMicroRows);
      const Factor<kTransposed> part_a = {a.At(i, 0), a.stride};
      const Sums part_sums = {sums.c + i * sums.stride + v * kLanes, sums.stride, sums.added,
                              sums.scale};
      WithConstant<kMicroVectors>(vectors, [&](auto vector_count) BERT_TF_INLINE_LAMBDA {
        WithConstant<kMicroRows>(part, [&](auto row_count) BERT_TF_INLINE_LAMBDA {
          MicroProduct<typename Format::Words, row_count.value, vector_count.value>(
              words, part_a, b + v * kLanes, part_sums);
        });
      });
    }
  }
}

// Adds the same product, but only over the pairs with `sees(i, k)`. It is used for partially masked
// tiles with numbers that are not finite, because their product with zero is not zero.
template <typename Format, bool kTransposed, typename Sees>
void MaskedProduct(int64_t rows, int64_t columns, int64_t depth, Factor<kTransposed> a,
                   const float* b, const Sums& sums, const Sees& sees) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      if (!sees(i, k)) continue;
      const int64_t word = k / Format::kNumbers;
      const int number = static_cast<int>(k % Format::kNumbers);
      const Vec factor = Format::Numbers(BroadcastWord(a.At(i, word)), number);
      for (int64_t d = 0; d < columns; d += kLanes) {
        float* const sum = sums.c + i * sums.stride + d;
        Store(sum, Load(sum) + factor * Format::Numbers(Load(b + word * sums.stride + d), number));
      }
    }
  }
}

// Whether all numbers of `count` words, a multiple of kLanes, are finite.
template <typename Format>
bool AllFinite(const float* p, int64_t count) {
  Vec zeros = {};  // x * 0 is 0 or NaN
  for (int64_t i = 0; i < count; i += kLanes) {
    for (int n = 0; n < Format::kNumbers; ++n) zeros += Format::Numbers(Load(p + i), n) * 0.0f;
  }
  return ReduceAdd(zeros) == 0.0f;
}

// Interleaves the lanes of a and b from lane kFirst on: a0 b0 a1 b1 ...
template <int kFirst, int... i>
BERT_TF_INLINE Vec Interleave(Vec a, Vec b, std::integer_sequence<int, i...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (kFirst + i / 2 + i % 2 * kLanes)...);
#else  // GCC has that only since version 12; Ubuntu 22.04 has 11
  return __builtin_shuffle(a, b, VecI32{(kFirst + i / 2 + i % 2 * kLanes)...});
#endif
}

// Each round interleaves the first and the second half of the rows (a perfect shuffle). After
// log2(kLanes) rounds, the square is transposed.
BERT_TF_INLINE void Transpose(Vec rows[kLanes]) {
  for (int round = 1; round < kLanes; round *= 2) {
    Vec dealt[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      constexpr std::make_integer_sequence<int, kLanes> kAll;
      dealt[2 * i] = Interleave<0>(rows[i], rows[i + kLanes / 2], kAll);
      dealt[2 * i + 1] = Interleave<kLanes / 2>(rows[i], rows[i + kLanes / 2], kAll);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = dealt[i];
  }
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
