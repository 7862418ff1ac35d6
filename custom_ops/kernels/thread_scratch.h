// Scratch memory that a thread keeps from call to call: fresh pages cost as much as a small matmul.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_THREAD_SCRATCH_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_THREAD_SCRATCH_H_

#include <cstdint>

namespace bert_tf {

constexpr int kThreadScratches = 3;

// At least `count` floats of the calling thread's buffer number `slot`, aligned to 64 bytes, with
// whatever they held. A larger request may move the buffer; it is freed when the thread ends.
float* ThreadScratch(int slot, int64_t count);

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_THREAD_SCRATCH_H_
