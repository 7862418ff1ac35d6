// An interface to threads, which does not depend on a thread pool. OpKernels pass TensorFlow's pool
// to the kernels; tests and tools pass a serial loop or their own threads.
#pragma once

#include <cstdint>
#include <functional>

namespace bert_tf {

class Parallel {
 public:
  virtual ~Parallel() = default;

  // Calls fn(begin, end) on disjoint pieces that cover [0, total), possibly at the same time, and
  // returns when all are done. `cycles_per_unit` estimates the work of one unit. The pieces depend
  // on the pool. If the result of a kernel must not depend on the number of threads, its units must
  // be blocks of a fixed size.
  virtual void For(int64_t total, int64_t cycles_per_unit,
                   const std::function<void(int64_t begin, int64_t end)>& fn) const = 0;

  // How many pieces can run at the same time, so that a kernel can divide its work evenly.
  virtual int NumThreads() const = 0;
};

class SerialParallel : public Parallel {
 public:
  void For(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& fn) const override {
    if (total > 0) fn(0, total);
  }
  int NumThreads() const override { return 1; }
};

}  // namespace bert_tf
