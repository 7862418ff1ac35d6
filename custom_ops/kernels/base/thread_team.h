// A caller and helper threads from a pool that execute parallel loops together, one after the
// other.
//
// A thread pool wakes threads for every loop and lets the caller sleep until the loop ends. For
// models with small matmuls, this takes longer than the work itself. Here, a helper keeps its
// thread for a short time after a loop and waits actively for the next one. Threads take the pieces
// of a loop one by one, so no thread waits for a helper that starts late. The caller also waits
// actively, for at most the time of one piece.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace bert_tf {

class ThreadTeam {
 public:
  // Schedules a closure on the pool. The team must outlive every closure.
  using Schedule = std::function<void(std::function<void()>)>;

  // Calls fn(begin, end) on pieces of `piece` units that cover [0, total), in the calling thread
  // and up to `helpers` others, and returns when all are done. Returns false without calling fn if
  // this team is executing a loop of another thread.
  bool For(int64_t total, int64_t piece, int helpers, const Schedule& schedule,
           const std::function<void(int64_t begin, int64_t end)>& fn);

 private:
  void Help();
  void TakePieces();

  // The current loop, set by its caller while no helper is inside.
  const std::function<void(int64_t, int64_t)>* fn_ = nullptr;
  int64_t piece_ = 0;
  std::atomic<int64_t> total_{0};

  std::atomic<bool> taken_{false};          // whether a caller uses the team
  std::atomic<bool> open_{false};           // whether helpers may enter the loop
  std::atomic<int> helpers_{0};             // scheduled helpers, running or in the pool's queue
  alignas(64) std::atomic<int> inside_{0};  // helpers that may be reading the loop
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace bert_tf
