// The kernels' threads, taken from the pool that TensorFlow gives its own CPU kernels.
#ifndef BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_
#define BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_

#include <cstdint>
#include <functional>

#include "custom_ops/kernels/parallel.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"

namespace bert_tf {

// Lives for one OpKernel::Compute, on the thread that runs it.
//
// It uses no more threads than the pool has, than the processors that this process may run on (the
// threads of a team look for work without sleeping, so more of them would only take each other's
// time), and than the calling thread may use: tf.data's
// `options.threading.max_intra_op_parallelism` is set there.
class TensorFlowParallel : public Parallel {
 public:
  explicit TensorFlowParallel(tensorflow::OpKernelContext* context)
      : TensorFlowParallel(context->device()->tensorflow_cpu_worker_threads()->workers) {}
  explicit TensorFlowParallel(tensorflow::thread::ThreadPool* pool);

  void For(int64_t total, int64_t cycles_per_unit,
           const std::function<void(int64_t, int64_t)>& fn) const override;

  int NumThreads() const override { return num_threads_; }

 private:
  tensorflow::thread::ThreadPool* const pool_;
  const int num_threads_;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_
