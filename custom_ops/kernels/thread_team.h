// A caller and helpers from a thread pool that share out loops, one after the other.
//
// A pool wakes a thread for every loop and puts the caller to sleep at its end. In a model of small
// matmuls that takes longer than the work. Here a helper that has come keeps its thread for a
// moment and looks for the next loop; nobody waits for a helper that comes late, because the pieces
// are taken one by one; and the caller waits awake, for no longer than a piece takes.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_THREAD_TEAM_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_THREAD_TEAM_H_

#include <atomic>
#include <cstdint>
#include <functional>

namespace bert_tf {

class ThreadTeam {
 public:
  // Puts a closure on the pool. The team must outlive every closure.
  using Schedule = std::function<void(std::function<void()>)>;

  // Calls fn(begin, end) on pieces of `piece` units that cover [0, total), on the calling thread
  // and up to `helpers` others, and returns when all are done. Returns false and does nothing while
  // another thread's loop is running on this team.
  bool For(int64_t total, int64_t piece, int helpers, const Schedule& schedule,
           const std::function<void(int64_t begin, int64_t end)>& fn);

 private:
  void Help();
  void TakePieces();

  // A loop: written by its caller while nobody is inside.
  const std::function<void(int64_t, int64_t)>* fn_ = nullptr;
  int64_t piece_ = 0;
  std::atomic<int64_t> total_{0};

  std::atomic<bool> taken_{false};          // by a caller
  std::atomic<bool> open_{false};           // for helpers to enter
  std::atomic<int> helpers_{0};             // on the pool, in its queue or looking for work
  alignas(64) std::atomic<int> inside_{0};  // helpers that may be reading the loop
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_THREAD_TEAM_H_
