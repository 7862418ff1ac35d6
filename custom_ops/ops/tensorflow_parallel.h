// The kernels' threads, taken from the pool that TensorFlow gives its own CPU kernels.
#ifndef BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_
#define BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "custom_ops/kernels/parallel.h"
#include "custom_ops/kernels/thread_team.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"

namespace bert_tf {

// Lives for one OpKernel::Compute.
class TensorFlowParallel : public Parallel {
 public:
  explicit TensorFlowParallel(tensorflow::OpKernelContext* context)
      : pool_(context->device()->tensorflow_cpu_worker_threads()->workers) {}

  void For(int64_t total, int64_t cycles_per_unit,
           const std::function<void(int64_t, int64_t)>& fn) const override {
    if (total <= 0) return;
    const int64_t cycles = std::max<int64_t>(1, cycles_per_unit);
    const int threads = NumThreads();
    if (threads == 1 || total == 1 || total <= kLeastSharedCycles / cycles) return fn(0, total);
    // Small enough that nobody waits long for the last piece, large enough to be worth the asking.
    const int64_t piece =
        std::max({int64_t{1}, kLeastPieceCycles / cycles,
                  std::min(total / (kPiecesPerThread * threads), kMostPieceCycles / cycles)});
    const auto schedule = [this](std::function<void()> closure) {
      pool_->Schedule(std::move(closure));
    };
    if (Team(pool_)->For(total, piece, threads - 1, schedule, fn)) return;
    pool_->ParallelFor(total, cycles, fn);  // another op of this pool has the team
  }

  int NumThreads() const override { return pool_->NumThreads(); }

 private:
  static constexpr int64_t kLeastSharedCycles = 10000;
  static constexpr int64_t kLeastPieceCycles = 2000;
  static constexpr int64_t kMostPieceCycles = 200000;
  static constexpr int64_t kPiecesPerThread = 8;

  // The team of a pool; it is kept for good, so that a helper always finds it.
  static ThreadTeam* Team(const tensorflow::thread::ThreadPool* pool) {
    thread_local std::pair<const void*, ThreadTeam*> last{nullptr, nullptr};
    if (last.first != pool) {
      static std::mutex& mutex = *new std::mutex;
      static auto& teams = *new std::map<const void*, ThreadTeam*>;
      std::lock_guard<std::mutex> lock(mutex);
      ThreadTeam*& team = teams[pool];
      if (team == nullptr) team = new ThreadTeam;
      last = {pool, team};
    }
    return last.second;
  }

  tensorflow::thread::ThreadPool* pool_;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_
