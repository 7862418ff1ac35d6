// Checks that every unit is processed once, even if helpers are late or never start, and for any
// number of callers.
#include "custom_ops/kernels/base/thread_team.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace {

using testing::Check;

// A thread pool with a queue of closures.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadTeam::Schedule schedule() {
    return [this](std::function<void()> closure) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(std::move(closure));
        ++scheduled_;
      }
      wake_.notify_one();
    };
  }
  int scheduled() {
    std::lock_guard<std::mutex> lock(mutex_);
    return scheduled_;
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return done_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> closure = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      closure();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  int scheduled_ = 0;
  bool done_ = false;
  std::vector<std::thread> threads_;
};

// Runs a loop and checks that every unit was processed once. Returns false if the team was busy.
bool RunLoop(ThreadTeam& team, const ThreadTeam::Schedule& schedule, int helpers, int64_t total,
             int64_t piece) {
  std::vector<int> done(total, 0);  // not atomic, so that the sanitizer detects data races
  const bool ran = team.For(total, piece, helpers, schedule, [&](int64_t begin, int64_t end) {
    Check(end - begin <= piece, "a piece is too large");
    for (int64_t i = begin; i < end; ++i) ++done[i];
  });
  for (int64_t i = 0; i < total; ++i) {
    Check(done[i] == (ran ? 1 : 0),
          "unit " + std::to_string(i) + " done " + std::to_string(done[i]) + " times");
  }
  return ran;
}

void TestLoops() {
  for (const int threads : {0, 1, 3}) {
    // Without threads, no helper ever starts, and the closures are still queued after the loops.
    ThreadTeam team;
    Pool pool(threads);
    for (int repeat = 0; repeat < 300; ++repeat) {
      for (const int64_t total : {1, 2, 7, 64}) {
        for (const int64_t piece : {1, 3, 100}) {
          Check(RunLoop(team, pool.schedule(), threads, total, piece), "the team was busy");
        }
      }
    }
  }
}

void TestAHelperServesManyLoops() {
  ThreadTeam team;
  Pool pool(1);
  constexpr int kLoops = 2000;
  for (int i = 0; i < kLoops; ++i) RunLoop(team, pool.schedule(), 1, 8, 1);
  Check(pool.scheduled() < kLoops, "a helper was called for every loop");
}

void TestManyCallers() {
  ThreadTeam team;
  Pool pool(2);
  std::atomic<int> ran{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 500; ++repeat) {
        ran += RunLoop(team, pool.schedule(), 2, 20, 1) ? 1 : 0;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  Check(ran > 0, "no loop ran");
}

}  // namespace
}  // namespace bert_tf

int main() {
  bert_tf::TestLoops();
  bert_tf::TestAHelperServesManyLoops();
  bert_tf::TestManyCallers();
  return bert_tf::testing::Report("thread_team_test");
}
