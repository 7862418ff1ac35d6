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

// Lives for one OpKernel::Compute. The pool decides by the cost estimate into how many pieces a
// range is cut, and runs small ranges on the calling thread.
class TensorFlowParallel : public Parallel {
 public:
  explicit TensorFlowParallel(tensorflow::OpKernelContext* context)
      : pool_(context->device()->tensorflow_cpu_worker_threads()->workers) {}

  void For(int64_t total, int64_t cycles_per_unit,
           const std::function<void(int64_t, int64_t)>& fn) const override {
    if (total <= 0) return;
    pool_->ParallelFor(total, cycles_per_unit > 0 ? cycles_per_unit : 1, fn);
  }

  int NumThreads() const override { return pool_->NumThreads(); }

 private:
  tensorflow::thread::ThreadPool* pool_;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_TENSORFLOW_PARALLEL_H_
