// Compiled once per instruction set (isa.bzl).
//
// A unit first quantizes the keys and values of its sequence and head into panels of W, as
// byte_products.h reads them: the keys transposed, [D, T], and the values, [T, D]. Then, for as
// many queries as a tile has rows, it computes the scores of all keys, their softmax in bytes, and
// the output. All scores of a query are known before its softmax, so no online softmax is needed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/kernels/attention/quantized_attention.h"
#include "custom_ops/kernels/attention/varlen_attention_tiles.h"
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/base/thread_scratch.h"
#include "custom_ops/kernels/dense/byte_products.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int64_t kPanelQuads = kDensePanel / kQuad;

// The keys to which a query, or one of several queries, attends: [0, global_end) and [begin, end).
struct VisibleKeys {
  int64_t global_end = 0;
  int64_t begin = 0;
  int64_t end;

  VisibleKeys(const Mask& mask, int64_t query, int64_t length) {
    end = mask.causal ? query + 1 : length;
    if (!mask.windowed || query < mask.globals) return;
    global_end = Smaller(mask.globals, end);
    begin = Larger(query - mask.window, 0);
    end = Smaller(query + mask.window + 1, end);
  }

  void Add(const VisibleKeys& other) {
    global_end = Larger(global_end, other.global_end);
    begin = Smaller(begin, other.begin);
    end = Larger(end, other.end);
  }
};

// The panels of these keys: [0, globals) and [begin, end). The scores and weights of a query are
// stored for these panels only, one after the other.
struct VisiblePanels {
  int64_t globals;
  int64_t begin;
  int64_t end;

  explicit VisiblePanels(const VisibleKeys& keys)
      : globals(CeilDivide(keys.global_end, kDensePanel)),
        begin(keys.begin / kDensePanel),
        end(CeilDivide(keys.end, kDensePanel)) {
    if (globals >= begin) globals = begin = 0;  // they meet
  }

  int64_t Count() const { return globals + end - begin; }
  int64_t Panel(int64_t i) const { return i < globals ? i : begin + i - globals; }
};

// The scratch for a sequence of `length` tokens.
template <typename Method>
struct QuantizedScratch {
  int64_t key_quads;    // quads of a key's features
  int64_t value_quads;  // quads of positions
  int64_t value_panels;
  int64_t query_stride;   // bytes
  int64_t weight_stride;  // bytes
  int64_t score_stride;   // floats
  int64_t sum_stride;     // floats

  float* mean;                // [D], of the keys
  PanelScales* key_scales;    // one per panel
  PanelScales* value_scales;  // one per panel
  int8_t* keys;               // [panels, key_quads, kDensePanel, 4]
  int8_t* values;             // [value_panels, value_quads, kDensePanel, 4]
  uint8_t* queries;           // [kTileRows, query_stride]
  uint8_t* weights;           // [kTileRows, weight_stride]
  float* scores;              // [kTileRows, score_stride]
  float* sums;                // [kTileRows, sum_stride]
  float* global_sums;         // [kTileRows, sum_stride]
  float* bias;                // [2 score_stride], see DistanceBiases; null without a distance bias

  QuantizedScratch(const HeadLayout& layout, int64_t length, bool has_bias) {
    const int64_t key_panels = CeilDivide(length, kDensePanel);
    key_quads = CeilDivide(layout.head_size, kQuad);
    value_quads = key_panels * kPanelQuads;
    value_panels = CeilDivide(layout.head_size, kDensePanel);
    query_stride = Method::kPlanes * key_quads * kQuad;
    weight_stride = Method::kPlanes * value_quads * kQuad;
    score_stride = key_panels * kDensePanel;
    sum_stride = value_panels * kDensePanel;
    // The first pass finds the size, the second one the addresses.
    char* buffer = nullptr;
    for (const bool has_buffer : {false, true}) {
      int64_t size = 0;
      const auto take = [&](auto** pointer, int64_t count) {
        using Element = std::remove_reference_t<decltype(**pointer)>;
        *pointer = has_buffer ? reinterpret_cast<Element*>(buffer + size) : nullptr;
        const int64_t bytes = count * static_cast<int64_t>(sizeof(Element));
        size += CeilDivide(bytes, kCacheLine) * kCacheLine;
      };
      take(&mean, sum_stride);
      take(&key_scales, key_panels);
      take(&value_scales, value_panels);
      take(&keys, key_panels * key_quads * kPanelWordBytes);
      take(&values, value_panels * value_quads * kPanelWordBytes);
      take(&queries, Method::kTileRows * query_stride);
      take(&weights, Method::kTileRows * weight_stride);
      take(&scores, Method::kTileRows * score_stride);
      take(&sums, Method::kTileRows * sum_stride);
      take(&global_sums, Method::kTileRows * sum_stride);
      take(&bias, has_bias ? 2 * score_stride : 0);
      if (!has_buffer) buffer = reinterpret_cast<char*>(ThreadScratch(0, size / 4));
    }
    if (!has_bias) bias = nullptr;
  }
};

// 127 / largest, or zeros for numbers that are treated as zeros.
BERT_TF_INLINE Vec InverseScale(Vec largest) {
  return largest >= kSmallestSpan ? 127.0f / largest : Vec{};
}

// Quantizes the keys, `stride` elements apart. Returns false, without having quantized all, if a
// key or its difference from the mean is not finite.
template <typename T, typename Scratch>
bool QuantizeKeys(const T* keys, int64_t stride, int64_t head_size, int64_t length,
                  const Scratch& s) {
  const int64_t key_panels = CeilDivide(length, kDensePanel);
  std::fill_n(s.key_scales, key_panels, PanelScales{});
  std::memset(s.keys + (key_panels - 1) * s.key_quads * kPanelWordBytes, 0,
              s.key_quads * kPanelWordBytes);
  const Vec inverse_length = Broadcast(1.0f / static_cast<float>(length));
  Vec zeros = {};  // x * 0 is 0 or NaN
  ForSingleVectors(head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
    Vec sum = {};
    for (int64_t j = 0; j < length; ++j) sum += Load(keys + j * stride + d, lanes);
    const Vec mean = sum * inverse_length;
    zeros += mean * 0.0f;
    Store(s.mean + d, mean);
  });
  if (ReduceAdd(zeros) != 0.0f) return false;
  for (int64_t j = 0; j < length; ++j) {
    const auto centered = [&](int64_t d, auto lanes) BERT_TF_INLINE_LAMBDA {
      return Load(keys + j * stride + d, lanes) - Load(s.mean + d);
    };
    Vec largest_lanes = {};
    ForSingleVectors(head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      largest_lanes = Max(largest_lanes, Abs(centered(d, lanes)));
    });
    const float largest = ReduceMax(largest_lanes);
    if (largest - largest != 0.0f) return false;
    const Vec inverse = InverseScale(Broadcast(largest));
    int8_t* const words =
        s.keys + (j / kDensePanel * s.key_quads * kDensePanel + j % kDensePanel) * kQuad;
    VecI32 sum = {};
    ForSingleVectors(head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      const VecI32 n = RoundToInt(centered(d, lanes) * inverse);
      sum += n;
      const Bytes bytes = LowBytes(n);
      const int64_t quads = Smaller(kLanes / kQuad, s.key_quads - d / kQuad);
      for (int64_t q = 0; q < quads; ++q) {
        std::memcpy(words + (d / kQuad + q) * kPanelWordBytes,
                    reinterpret_cast<const char*>(&bytes) + q * kQuad, kQuad);
      }
    });
    PanelScales* const scales = s.key_scales + j / kDensePanel;
    scales->scale[j % kDensePanel] = inverse[0] == 0.0f ? 0.0f : largest / 127.0f;
    scales->sum[j % kDensePanel] =
        static_cast<int32_t>(ReduceAdd(__builtin_convertvector(sum, Vec)));
  }
  return true;
}

// Quantizes the values, `stride` elements apart, and returns whether all of them are finite.
template <typename T, typename Scratch>
bool QuantizeValues(const T* values, int64_t stride, int64_t head_size, int64_t length,
                    const Scratch& s) {
  std::fill_n(s.value_scales, s.value_panels, PanelScales{});
  Vec zeros = {};
  ForSingleVectors(head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
    Vec largest = {};
    for (int64_t j = 0; j < length; ++j) {
      const Vec v = Load(values + j * stride + d, lanes);
      largest = Max(largest, Abs(v));
      zeros += v * 0.0f;
    }
    if (ReduceAdd(zeros) != 0.0f) return;
    const Vec inverse = InverseScale(largest);
    Store(s.value_scales[d / kDensePanel].scale + d % kDensePanel,
          inverse == 0.0f ? Vec{} : largest / 127.0f);
    // [T, D] -> [T / 4, D, 4]
    int8_t* words =
        s.values + d / kDensePanel * s.value_quads * kPanelWordBytes + d % kDensePanel * kQuad;
    for (int64_t j = 0; j < s.value_quads * kQuad; j += kQuad, words += kPanelWordBytes) {
      VecI32 word = {};
      for (int64_t k = 0; k < Smaller(kQuad, length - j); ++k) {
        const Vec v = Load(values + (j + k) * stride + d, lanes) * inverse;
        word |= (RoundToInt(v) & 255) << static_cast<int>(8 * k);
      }
      std::memcpy(words, &word, sizeof(word));
    }
  });
  return ReduceAdd(zeros) == 0.0f;
}

// Writes the biases of a head times log2(e) in the order of the keys: that of query i and key j is
// at T - 1 - i + j. Returns whether all of them are finite.
template <typename Scratch>
bool DistanceBiases(const VarlenAttentionOptions& options, int64_t head, int64_t length,
                    const Scratch& s) {
  if (s.bias == nullptr) return true;
  const float* const bias = options.DistanceBiasOf(head);
  float zeros = 0.0f;
  for (int64_t i = 0; i < options.NumDistances(); ++i) zeros += bias[i] * 0.0f;
  for (int64_t x = 0; x < 2 * s.score_stride; ++x) {
    s.bias[x] = bias[DistanceIndex(length - 1 - x, options.max_distance)] * kLog2E;
  }
  return zeros == 0.0f;
}

// round(255 * 2^x) for x <= 0; 0 for NaN. The error of the power is below 1e-5.
BERT_TF_INLINE VecI32 WeightOf(Vec x) {
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = Max(x, Broadcast(-30.0f));
  const Vec shifted = x + kRoundMagic;
  const Vec f = x - (shifted - kRoundMagic);
  Vec p = f * 2.44358405f + 14.2560076f;  // minimax for 255 * 2^f on [-1/2, 1/2], 255 at 0
  p = p * f + 61.2614508f;
  p = p * f + 176.746685f;
  p = p * f + 255.0f;
  // The last bits of `shifted` are the integer. The others are shifted out.
  return RoundToInt(FromBits(Bits(p) + (Bits(shifted) << 23)));
}

// Turns the scores of a query, times log2(e), into weights and returns the inverse of their sum.
float Softmax(const VisibleKeys& keys, const VisiblePanels& panels, float* scores,
              uint8_t* weights) {
  const auto hide = [&](int64_t begin, int64_t end, int64_t first_place) {
    for (int64_t j = begin; j < end; ++j) scores[first_place + j] = -INFINITY;
  };
  const int64_t after_globals = (panels.globals - panels.begin) * kDensePanel;
  if (panels.globals > 0) {
    hide(keys.global_end, panels.globals * kDensePanel, 0);
    hide(panels.begin * kDensePanel, keys.begin, after_globals);
  } else {
    hide(Larger(keys.global_end, panels.begin * kDensePanel), keys.begin, after_globals);
  }
  hide(keys.end, panels.end * kDensePanel, after_globals);

  const int64_t count = panels.Count() * kDensePanel;
  Vec largest_lanes = Vec{} - INFINITY;
  for (int64_t j = 0; j < count; j += kLanes) largest_lanes = Max(largest_lanes, Load(scores + j));
  const float largest = ReduceMax(largest_lanes);
  VecI32 sum = {};
  for (int64_t j = 0; j < count; j += kLanes) {
    const VecI32 weight = WeightOf(Load(scores + j) - largest);
    sum += weight;
    const Bytes bytes = LowBytes(weight);
    std::memcpy(weights + j, &bytes, sizeof(bytes));
  }
  const float total = ReduceAdd(__builtin_convertvector(sum, Vec));
  return largest - largest == 0.0f ? 1.0f / total : NAN;
}

// Where tiles share what they prefetch, these have nothing to prefetch: a head fits the caches.
template <typename Method>
struct InCaches : Method {
  static constexpr bool kPrefetches = Method::kPrefetches && !kTilesSharePanel;
};

// The output of `rows` queries, from `first` on.
template <typename Method, typename T>
void AttendRows(const HeadLayout& layout, const Mask& mask, const AttentionUnit& unit,
                int64_t first, int64_t rows, const VarlenAttentionArgs<T>& args,
                const QuantizedScratch<Method>& s) {
  VisibleKeys block_keys(mask, first, unit.keys.count);
  for (int64_t i = 1; i < rows; ++i) block_keys.Add(VisibleKeys(mask, first + i, unit.keys.count));
  const VisiblePanels panels(block_keys);

  RowScale query_scales[Method::kTileRows], weight_scales[Method::kTileRows];
  for (int64_t i = 0; i < rows; ++i) {
    const T* const query = layout.Row(args.query, unit.queries.first + first + i, unit.head);
    const auto values = [query](int64_t d, auto lanes)
                            BERT_TF_INLINE_LAMBDA { return Load(query + d, lanes); };
    uint8_t* const words = s.queries + i * s.query_stride;
    query_scales[i] = QuantizeRow(values, layout.head_size, words);
    query_scales[i].scale *= layout.scale * kLog2E;
    Method::Split(words, s.query_stride / Method::kPlanes);
  }

  const auto tile = TileOf<InCaches<Method>, Dequantizer>(rows);
  const auto multiply = [&](int64_t quads, WordRows x, const int8_t* panel, int64_t columns,
                            Dequantizer output) {
    for (output.column = 0; output.column < columns; output.column += kTileColumns) {
      const int8_t* const w = panel + output.column * kQuad;
      tile(quads, x, w, w, 0, output);
    }
  };
  for (int64_t i = 0; i < panels.Count(); ++i) {
    const int64_t panel = panels.Panel(i);
    multiply(s.key_quads, {s.queries, s.query_stride},
             s.keys + panel * s.key_quads * kPanelWordBytes,
             Smaller(kDensePanel, unit.keys.count - panel * kDensePanel),
             {query_scales, s.key_scales + panel, 0, s.scores + i * kDensePanel, s.score_stride});
  }
  for (int64_t i = 0; i < rows; ++i) {
    if (s.bias != nullptr) {
      const float* const of_query = s.bias + unit.keys.count - 1 - (first + i);
      float* scores = s.scores + i * s.score_stride;
      for (int64_t p = 0; p < panels.Count(); ++p, scores += kDensePanel) {
        const float* const of_keys = of_query + panels.Panel(p) * kDensePanel;
        for (int64_t j = 0; j < kDensePanel; j += kLanes) {
          Store(scores + j, Load(scores + j) + Load(of_keys + j));
        }
      }
    }
    uint8_t* const weights = s.weights + i * s.weight_stride;
    const float scale = Softmax(VisibleKeys(mask, first + i, unit.keys.count), panels,
                                s.scores + i * s.score_stride, weights);
    const bool is_finite = query_scales[i].scale == query_scales[i].scale;
    weight_scales[i] = {is_finite ? scale : NAN, 0};
    Method::Split(weights, s.weight_stride / Method::kPlanes);
  }
  for (int64_t v = 0; v < s.value_panels; ++v) {
    const int8_t* const panel = s.values + v * s.value_quads * kPanelWordBytes;
    const int64_t columns = Smaller(kDensePanel, layout.head_size - v * kDensePanel);
    const auto add = [&](int64_t begin, int64_t end, int64_t place, float* sums) {
      multiply((end - begin) * kPanelQuads, {s.weights + place * kDensePanel, s.weight_stride},
               panel + begin * kPanelQuads * kPanelWordBytes, columns,
               {weight_scales, s.value_scales + v, 0, sums + v * kDensePanel, s.sum_stride});
    };
    add(panels.begin, panels.end, panels.globals, s.sums);
    if (panels.globals > 0) add(0, panels.globals, 0, s.global_sums);
  }
  for (int64_t i = 0; i < rows; ++i) {
    T* const y = args.output + layout.RowOffset(unit, first + i) * layout.head_size;
    ForSingleVectors(layout.head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
      Vec v = Load(s.sums + i * s.sum_stride + d);
      if (panels.globals > 0) v += Load(s.global_sums + i * s.sum_stride + d);
      Store(y + d, v, lanes);
    });
  }
}

template <typename Method, typename T>
void Run(const VarlenAttentionArgs<T>& args, const AttentionUnit* units, int64_t count) {
  const HeadLayout layout(args);
  const Mask mask(args);
  for (int64_t u = 0; u < count; ++u) {
    const AttentionUnit& unit = units[u];
    const QuantizedScratch<Method> scratch(layout, unit.keys.count, args.distance_bias != nullptr);
    const T* const keys = layout.Row(args.key, unit.keys.first, unit.head);
    const T* const values = layout.Row(args.value, unit.keys.first, unit.head);
    const int64_t queries = Smaller(kQuantizedAttentionQueries, unit.queries.count - unit.begin);
    if (!QuantizeKeys(keys, layout.Stride(args.key), layout.head_size, unit.keys.count, scratch) ||
        !QuantizeValues(values, layout.Stride(args.value), layout.head_size, unit.keys.count,
                        scratch) ||
        !DistanceBiases(args, unit.head, unit.keys.count, scratch)) {
      for (int64_t i = 0; i < queries; ++i) {
        T* const y = args.output + layout.RowOffset(unit, unit.begin + i) * layout.head_size;
        ForSingleVectors(layout.head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
          Store(y + d, Broadcast(NAN), lanes);
        });
      }
      continue;
    }
    const int64_t tiles = CeilDivide(queries, Method::kTileRows);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = unit.begin + PartBegin(queries, tiles, t);
      const int64_t end = unit.begin + PartBegin(queries, tiles, t + 1);
      AttendRows(layout, mask, unit, first, end - first, args, scratch);
    }
  }
}

}  // namespace

template <typename T>
void QuantizedAttentionUnits(const VarlenAttentionArgs<T>& args, const AttentionUnit* units,
                             int64_t count, ByteInstructions instructions) {
  WithByteMethod(instructions, [&](auto method) { Run<decltype(method)>(args, units, count); });
}

#define BERT_TF_INSTANTIATE(T)                                                                  \
  template void QuantizedAttentionUnits<T>(const VarlenAttentionArgs<T>&, const AttentionUnit*, \
                                           int64_t, ByteInstructions);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
