#include "custom_ops/kernels/base/thread_scratch.h"

#include <cstddef>
#include <cstdlib>

namespace bert_tf {

float* ThreadScratch(int slot, int64_t count) {
  struct Buffer {
    ~Buffer() { std::free(data); }
    float* data = nullptr;
    int64_t count = 0;
  };
  static thread_local Buffer buffers[kThreadScratches];
  constexpr size_t kAlignment = 64;
  Buffer& buffer = buffers[slot];
  if (count > buffer.count) {
    std::free(buffer.data);
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    buffer.data = static_cast<float*>(
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
    if (buffer.data == nullptr) std::abort();
    buffer.count = count;
  }
  return buffer.data;
}

}  // namespace bert_tf
