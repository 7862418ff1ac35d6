// The forward pass of varlen_attention. A unit is the queries of one tile of one head. It processes
// the tiles of keys one after another.
#include "custom_ops/kernels/attention/varlen_attention_tiles.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// The number of packed tiles of keys that are kept for the next units: those of 1,024 positions.
constexpr int64_t kKeyTiles = 16;

struct ForwardScratch {
  float* queries;      // [kTile, D]
  float* queries_t;    // [D, kTile], in Float32 times 1 / sqrt(D)
  float* keys;         // [kKeyTiles, kTile, D]
  float* values;       // [kKeyTiles, kTile, D]
  float* sums;         // [queries, D], the output before its division
  float* scores;       // [keys, queries], then the probabilities
  float* maximum;      // [queries] largest score so far
  float* denominator;  // [queries] sum of e^(score - maximum)
  float* correction;   // [queries] e^(old maximum - new maximum)

  explicit ForwardScratch(const HeadLayout& layout) {
    const int64_t tile = kTile * layout.padded_size;
    queries = ThreadScratch(0, (3 + 2 * kKeyTiles) * tile + kTileFloats + 3 * kTile);
    queries_t = queries + tile;
    keys = queries_t + tile;
    values = keys + kKeyTiles * tile;
    sums = values + kKeyTiles * tile;
    scores = sums + tile;
    maximum = scores + kTileFloats;
    denominator = maximum + kTile;
    correction = denominator + kTile;
  }
};

// The packed tiles of keys and values. Consecutive units are blocks of queries with the same keys,
// which are read from memory once. If there is only one block, a single tile is used again and
// again, which stays in the first-level cache.
template <typename Format>
class KeyTiles {
 public:
  struct Tile {
    float* keys;    // by PackRows
    float* values;  // by PackColumns
  };

  KeyTiles(const TileLayout<Format>& layout, const ForwardScratch& scratch)
      : layout_(layout), keys_(scratch.keys), values_(scratch.values) {}

  // The tile of `count` keys from `begin` on.
  template <typename T>
  Tile Pack(const VarlenAttentionInputs<T>& args, const AttentionUnit& unit, int64_t begin,
            int64_t count) {
    if (first_row_ != unit.keys.first || head_ != unit.head) {
      first_row_ = unit.keys.first;
      head_ = unit.head;
      for (int64_t& key : begins_) key = -1;
    }
    const int64_t place = unit.queries.count > kTile ? begin / kTile % kKeyTiles : 0;
    const int64_t offset = place * kTile * layout_.padded_size;
    const Tile tile = {keys_ + offset, values_ + offset};
    if (begins_[place] == begin) return tile;
    begins_[place] = begin;
    const int64_t row = unit.keys.first + begin;
    PackRotated(args, layout_, begin, layout_.Row(args.key, row, head_), layout_.Stride(args.key),
                count, {tile.keys, tile.keys});
    PackColumns<Format>(layout_.Row(args.value, row, head_), layout_.Stride(args.value), count,
                        layout_.head_size, tile.values, layout_.padded_size);
    return tile;
  }

 private:
  const TileLayout<Format> layout_;
  float* const keys_;
  float* const values_;
  int64_t first_row_ = -1;
  int64_t head_ = -1;
  int64_t begins_[kKeyTiles];  // of the packed tiles, or -1
};

// One step of the softmax, for a vector of queries and a tile of keys:
//   m' = max(m, max_j s_j),  p_j = e^(s_j - m'),  l' = l e^(m - m') + sum_j p_j
// If all scores of a query so far are minus infinity, 0 is used instead of m', so that p_j is 0 and
// not NaN.
template <bool kMasked>
BERT_TF_INLINE void SoftmaxStep(const Mask& mask, int64_t position, int64_t key, int64_t key_count,
                                float* scores, float* maximum, float* denominator,
                                float* correction) {
  const Vec nothing = Vec{} - INFINITY;
  const Vec old_maximum = Load(maximum);
  Vec new_maximum = old_maximum;
  if (kMasked) {
    const VecI32 queries = LaneNumbers(position);
    for (int64_t j = 0; j < key_count; ++j) {
      const VecI32 sees = mask.Sees(queries, static_cast<int32_t>(key + j));
      const Vec score = sees ? Load(scores + j * kTile) : nothing;
      Store(scores + j * kTile, score);
      new_maximum = Max(score, new_maximum);
    }
  } else {
    for (int64_t j = 0; j < key_count; ++j) {
      const Vec score = Load(scores + j * kTile);
      new_maximum = Max(score, new_maximum);
    }
  }
  const Vec base = new_maximum == nothing ? Vec{} : new_maximum;
  Vec sum = {};
  for (int64_t j = 0; j < key_count; ++j) {
    const Vec p = ExpOfNegative(Load(scores + j * kTile) - base);
    Store(scores + j * kTile, p);
    sum += p;
  }
  const Vec factor = ExpOfNegative(old_maximum - base);
  Store(maximum, new_maximum);
  Store(correction, factor);
  Store(denominator, Load(denominator) * factor + sum);
}

// The softmax of a tile of scores and then the dropout of its probabilities, for the queries of a
// unit. It is the same for every Format and storage type.
void SoftmaxTile(const HeadLayout& layout, Mask mask, Dropout dropout, const AttentionUnit& unit,
                 int64_t query_lanes, int64_t key, int64_t key_count, bool masked,
                 const ForwardScratch& s) {
  const int64_t position = unit.MaskPosition(unit.begin);
  for (int64_t i = 0; i < query_lanes; i += kLanes) {
    float* const scores = s.scores + i;
    if (masked) {
      SoftmaxStep<true>(mask, position + i, key, key_count, scores, s.maximum + i,
                        s.denominator + i, s.correction + i);
    } else {
      SoftmaxStep<false>(mask, position + i, key, key_count, scores, s.maximum + i,
                         s.denominator + i, s.correction + i);
    }
    if (dropout.rate == 0.0f) continue;
    dropout.ForEachKey(layout.RowOffset(unit, unit.begin + i), layout.num_heads, key, key_count,
                       [scores](int64_t j, VecI32 kept) {
                         const Vec p = Load(scores + j * kTile);
                         Store(scores + j * kTile, kept ? p : Vec{});
                       });
  }
}

void ScaleRows(const float* factors, int64_t rows, int64_t padded_size, float* packed) {
  for (int64_t i = 0; i < rows; ++i) {
    if (factors[i] == 1.0f) continue;
    float* row = packed + i * padded_size;
    for (int64_t d = 0; d < padded_size; d += kLanes) Store(row + d, Load(row + d) * factors[i]);
  }
}

// How many of `count` queries, from `query` on, attend to no key. They are the first ones.
int64_t CountWithoutKeys(const Mask& mask, const AttentionUnit& unit, int64_t query,
                         int64_t count) {
  if (unit.keys.count == 0) return count;
  return mask.causal ? Smaller(Larger(-unit.MaskPosition(query), 0), count) : 0;
}

template <typename Format, typename T>
void ForwardUnit(const TileLayout<Format>& layout, const Mask& mask, const Dropout& dropout,
                 const VarlenAttentionArgs<T>& args, const AttentionUnit& unit,
                 const ForwardScratch& s, KeyTiles<Format>* key_tiles, TileScores<Format>* scores) {
  const int64_t padded = layout.padded_size;
  const int64_t query = unit.begin;
  const int64_t query_count = Smaller(kTile, unit.queries.count - query);
  const int64_t query_lanes = RoundUpToLanes(query_count);
  const int64_t position = unit.MaskPosition(query);
  PackRotated(args, layout, query, layout.Row(args.query, unit.queries.first + query, unit.head),
              layout.Stride(args.query), query_count, {s.queries, s.queries});
  Transpose(layout, s.queries, query_count, layout.scale, s.queries_t);
  for (int64_t i = 0; i < query_lanes; ++i) {
    s.maximum[i] = -INFINITY;
    s.denominator[i] = 0.0f;
  }
  bool started = false;
  for (int64_t key = 0; key < unit.keys.count; key += kTile) {
    const int64_t key_count = Smaller(kTile, unit.keys.count - key);
    if (mask.HidesAll(position, position + query_count, key, key + key_count)) continue;
    const bool masked = !mask.ShowsAll(position, position + query_count, key, key + key_count);
    const auto [keys, values] = key_tiles->Pack(args, unit, key, key_count);
    scores->Compute(unit.head, position, query_lanes, key, key_count, keys, s.queries_t, s.scores);
    SoftmaxTile(layout, mask, dropout, unit, query_lanes, key, key_count, masked, s);
    if (Format::kRounds) {
      PackColumns<Format>(s.scores, kTile, key_count, query_lanes, s.scores, kTile);
    }
    // [queries, keys] x [keys, D]
    if (started) ScaleRows(s.correction, query_count, padded, s.sums);
    const Factor<true> weights = Transposed(s.scores, kTile);
    if (masked && !AllFinite<Format>(values, WordsOf<Format>(key_count) * padded)) {
      if (!started) FillZeros(s.sums, query_count * padded);
      MaskedProduct<Format>(query_count, padded, key_count, weights, values, {s.sums, padded},
                            [&](int64_t i, int64_t j) { return mask.Sees(position + i, key + j); });
    } else {
      Product<Format>(query_count, padded, key_count, weights, values, {s.sums, padded, started});
    }
    started = true;
  }

  if (!started) FillZeros(s.sums, query_count * padded);

  float* logsumexp = args.logsumexp + layout.RowOffset(unit, query);
  for (int64_t i = 0; i < query_count; ++i) {
    // +infinity if a score is +infinity or NaN.
    logsumexp[i * layout.num_heads] =
        s.denominator[i] == s.denominator[i] ? s.maximum[i] + std::log(s.denominator[i]) : INFINITY;
  }
  const int64_t without_keys = CountWithoutKeys(mask, unit, query, query_count);
  UnpackRows(
      s.sums, layout, query_count,
      [&](int64_t i) { return i < without_keys ? 0.0f : dropout.scale / s.denominator[i]; },
      args.output + layout.RowOffset(unit, query) * layout.head_size, layout.hidden_size);
}

}  // namespace

template <typename T>
void AttentionForwardUnits(const VarlenAttentionArgs<T>& args, const AttentionUnit* units,
                           int64_t count, bool has_bfloat16) {
  WithFormat(args, has_bfloat16, [&](auto format) {
    const TileLayout<decltype(format)> layout(args);
    const Mask mask(args);
    const Dropout dropout(args);
    const ForwardScratch scratch(layout);
    KeyTiles<decltype(format)> key_tiles(layout, scratch);
    TileScores<decltype(format)> scores(args, layout);
    for (int64_t i = 0; i < count; ++i) {
      ForwardUnit(layout, mask, dropout, args, units[i], scratch, &key_tiles, &scores);
    }
  });
}

#define BERT_TF_INSTANTIATE(T)                                                                \
  template void AttentionForwardUnits<T>(const VarlenAttentionArgs<T>&, const AttentionUnit*, \
                                         int64_t, bool);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
