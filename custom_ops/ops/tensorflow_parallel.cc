#include "custom_ops/ops/tensorflow_parallel.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "custom_ops/kernels/base/thread_team.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/util/work_sharder.h"

namespace bert_tf {
namespace {

// Estimates, on which only the speed depends. The threads of a team wait actively, so a piece must
// take longer than handing it over, but not than waking a thread.
constexpr int64_t kLeastSharedCycles = 10000;  // below, the calling thread does all
constexpr int64_t kLeastPieceCycles = 2000;    // longer than handing it over
constexpr int64_t kMostPieceCycles =
    200000;                              // 50 us at 4 GHz: how long threads may wait for the last
constexpr int64_t kPiecesPerThread = 8;  // so that threads wait at most for an eighth of a share

// The team of a pool. It is never deleted, so that helpers can always use it. (The function is not
// in the header, because two copies of this library in one process would share the static variables
// of an inline function.)
ThreadTeam* TeamOf(const tensorflow::thread::ThreadPool* pool) {
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

int UsableThreads(const tensorflow::thread::ThreadPool& pool) {
  static const int processors = tensorflow::port::NumSchedulableCPUs();
  return std::max(
      1, std::min({pool.NumThreads(), processors, tensorflow::GetPerThreadMaxParallelism()}));
}

}  // namespace

TensorFlowParallel::TensorFlowParallel(tensorflow::thread::ThreadPool* pool)
    : pool_(pool), num_threads_(UsableThreads(*pool)) {}

void TensorFlowParallel::For(int64_t total, int64_t cycles_per_unit,
                             const std::function<void(int64_t, int64_t)>& fn) const {
  if (total <= 0) return;
  const int64_t cycles = std::max<int64_t>(1, cycles_per_unit);
  const int threads = num_threads_;
  if (threads == 1 || total == 1 || total <= kLeastSharedCycles / cycles) return fn(0, total);
  // Small enough that threads do not wait long for the last piece, and large enough to be worth the
  // overhead.
  const int64_t piece =
      std::max({int64_t{1}, kLeastPieceCycles / cycles,
                std::min(total / (kPiecesPerThread * threads), kMostPieceCycles / cycles)});
  const auto schedule = [this](std::function<void()> closure) {
    pool_->Schedule(std::move(closure));
  };
  if (TeamOf(pool_)->For(total, piece, threads - 1, schedule, fn)) return;
  // Another op of this pool is using the team.
  tensorflow::Shard(threads, pool_, total, cycles, fn);
}

}  // namespace bert_tf
