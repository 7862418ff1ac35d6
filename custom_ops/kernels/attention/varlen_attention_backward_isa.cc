// The gradient of varlen_attention. P are the probabilities after dropout and p those before it, dO
// is the gradient of the output, and keep is in {0, 1 / (1 - rate)}:
//
//   delta_i = sum_d dO_id O_id
//   dV_j = sum_i P_ij dO_i
//   dS_ij = p_ij (keep_ij (dO_i . V_j) - delta_i)
//   dQ_i = sum_j dS_ij K_j / sqrt(D)        dK_j = sum_i dS_ij Q_i / sqrt(D)
//   dbias_h = sum of dS_ij with the distance h
//
// p_ij = exp(q_i . k_j / sqrt(D) + bias_ij - logsumexp_i) is recomputed. DistanceGradients has the
// terms of vectors of distances. With a rotation, Q and K
// are the rotated ones, and dQ and dK are rotated back. A unit is one head of a sequence, or, for
// long sequences, a block of queries (dQ) or a block of keys (dK, dV). All units sum over ascending
// tiles, so both kinds give the same bits.
#include "custom_ops/kernels/attention/varlen_attention_tiles.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// The data of a tile of queries.
struct QueryTile {
  int64_t begin;
  int64_t count;
  int64_t position;     // of the first one, for the mask
  PackedTile queries;   // [kTile, D]
  float* queries_t;     // [D, kTile], in Float32 times 1 / sqrt(D)
  PackedTile d_output;  // [kTile, D]
  float* d_output_t;    // [D, kTile]
  float* logsumexp;     // [kTile]
  float* delta;         // [kTile]
};

// The data of a tile of keys. A gradient is not computed if its pointer is null.
struct KeyTile {
  int64_t begin;
  int64_t count;
  PackedTile keys;  // [kTile, D]
  float* values;    // [kTile, D], by PackRows
  float* d_keys;    // [kTile, D]
  float* d_values;  // [kTile, D]
};

template <typename Format>
struct BackwardScratch {
  QueryTile query_tile;
  float* probabilities;  // [keys, queries], by PackRows
  PackedTile d_scores;   // [keys, queries]
  float* d_queries;      // [kTile, D]
  PackedTile keys;       // this and the following: [key_rows, D]
  float* values;
  float* d_keys;
  float* d_values;

  BackwardScratch(const TileLayout<Format>& layout, int64_t key_rows) {
    const int64_t tile = kTile * layout.padded_size;
    const int64_t key_floats = RoundUpToLanes(key_rows) * layout.padded_size;
    constexpr int64_t kForms = Format::kNumbers == 1 ? 1 : 2;  // of a PackedTile
    float* free = ThreadScratch(0, (2 * kForms + 3) * tile + (kForms + 1) * kTileFloats +
                                       2 * kTile + (kForms + 3) * key_floats);
    const auto take = [&](int64_t count) {
      float* const taken = free;
      free += count;
      return taken;
    };
    const auto take_both = [&](int64_t count) {
      float* const rows = take(count);
      return PackedTile{rows, kForms == 1 ? rows : take(count)};
    };
    query_tile.queries = take_both(tile);
    query_tile.queries_t = take(tile);
    query_tile.d_output = take_both(tile);
    query_tile.d_output_t = take(tile);
    d_queries = take(tile);
    probabilities = take(kTileFloats);
    d_scores = take_both(kTileFloats);
    query_tile.logsumexp = take(kTile);
    query_tile.delta = take(kTile);
    keys = take_both(key_floats);
    values = take(key_floats);
    d_keys = take(key_floats);
    d_values = take(key_floats);
  }
};

// The gradients of the scores of a tile [keys, queries], which are computed in the same way for
// every Format and storage type.
class ScoreGradients {
 public:
  ScoreGradients(const VarlenAttentionOptions& options, float* d_distance_bias_parts)
      : options_(options),
        d_distance_bias_parts_(d_distance_bias_parts),
        layout_(options),
        mask_(options),
        dropout_(options) {}

  // In place: scores -> probabilities after dropout, and dO . V -> dS. Also adds dS to the gradient
  // of the distance bias, if there is one.
  void Compute(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k, bool masked,
               float* probabilities, float* d_scores) const {
    for (int64_t i = 0; i < q.count; i += kLanes) {
      if (masked) {
        ComputeVector<true>(unit, q, k, i, probabilities + i, d_scores + i);
      } else {
        ComputeVector<false>(unit, q, k, i, probabilities + i, d_scores + i);
      }
    }
    if (d_distance_bias_parts_ != nullptr && unit.kind != AttentionUnit::kKeyBlock) {
      AddDistances(unit, q, k, d_scores);
    }
  }

 private:
  // The same for one vector of queries.
  template <bool kMasked>
  BERT_TF_INLINE void ComputeVector(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k,
                                    int64_t first, float* probabilities, float* d_scores) const {
    const VecI32 queries = LaneNumbers(q.position + first);
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

  // Adds the gradients of the scores of a tile [keys, queries] to those of the distance bias.
  void AddDistances(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k,
                    const float* d_scores) const {
    float sums[2 * kTile] = {};  // from the distance of the first query to the last key on
    for (int64_t j = 0; j < k.count; ++j) {
      float* const of_key = sums + k.count - 1 - j;
      for (int64_t i = 0; i < q.count; ++i) of_key[i] += d_scores[j * kTile + i];
    }
    const DistancePart part = DistancePartOf(options_, unit.queries, unit.head);
    float* const parts = d_distance_bias_parts_ + part.begin;
    const int64_t first = q.position - k.begin - (k.count - 1);
    for (int64_t i = 0; i < k.count - 1 + q.count; ++i) {
      parts[DistanceIndex(first + i, part.reach)] += sums[i];
    }
  }

  const VarlenAttentionOptions& options_;
  float* const d_distance_bias_parts_;
  const HeadLayout layout_;
  const Mask mask_;
  const Dropout dropout_;
};

// Adds the terms of the gradient that come from the vectors of distances, Qh and Kh for h = i - j:
//   dQ_i += sum_j dS_ij Kh              dK_j += sum_i dS_ij Qh
//   dKh = sum of dS_ij Q_i / sqrt(3 D)  dQh = sum of dS_ij K_j / sqrt(3 D)
class DistanceGradients {
 public:
  DistanceGradients(const VarlenAttentionOptions& options, float* d_vectors)
      : options_(options), layout_(options), d_vectors_(d_vectors) {
    if (options.distance_vectors == nullptr) return;
    constexpr int64_t kSkewed = kDistances * kTile;
    by_query_ = ThreadScratch(2, 2 * kSkewed + kDistances * layout_.padded_size);
    by_key_ = by_query_ + kSkewed;
    vectors_ = by_key_ + kSkewed;
    FillZeros(by_query_, 2 * kSkewed);
  }

  // Adds those of a tile, from the gradients of its scores [keys, queries].
  void Add(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k, const float* d_scores,
           float* d_queries) const {
    for (int64_t j = 0; j < kTile; ++j) {
      for (int64_t i = 0; i < kTile; ++i) {
        const float d_score = j < k.count && i < q.count ? d_scores[j * kTile + i] : 0.0f;
        const int64_t column = kTile - 1 + i - j;
        by_query_[column * kTile + i] = d_score;
        by_key_[column * kTile + j] = d_score;
      }
    }
    const int64_t first = (kTile - k.count) * kTile;  // of the first query and the last key
    const int64_t distance = q.position - k.begin - (k.count - 1);
    const int64_t distances = k.count + q.count - 1;
    AddPart(unit, 1, distance, distances, by_query_ + first, q.count, q.queries.columns, d_queries);
    AddPart(unit, 0, distance, distances, by_key_ + first, k.count, k.keys.columns, k.d_keys);
  }

 private:
  // The same for the keys of distances (part 1), which meet queries, or for the queries (0), which
  // meet keys: `rows` [count, D]. The gradients of scores are [distances, count].
  void AddPart(const AttentionUnit& unit, int part, int64_t distance, int64_t distances,
               const float* d_scores, int64_t count, const float* rows, float* d_rows) const {
    const int64_t size = layout_.head_size, padded = layout_.padded_size;
    const auto offset = [&](int64_t h) {
      return DistanceVectorOffset(options_, layout_, unit.head, part, distance + h);
    };
    if (d_rows != nullptr) {
      for (int64_t h = 0; h < distances; ++h) {
        PackRows<Float32>(options_.distance_vectors + offset(h), 0, 1, size, vectors_ + h * padded,
                          0);
      }
      Product<Float32>(count, padded, distances, Transposed(d_scores, kTile), vectors_,
                       {d_rows, padded, /*added=*/true});
    }
    if (unit.kind == AttentionUnit::kKeyBlock) return;
    Product<Float32>(distances, padded, count, Rows(d_scores, kTile), rows,
                     {vectors_, padded, /*added=*/false, layout_.scale});
    for (int64_t h = 0; h < distances; ++h) {
      float* const d_vector = d_vectors_ + offset(h);
      ForSingleVectors(size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
        Store(d_vector + d, Load(d_vector + d, lanes) + Load(vectors_ + h * padded + d), lanes);
      });
    }
  }

  const VarlenAttentionOptions& options_;
  const HeadLayout layout_;
  float* const d_vectors_;
  // The gradients of the scores of a tile by the column of their distance, zeros for pairs that
  // there are not: [kDistances, queries] and [kDistances, keys].
  float* by_query_ = nullptr;
  float* by_key_ = nullptr;
  float* vectors_ = nullptr;  // [kDistances, D], or their gradients
};

template <typename Format, typename T>
class Backward {
 public:
  Backward(const VarlenAttentionGradArgs<T>& args, TileScores<Format>* scores)
      : args_(args),
        layout_(args),
        mask_(args),
        scores_(scores),
        score_gradients_(args, args.d_distance_bias_parts),
        distance_gradients_(args, args.d_distance_vectors) {}

  // A unit is all queries, or one block of them, and all keys, or one block.
  void Run(const AttentionUnit& unit) const {
    const bool one_query_tile = unit.kind == AttentionUnit::kQueryBlock;
    const bool one_key_tile = unit.kind == AttentionUnit::kKeyBlock;
    const int64_t block_end = unit.begin + kTile, queries = unit.queries.count;
    const int64_t first_query = one_query_tile ? unit.begin : 0;
    const int64_t last_query = one_query_tile ? Smaller(block_end, queries) : queries;
    const int64_t first_key = one_key_tile ? unit.begin : 0;
    const int64_t last_key = one_key_tile ? Smaller(block_end, unit.keys.count) : unit.keys.count;
    const int64_t padded = layout_.padded_size, padded_words = layout_.padded_words;
    // A block of queries needs the keys of one tile at a time, and none of their gradients.
    const int64_t key_rows = one_query_tile ? kTile : last_key - first_key;
    const BackwardScratch<Format> s(layout_, key_rows);
    if (!one_query_tile) {
      LoadKeys(unit, first_key, key_rows, s);
      FillZeros(s.d_keys, key_rows * padded);
      FillZeros(s.d_values, key_rows * padded);
    }
    const auto scale = [this](int64_t) { return layout_.scale; };
    float* const d_queries = one_key_tile ? nullptr : s.d_queries;
    QueryTile q = s.query_tile;
    for (q.begin = first_query; q.begin < last_query; q.begin += kTile) {
      q.count = Smaller(kTile, last_query - q.begin);
      q.position = unit.MaskPosition(q.begin);
      // The gradients of queries that attend to no key are zeros, which must be written.
      if (d_queries == nullptr && HidesAll(q, first_key, last_key)) continue;
      LoadQueries(unit, q);
      if (d_queries != nullptr) FillZeros(d_queries, q.count * padded);
      for (int64_t key = first_key; key < last_key; key += kTile) {
        const int64_t count = Smaller(kTile, last_key - key);
        if (HidesAll(q, key, key + count)) continue;
        if (one_query_tile) LoadKeys(unit, key, count, s);
        const int64_t first = one_query_tile ? 0 : key - first_key;
        const PackedTile keys = {s.keys.rows + first * padded_words,
                                 s.keys.columns + first / Format::kNumbers * padded};
        MeetTile(
            unit, q,
            {key, count, keys, s.values + first * padded_words,
             one_query_tile ? nullptr : s.d_keys + first * padded, s.d_values + first * padded},
            s, d_queries);
      }
      if (d_queries != nullptr) {
        RotateBack(q.begin, q.count, d_queries);
        UnpackRows(d_queries, layout_, q.count, scale,
                   layout_.Row(args_.d_query, unit.queries.first + q.begin, unit.head),
                   layout_.Stride(args_.d_query));
      }
    }
    if (!one_query_tile) {
      const int64_t row = unit.keys.first + first_key;
      RotateBack(first_key, key_rows, s.d_keys);
      UnpackRows(s.d_keys, layout_, key_rows, scale, layout_.Row(args_.d_key, row, unit.head),
                 layout_.Stride(args_.d_key));
      UnpackRows(
          s.d_values, layout_, key_rows, [](int64_t) { return 1.0f; },
          layout_.Row(args_.d_value, row, unit.head), layout_.Stride(args_.d_value));
    }
  }

 private:
  bool HidesAll(const QueryTile& q, int64_t first_key, int64_t last_key) const {
    return mask_.HidesAll(q.position, q.position + q.count, first_key, last_key);
  }

  // Adds the contributions of a tile of queries and a tile of keys to each other's gradients.
  void MeetTile(const AttentionUnit& unit, const QueryTile& q, const KeyTile& k,
                const BackwardScratch<Format>& s, float* d_queries) const {
    const bool masked =
        !mask_.ShowsAll(q.position, q.position + q.count, k.begin, k.begin + k.count);
    const int64_t padded = layout_.padded_size;
    const int64_t lanes = RoundUpToLanes(q.count);
    // [keys, D] x [D, queries]
    scores_->Compute(unit.head, q.position, lanes, k.begin, k.count, k.keys.rows, q.queries_t,
                     s.probabilities);
    Product<Format>(k.count, lanes, layout_.head_size, Rows(k.values, layout_.padded_words),
                    q.d_output_t, {s.d_scores.rows, kTile});
    score_gradients_.Compute(unit, q, k, masked, s.probabilities, s.d_scores.rows);
    if (Format::kRounds) {
      PackRows<Format>(s.probabilities, kTile, k.count, q.count, s.probabilities, kTile);
      if (s.d_scores.columns != s.d_scores.rows) {
        PackColumns<Format>(s.d_scores.rows, kTile, k.count, lanes, s.d_scores.columns, kTile);
      }
      PackRows<Format>(s.d_scores.rows, kTile, k.count, q.count, s.d_scores.rows, kTile);
    }
    if (args_.distance_vectors != nullptr) {
      distance_gradients_.Add(unit, q, k, s.d_scores.rows, d_queries);
    }
    const int64_t key_words = WordsOf<Format>(k.count), query_words = WordsOf<Format>(q.count);
    const bool careful = masked && !(AllFinite<Format>(k.keys.columns, key_words * padded) &&
                                     AllFinite<Format>(q.queries.columns, query_words * padded) &&
                                     AllFinite<Format>(q.d_output.columns, query_words * padded));
    if (k.d_keys != nullptr) {  // [keys, queries] x [queries, D]
      const auto sees = [&](int64_t i, int64_t j) { return Sees(q, k, j, i); };
      const auto add = [&](const float* a, const float* b, float* c) {
        Add(k.count, q.count, Rows(a, kTile), b, c, careful, sees);
      };
      add(s.probabilities, q.d_output.columns, k.d_values);
      add(s.d_scores.rows, q.queries.columns, k.d_keys);
    }
    if (d_queries != nullptr) {  // [queries, keys] x [keys, D]
      Add(q.count, k.count, Transposed(s.d_scores.columns, kTile), k.keys.columns, d_queries,
          careful, [&](int64_t i, int64_t j) { return Sees(q, k, i, j); });
    }
  }

  bool Sees(const QueryTile& q, const KeyTile& k, int64_t query, int64_t key) const {
    return mask_.Sees(q.position + query, k.begin + key);
  }

  // c [rows, D] += a [rows, depth] b [depth, D]; if `careful`, only over the pairs with `sees`.
  template <bool kTransposed, typename Sees>
  void Add(int64_t rows, int64_t depth, Factor<kTransposed> a, const float* b, float* c,
           bool careful, const Sees& sees) const {
    const Sums sums = {c, layout_.padded_size, /*added=*/true};
    if (careful) {
      MaskedProduct<Format>(rows, layout_.padded_size, depth, a, b, sums, sees);
    } else {
      Product<Format>(rows, layout_.padded_size, depth, a, b, sums);
    }
  }

  // Makes gradients of rotated rows, from `place` of their sequence on, those of the rows.
  void RotateBack(int64_t place, int64_t rows, float* gradients) const {
    if (args_.rotation == nullptr) return;
    Rotate(args_, layout_, -1.0f, place, rows, gradients);
  }

  // Packs `count` keys and values from position `begin` on.
  void LoadKeys(const AttentionUnit& unit, int64_t begin, int64_t count,
                const BackwardScratch<Format>& s) const {
    const int64_t row = unit.keys.first + begin;
    PackRotated(args_, layout_, begin, layout_.Row(args_.key, row, unit.head),
                layout_.Stride(args_.key), count, s.keys);
    PackRows<Format>(layout_.Row(args_.value, row, unit.head), layout_.Stride(args_.value), count,
                     layout_.head_size, s.values, layout_.padded_words);
  }

  // Fills the tile of `q.count` queries from `q.begin` on.
  void LoadQueries(const AttentionUnit& unit, const QueryTile& q) const {
    const int64_t offset = layout_.RowOffset(unit, q.begin) * layout_.head_size;
    PackRotated(args_, layout_, q.begin,
                layout_.Row(args_.query, unit.queries.first + q.begin, unit.head),
                layout_.Stride(args_.query), q.count, q.queries);
    Pack(layout_, args_.d_output + offset, layout_.hidden_size, q.count, q.d_output);
    Transpose(layout_, q.queries.rows, q.count, layout_.scale, q.queries_t);
    Transpose(layout_, q.d_output.rows, q.count, 1.0f, q.d_output_t);
    const float* const logsumexp = args_.logsumexp + layout_.RowOffset(unit, q.begin);
    FillZeros(q.logsumexp, kTile);
    FillZeros(q.delta, kTile);
    for (int64_t i = 0; i < q.count; ++i) {
      const T* const d_output = args_.d_output + offset + i * layout_.hidden_size;
      const T* const output = args_.output + offset + i * layout_.hidden_size;
      Vec delta = {};
      ForSingleVectors(layout_.head_size, [&](auto lanes, int64_t d) BERT_TF_INLINE_LAMBDA {
        delta += Load(d_output + d, lanes) * Load(output + d, lanes);
      });
      q.delta[i] = ReduceAdd(delta);
      q.logsumexp[i] = logsumexp[i * layout_.num_heads];
    }
  }

  const VarlenAttentionGradArgs<T>& args_;
  const TileLayout<Format> layout_;
  const Mask mask_;
  TileScores<Format>* const scores_;
  const ScoreGradients score_gradients_;
  const DistanceGradients distance_gradients_;
};

}  // namespace

template <typename T>
void AttentionBackwardUnits(const VarlenAttentionGradArgs<T>& args, const AttentionUnit* units,
                            int64_t count, bool has_bfloat16) {
  WithFormat(args, has_bfloat16, [&](auto format) {
    TileScores<decltype(format)> scores(args, TileLayout<decltype(format)>(args));
    const Backward<decltype(format), T> backward(args, &scores);
    for (int64_t i = 0; i < count; ++i) backward.Run(units[i]);
  });
}

#define BERT_TF_INSTANTIATE(T)                                                                     \
  template void AttentionBackwardUnits<T>(const VarlenAttentionGradArgs<T>&, const AttentionUnit*, \
                                          int64_t, bool);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
