// Large pages for memory that is read again and again.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_

#include <cstddef>

namespace bert_tf {

// Asks the system to put `bytes` at `data` on large pages, and what lies between them and the
// pages' bounds: a processor that looks up an address every 4 KiB cannot read ahead across them.
// Takes some milliseconds; only a hint, which does nothing on systems other than Linux 6.1 or
// later.
void PreferHugePages(const void* data, size_t bytes);

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_
