// Scratch memory that a thread reuses in later calls, because allocating new pages takes as long as
// a small matmul.
#pragma once

#include <cstdint>

namespace bert_tf {

constexpr int kThreadScratches = 4;

// Returns buffer `slot` of the calling thread, with at least `count` floats, aligned to 64 bytes.
// The buffer keeps its contents between calls unless `count` is larger than before: then they are
// undefined, and earlier results for the same slot are invalid. It is freed when the thread ends.
float* ThreadScratch(int slot, int64_t count);

}  // namespace bert_tf
