// The errors of the launchers, also of the emulated ones.
#include <string>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {
namespace {

thread_local std::string next_error, returned_error;

}  // namespace

int Fail(int status, const std::string& message) {
  next_error = message;
  return status;
}

}  // namespace bert_tf::cuda

const char* BertTfCudaError() {
  using namespace bert_tf::cuda;
  returned_error.swap(next_error);
  next_error.clear();
  return returned_error.c_str();
}
