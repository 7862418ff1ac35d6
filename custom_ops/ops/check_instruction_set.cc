// Refuses to be loaded where no copy of the kernels may run: a registration that fails makes
// TensorFlow's load_op_library fail with its status, and the reference implementation is used.
#include "absl/status/status.h"
#include "custom_ops/kernels/base/isa.h"
#include "tensorflow/core/framework/op.h"

namespace bert_tf {
namespace {

[[maybe_unused]] const bool kChecked = [] {
  if (*WhyNoCopy() != '\0') {
    tensorflow::OpRegistry::Global()->Register(
        [](tensorflow::OpRegistrationData*) { return absl::FailedPreconditionError(WhyNoCopy()); });
  }
  return true;
}();

}  // namespace
}  // namespace bert_tf
