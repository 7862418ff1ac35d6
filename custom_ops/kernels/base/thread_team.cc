#include "custom_ops/kernels/base/thread_team.h"

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace bert_tf {
namespace {

using Clock = std::chrono::steady_clock;

// How long a helper waits for the next loop: longer than the time between two matmuls of a model,
// but so short that others can do without the thread.
constexpr std::chrono::microseconds kLinger(50);
constexpr int kLooksBetweenClocks = 16;
// About 50 µs; after that, the other thread may have lost its core.
constexpr int kPausesBeforeYield = 2000;

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

bool ThreadTeam::For(int64_t total, int64_t piece, int helpers, const Schedule& schedule,
                     const std::function<void(int64_t, int64_t)>& fn) {
  if (taken_.exchange(true, std::memory_order_acquire)) return false;
  fn_ = &fn;
  piece_ = piece;
  total_.store(total, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
  open_.store(true, std::memory_order_release);
  const int64_t pieces = (total + piece - 1) / piece;
  const int wanted = static_cast<int>(std::min<int64_t>(helpers, pieces - 1));
  for (int i = helpers_.load(std::memory_order_relaxed); i < wanted; ++i) {
    helpers_.fetch_add(1, std::memory_order_relaxed);
    schedule([this] { Help(); });
  }
  TakePieces();
  // A helper first enters and then checks whether the loop is open. The caller first closes the
  // loop and then checks whether a helper is inside. So at least one of them notices the other.
  open_.store(false);
  for (int pauses = 0; inside_.load() != 0; ++pauses) {
    pauses < kPausesBeforeYield ? Pause() : std::this_thread::yield();
  }
  taken_.store(false, std::memory_order_release);
  return true;
}

void ThreadTeam::Help() {
  Clock::time_point give_up = Clock::now() + kLinger;
  for (int looks = 1;; ++looks) {
    if (open_.load(std::memory_order_relaxed) &&
        next_.load(std::memory_order_relaxed) < total_.load(std::memory_order_relaxed)) {
      inside_.fetch_add(1);
      if (open_.load()) TakePieces();
      inside_.fetch_sub(1);
      give_up = Clock::now() + kLinger;
    } else if (looks % kLooksBetweenClocks == 0 && Clock::now() > give_up) {
      break;
    }
    Pause();
  }
  helpers_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadTeam::TakePieces() {
  const int64_t total = total_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t begin = next_.fetch_add(piece_, std::memory_order_relaxed);
    if (begin >= total) return;
    (*fn_)(begin, std::min(begin + piece_, total));
  }
}

}  // namespace bert_tf
