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
  float* keys;           // this and the following: [key_rows, D]
  float* values;
  float* d_keys;
  float* d_values;

  BackwardScratch(const HeadLayout& layout, int64_t key_rows) {
    const int64_t tile = kTile * layout.padded_size;
    const int64_t key_floats = key_rows * layout.padded_size;
    query_tile.queries = ThreadScratch(0, 5 * tile + 2 * kTileFloats + 2 * kTile + 4 * key_floats);
    query_tile.queries_t = query_tile.queries + tile;
    query_tile.d_output = query_tile.queries_t + tile;
    query_tile.d_output_t = query_tile.d_output + tile;
    d_queries = query_tile.d_output_t + tile;
    probabilities = d_queries + tile;
    d_scores = probabilities + kTileFloats;
    query_tile.logsumexp = d_scores + kTileFloats;
    query_tile.delta = query_tile.logsumexp + kTile;
    keys = query_tile.delta + kTile;
    values = keys + key_floats;
    d_keys = values + key_floats;
    d_values = d_keys + key_floats;
  }
};

template <typename T>
class Backward {
 public:
  explicit Backward(const VarlenAttentionArgs<T>& args)
      : args_(args), layout_(args), mask_(args), dropout_(args) {}

  // A unit is all queries, or one block of them, and all keys, or one block.
  void Run(const AttentionUnit& unit) const {
    const bool one_query_tile = unit.kind == AttentionUnit::kQueryBlock;
    const bool one_key_tile = unit.kind == AttentionUnit::kKeyBlock;
    const int64_t block_end = Smaller(unit.begin + kTile, unit.length);
    const int64_t first_query = one_query_tile ? unit.begin : 0;
    const int64_t last_query = one_query_tile ? block_end : unit.length;
    const int64_t first_key = one_key_tile ? unit.begin : 0;
    const int64_t last_key = one_key_tile ? block_end : unit.length;
    const int64_t padded = layout_.padded_size;
    // A block of queries needs the keys of one tile at a time, and none of their gradients.
    const int64_t key_rows = one_query_tile ? kTile : last_key - first_key;
    const BackwardScratch s(layout_, key_rows);
    if (!one_query_tile) {
      PackKeys(args_.qkv, layout_, unit, first_key, key_rows, s.keys, s.values);
      FillZeros(s.d_keys, key_rows * padded);
      FillZeros(s.d_values, key_rows * padded);
    }
    const auto scale = [this](int64_t) { return layout_.scale; };
    float* const d_queries = one_key_tile ? nullptr : s.d_queries;
    QueryTile q = s.query_tile;
    for (q.begin = first_query; q.begin < last_query; q.begin += kTile) {
      q.count = Smaller(kTile, last_query - q.begin);
      if (mask_.HidesAll(q.begin, q.begin + q.count, first_key, last_key)) continue;
      LoadQueries(unit, q);
      if (d_queries != nullptr) FillZeros(d_queries, q.count * padded);
      for (int64_t key = first_key; key < last_key; key += kTile) {
        const int64_t count = Smaller(kTile, last_key - key);
        if (mask_.HidesAll(q.begin, q.begin + q.count, key, key + count)) continue;
        if (one_query_tile) PackKeys(args_.qkv, layout_, unit, key, count, s.keys, s.values);
        const int64_t offset = one_query_tile ? 0 : (key - first_key) * padded;
        MeetTile(unit, q,
                 {key, count, s.keys + offset, s.values + offset,
                  one_query_tile ? nullptr : s.d_keys + offset, s.d_values + offset},
                 s, d_queries);
      }
      if (d_queries != nullptr) {
        UnpackRows(d_queries, layout_, q.count, scale,
                   args_.d_qkv + layout_.QkvOffset(unit, q.begin), 3 * layout_.hidden_size);
      }
    }
    if (!one_query_tile) {
      T* const d_keys = args_.d_qkv + layout_.QkvOffset(unit, first_key) + layout_.hidden_size;
      UnpackRows(s.d_keys, layout_, key_rows, scale, d_keys, 3 * layout_.hidden_size);
      UnpackRows(
          s.d_values, layout_, key_rows, [](int64_t) { return 1.0f; }, d_keys + layout_.hidden_size,
          3 * layout_.hidden_size);
    }
  }

 private:
  // Adds the contributions of a tile of queries and a tile of keys to each other's gradients.
  void MeetTile(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k,
                const BackwardScratch& s, float* d_queries) const {
    const bool masked = !mask_.ShowsAll(q.begin, q.begin + q.count, k.begin, k.begin + k.count);
    const int64_t padded = layout_.padded_size;
    const int64_t lanes = RoundUpToLanes(q.count);
    // [keys, D] x [D, queries]
    Product<false, false>(k.count, lanes, layout_.head_size, k.keys, padded, q.queries_t,
                          s.probabilities, kTile);
    Product<false, false>(k.count, lanes, layout_.head_size, k.values, padded, q.d_output_t,
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
    // c += a b, where a is a tile of scores, [keys, queries], or its transpose.
    const auto add = [&](auto transposed, const float* a, const float* b, float* c) {
      const int64_t rows = transposed ? q.count : k.count;
      const int64_t depth = transposed ? k.count : q.count;
      if (!careful) {
        return Product<true, transposed.value>(rows, padded, depth, a, kTile, b, c, padded);
      }
      MaskedProduct<transposed.value>(
          rows, padded, depth, a, kTile, b, c, padded, [&](int64_t i, int64_t j) {
            return mask_.Sees(q.begin + (transposed ? i : j), k.begin + (transposed ? j : i));
          });
    };
    if (k.d_keys != nullptr) {
      add(std::false_type{}, s.probabilities, q.d_output, k.d_values);
      add(std::false_type{}, s.d_scores, q.queries, k.d_keys);
    }
    if (d_queries != nullptr) add(std::true_type{}, s.d_scores, k.keys, d_queries);
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
    if (dropout_.rate > 0.0f) {
      const int64_t stream = layout_.RowOffset(unit, q.begin + first);
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

  // Fills the tile of `q.count` queries from `q.begin` on.
  void LoadQueries(const AttentionUnit& unit, const QueryTile& q) const {
    const int64_t offset = layout_.RowOffset(unit, q.begin) * layout_.head_size;
    PackRows(args_.qkv + layout_.QkvOffset(unit, q.begin), 3 * layout_.hidden_size, layout_,
             q.count, q.queries);
    PackRows(args_.d_output + offset, layout_.hidden_size, layout_, q.count, q.d_output);
    PackTransposed(q.queries, layout_, q.count, layout_.scale, q.queries_t);
    PackTransposed(q.d_output, layout_, q.count, 1.0f, q.d_output_t);
    const float* const logsumexp = args_.logsumexp + layout_.RowOffset(unit, q.begin);
    FillZeros(q.logsumexp, kTile);
    FillZeros(q.delta, kTile);
    for (int64_t i = 0; i < q.count; ++i) {
      const float* const d_output = q.d_output + i * layout_.padded_size;
      const T* const output = args_.output + offset + i * layout_.hidden_size;
      Vec delta = {};
      ForSingleVectors(layout_.head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
        delta += Load(d_output + d) * Load(output + d, lanes);
      });
      q.delta[i] = ReduceAdd(delta);
      q.logsumexp[i] = logsumexp[i * layout_.num_heads];
    }
  }

  const VarlenAttentionArgs<T>& args_;
  const HeadLayout layout_;
  const Mask mask_;
  const Dropout dropout_;
};

}  // namespace

template <typename T>
void AttentionBackwardUnits(const VarlenAttentionArgs<T>& args, const AttentionUnit* units,
                            int64_t count) {
  const Backward<T> backward(args);
  for (int64_t i = 0; i < count; ++i) backward.Run(units[i]);
}

#define BERT_TF_INSTANTIATE(T)                                                                 \
  template void AttentionBackwardUnits<T>(const VarlenAttentionArgs<T>&, const AttentionUnit*, \
                                          int64_t);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
