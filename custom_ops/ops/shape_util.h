// Shared by the shape functions of the ops. The OpKernels (kernel_op.h) and the XLA lowerings call
// the shape functions, so attributes and shapes are checked only there.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {

// An InvalidArgument error with the concatenated arguments as its message.
template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

inline absl::Status ReadDropoutRate(tensorflow::shape_inference::InferenceContext* c, float* rate) {
  TF_RETURN_IF_ERROR(c->GetAttr("dropout_rate", rate));
  if (*rate >= 0.0f && *rate < 1.0f) return absl::OkStatus();
  return InvalidArgument("`dropout_rate` must be in [0, 1). Received: dropout_rate=", *rate);
}

inline absl::Status CheckEpsilon(tensorflow::shape_inference::InferenceContext* c) {
  float epsilon;
  TF_RETURN_IF_ERROR(c->GetAttr("epsilon", &epsilon));
  if (epsilon >= 0.0f) return absl::OkStatus();
  return InvalidArgument("`epsilon` must be at least 0. Received: epsilon=", epsilon);
}

// The number of tensors of an optional input: none or one.
inline absl::Status ReadOptional(tensorflow::shape_inference::InferenceContext* c,
                                 const char* attribute, int* number) {
  TF_RETURN_IF_ERROR(c->GetAttr(attribute, number));
  if (*number <= 1) return absl::OkStatus();
  return InvalidArgument("`", attribute, "` must be 0 or 1. Received: ", attribute, "=", *number);
}

// Sets `shape` to that of an input, which must have this rank: it must `be`, e.g., "a vector".
inline absl::Status ReadShape(tensorflow::shape_inference::InferenceContext* c, const char* name,
                              int rank, const char* be,
                              tensorflow::shape_inference::ShapeHandle* shape) {
  std::vector<tensorflow::shape_inference::ShapeHandle> input;
  TF_RETURN_IF_ERROR(c->input(name, &input));
  if (c->WithRank(input[0], rank, shape).ok()) return absl::OkStatus();
  return InvalidArgument("`", name, "` must ", be, ". Received: ", name,
                         ".shape=", c->DebugString(input[0]));
}

// Checks that int32 can hold the sums of products of 8-bit integers.
inline absl::Status CheckDepth(tensorflow::shape_inference::InferenceContext* c, const char* name,
                               tensorflow::shape_inference::DimensionHandle depth,
                               int64_t most_depth) {
  if (!c->ValueKnown(depth) || c->Value(depth) <= most_depth) return absl::OkStatus();
  return InvalidArgument(
      "`", name, "` must have at most ", most_depth,
      " columns, so that int32 can hold the sums. Received: K=", c->Value(depth));
}

inline absl::Status CheckSeed(tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle unused;
  return ReadShape(c, "seed", 0, "be a scalar", &unused);
}

// Merges `shape`, the expected one, with that of an input, if the op has this input.
inline absl::Status MergeShape(tensorflow::shape_inference::InferenceContext* c, const char* name,
                               tensorflow::shape_inference::ShapeHandle* shape) {
  std::vector<tensorflow::shape_inference::ShapeHandle> input;
  TF_RETURN_IF_ERROR(c->input(name, &input));
  const auto expected = *shape;
  if (input.empty() || c->Merge(expected, input[0], shape).ok()) return absl::OkStatus();
  return InvalidArgument("`", name, "` must have shape ", c->DebugString(expected),
                         ". Received: ", name, ".shape=", c->DebugString(input[0]));
}

}  // namespace bert_tf
