// Huge pages for memory that is read many times.
#pragma once

#include <cstddef>

namespace bert_tf {

// Asks the system to back the `bytes` at `data`, and the rest of the huge pages that contain them,
// with huge pages. With pages of 4 KiB, the processor looks up an address for every page and cannot
// prefetch across their bounds. The call takes some milliseconds. It is only a hint, and has an
// effect only on Linux 6.1 or later.
void PreferHugePages(const void* data, size_t bytes);

}  // namespace bert_tf
