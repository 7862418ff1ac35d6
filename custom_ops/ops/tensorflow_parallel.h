// The threads of the kernels, from the pool of TensorFlow's own CPU kernels.
#pragma once

#include <cstdint>
#include <functional>

#include "custom_ops/kernels/base/parallel.h"
#include "tensorflow/core/platform/threadpool.h"

namespace bert_tf {

// An object is used for one OpKernel::Compute, in the thread that runs it.
//
// The number of threads is limited by the pool, by the number of processors that this process may
// use (the threads of a team wait actively for work, so additional threads would only slow each
// other down), and by the limit of the calling thread, which tf.data sets to
// `options.threading.max_intra_op_parallelism`.
class TensorFlowParallel : public Parallel {
 public:
  explicit TensorFlowParallel(tensorflow::thread::ThreadPool* pool);

  void For(int64_t total, int64_t cycles_per_unit,
           const std::function<void(int64_t, int64_t)>& fn) const override;

  int NumThreads() const override { return num_threads_; }

 private:
  tensorflow::thread::ThreadPool* const pool_;
  const int num_threads_;
};

}  // namespace bert_tf
