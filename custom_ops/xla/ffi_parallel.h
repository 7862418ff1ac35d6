// The threads of the kernels in a program that XLA has compiled, from the pool that runs the
// program.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/synchronization/blocking_counter.h"
#include "custom_ops/kernels/base/parallel.h"
#include "tsl/platform/cpu_info.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {

// An object is used for one call of a handler. XLA may make that call in a thread of the same pool,
// so the caller must not wait for a task that has not started. It processes pieces itself until
// none is left, and then waits only for the pieces that other threads are processing. A task that
// starts too late has nothing to do.
class FfiParallel : public Parallel {
 public:
  explicit FfiParallel(xla::ffi::ThreadPool pool)
      : pool_(pool), num_threads_(UsableThreads(pool)) {}

  void For(int64_t total, int64_t cycles_per_unit,
           const std::function<void(int64_t, int64_t)>& fn) const override {
    if (total <= 0) return;
    const double cycles = static_cast<double>(total) * std::max<int64_t>(1, cycles_per_unit);
    const int64_t worthwhile = static_cast<int64_t>(std::min(cycles / kCyclesPerPiece, 1e9)) + 1;
    const int64_t most = std::min<int64_t>(kPiecesPerThread * num_threads_, total);
    const int64_t num_pieces = std::min(worthwhile, most);
    if (num_threads_ == 1 || num_pieces == 1) {
      fn(0, total);
      return;
    }
    auto work = std::make_shared<Work>(total, num_pieces, fn);
    const int64_t helpers = std::min<int64_t>(num_threads_, num_pieces) - 1;
    for (int64_t i = 0; i < helpers; ++i) pool_.Schedule([work] { work->Run(); });
    work->Run();
    work->Wait();
  }

  int NumThreads() const override { return num_threads_; }

 private:
  // At most the number of processors that this process may use, because additional threads would
  // only wait for a processor.
  static int UsableThreads(const xla::ffi::ThreadPool& pool) {
    const int64_t processors = tsl::port::NumSchedulableCPUs();
    return static_cast<int>(std::max(int64_t{1}, std::min(pool.num_threads(), processors)));
  }

  // A piece must take longer than waking the thread that processes it: 10 us at 4 GHz.
  static constexpr double kCyclesPerPiece = 40000;
  // More than one, so that a thread that starts late does not delay the others.
  static constexpr int64_t kPiecesPerThread = 4;

  class Work {
   public:
    Work(int64_t total, int64_t num_pieces, const std::function<void(int64_t, int64_t)>& fn)
        : total_(total),
          num_pieces_(num_pieces),
          fn_(fn),
          unfinished_(static_cast<int>(num_pieces)) {}

    // Processes one piece after the other until all are taken. fn_ remains valid, because the
    // caller waits for all pieces that were taken.
    void Run() {
      for (;;) {
        const int64_t i = next_.fetch_add(1);
        if (i >= num_pieces_) return;
        fn_(Edge(i), Edge(i + 1));
        unfinished_.DecrementCount();
      }
    }

    void Wait() { unfinished_.Wait(); }

   private:
    int64_t Edge(int64_t i) const {
      return total_ / num_pieces_ * i + std::min(i, total_ % num_pieces_);
    }

    const int64_t total_;
    const int64_t num_pieces_;
    const std::function<void(int64_t, int64_t)>& fn_;
    std::atomic<int64_t> next_{0};
    absl::BlockingCounter unfinished_;
  };

  mutable xla::ffi::ThreadPool pool_;
  const int num_threads_;
};

}  // namespace bert_tf
