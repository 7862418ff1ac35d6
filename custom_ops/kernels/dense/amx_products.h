// Products of bfloat16 numbers by AMX, which multiplies tiles: 16 rows of x by 16 columns of W,
// over 16 words of two numbers.
//
// It has never run on a processor: no machine with AMX was at hand. bfloat16_dense_test.cc runs it
// with `EmulatedTiles`, which follows Intel's description of the instructions. It is therefore used
// only if BERT_TF_ISA=amx asks for it (isa.h). AMX adds the two products of a pair of words to each
// other before the sum, so its bits differ from those of bfloat16_products.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "custom_ops/kernels/dense/bfloat16_products.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int kAmxRows = 16;   // of a tile
constexpr int kAmxWords = 16;  // in a row of a tile
constexpr int64_t kAmxRowBytes = kAmxWords * kWordBytes;

// The operand of ldtilecfg: the rows of each tile, all with rows of kAmxRowBytes.
struct alignas(64) AmxConfiguration {
  uint8_t palette = 1;
  uint8_t first_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int tile_rows) {
    row_bytes[tile] = kAmxRowBytes;
    rows[tile] = static_cast<uint8_t>(tile_rows);
  }
};
static_assert(sizeof(AmxConfiguration) == 64, "as ldtilecfg reads it");

#if defined(__AVX512F__)
// The processor's tiles. Assembly needs no compiler that knows AMX.
struct AmxTiles {
  void Configure(const AmxConfiguration& configuration) {
    asm volatile("ldtilecfg %0" ::"m"(configuration));
  }
  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void Load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kX, int kW>
  void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kX), "i"(kW));
  }
  template <int kTile>
  void Store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  void Release() { asm volatile("tilerelease"); }
};
#endif

// The same in C++: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS.
class EmulatedTiles {
 public:
  void Configure(const AmxConfiguration& configuration) { configuration_ = configuration; }
  template <int kTile>
  void Zero() {
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void Load(const void* p, int64_t stride) {
    Zero<kTile>();
    for (int i = 0; i < configuration_.rows[kTile]; ++i) {
      std::memcpy(tiles_[kTile][i], static_cast<const char*>(p) + i * stride, kAmxRowBytes);
    }
  }
  template <int kSum, int kX, int kW>
  void MultiplyAdd() {
    for (int i = 0; i < configuration_.rows[kSum]; ++i) {
      float first[kAmxWords] = {}, second[kAmxWords] = {};
      for (int k = 0; k < configuration_.rows[kW]; ++k) {
        const uint32_t x = tiles_[kX][i][k];
        for (int j = 0; j < kAmxWords; ++j) {
          const uint32_t w = tiles_[kW][k][j];
          first[j] = __builtin_fmaf(Number(x << 16), Number(w << 16), first[j]);
          second[j] = __builtin_fmaf(Number(x & 0xFFFF0000u), Number(w & 0xFFFF0000u), second[j]);
        }
      }
      for (int j = 0; j < kAmxWords; ++j) {
        const float sum = Number(tiles_[kSum][i][j]) + (first[j] + second[j]);
        std::memcpy(&tiles_[kSum][i][j], &sum, sizeof(sum));
      }
    }
  }
  template <int kTile>
  void Store(void* p, int64_t stride) {
    for (int i = 0; i < configuration_.rows[kTile]; ++i) {
      std::memcpy(static_cast<char*>(p) + i * stride, tiles_[kTile][i], kAmxRowBytes);
    }
  }
  void Release() {}

 private:
  static float Number(uint32_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }

  AmxConfiguration configuration_;
  uint32_t tiles_[8][kAmxRows][kAmxWords];
};

// Two by two tiles of sums: up to 32 rows of x and the 32 columns of a panel.
template <typename Tiles>
struct AmxPairs : WidenedPairs {
  static constexpr int kTileRows = 2 * kAmxRows;
  static constexpr int64_t kRowCycles = 1;
  static constexpr int64_t kPlanes = 1;
  static constexpr bool kPrefetches = false;
  static constexpr bool kMultipliesTiles = true;

  static BERT_TF_INLINE void Split(uint8_t*, int64_t) {}

  // As Tile of word_products.h, for a whole panel.
  template <int kRows, typename Output>
  static void MultiplyTile(int64_t words, WordRows x, const char* panel, const Output& output) {
    constexpr int kSecondRows = kRows > kAmxRows ? kRows - kAmxRows : 0;
    constexpr int kFirstRows = kRows - kSecondRows;
    constexpr int64_t kHalfPanel = kAmxRowBytes;  // a tile has half of the columns
    AmxConfiguration configuration;
    for (const int tile : {0, 1, 4}) configuration.Set(tile, kFirstRows);
    for (const int tile : {6, 7}) configuration.Set(tile, kAmxWords);
    if (kSecondRows > 0) {
      for (const int tile : {2, 3, 5}) configuration.Set(tile, kSecondRows);
    }
    alignas(64) float sums[kRows][kDensePanel];
    constexpr int64_t kSumStride = sizeof(sums[0]);
    Tiles tiles;
    tiles.Configure(configuration);
    tiles.template Zero<0>();
    tiles.template Zero<1>();
    if constexpr (kSecondRows > 0) {
      tiles.template Zero<2>();
      tiles.template Zero<3>();
    }
    int64_t q = 0;
    for (; q + kAmxWords <= words; q += kAmxWords) {
      const uint8_t* const word = x.words + q * kWordBytes;
      const char* const w = panel + q * kPanelWordBytes;
      tiles.template Load<4>(word, x.stride);
      tiles.template Load<6>(w, kPanelWordBytes);
      tiles.template Load<7>(w + kHalfPanel, kPanelWordBytes);
      tiles.template MultiplyAdd<0, 4, 6>();
      tiles.template MultiplyAdd<1, 4, 7>();
      if constexpr (kSecondRows > 0) {
        tiles.template Load<5>(word + kAmxRows * x.stride, x.stride);
        tiles.template MultiplyAdd<2, 5, 6>();
        tiles.template MultiplyAdd<3, 5, 7>();
      }
    }
    tiles.template Store<0>(sums[0], kSumStride);
    tiles.template Store<1>(sums[0] + kAmxWords, kSumStride);
    if constexpr (kSecondRows > 0) {
      tiles.template Store<2>(sums[kAmxRows], kSumStride);
      tiles.template Store<3>(sums[kAmxRows] + kAmxWords, kSumStride);
    }
    tiles.Release();
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kDensePanel / kLanes; ++v) {
        Vec sum = Load(sums[i] + v * kLanes);
        for (int64_t tail = q; tail < words; ++tail) {
          const auto word = LoadAs<uint32_t>(x.words + i * x.stride + tail * kWordBytes);
          const Numbers numbers = {FromBits(VecI32{} + static_cast<int32_t>(word << 16)),
                                   FromBits(VecI32{} + static_cast<int32_t>(word & 0xFFFF0000u))};
          MultiplyAdd(numbers, LoadW(panel + tail * kPanelWordBytes + v * kVectorBytes), sum);
        }
        output(i, v, sum);
      }
    }
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
