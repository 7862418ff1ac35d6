// An op under XLA: a call of the foreign function that is registered for the platform under the
// name of the op (handlers.cc, gpu_handlers.cc). It runs the same kernel as the OpKernel.
//
// The operands are the inputs of the op, and its attributes are passed unchanged. The shape
// function of the op checks the inputs, whose shapes XLA knows, and computes the shapes of the
// results.
//
// Only custom_call_op.cc includes TensorFlow's headers of XLA, because they take most of the time
// of a build: half a minute in every file that includes them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace bert_tf {

using Sizes = absl::InlinedVector<int64_t, 4>;  // of a tensor

// The number of floats of scratch that a kernel needs for inputs of these sizes. Scratch is an
// additional last result that is not used.
using ScratchSize = int64_t (*)(const std::vector<Sizes>& inputs);

// The scratch of a kernel for a first input [..., columns].
template <int64_t (*kSize)(int64_t rows, int64_t columns)>
int64_t ScratchOfMatrix(const std::vector<Sizes>& inputs) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < inputs[0].size(); ++i) rows *= inputs[0][i];
  const int64_t columns = inputs[0].back();
  return kSize(columns == 0 ? 0 : rows, columns);
}

// Registers the lowering of an op for a device of XLA, e.g. "XLA_CPU_JIT". `scratch_size` is null
// for an op without scratch. Returns true, for the initializer of a static variable.
bool RegisterLowering(const char* op, const char* device, ScratchSize scratch_size = nullptr,
                      int priority = 0);

// The same for BertTf>AdamWeightDecay, which reads and assigns variables.
bool RegisterAdamWeightDecayLowering(const char* device, int priority = 0);

// The scratch of BertTf>GlobalNorm.
int64_t GlobalNormScratch(const std::vector<Sizes>& inputs);

}  // namespace bert_tf
