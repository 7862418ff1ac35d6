#include "custom_ops/kernels/base/huge_pages.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bert_tf {

void PreferHugePages([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;  // linux/mman.h, since 6.1
#endif
  constexpr uintptr_t kHugePage = 2 << 20;  // x86-64 and most of arm64
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / kHugePage * kHugePage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data) + bytes;
  // One call per page, because the first and the last page may contain addresses that are not
  // mapped, for which the call fails.
  for (uintptr_t page = begin; page < end; page += kHugePage) {
    madvise(reinterpret_cast<void*>(page), kHugePage, MADV_COLLAPSE);
  }
#endif
}

}  // namespace bert_tf
