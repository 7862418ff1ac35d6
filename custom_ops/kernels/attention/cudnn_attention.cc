#include "custom_ops/kernels/attention/cudnn_attention.h"

#include <cstdlib>

namespace bert_tf {
namespace {

// Returns why cuDNN is not for these arguments, or null. It was not measured on a GPU, so it must
// be asked for.
const char* WhyNotNow(int type, const CudaAttentionInputs& args) {
  static const bool is_switched_on = [] {
    const char* const choice = std::getenv("BERT_TF_CUDNN");
    return choice != nullptr && std::string(choice) == "1";
  }();
  return is_switched_on ? WhyNotCudnn(type, args) : "BERT_TF_CUDNN=1 switches it on";
}

}  // namespace
}  // namespace bert_tf

// The headers of CUDA, cuDNN and cudnn-frontend are in the wheel of TensorFlow, and the functions
// of cuDNN in libtensorflow_framework.so.2, which opens libcudnn.so.9 when one of them is called.
#if __has_include(<cudnn_frontend_version.h>)
#include <cudnn_frontend_version.h>
#endif

#if !defined(CUDNN_FRONTEND_VERSION) || CUDNN_FRONTEND_VERSION < 11300

extern "C" int BertTfCudaCudnnAttention(int type, const bert_tf::CudaAttentionInputs& args,
                                        const bert_tf::CudnnTensors&, const bert_tf::GpuResources&,
                                        std::string* message) {
  const char* const why_not = bert_tf::WhyNotNow(type, args);
  *message =
      why_not != nullptr ? why_not : "the TensorFlow of the build has no cudnn-frontend 1.13";
  return why_not != nullptr ? bert_tf::kCudnnDoesNotFit : bert_tf::kCudnnUnavailable;
}

#else

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "custom_ops/kernels/attention/cudnn_sequences.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {
namespace {

namespace fe = cudnn_frontend;
using namespace cudnn_frontend;  // NOLINT: its macro CHECK_CUDNN_FRONTEND_ERROR needs it

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kLogsumexp,
  kDOutput,
  kDQuery,
  kDKey,
  kDValue,
  kLength,
  kFirstQkv,
  kFirstOutput,
  kFirstLogsumexp,
  kSeed,
  kDropoutOffset,
};

// Makes cuDNN's graph of one case. cuDNN sees the rows as [sequences, heads, longest, columns],
// where the offset of each sequence and its length say which of them exist.
class GraphMaker {
 public:
  GraphMaker(const CudnnCase& c, fe::graph::Graph* graph) : case_(c), graph_(*graph) {
    graph_
        .set_io_data_type(c.type == kBertTfBFloat16 ? fe::DataType_t::BFLOAT16
                                                    : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto int64 = fe::DataType_t::INT64;
    first_qkv_ = Numbers(kFirstQkv, c.sequences + 1, int64);
    first_output_ = Numbers(kFirstOutput, c.sequences + 1, int64);
    first_logsumexp_ = Numbers(kFirstLogsumexp, c.sequences + 1, int64);
    length_ = Numbers(kLength, c.sequences, fe::DataType_t::INT32);
    query_ = Input(kQuery, c.head_size, 3, first_qkv_);
    key_ = Input(kKey, c.head_size, 3, first_qkv_);
    value_ = Input(kValue, c.head_size, 3, first_qkv_);
    if (c.dropout > 0.0f) {
      seed_ = Numbers(kSeed, 1, int64);
      dropout_offset_ = Numbers(kDropoutOffset, 1, int64);
    }
  }

  void Forward() {
    fe::graph::SDPA_attributes options;
    options.set_generate_stats(true);
    SetOptions(&options);
    auto [output, logsumexp] = graph_.sdpa(query_, key_, value_, options);
    Place(kOutput, case_.head_size, 1, first_output_, output.get());
    Place(kLogsumexp, 1, 1, first_logsumexp_, logsumexp.get());
    output->set_output(true);
    logsumexp->set_output(true).set_data_type(fe::DataType_t::FLOAT);
  }

  void Gradient() {
    const Tensor output = Input(kOutput, case_.head_size, 1, first_output_);
    const Tensor d_output = Input(kDOutput, case_.head_size, 1, first_output_);
    const Tensor logsumexp = Input(kLogsumexp, 1, 1, first_logsumexp_);
    logsumexp->set_data_type(fe::DataType_t::FLOAT);
    fe::graph::SDPA_backward_attributes options;
    options.set_max_total_seq_len_q(case_.rows)
        .set_max_total_seq_len_kv(case_.rows)
        .set_deterministic_algorithm(case_.deterministic);
    SetOptions(&options);
    auto [d_query, d_key, d_value] =
        graph_.sdpa_backward(query_, key_, value_, output, d_output, logsumexp, options);
    int64_t uid = kDQuery;
    for (const Tensor& gradient : {d_query, d_key, d_value}) {
      Place(uid++, case_.head_size, 3, first_qkv_, gradient.get());
      gradient->set_output(true);
    }
  }

 private:
  // A tensor [rows, parts, heads, columns], of which it is one part.
  void Place(int64_t uid, int64_t columns, int64_t parts, const Tensor& first,
             fe::graph::Tensor_attributes* tensor) const {
    const int64_t row = parts * case_.heads * columns;
    tensor->set_uid(uid)
        .set_dim({case_.sequences, case_.heads, case_.longest, columns})
        .set_stride({case_.longest * row, columns, row, 1})
        .set_ragged_offset(first);
  }
  Tensor Input(int64_t uid, int64_t columns, int64_t parts, const Tensor& first) {
    fe::graph::Tensor_attributes tensor;
    Place(uid, columns, parts, first, &tensor);
    return graph_.tensor(tensor);
  }
  Tensor Numbers(int64_t uid, int64_t count, fe::DataType_t type) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  }

  template <typename Options>
  void SetOptions(Options* options) const {
    options->set_attn_scale(1.0f / std::sqrt(static_cast<float>(case_.head_size)))
        .set_padding_mask(true)
        .set_seq_len_q(length_)
        .set_seq_len_kv(length_);
    // Query i attends to key j if i - left < j <= i + right.
    if (case_.window >= 0)
      options->set_diagonal_band_left_bound(static_cast<int>(case_.window) + 1);
    if (case_.causal || case_.window >= 0) {
      options->set_diagonal_band_right_bound(case_.causal ? 0 : static_cast<int>(case_.window));
    }
    if (case_.dropout > 0.0f) options->set_dropout(case_.dropout, seed_, dropout_offset_);
  }

  const CudnnCase& case_;
  fe::graph::Graph& graph_;
  Tensor first_qkv_, first_output_, first_logsumexp_, length_;
  Tensor query_, key_, value_, seed_, dropout_offset_;
};

// The most bytes of GPU memory that a call may take. The workspace of a gradient grows with
// sequences x longest, and with its square if the gradient is deterministic.
constexpr int64_t kMostWorkspace = int64_t{1} << 30;

struct Plan {
  fe::graph::Graph graph;
  bool is_built = false;
};

// Makes a graph that cuDNN supports on this device, or returns why it does not.
fe::error_t Prepare(const CudnnCase& c, bool gradient, cudnnHandle_t handle, Plan* plan) {
  GraphMaker maker(c, &plan->graph);
  gradient ? maker.Gradient() : maker.Forward();
  CHECK_CUDNN_FRONTEND_ERROR(plan->graph.validate());
  CHECK_CUDNN_FRONTEND_ERROR(plan->graph.build_operation_graph(handle));
  CHECK_CUDNN_FRONTEND_ERROR(plan->graph.create_execution_plans({fe::HeurMode_t::A}));
  plan->graph.deselect_workspace_greater_than(kMostWorkspace);
  return plan->graph.check_support(handle);
}

// What is kept of a case. Plans are made again if others had to make room.
struct Entry {
  std::string refusal;  // why cuDNN does not compute this case
  std::unique_ptr<Plan> forward, gradient;
  int64_t last_use = 0;

  void RemovePlans() {
    forward.reset();
    gradient.reset();
  }
};

struct Device {
  std::mutex mutex;  // a handle must be used by one thread at a time
  cudnnHandle_t handle = nullptr;
  std::map<CudnnCase, Entry> entries;
  int64_t uses = 0;

  // Decides a new case: cuDNN must support the forward pass and the gradient.
  Entry* Find(const CudnnCase& c) {
    const auto [found, is_new] = entries.try_emplace(c);
    Entry& entry = found->second;
    entry.last_use = ++uses;
    if (!is_new) return &entry;
    for (const bool gradient : {false, true}) {
      auto& plan = gradient ? entry.gradient : entry.forward;
      plan = std::make_unique<Plan>();
      fe::error_t error = Prepare(c, gradient, handle, plan.get());
      if (error.is_good()) continue;
      entry.refusal = "cuDNN refuses: " + error.get_message();
      entry.RemovePlans();
      break;
    }
    RemoveOldPlans();
    return &entry;
  }

  // Keeps the plans of the cases that were used last.
  void RemoveOldPlans() {
    constexpr int kMostCases = 64;
    int count = 0;
    Entry* oldest = nullptr;
    for (auto& [c, entry] : entries) {
      if (entry.forward == nullptr && entry.gradient == nullptr) continue;
      ++count;
      if (oldest == nullptr || entry.last_use < oldest->last_use) oldest = &entry;
    }
    if (count > kMostCases) oldest->RemovePlans();
  }
};

// The current device.
Device* ThisDevice() {
  static std::mutex mutex;
  static auto* const devices = new std::map<int, Device>;  // cuDNN may be unloaded before the end
  int number = 0;
  if (cudaGetDevice(&number) != cudaSuccess) return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  return &(*devices)[number];
}

// Computes the sequences and queues the plan.
fe::error_t Execute(const CudnnCase& c, const CudaAttentionInputs& args,
                    const CudnnTensors& tensors, const GpuResources& resources,
                    cudnnHandle_t handle, Plan* plan) {
  int64_t workspace_bytes = 0;
  CHECK_CUDNN_FRONTEND_ERROR(plan->graph.get_workspace_size(workspace_bytes));
  // Five arrays for the sequences, then cuDNN's workspace. cuDNN needs tensors that are aligned.
  constexpr int64_t kAlignment = 256;
  const int64_t part_bytes = RoundUpSize((c.sequences + 1) * int64_t{sizeof(int64_t)}, kAlignment);
  char* const memory = static_cast<char*>(resources.allocate(5 * part_bytes + workspace_bytes));
  if (memory == nullptr) {
    return {fe::error_code_t::CUDA_API_FAILED,
            "no memory for its workspace, " + std::to_string(workspace_bytes) + " bytes"};
  }
  const auto array = [&](int64_t i) { return reinterpret_cast<int64_t*>(memory + i * part_bytes); };
  const CudnnSequences sequences = {array(0), array(1), array(2), array(3),
                                    reinterpret_cast<int32_t*>(array(4))};
  if (BertTfCudaCudnnSequences(args, c.sequences, c.longest, sequences, resources.stream) != 0) {
    return {fe::error_code_t::CUDA_API_FAILED, "the sequences could not be computed"};
  }

  const auto part = [&](const void* qkv, int64_t index) {
    constexpr int64_t kBytes = 2;  // of an element
    return static_cast<char*>(const_cast<void*>(qkv)) + index * c.heads * c.head_size * kBytes;
  };
  std::unordered_map<int64_t, void*> pointers = {{kQuery, part(args.qkv, 0)},
                                                 {kKey, part(args.qkv, 1)},
                                                 {kValue, part(args.qkv, 2)},
                                                 {kOutput, tensors.output},
                                                 {kLogsumexp, tensors.logsumexp},
                                                 {kLength, sequences.length},
                                                 {kFirstQkv, sequences.first_qkv},
                                                 {kFirstOutput, sequences.first_output},
                                                 {kFirstLogsumexp, sequences.first_logsumexp}};
  if (c.dropout > 0.0f) {
    pointers[kSeed] = const_cast<int64_t*>(args.seed);
    pointers[kDropoutOffset] = sequences.dropout_offset;
  }
  if (tensors.d_output != nullptr) {
    pointers[kDOutput] = const_cast<void*>(tensors.d_output);
    pointers[kDQuery] = part(tensors.d_qkv, 0);
    pointers[kDKey] = part(tensors.d_qkv, 1);
    pointers[kDValue] = part(tensors.d_qkv, 2);
  }
  CHECK_CUDNN_ERROR(cudnnSetStream(handle, static_cast<cudaStream_t>(resources.stream)));
  return plan->graph.execute(handle, pointers, memory + 5 * part_bytes);
}

CudnnResult Attend(const CudnnCase& c, const CudaAttentionInputs& args, const CudnnTensors& tensors,
                   const GpuResources& resources, std::string* message) {
  Device* const device = ThisDevice();
  if (device == nullptr) {
    *message = "CUDA has no current device";
    return kCudnnFailed;
  }
  std::lock_guard<std::mutex> lock(device->mutex);
  if (device->handle == nullptr && cudnnCreate(&device->handle) != CUDNN_STATUS_SUCCESS) {
    device->handle = nullptr;
    *message = "cudnnCreate failed";
    return kCudnnFailed;
  }
  Entry* const entry = device->Find(c);
  if (!entry->refusal.empty()) {
    *message = entry->refusal;
    return kCudnnUnavailable;
  }
  const auto run = [&]() -> fe::error_t {
    const bool gradient = tensors.d_output != nullptr;
    auto& plan = gradient ? entry->gradient : entry->forward;
    if (plan == nullptr) {
      plan = std::make_unique<Plan>();
      CHECK_CUDNN_FRONTEND_ERROR(Prepare(c, gradient, device->handle, plan.get()));
      device->RemoveOldPlans();
    }
    if (!plan->is_built) CHECK_CUDNN_FRONTEND_ERROR(plan->graph.build_plans(device->handle));
    plan->is_built = true;
    return Execute(c, args, tensors, resources, device->handle, plan.get());
  };
  fe::error_t error = run();
  *message = error.get_message();
  return error.is_good() ? kCudnnDone : kCudnnFailed;
}

// Returns why this process cannot use cuDNN, or "".
std::string WhyUnavailable() {
  const size_t version = cudnnGetVersion();  // 0 if there is none
  if (version >= kLeastCudnn) return "";
  return "cuDNN must be at least version " + std::to_string(kLeastCudnn) +
         ". Received: " + (version == 0 ? "none" : std::to_string(version)) +
         ". Install nvidia-cudnn-cu12>=9.26";
}

}  // namespace
}  // namespace bert_tf

extern "C" int BertTfCudaCudnnAttention(int type, const bert_tf::CudaAttentionInputs& args,
                                        const bert_tf::CudnnTensors& tensors,
                                        const bert_tf::GpuResources& resources,
                                        std::string* message) {
  using namespace bert_tf;
  const char* const why_not = WhyNotNow(type, args);
  if (why_not != nullptr) {
    *message = why_not;
    return kCudnnDoesNotFit;
  }
  static const auto* const unavailable = new std::string(WhyUnavailable());
  if (!unavailable->empty()) {
    *message = *unavailable;
    return kCudnnUnavailable;
  }
  try {
    return Attend(CaseOf(type, args, resources.deterministic), args, tensors, resources, message);
  } catch (const std::exception& error) {  // the frontend has constructors that throw
    *message = error.what();
    return kCudnnFailed;
  }
}

#endif  // CUDNN_FRONTEND_VERSION
