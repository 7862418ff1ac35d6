// What the definition of an op says about a node: the names of its tensors, and the shapes of its
// outputs.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/version.h"

namespace bert_tf {

// The names of the inputs and outputs of a node in their order. A list of no tensor has no name,
// and in a list of several tensors, the names of all but the first one are empty.
struct TensorNames {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;

  absl::Status Read(const tensorflow::NodeDef& node) {
    const tensorflow::OpDef* op;
    TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op));
    tensorflow::NameRangeMap of_inputs, of_outputs;
    TF_RETURN_IF_ERROR(tensorflow::NameRangesForNode(node, *op, &of_inputs, &of_outputs));
    for (const auto& [ranges, names] :
         {std::pair(&of_inputs, &inputs), std::pair(&of_outputs, &outputs)}) {
      for (const auto& [name, range] : *ranges) {
        if (range.first == range.second) continue;
        names->resize(std::max<size_t>(names->size(), range.second));
        (*names)[range.first] = std::string(name);
      }
    }
    return absl::OkStatus();
  }
};

// Runs the shape function of the op of a node, which checks the shapes of the inputs and the
// attributes, and sets the shapes of the outputs.
inline absl::Status InferShapes(const tensorflow::NodeDef& node,
                                const std::vector<tensorflow::TensorShape>& inputs,
                                std::vector<tensorflow::TensorShape>* outputs) {
  const tensorflow::OpRegistrationData* op;
  TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUp(node.op(), &op));
  const std::vector<tensorflow::PartialTensorShape> shapes(inputs.begin(), inputs.end());
  tensorflow::shape_inference::InferenceContext inference(TF_GRAPH_DEF_VERSION, node, op->op_def,
                                                          shapes, {}, {}, {});
  TF_RETURN_IF_ERROR(inference.construction_status());
  TF_RETURN_IF_ERROR(op->shape_inference_fn(&inference));
  outputs->assign(inference.num_outputs(), {});
  for (int i = 0; i < inference.num_outputs(); ++i) {
    const auto shape = inference.output(i);
    if (!inference.FullyDefined(shape)) {
      return absl::InternalError(
          absl::StrCat("Output ", i, " of ", node.op(),
                       " must have a known shape. Received: shape=", inference.DebugString(shape)));
    }
    for (int d = 0; d < inference.Rank(shape); ++d) {
      const int64_t size = inference.Value(inference.Dim(shape, d));
      TF_RETURN_IF_ERROR((*outputs)[i].AddDimWithStatus(size));
    }
  }
  return absl::OkStatus();
}

}  // namespace bert_tf
