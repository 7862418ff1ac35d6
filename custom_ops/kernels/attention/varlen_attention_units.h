// The units of work of varlen_attention and the functions that process them, with one copy per
// instruction set. The plan of the units (varlen_attention.cc) is independent of instruction sets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/isa.h"

namespace bert_tf {

// The number of queries and of keys in a tile. 64 x 64 floats are half of a 32 KiB first-level
// cache, and 64 keys are one chunk of philox.h.
constexpr int kAttentionTile = 64;

// Consecutive rows of a packed tensor.
struct RowRange {
  int64_t first;
  int64_t count;
};

inline RowRange RowsOfSequence(const int64_t* row_splits, int64_t sequence) {
  return {row_splits[sequence], row_splits[sequence + 1] - row_splits[sequence]};
}

struct AttentionUnit {
  enum Kind {
    kQueryBlock,  // the queries of one tile: for the forward pass, or dq
    kKeyBlock,    // the keys of one tile: for dk and dv
    kSequence,    // the complete gradient of one head of one sequence
  };
  RowRange queries;  // of the sequence
  RowRange keys;     // and values
  int64_t head;
  int64_t begin;  // position of the block in the sequence
  Kind kind;
  int64_t cycles = 0;  // estimated, for the plan

  // The position of a query for the mask: queries and keys are aligned at their ends.
  int64_t MaskPosition(int64_t query) const { return query + keys.count - queries.count; }
};

// The part of a sequence of T tokens and a head in the gradient of the distance bias: of the
// distances from -reach to reach, where reach is min(M, T - 1). The first is at `begin` of the
// parts, of which all sequences and heads have 2 T.
struct DistancePart {
  int64_t begin;
  int64_t reach;
};

inline DistancePart DistancePartOf(const VarlenAttentionOptions& options, RowRange rows,
                                   int64_t head) {
  return {2 * (rows.first * options.num_heads + rows.count * head),
          std::min(options.max_distance, rows.count - 1)};
}

// Whether products are those of bfloat16 numbers.
template <typename T>
bool MultipliesBfloat16(const VarlenAttentionInputs<T>& args) {
  return std::is_same_v<T, BFloat16> || args.bfloat16_products;
}

// Only the copies for AVX-512 use `has_bfloat16`.
BERT_TF_DECLARE_FOR_ISAS(template <typename T>
                         void AttentionForwardUnits(const VarlenAttentionArgs<T>& args,
                                                    const AttentionUnit* units, int64_t count,
                                                    bool has_bfloat16);
                         template <typename T>
                         void AttentionBackwardUnits(const VarlenAttentionGradArgs<T>& args,
                                                     const AttentionUnit* units, int64_t count,
                                                     bool has_bfloat16);)

}  // namespace bert_tf
