// Compares attention on an emulated GPU with the CPU's: every storage type, aligned and odd sizes,
// masks, dropout, the distance bias and the rotation.
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/cuda/emulation_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

struct Case {
  std::vector<int64_t> splits;
  int64_t heads;
  int64_t head_size;
  bool causal = false;
  int64_t window = -1;
  int64_t globals = 0;
  float rate = 0.0f;
  bool aligned = true;
  int64_t max_distance = -1;  // of the distance bias; negative for none
  int64_t rotated = 0;        // columns that are turned
};

template <typename T>
void TestAttention(const Case& c) {
  const int64_t rows = c.splits.back();
  const std::string context =
      std::string("attention ") + TypeName<T>() + " rows " + std::to_string(rows) +
      " D=" + std::to_string(c.head_size) + (c.causal ? " causal" : "") +
      " window=" + std::to_string(c.window) + " rate=" + std::to_string(c.rate) +
      " M=" + std::to_string(c.max_distance) + " S=" + std::to_string(c.rotated) + " ";
  std::mt19937 random(5);
  const int64_t width = c.heads * c.head_size;
  Numbers<T> qkv(3 * rows * width, c.aligned, random, 1.0f);
  Numbers<T> d_output(rows * width, c.aligned, random, 1.0f);
  Numbers<T> output(rows * width, c.aligned), d_qkv(qkv.size(), c.aligned);
  Numbers<float> logsumexp(rows * c.heads, true);
  const bool biased = c.max_distance >= 0;
  const int64_t distances = biased ? 2 * c.max_distance + 1 : 0;
  Numbers<float> distance_bias(c.heads * distances, true, random, 1.0f);
  Numbers<float> d_distance_bias(distance_bias.size(), true);
  // [rows, S]. The GPU rounds turned rows to T, the CPU only to bfloat16, so in float16 the angles
  // are quarter turns, which need no rounding. The others need not have a length of 1.
  Numbers<float> rotation(c.rotated == 0 ? 0 : rows * c.rotated, true, random, 1.0f);
  for (int64_t i = 0; i < rotation.size() && std::is_same_v<T, Float16>; ++i) {
    constexpr float kCosines[] = {1.0f, 0.0f, -1.0f, 0.0f};  // of 0 to 3 quarter turns
    const int64_t turns = i / c.rotated + i % (c.rotated / 2);
    const bool is_sine = i % c.rotated >= c.rotated / 2;
    rotation.data()[i] = kCosines[(turns + (is_sine ? 3 : 0)) % 4];
  }
  VarlenAttentionArgs<T> cpu_args;
  cpu_args.num_sequences = static_cast<int64_t>(c.splits.size()) - 1;
  cpu_args.row_splits = c.splits.data();
  cpu_args.num_heads = c.heads;
  cpu_args.head_size = c.head_size;
  cpu_args.causal = c.causal;
  cpu_args.window_size = c.window;
  cpu_args.num_global_tokens = c.globals;
  cpu_args.dropout_rate = c.rate;
  cpu_args.seed = static_cast<uint64_t>(kSeed);
  cpu_args.SetQkv(qkv.data());
  if (biased) {
    cpu_args.distance_bias = distance_bias.data();
    cpu_args.max_distance = c.max_distance;
  }
  if (c.rotated > 0) {
    cpu_args.rotation = rotation.data();
    cpu_args.rotation_size = c.rotated;
  }
  cpu_args.output = output.data();
  cpu_args.logsumexp = logsumexp.data();
  VarlenAttentionGradArgs<T> cpu_grad_args;
  static_cast<VarlenAttentionInputs<T>&>(cpu_grad_args) = cpu_args;
  cpu_grad_args.output = output.data();
  cpu_grad_args.logsumexp = logsumexp.data();
  cpu_grad_args.d_output = d_output.data();
  cpu_grad_args.SetQkvGradient(d_qkv.data());
  if (biased) cpu_grad_args.d_distance_bias = d_distance_bias.data();
  const SerialParallel serial;
  VarlenAttention(serial, cpu_args);
  VarlenAttentionGrad(serial, cpu_grad_args);

  const std::vector<int32_t> splits32(c.splits.begin(), c.splits.end());
  Numbers<T> gpu_output[2] = {{output.size(), c.aligned}, {output.size(), c.aligned}};
  Numbers<T> gpu_d_qkv[2] = {{qkv.size(), c.aligned}, {qkv.size(), c.aligned}};
  Numbers<float> gpu_logsumexp[2] = {{logsumexp.size(), true}, {logsumexp.size(), true}};
  Numbers<float> gpu_d_distance_bias[2] = {{distance_bias.size(), true},
                                           {distance_bias.size(), true}};
  CudaAttentionInputs inputs;
  inputs.qkv = qkv.data();
  inputs.row_splits = c.splits.data();
  inputs.row_splits_are_int64 = true;
  inputs.num_sequences = cpu_args.num_sequences;
  inputs.rows = rows;
  inputs.num_heads = c.heads;
  inputs.head_size = c.head_size;
  inputs.causal = c.causal;
  inputs.window_size = c.window;
  inputs.num_global_tokens = c.globals;
  inputs.dropout_rate = c.rate;
  inputs.seed = &kSeed;
  inputs.distance_bias = cpu_args.distance_bias;
  inputs.max_distance = cpu_args.max_distance;
  inputs.rotation = cpu_args.rotation;
  inputs.rotation_places = c.rotated == 0 ? 0 : rows;
  inputs.rotation_size = c.rotated;
  InBothOrders([&](int run) {
    CudaAttentionArgs args{inputs, gpu_output[run].data(), gpu_logsumexp[run].data()};
    if (run == 1) {
      args.row_splits = splits32.data();
      args.row_splits_are_int64 = false;
    }
    return BertTfCudaVarlenAttention(kType<T>, args, nullptr);
  });
  InBothOrders([&](int run) {
    const int64_t floats =
        BertTfCudaVarlenAttentionGradScratch(rows, c.heads, cpu_args.num_sequences, distances);
    std::vector<float> scratch(static_cast<size_t>(floats), NAN);
    const CudaAttentionGradArgs args{
        inputs,          gpu_output[run].data(), gpu_logsumexp[run].data(),
        d_output.data(), gpu_d_qkv[run].data(),  biased ? gpu_d_distance_bias[run].data() : nullptr,
        scratch.data()};
    return BertTfCudaVarlenAttentionGrad(kType<T>, args, nullptr);
  });
  // On the tensor cores, the probabilities are rounded to T before they are multiplied by the
  // values.
  CheckNear(gpu_output[0], output, 4e-6, context + "output");
  CheckNear(gpu_logsumexp[0], logsumexp, 4e-6, context + "logsumexp");
  CheckNear(gpu_d_qkv[0], d_qkv, 1e-5 + RoundingError<T>(), context + "d_qkv");
  // It sums the errors of all rows, which are those of their roundings to T.
  const double of_rows = std::sqrt(static_cast<double>(rows));
  CheckNear(gpu_d_distance_bias[0], d_distance_bias, (1e-5 + RoundingError<T>()) * of_rows,
            context + "d_distance_bias");
  Check(SameBits(gpu_output[0], gpu_output[1]) && SameBits(gpu_d_qkv[0], gpu_d_qkv[1]) &&
            SameBits(gpu_logsumexp[0], gpu_logsumexp[1]) &&
            SameBits(gpu_d_distance_bias[0], gpu_d_distance_bias[1]),
        context + "orders of threads");
}

// A rotation with fewer rows than a sequence has places. Its memory continues with other angles,
// which the kernels must not use: tokens without a row are turned to NaN, and so are the results of
// tokens that attend to them. The other results have the bits that they have with enough rows.
template <typename T>
void TestFewPlaces(bool causal, int64_t places, bool aligned) {
  constexpr int64_t kRows = 180, kHeads = 1, kSize = 16, kRotated = 8, kWidth = kHeads * kSize;
  const std::vector<int64_t> splits = {0, 40, kRows};
  const std::string context = std::string("attention ") + TypeName<T>() +
                              " P=" + std::to_string(places) + (causal ? " causal " : " ");
  std::mt19937 random(6);
  Numbers<T> qkv(3 * kRows * kWidth, aligned, random, 1.0f);
  Numbers<T> d_output(kRows * kWidth, aligned, random, 1.0f);
  Numbers<float> rotation(kRows * kRotated, true, random, 1.0f);
  Numbers<T> output[2] = {{kRows * kWidth, aligned}, {kRows * kWidth, aligned}};
  Numbers<T> d_qkv[2] = {{qkv.size(), aligned}, {qkv.size(), aligned}};
  std::vector<float> logsumexp(kRows * kHeads);
  std::vector<float> scratch(
      static_cast<size_t>(BertTfCudaVarlenAttentionGradScratch(kRows, kHeads, 2, 0)));
  CudaAttentionInputs inputs;
  inputs.qkv = qkv.data();
  inputs.row_splits = splits.data();
  inputs.row_splits_are_int64 = true;
  inputs.num_sequences = 2;
  inputs.rows = kRows;
  inputs.num_heads = kHeads;
  inputs.head_size = kSize;
  inputs.causal = causal;
  inputs.rotation = rotation.data();
  inputs.rotation_size = kRotated;
  const CudaAttentionArgs no_places{inputs, output[0].data(), logsumexp.data()};
  Check(BertTfCudaVarlenAttention(kType<T>, no_places, nullptr) != 0, "no places");
  CudaAttentionArgs too_many = no_places;
  too_many.rotation = nullptr;
  too_many.rows = kMostCudaRows + 1;
  Check(BertTfCudaVarlenAttention(kType<T>, too_many, nullptr) != 0, "too many rows");
  for (int enough = 0; enough < 2; ++enough) {
    inputs.rotation_places = enough ? kRows : places;
    const CudaAttentionArgs args{inputs, output[enough].data(), logsumexp.data()};
    Check(BertTfCudaVarlenAttention(kType<T>, args, nullptr) == 0, "launch");
    const CudaAttentionGradArgs grad_args{inputs,          output[enough].data(), logsumexp.data(),
                                          d_output.data(), d_qkv[enough].data(),  nullptr,
                                          scratch.data()};
    Check(BertTfCudaVarlenAttentionGrad(kType<T>, grad_args, nullptr) == 0, "launch");
  }
  int64_t wrong = 0;
  const auto check = [&](Numbers<T>* of, int64_t row, int64_t width, bool is_nan) {
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      wrong += is_nan ? of[0][i] == of[0][i] : !(of[0][i] == of[1][i]);
    }
  };
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t place = row < splits[1] ? row : row - splits[1];
    const int64_t length = row < splits[1] ? splits[1] : kRows - splits[1];
    check(output, row, kWidth, (causal ? place + 1 : length) > places);
    // The gradient of a row depends on the same rows as its output unless there is a mask: then
    // keys depend on later rows too.
    if (length <= places || place >= places || !causal) {
      check(d_qkv, row, 3 * kWidth, length > places);
    }
  }
  Check(wrong == 0, context + std::to_string(wrong) + " wrong numbers");
}

template <typename T>
void TestAll() {
  TestAttention<T>({{0, 3, 3, 70, 135}, 2, 64});
  TestAttention<T>({{0, 130, 133}, 1, 32, false, -1, 0, 0.1f});
  TestAttention<T>({{0, 70}, 2, 8, true, -1, 0, 0.3f});
  TestAttention<T>({{0, 200, 270}, 1, 16, false, 5, 2, 0.1f});
  TestAttention<T>({{0, 190}, 1, 64, true, 20, 0, 0.0f});
  TestAttention<T>({{0, 70, 75}, 1, 5, false, int64_t{1} << 40});  // no vectors
  TestAttention<T>({{0, 70, 75}, 2, 40, false, -1, 0, 0.1f, false});
  for (int64_t rotated : {16, 64}) {
    TestAttention<T>({{0, 3, 3, 70, 205}, 2, 64, false, -1, 0, 0.0f, true, -1, rotated});
    TestAttention<T>({{0, 190, 200}, 1, 64, true, 20, 2, 0.3f, true, 5, rotated});
    TestAttention<T>({{0, 0, 0}, 2, 64, false, -1, 0, 0.0f, true, -1, rotated});
  }
  TestAttention<T>({{0, 70, 205}, 2, 32, false, 9, 0, 0.1f, true, -1, 32});
  TestAttention<T>({{0, 70, 75}, 2, 5, false, -1, 0, 0.1f, true, -1, 4});  // no vectors
  TestAttention<T>({{0, 70, 75}, 2, 40, false, -1, 0, 0.1f, false, -1, 40});
  TestFewPlaces<T>(true, 100, true);
  TestFewPlaces<T>(false, 139, false);  // one too few
  for (int64_t max_distance : {0, 1, 50, 128, 300}) {
    TestAttention<T>({{0, 3, 3, 70, 205}, 2, 64, false, -1, 0, 0.0f, true, max_distance});
    TestAttention<T>({{0, 150, 151}, 3, 5, true, 20, 2, 0.3f, true, max_distance});
    TestAttention<T>({{0, 0, 0}, 2, 8, false, -1, 0, 0.0f, true, max_distance});
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  TestAll<float>();
  TestAll<bert_tf::BFloat16>();
  TestAll<bert_tf::Float16>();
  return Report("cuda_attention_test");
}
