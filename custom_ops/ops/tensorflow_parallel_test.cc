// Checks that the number of threads is not above the number of processors and TensorFlow's limit.
#include "custom_ops/ops/tensorflow_parallel.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/util/work_sharder.h"

namespace bert_tf {
namespace {

using testing::Check;

constexpr int64_t kUnits = 400;
constexpr int64_t kCycles = 100000;  // enough to use several threads

// Runs a loop, checks that every unit is processed once, and returns the largest number of threads
// that were inside at a time. `inside` is called in every piece.
int LargestCrowd(const TensorFlowParallel& parallel, const std::function<void()>& inside = {}) {
  std::atomic<int> crowd{0}, largest{0};
  std::vector<int> done(kUnits, 0);
  parallel.For(kUnits, kCycles, [&](int64_t begin, int64_t end) {
    const int now = ++crowd;
    int seen = largest;
    while (now > seen && !largest.compare_exchange_weak(seen, now)) {
    }
    if (inside) inside();
    for (int64_t i = begin; i < end; ++i) ++done[i];
    std::this_thread::yield();
    --crowd;
  });
  for (int64_t i = 0; i < kUnits; ++i) {
    Check(done[i] == 1,
          "unit " + std::to_string(i) + " done " + std::to_string(done[i]) + " times");
  }
  return largest;
}

void TestMoreThreadsThanProcessors() {
  const int processors = tensorflow::port::NumSchedulableCPUs();
  tensorflow::thread::ThreadPool pool(tensorflow::Env::Default(), "large", 8 * processors);
  const TensorFlowParallel parallel(&pool);
  Check(parallel.NumThreads() == processors, "threads that cannot run");
  for (int repeat = 0; repeat < 20; ++repeat) {
    Check(LargestCrowd(parallel) <= processors, "more threads at work than processors");
  }
  // The inner loop runs while the outer loop is using the team.
  std::atomic<bool> once{false};
  LargestCrowd(parallel, [&] {
    if (once.exchange(true)) return;
    Check(LargestCrowd(parallel) <= processors, "more threads at work in an inner loop");
  });
}

void TestTheThreadsLimit() {
  tensorflow::thread::ThreadPool pool(tensorflow::Env::Default(), "pool", 4);
  const int before = TensorFlowParallel(&pool).NumThreads();
  {
    const tensorflow::ScopedPerThreadMaxParallelism limit(1);  // as tf.data sets it
    const TensorFlowParallel parallel(&pool);
    Check(parallel.NumThreads() == 1, "the thread's limit is not honoured");
    const std::thread::id caller = std::this_thread::get_id();
    LargestCrowd(parallel,
                 [&] { Check(std::this_thread::get_id() == caller, "another thread helped"); });
  }
  Check(TensorFlowParallel(&pool).NumThreads() == before, "the limit outlived its scope");
}

}  // namespace
}  // namespace bert_tf

int main() {
  bert_tf::TestMoreThreadsThanProcessors();
  bert_tf::TestTheThreadsLimit();
  return bert_tf::testing::Report("tensorflow_parallel_test");
}
