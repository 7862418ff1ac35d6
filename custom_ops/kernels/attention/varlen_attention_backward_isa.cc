// The gradient of varlen_attention. P are the probabilities after dropout and p those before it, dO
// is the gradient of the output, and keep is in {0, 1 / (1 - rate)}:
//
//   delta_i = sum_d dO_id O_id
//   dV_j = sum_i P_ij dO_i
//   dS_ij = p_ij (keep_ij (dO_i . V_j) - delta_i)
//   dQ_i = sum_j dS_ij K_j / sqrt(D)        dK_j = sum_i dS_ij Q_i / sqrt(D)
//
// p_ij = exp(q_i . k_j / sqrt(D) - logsumexp_i) is recomputed. A unit is one head of a sequence,
// or, for long sequences, a block of queries (dQ) or a block of keys (dK, dV). All units sum over
// ascending tiles, so both kinds give the same bits.
#include "custom_ops/kernels/attention/varlen_attention_tiles.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// The data of a tile of queries.
struct QueryTile {
  int64_t begin;
  int64_t count;
  float* queries;     // [kTile, D]
  float* queries_t;   // [D, kTile], times 1 / sqrt(D)
  float* d_output;    // [kTile, D]
  float* d_output_t;  // [D, kTile]
  float* logsumexp;   // [kTile]
  float* delta;       // [kTile]
};

// The data of a tile of keys. A gradient is not computed if its pointer is null.
struct KeyTile {
  int64_t begin;
  int64_t count;
  float* keys;      // [kTile, D]
  float* values;    // [kTile, D]
  float* d_keys;    // [kTile, D]
  float* d_values;  // [kTile, D]
};

struct BackwardScratch {
  QueryTile query_tile;
  float* probabilities;  // [keys, queries]
  float* d_scores;       // [keys, queries]
  float* d_queries;      // [kTile, D]
  float* keys;           // this and the following: [T, D], or [kTile, D] if the unit is a block
  float* values;
  float* d_keys;
  float* d_values;

  BackwardScratch(const HeadLayout& layout, int64_t key_rows, float* scratch) {
    const int64_t tile = kTile * layout.padded_size;
    query_tile.queries = scratch;
    query_tile.queries_t = query_tile.queries + tile;
    query_tile.d_output = query_tile.queries_t + tile;
    query_tile.d_output_t = query_tile.d_output + tile;
    d_queries = query_tile.d_output_t + tile;
    probabilities = d_queries + tile;
    d_scores = probabilities + kTileFloats;
    query_tile.logsumexp = d_scores + kTileFloats;
    query_tile.delta = query_tile.logsumexp + kTile;
    keys = query_tile.delta + kTile;
    values = keys + key_rows * layout.padded_size;
    d_keys = values + key_rows * layout.padded_size;
    d_values = d_keys + key_rows * layout.padded_size;
  }
  static int64_t Floats(const HeadLayout& layout, int64_t key_rows) {
    return (5 * kTile + 4 * key_rows) * layout.padded_size + 2 * kTileFloats + 2 * kTile;
  }
};

template <typename T>
class Backward {
 public:
  Backward(const VarlenAttentionOptions& options, const AttentionBackwardTensors<T>& tensors)
      : options_(options),
        tensors_(tensors),
        layout_(options),
        mask_(options),
        dropout_(options),
        scale_(ScoreScale(options.head_size)) {
    for (float& factor : ones_) factor = 1.0f;
    for (float& factor : scales_) factor = scale_;
  }

  void Run(const AttentionUnit& unit, float* scratch) const {
    switch (unit.kind) {
      case AttentionUnit::kSequence:
        return RunSequence(unit, scratch);
      case AttentionUnit::kQueryBlock:
        return RunQueryBlock(unit, scratch);
      case AttentionUnit::kKeyBlock:
        return RunKeyBlock(unit, scratch);
    }
  }

 private:
  void RunSequence(const AttentionUnit& unit, float* scratch) const {
    const BackwardScratch s(layout_, unit.length, scratch);
    const int64_t padded = layout_.padded_size;
    PackKeys(unit, 0, unit.length, s.keys, s.values);
    SetZero(s.d_keys, unit.length * padded);
    SetZero(s.d_values, unit.length * padded);
    QueryTile query_tile = s.query_tile;
    for (int64_t query = 0; query < unit.length; query += kTile) {
      LoadQueries(unit, query, &query_tile);
      SetZero(s.d_queries, query_tile.count * padded);
      for (int64_t key = 0; key < unit.length; key += kTile) {
        const int64_t offset = key * padded;
        const KeyTile key_tile = {key,
                                  Smaller(kTile, unit.length - key),
                                  s.keys + offset,
                                  s.values + offset,
                                  s.d_keys + offset,
                                  s.d_values + offset};
        MeetTile(unit, query_tile, key_tile, s, s.d_queries);
      }
      StoreQueries(unit, query_tile, s.d_queries);
    }
    StoreKeys(unit, 0, unit.length, s.d_keys, s.d_values);
  }

  void RunQueryBlock(const AttentionUnit& unit, float* scratch) const {
    const BackwardScratch s(layout_, kTile, scratch);
    QueryTile query_tile = s.query_tile;
    LoadQueries(unit, unit.begin, &query_tile);
    SetZero(s.d_queries, query_tile.count * layout_.padded_size);
    for (int64_t key = 0; key < unit.length; key += kTile) {
      const KeyTile key_tile = {
          key, Smaller(kTile, unit.length - key), s.keys, s.values, nullptr, nullptr};
      if (Hidden(query_tile, key_tile)) continue;
      PackKeys(unit, key, key_tile.count, s.keys, s.values);
      MeetTile(unit, query_tile, key_tile, s, s.d_queries);
    }
    StoreQueries(unit, query_tile, s.d_queries);
  }

  void RunKeyBlock(const AttentionUnit& unit, float* scratch) const {
    const BackwardScratch s(layout_, kTile, scratch);
    const KeyTile key_tile = {unit.begin, Smaller(kTile, unit.length - unit.begin),
                              s.keys,     s.values,
                              s.d_keys,   s.d_values};
    PackKeys(unit, unit.begin, key_tile.count, s.keys, s.values);
    SetZero(s.d_keys, key_tile.count * layout_.padded_size);
    SetZero(s.d_values, key_tile.count * layout_.padded_size);
    QueryTile query_tile = s.query_tile;
    for (int64_t query = 0; query < unit.length; query += kTile) {
      query_tile.begin = query;
      query_tile.count = Smaller(kTile, unit.length - query);
      if (Hidden(query_tile, key_tile)) continue;
      LoadQueries(unit, query, &query_tile);
      MeetTile(unit, query_tile, key_tile, s, nullptr);
    }
    StoreKeys(unit, unit.begin, key_tile.count, s.d_keys, s.d_values);
  }

  bool Hidden(const QueryTile& q, const KeyTile& k) const {
    return mask_.HidesAll(q.begin, q.begin + q.count, k.begin, k.begin + k.count);
  }

  // Adds the contributions of a tile of queries and a tile of keys to each other's gradients.
  void MeetTile(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k,
                const BackwardScratch& s, float* d_queries) const {
    if (Hidden(q, k)) return;
    const bool masked = !mask_.ShowsAll(q.begin, q.begin + q.count, k.begin, k.begin + k.count);
    const int64_t padded = layout_.padded_size;
    const int64_t lanes = RoundUpToLanes(q.count);
    // [keys, D] x [D, queries]
    Product<false>(k.count, lanes, layout_.head_size, k.keys, padded, 1, q.queries_t, kTile,
                   s.probabilities, kTile);
    Product<false>(k.count, lanes, layout_.head_size, k.values, padded, 1, q.d_output_t, kTile,
                   s.d_scores, kTile);
    for (int64_t i = 0; i < lanes; i += kLanes) {
      if (masked) {
        ScoreGradients<true>(unit, q, k, i, s.probabilities + i, s.d_scores + i);
      } else {
        ScoreGradients<false>(unit, q, k, i, s.probabilities + i, s.d_scores + i);
      }
    }
    const bool careful =
        masked && !(AllFinite(k.keys, k.count * padded) && AllFinite(q.queries, q.count * padded) &&
                    AllFinite(q.d_output, q.count * padded));
    if (careful) {
      const auto key_sees = [&](int64_t j, int64_t i) {
        return mask_.Sees(q.begin + i, k.begin + j);
      };
      const auto query_sees = [&](int64_t i, int64_t j) { return key_sees(j, i); };
      if (k.d_keys != nullptr) {
        MaskedProduct(k.count, padded, q.count, s.probabilities, kTile, 1, q.d_output, padded,
                      k.d_values, padded, key_sees);
        MaskedProduct(k.count, padded, q.count, s.d_scores, kTile, 1, q.queries, padded, k.d_keys,
                      padded, key_sees);
      }
      if (d_queries != nullptr) {
        MaskedProduct(q.count, padded, k.count, s.d_scores, 1, kTile, k.keys, padded, d_queries,
                      padded, query_sees);
      }
      return;
    }
    if (k.d_keys != nullptr) {  // [keys, queries] x [queries, D]
      Product<true>(k.count, padded, q.count, s.probabilities, kTile, 1, q.d_output, padded,
                    k.d_values, padded);
      Product<true>(k.count, padded, q.count, s.d_scores, kTile, 1, q.queries, padded, k.d_keys,
                    padded);
    }
    if (d_queries != nullptr) {  // [queries, keys] x [keys, D]
      Product<true>(q.count, padded, k.count, s.d_scores, 1, kTile, k.keys, padded, d_queries,
                    padded);
    }
  }

  // For one vector of queries: scores -> probabilities after dropout, and dO . V -> dS, in place.
  template <bool kMasked>
  BERT_TF_INLINE void ScoreGradients(const AttentionUnit& unit, const QueryTile& q,
                                     const KeyTile& k, int64_t first, float* probabilities,
                                     float* d_scores) const {
    const VecI32 queries = LaneNumbers(q.begin + first);
    const Vec logsumexp = Load(q.logsumexp + first);
    const Vec delta = Load(q.delta + first);
    const Mask mask = mask_;
    const int64_t key_begin = k.begin;
    const auto probability = [=](int64_t j) {
      const Vec p = ExpOfNegative(Load(probabilities + j * kTile) - logsumexp);
      if (!kMasked) return p;
      return mask.Sees(queries, static_cast<int32_t>(key_begin + j)) ? p : Vec{};
    };
    const auto store_d_score = [=](int64_t j, Vec p, Vec d_probability) {
      Vec d_score = p * (d_probability - delta);
      if (kMasked) {
        const VecI32 sees = mask.Sees(queries, static_cast<int32_t>(key_begin + j));
        d_score = sees ? d_score : Vec{};
      }
      Store(d_scores + j * kTile, d_score);
    };
    if (options_.dropout_rate > 0.0f) {
      const int64_t stream = (unit.first_row + q.begin + first) * layout_.num_heads + unit.head;
      const float scale = dropout_.scale;
      dropout_.ForEachKey(stream, layout_.num_heads, k.begin, k.count, [=](int64_t j, VecI32 kept) {
        const Vec p = probability(j);
        const Vec d_kept = Load(d_scores + j * kTile) * scale;
        Store(probabilities + j * kTile, kept ? p * scale : Vec{});
        store_d_score(j, p, kept ? d_kept : Vec{});
      });
    } else {
      for (int64_t j = 0; j < k.count; ++j) {
        const Vec p = probability(j);
        Store(probabilities + j * kTile, p);
        store_d_score(j, p, Load(d_scores + j * kTile));
      }
    }
  }

  void LoadQueries(const AttentionUnit& unit, int64_t begin, QueryTile* tile) const {
    tile->begin = begin;
    tile->count = Smaller(kTile, unit.length - begin);
    const int64_t size = layout_.head_size;
    const int64_t padded = layout_.padded_size;
    const int64_t offset = layout_.OutputOffset(unit, begin);
    PackRows(tensors_.qkv + layout_.QkvOffset(unit, begin), layout_.qkv_row, tile->count, size,
             padded, tile->queries);
    PackRows(tensors_.d_output + offset, layout_.output_row, tile->count, size, padded,
             tile->d_output);
    PackTransposed(tile->queries, padded, tile->count, size, scale_, tile->queries_t);
    PackTransposed(tile->d_output, padded, tile->count, size, 1.0f, tile->d_output_t);
    const T* output = tensors_.output + offset;
    const float* logsumexp =
        tensors_.logsumexp + (unit.first_row + begin) * layout_.num_heads + unit.head;
    for (int64_t i = 0; i < RoundUpToLanes(tile->count); ++i) {
      tile->logsumexp[i] = tile->delta[i] = 0.0f;
    }
    for (int64_t i = 0; i < tile->count; ++i) {
      const float* d_output = tile->d_output + i * padded;
      Vec delta = {};
      ForSingleVectors(size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
        delta += Load(d_output + d) * Load(output + d, lanes);
      });
      tile->delta[i] = ReduceAdd(delta);
      tile->logsumexp[i] = logsumexp[i * layout_.num_heads];
      output += layout_.output_row;
    }
  }

  void PackKeys(const AttentionUnit& unit, int64_t begin, int64_t count, float* keys,
                float* values) const {
    const T* first = tensors_.qkv + layout_.QkvOffset(unit, begin) + layout_.key;
    PackRows(first, layout_.qkv_row, count, layout_.head_size, layout_.padded_size, keys);
    PackRows(first + layout_.key, layout_.qkv_row, count, layout_.head_size, layout_.padded_size,
             values);
  }

  void StoreQueries(const AttentionUnit& unit, const QueryTile& tile,
                    const float* d_queries) const {
    UnpackRows(d_queries, layout_.padded_size, tile.count, layout_.head_size, scales_,
               tensors_.d_qkv + layout_.QkvOffset(unit, tile.begin), layout_.qkv_row);
  }

  void StoreKeys(const AttentionUnit& unit, int64_t begin, int64_t count, const float* d_keys,
                 const float* d_values) const {
    for (int64_t i = 0; i < count; i += kTile) {
      const int64_t rows = Smaller(kTile, count - i);
      const int64_t offset = i * layout_.padded_size;
      T* first = tensors_.d_qkv + layout_.QkvOffset(unit, begin + i) + layout_.key;
      UnpackRows(d_keys + offset, layout_.padded_size, rows, layout_.head_size, scales_, first,
                 layout_.qkv_row);
      UnpackRows(d_values + offset, layout_.padded_size, rows, layout_.head_size, ones_,
                 first + layout_.key, layout_.qkv_row);
    }
  }

  static void SetZero(float* p, int64_t count) {
    for (int64_t i = 0; i < count; ++i) p[i] = 0.0f;
  }

  const VarlenAttentionOptions& options_;
  const AttentionBackwardTensors<T>& tensors_;
  const HeadLayout layout_;
  const Mask mask_;
  const Dropout dropout_;
  const float scale_;  // 1 / sqrt(D)
  float ones_[kTile];
  float scales_[kTile];
};

}  // namespace

int64_t AttentionBackwardScratch(const VarlenAttentionOptions& options, int64_t sequence_length) {
  return BackwardScratch::Floats(HeadLayout(options), Larger(sequence_length, kTile));
}

template <typename T>
void AttentionBackwardUnits(const VarlenAttentionOptions& options,
                            const AttentionBackwardTensors<T>& tensors, const AttentionUnit* units,
                            int64_t count, float* scratch) {
  const Backward<T> backward(options, tensors);
  for (int64_t i = 0; i < count; ++i) backward.Run(units[i], scratch);
}

#define BERT_TF_INSTANTIATE(T)                                                \
  template void AttentionBackwardUnits<T>(const VarlenAttentionOptions&,      \
                                          const AttentionBackwardTensors<T>&, \
                                          const AttentionUnit*, int64_t, float*)
BERT_TF_INSTANTIATE(float);
BERT_TF_INSTANTIATE(BFloat16);
BERT_TF_INSTANTIATE(Float16);
#undef BERT_TF_INSTANTIATE

}  // namespace bert_tf::BERT_TF_ISA
