// The units of work of varlen_attention and the functions that process them, with one copy per
// instruction set. The plan of the units (varlen_attention.cc) is independent of instruction sets.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/isa.h"

namespace bert_tf {

// The number of queries and of keys in a tile. 64 x 64 floats are half of a 32 KiB first-level
// cache, and 64 keys are one chunk of philox.h.
constexpr int kAttentionTile = 64;

struct AttentionUnit {
  enum Kind {
    kQueryBlock,  // the queries of one tile: for the forward pass, or dq
    kKeyBlock,    // the keys of one tile: for dk and dv
    kSequence,    // the complete gradient of one head of one sequence
  };
  int64_t first_row;  // of the sequence, in the packed rows
  int64_t length;     // T
  int64_t head;
  int64_t begin;  // position of the block in the sequence
  Kind kind;
  int64_t cycles = 0;  // estimated, for the plan
};

BERT_TF_DECLARE_FOR_ISAS(template <typename T>
                         void AttentionForwardUnits(const VarlenAttentionArgs<T>& args,
                                                    const AttentionUnit* units, int64_t count);
                         template <typename T>
                         void AttentionBackwardUnits(const VarlenAttentionArgs<T>& args,
                                                     const AttentionUnit* units, int64_t count);)

}  // namespace bert_tf
