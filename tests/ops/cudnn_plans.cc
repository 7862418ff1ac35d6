// Lets cuDNN make the plans of cudnn_attention.cc for a GPU that this machine does not have.
//
//   cudnn_plans DEVICE.json < CASES
//
// A line of CASES has the fields of CudnnCase, whether the plan is that of the gradient, and
// whether cuDNN compiles it, which takes a second:
//   type sequences rows longest heads head_size window causal deterministic dropout gradient
//   compile
// The answers are lines of "VERSION WORKSPACE NAME" of a plan, whose workspace has so many bytes,
// "supported", or "refused: REASON".
// test_cudnn_attention.py compiles and runs it.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "custom_ops/kernels/attention/cudnn_attention.cc"

namespace {

nlohmann::json device;

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* number) {
  *number = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof(*properties));
  properties->major = device["deviceVer"].get<int>() / 100;
  return cudaSuccess;
}

int BertTfCudaCudnnSequences(const bert_tf::CudaAttentionInputs&, int64_t, int64_t,
                             const bert_tf::CudnnSequences&, void*) {
  return 1;
}

}  // extern "C"

namespace bert_tf {
namespace {

fe::error_t MakePlan(const CudnnCase& c, bool gradient, bool compile,
                     const std::shared_ptr<const fe::DeviceProperties>& properties,
                     int64_t* workspace, std::string* name) {
  Plan plan;
  plan.graph.set_device_properties(properties);
  CHECK_CUDNN_FRONTEND_ERROR(Prepare(c, gradient, nullptr, &plan));
  if (!compile) return {};
  CHECK_CUDNN_FRONTEND_ERROR(plan.graph.build_plans());
  CHECK_CUDNN_FRONTEND_ERROR(plan.graph.get_workspace_size(*workspace));
  return plan.graph.get_plan_name(*name);
}

}  // namespace
}  // namespace bert_tf

int main(int, char** arguments) {
  using namespace bert_tf;
  std::ifstream file(arguments[1]);
  const std::vector<uint8_t> text((std::istreambuf_iterator<char>(file)), {});
  device = nlohmann::json::parse(text);
  const auto properties = std::make_shared<fe::DeviceProperties>();
  if (auto error = properties->deserialize(text); error.is_bad()) {
    std::cerr << error.get_message() << std::endl;
    return 1;
  }
  CudnnCase c;
  bool gradient, compile;
  while (std::cin >> c.type >> c.sequences >> c.rows >> c.longest >> c.heads >> c.head_size >>
         c.window >> c.causal >> c.deterministic >> c.dropout >> gradient >> compile) {
    int64_t workspace = 0;
    std::string name;
    auto error = MakePlan(c, gradient, compile, properties, &workspace, &name);
    if (error.is_bad()) {
      std::cout << "refused: " << error.get_message() << std::endl;
    } else if (!compile) {
      std::cout << "supported" << std::endl;
    } else {
      std::cout << cudnnGetVersion() << " " << workspace << " " << name << std::endl;
    }
  }
  return 0;
}
