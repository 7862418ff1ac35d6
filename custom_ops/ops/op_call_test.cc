// Inputs and outputs of an op are found by their names, and a name that the op and its kernel do
// not share is an error.
#include "custom_ops/ops/op_call.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "custom_ops/kernels/base/kernel_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

// Inputs are numbers at `values`, outputs at `results`.
struct FakeCall {
  std::vector<std::string> inputs, outputs;
  std::vector<float> values = {0.0f, 1.0f, 2.0f};
  std::vector<float> results = {0.0f, 1.0f, 2.0f};

  FakeCall(std::vector<std::string> input_names, std::vector<std::string> output_names)
      : inputs(std::move(input_names)), outputs(std::move(output_names)) {}
  const std::vector<std::string>& InputNames() const { return inputs; }
  const std::vector<std::string>& OutputNames() const { return outputs; }
  bert_tf::Buffer InputAt(int place) const { return {&values[place], {1}, false}; }
  void* OutputAt(int place, std::initializer_list<absl::string_view>) { return &results[place]; }
  absl::Status status() const { return absl::OkStatus(); }
};

struct Args {
  const float* gamma = nullptr;
  const float* beta = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
};

Args Bind(OpCall<FakeCall>* call) {
  Args args;
  call->Input("gamma", &args.gamma);
  call->Input("beta", &args.beta);
  call->OptionalInput("bias", &args.bias);
  call->Output("y", &args.y);
  return args;
}

void TestOrder() {
  OpCall<FakeCall> call(std::vector<std::string>{"beta", "gamma"},
                        std::vector<std::string>{"mean", "y"});
  const Args args = Bind(&call);
  Check(call.status().ok() && call.AllBound().ok(), "any order");
  Check(*args.beta == 0.0f && *args.gamma == 1.0f && *args.y == 1.0f, "values by name");
  Check(args.bias == nullptr, "an optional input that the call does not have");
}

void TestMismatches() {
  OpCall<FakeCall> without_beta(std::vector<std::string>{"gamma", "offset"},
                                std::vector<std::string>{"y"});
  const Args args = Bind(&without_beta);
  Check(!without_beta.status().ok() && args.beta != nullptr, "an input that the op does not have");
  OpCall<FakeCall> without_y(std::vector<std::string>{"gamma", "beta"},
                             std::vector<std::string>{"z"});
  Bind(&without_y);
  Check(!without_y.status().ok(), "an output that the op does not have");
  OpCall<FakeCall> with_scale(std::vector<std::string>{"gamma", "beta", "scale"},
                              std::vector<std::string>{"y"});
  Bind(&with_scale);
  Check(with_scale.status().ok() && !with_scale.AllBound().ok(), "an input that is not bound");
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  bert_tf::testing::TestOrder();
  bert_tf::testing::TestMismatches();
  return bert_tf::testing::Report("op_call_test");
}
