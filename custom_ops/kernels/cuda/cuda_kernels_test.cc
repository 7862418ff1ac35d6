// Compares the GPU kernels, run thread by thread on a CPU (cuda_emulation.h), with the CPU kernels,
// which have their own tests against float64: every storage type, aligned and odd sizes, in place,
// masks, dropout, outputs that are initialized with NaN, and two orders of the threads, which must
// give equal bits.
//
// This does not test the speed, the approximate exponential and reciprocal of a GPU, and the memory
// of a real GPU between two barriers. benchmarks/cuda_kernels does, on a GPU.
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/cuda/cuda_emulation.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/dense/fused_gate.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

namespace bert_tf {
namespace testing {
namespace {

template <typename T>
constexpr int kType = std::is_same<T, float>::value      ? kBertTfFloat32
                      : std::is_same<T, BFloat16>::value ? kBertTfBFloat16
                                                         : kBertTfFloat16;
constexpr int64_t kSeed = 0x123456789ABCDEF0;

// Numbers at an address that is aligned to 16 bytes, or one element after it. Outputs are
// initialized with NaNs.
template <typename T>
class Numbers {
 public:
  Numbers(int64_t count, bool aligned) : size_(count), offset_(aligned ? 0 : 1) {
    lines_.resize(static_cast<size_t>(count) * sizeof(T) / sizeof(Line) + 2);
    std::memset(lines_.data(), 0xFF, lines_.size() * sizeof(Line));
  }
  Numbers(int64_t count, bool aligned, std::mt19937& random, float scale, float mean = 0.0f)
      : Numbers(count, aligned) {
    std::normal_distribution<float> normal(mean, scale);
    for (int64_t i = 0; i < count; ++i) data()[i] = FromFloat<T>(normal(random));
  }
  T* data() { return reinterpret_cast<T*>(lines_.data()) + offset_; }
  double operator[](int64_t i) { return ToFloat(data()[i]); }
  int64_t size() const { return size_; }

 private:
  struct alignas(16) Line {
    char bytes[16];
  };
  std::vector<Line> lines_;
  int64_t size_;
  int offset_;
};

template <typename T>
bool SameBits(Numbers<T>& a, Numbers<T>& b) {
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size()) * sizeof(T)) == 0;
}

// Checks that the error of every element is at most two roundings of T plus `tolerance`, relative
// to the larger of the number and 1 (or, for sums, the largest number).
template <typename T>
void CheckNear(Numbers<T>& actual, Numbers<T>& expected, double tolerance,
               const std::string& what) {
  double worst = 0.0, largest = 1.0;
  for (int64_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
  }
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(actual[i] - expected[i]);
    worst = error <= worst ? worst : error;
    if (error != error) worst = INFINITY;
  }
  Check(worst <= (2 * RoundingError<T>() + tolerance) * largest,
        what + " error " + std::to_string(worst) + " of " + std::to_string(largest));
}

// Calls `kernel(run)` with both orders of the threads, run = 0 and 1.
template <typename Kernel>
void InBothOrders(const Kernel& kernel) {
  using cuda::emulation::Schedule;
  for (int run = 0; run < 2; ++run) {
    cuda::emulation::schedule = run == 0 ? Schedule::kAscending : Schedule::kDescending;
    Check(kernel(run) == 0, "launch");
  }
}

template <typename T>
void TestBiasGelu(int64_t rows, int64_t columns, bool approximate, bool aligned) {
  const std::string context = std::string("bias_gelu ") + TypeName<T>() + " [" +
                              std::to_string(rows) + ", " + std::to_string(columns) + "]" +
                              (approximate ? " tanh " : " erf ");
  std::mt19937 random(3);
  Numbers<T> x(rows * columns, aligned, random, 3.0f), dy(rows * columns, aligned, random, 1.0f);
  Numbers<T> bias(columns, aligned, random, 1.0f);
  Numbers<T> y(x.size(), aligned), dx(x.size(), aligned), dbias(columns, aligned);
  const SerialParallel serial;
  FusedBiasGelu(serial,
                BiasGeluArgs<T>{x.data(), bias.data(), rows, columns, approximate, y.data()});
  std::vector<float> scratch(static_cast<size_t>(BiasGeluGradScratchSize(rows, columns)));
  FusedBiasGeluGrad(
      serial, BiasGeluGradArgs<T>{dy.data(), x.data(), bias.data(), rows, columns, approximate,
                                  dx.data(), dbias.data(), scratch.data()});
  Numbers<T> gpu_y[2] = {x, {x.size(), aligned}};  // the first in place
  Numbers<T> gpu_dx[2] = {dy, {x.size(), aligned}};
  Numbers<T> gpu_dbias[2] = {{columns, aligned}, {columns, aligned}};
  const size_t floats = static_cast<size_t>(BertTfCudaBiasGeluGradScratch(rows, columns));
  InBothOrders([&](int run) {
    const BiasGeluArgs<Gpu> args{run == 0 ? gpu_y[0].data() : x.data(),
                                 bias.data(),
                                 rows,
                                 columns,
                                 approximate,
                                 gpu_y[run].data()};
    return BertTfCudaBiasGelu(kType<T>, args, nullptr);
  });
  InBothOrders([&](int run) {
    std::vector<float> gpu_scratch(floats, NAN);
    const BiasGeluGradArgs<Gpu> args{run == 0 ? gpu_dx[0].data() : dy.data(),
                                     x.data(),
                                     bias.data(),
                                     rows,
                                     columns,
                                     approximate,
                                     gpu_dx[run].data(),
                                     gpu_dbias[run].data(),
                                     gpu_scratch.data()};
    return BertTfCudaBiasGeluGrad(kType<T>, args, nullptr);
  });
  CheckNear(gpu_y[0], y, 1e-6, context + "y");
  CheckNear(gpu_dx[0], dx, 1e-6, context + "dx");
  CheckNear(gpu_dbias[0], dbias, 1e-6, context + "dbias");
  Check(SameBits(gpu_y[0], gpu_y[1]) && SameBits(gpu_dx[0], gpu_dx[1]) &&
            SameBits(gpu_dbias[0], gpu_dbias[1]),
        context + "orders of threads");
}

template <typename T>
void TestGate(int64_t rows, int64_t columns, DenseActivation activation, bool aligned) {
  const std::string context = std::string("gate ") + TypeName<T>() + " [" + std::to_string(rows) +
                              ", " + std::to_string(columns) + "] activation " +
                              std::to_string(static_cast<int>(activation)) + " ";
  std::mt19937 random(3);
  Numbers<T> x(2 * rows * columns, aligned, random, 3.0f), y(rows * columns, aligned);
  Numbers<T> dy(y.size(), aligned, random, 1.0f), dx(x.size(), aligned);
  const SerialParallel serial;
  FusedGate(serial, GateArgs<T>{nullptr, x.data(), rows, columns, activation, y.data()});
  FusedGate(serial, GateArgs<T>{dy.data(), x.data(), rows, columns, activation, dx.data()});
  Numbers<T> gpu_y[2] = {{y.size(), aligned}, {y.size(), aligned}};
  Numbers<T> gpu_dx[2] = {x, {x.size(), aligned}};  // the first in place
  const auto run_gate = [&](T* d, T* of_x, T* result) {
    const GateArgs<Gpu> args{d, of_x, rows, columns, activation, result};
    return BertTfCudaGate(kType<T>, args, nullptr);
  };
  InBothOrders([&](int run) { return run_gate(nullptr, x.data(), gpu_y[run].data()); });
  InBothOrders([&](int run) {
    return run_gate(dy.data(), run == 0 ? gpu_dx[0].data() : x.data(), gpu_dx[run].data());
  });
  CheckNear(gpu_y[0], y, 1e-6, context + "y");
  CheckNear(gpu_dx[0], dx, 1e-6, context + "dx");
  Check(SameBits(gpu_y[0], gpu_y[1]) && SameBits(gpu_dx[0], gpu_dx[1]),
        context + "orders of threads");
}

template <typename T>
void TestLayerNorm(int64_t rows, int64_t columns, float rate, bool has_residual, bool has_bias,
                   bool aligned, float scale = 1.0f, bool has_other_dy = false) {
  const std::string context = std::string("layer_norm ") + TypeName<T>() + " [" +
                              std::to_string(rows) + ", " + std::to_string(columns) + "] rate " +
                              std::to_string(rate) + " scale " + std::to_string(scale) + " ";
  std::mt19937 random(4);
  const int64_t count = rows * columns;
  Numbers<T> x(count, aligned, random, scale, 0.5f * scale);
  Numbers<T> residual(count, aligned, random, scale), dy(count, aligned, random, 1.0f);
  Numbers<T> bias(columns, aligned, random, scale);
  Numbers<T> gamma(columns, aligned, random, 0.2f, 1.0f), beta(columns, aligned, random, 0.2f);
  T* const residual_data = has_residual ? residual.data() : nullptr;
  Numbers<T> other_dy(count, aligned, random, 1.0f);
  T* const bias_data = has_bias ? bias.data() : nullptr;
  T* const other_dy_data = has_other_dy ? other_dy.data() : nullptr;
  const bool has_dresidual = has_residual && rate > 0.0f;
  constexpr float kEpsilon = 1e-12f;

  struct Outputs {
    Outputs(int64_t rows, int64_t count, int64_t columns, bool aligned)
        : y(count, aligned),
          dx(count, aligned),
          dresidual(count, aligned),
          dbias(columns, aligned),
          dgamma(columns, aligned),
          dbeta(columns, aligned),
          mean(rows, true),
          rstd(rows, true) {}
    Numbers<T> y, dx, dresidual, dbias, dgamma, dbeta;
    Numbers<float> mean, rstd;
  };
  Outputs cpu(rows, count, columns, aligned);
  const SerialParallel serial;
  FusedResidualLayerNorm(serial, ResidualLayerNormArgs<T>{
                                     x.data(), residual_data, bias_data, gamma.data(), beta.data(),
                                     rows, columns, kEpsilon, rate, static_cast<uint64_t>(kSeed),
                                     cpu.y.data(), cpu.mean.data(), cpu.rstd.data()});
  std::vector<float> scratch(static_cast<size_t>(ResidualLayerNormGradScratchSize(rows, columns)));
  FusedResidualLayerNormGrad(
      serial, ResidualLayerNormGradArgs<T>{
                  dy.data(), x.data(), residual_data, bias_data, gamma.data(), cpu.mean.data(),
                  cpu.rstd.data(), rows, columns, rate, static_cast<uint64_t>(kSeed), cpu.dx.data(),
                  cpu.dresidual.data(), cpu.dbias.data(), cpu.dgamma.data(), cpu.dbeta.data(),
                  scratch.data(), false, other_dy_data});
  Outputs gpu[2] = {{rows, count, columns, aligned}, {rows, count, columns, aligned}};
  gpu[0].y = x;  // the first in place
  gpu[0].dx = dy;
  gpu[0].dresidual = residual;
  const size_t floats = static_cast<size_t>(BertTfCudaResidualLayerNormGradScratch(rows, columns));
  InBothOrders([&](int run) {
    const ResidualLayerNormArgs<Gpu> args{run == 0 ? gpu[0].y.data() : x.data(),
                                          residual_data,
                                          bias_data,
                                          gamma.data(),
                                          beta.data(),
                                          rows,
                                          columns,
                                          kEpsilon,
                                          rate,
                                          &kSeed,
                                          gpu[run].y.data(),
                                          gpu[run].mean.data(),
                                          gpu[run].rstd.data()};
    return BertTfCudaResidualLayerNorm(kType<T>, args, nullptr);
  });
  InBothOrders([&](int run) {
    std::vector<float> gpu_scratch(floats, NAN);
    T* const gpu_residual = run == 0 && has_dresidual ? gpu[0].dresidual.data() : residual_data;
    const ResidualLayerNormGradArgs<Gpu> args{run == 0 ? gpu[0].dx.data() : dy.data(),
                                              x.data(),
                                              gpu_residual,
                                              bias_data,
                                              gamma.data(),
                                              gpu[run].mean.data(),
                                              gpu[run].rstd.data(),
                                              rows,
                                              columns,
                                              rate,
                                              &kSeed,
                                              gpu[run].dx.data(),
                                              gpu[run].dresidual.data(),
                                              gpu[run].dbias.data(),
                                              gpu[run].dgamma.data(),
                                              gpu[run].dbeta.data(),
                                              gpu_scratch.data(),
                                              false,
                                              other_dy_data};
    return BertTfCudaResidualLayerNormGrad(kType<T>, args, nullptr);
  });
  const double tolerance = 4e-6;
  CheckNear(gpu[0].y, cpu.y, tolerance, context + "y");
  CheckNear(gpu[0].mean, cpu.mean, tolerance, context + "mean");
  CheckNear(gpu[0].rstd, cpu.rstd, tolerance, context + "rstd");
  CheckNear(gpu[0].dx, cpu.dx, tolerance, context + "dx");
  if (has_dresidual) CheckNear(gpu[0].dresidual, cpu.dresidual, tolerance, context + "dresidual");
  if (has_bias) CheckNear(gpu[0].dbias, cpu.dbias, tolerance, context + "dbias");
  CheckNear(gpu[0].dgamma, cpu.dgamma, tolerance, context + "dgamma");
  CheckNear(gpu[0].dbeta, cpu.dbeta, tolerance, context + "dbeta");
  Check(SameBits(gpu[0].y, gpu[1].y) && SameBits(gpu[0].dx, gpu[1].dx) &&
            SameBits(gpu[0].dgamma, gpu[1].dgamma) && SameBits(gpu[0].dbeta, gpu[1].dbeta) &&
            (!has_bias || SameBits(gpu[0].dbias, gpu[1].dbias)) &&
            (!has_dresidual || SameBits(gpu[0].dresidual, gpu[1].dresidual)),
        context + "orders of threads");
  if (rate > 0.0f) {  // the masks must be equal
    int64_t different = 0;
    for (int64_t i = 0; i < count; ++i) different += (gpu[0].dx[i] == 0) != (cpu.dx[i] == 0);
    Check(different == 0, context + std::to_string(different) + " elements of the mask differ");
  }
}

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

// More tensors than one launch takes, with gradients of type T and in float32.
template <typename T>
void TestOptimizer(bool aligned, float steps) {
  constexpr int kTensors = 130;
  const std::string context = std::string("optimizer ") + TypeName<T>() +
                              (aligned ? " aligned " : " ") + std::to_string(steps) + " steps ";
  std::mt19937 random(8);
  struct Values {
    Numbers<float> x, m, v;
  };
  std::vector<Numbers<T>> halves;
  std::vector<Numbers<float>> gradients;
  std::vector<Values> old_values, cpu, gpu[2];
  std::vector<FloatTensor> tensors;
  double squares = 0.0;
  for (int i = 0; i < kTensors; ++i) {
    const int64_t count = i == 60 ? 9001 : i == 61 ? 4096 : i % 7;
    halves.emplace_back(count, aligned, random, 1.0f);
    gradients.emplace_back(count, aligned, random, 1.0f);
    old_values.push_back({{count, aligned, random, 1.0f},
                          {count, aligned, random, 0.1f},
                          {count, aligned, random, 0.01f, 1.0f}});
    for (auto* values : {&cpu, &gpu[0], &gpu[1]}) {
      values->push_back({{count, aligned}, {count, aligned}, {count, aligned}});
    }
    gpu[0][i] = old_values[i];  // in place
  }
  for (int i = 0; i < kTensors; ++i) {
    const bool is_half = i % 3 > 0;
    const int64_t count = halves[i].size();
    if (is_half) {
      tensors.push_back({halves[i].data(), count, static_cast<FloatType>(kType<T>)});
    } else {
      tensors.push_back({gradients[i].data(), count});
    }
    for (int64_t e = 0; e < count; ++e) {
      squares += std::pow(is_half ? halves[i][e] : gradients[i][e], 2.0);
    }
  }
  if (!aligned) gradients[60].data()[7777] = NAN;
  Numbers<float> decays(kTensors, true, random, 0.01f);
  Numbers<float> learning_rates(kTensors, true, random, 0.01f);
  const float scale = 0.5f;
  const auto args_of = [&](std::vector<Values>& from, std::vector<Values>& to) {
    AdamWeightDecayArgs args;
    for (int i = 0; i < kTensors; ++i) {
      args.tensors.push_back({tensors[i], from[i].x.data(), from[i].m.data(), from[i].v.data(),
                              to[i].x.data(), to[i].m.data(), to[i].v.data()});
    }
    args.learning_rates = learning_rates.data();
    args.weight_decays = decays.data();
    args.gradient_scale = &scale;
    args.steps = &steps;
    args.beta_1 = 0.9f;
    args.beta_2 = 0.999f;
    args.epsilon = 1e-6f;
    return args;
  };
  AdamWeightDecay(SerialParallel(), args_of(old_values, cpu));
  InBothOrders([&](int run) {
    return BertTfCudaAdamWeightDecay(0, args_of(run == 0 ? gpu[0] : old_values, gpu[run]), nullptr);
  });
  // The CPU's correction of the bias subtracts numbers close to 1.
  const double tolerance = steps > 0.0f ? 1e-4 : 1e-6;
  for (int i = 0; i < kTensors; ++i) {
    if (!aligned && i == 60) {
      Check(std::isnan(gpu[0][i].x[7777]) && std::isnan(cpu[i].x[7777]), context + "NaN");
      for (Values* values : {&cpu[i], &gpu[0][i], &gpu[1][i]}) {
        values->x.data()[7777] = values->m.data()[7777] = values->v.data()[7777] = 0.0f;
      }
    }
    CheckNear(gpu[0][i].x, cpu[i].x, tolerance, context + "variable");
    CheckNear(gpu[0][i].m, cpu[i].m, 1e-6, context + "m");
    CheckNear(gpu[0][i].v, cpu[i].v, 1e-6, context + "v");
    Check(SameBits(gpu[0][i].x, gpu[1][i].x) && SameBits(gpu[0][i].m, gpu[1][i].m) &&
              SameBits(gpu[0][i].v, gpu[1][i].v),
          context + "orders of threads");
  }
  float norms[2];
  InBothOrders([&](int run) {
    std::vector<float> scratch(NumBlocks(tensors), NAN);
    return BertTfCudaGlobalNorm(0, {tensors, scratch.data(), &norms[run]}, nullptr);
  });
  if (aligned) {
    const double norm = std::sqrt(squares);
    Check(std::fabs(norms[0] - norm) <= 2e-7 * norm, context + "norm");
    Check(norms[0] == norms[1], context + "orders of threads of the norm");
  } else {
    Check(std::isnan(norms[0]) && std::isnan(norms[1]), context + "a norm of NaN");
  }
}

template <typename T>
void TestAll() {
  for (float steps : {0.0f, 1.0f, 1000.0f}) {
    TestOptimizer<T>(true, steps);
    TestOptimizer<T>(false, steps);
  }

  for (bool approximate : {false, true}) {
    TestBiasGelu<T>(70, 264, approximate, true);
    TestBiasGelu<T>(33, 257, approximate, true);
    TestBiasGelu<T>(9, 64, approximate, false);
  }
  TestBiasGelu<T>(0, 8, false, true);
  TestBiasGelu<T>(5, 0, false, true);

  for (DenseActivation activation :
       {DenseActivation::kGelu, DenseActivation::kApproximateGelu, DenseActivation::kSilu}) {
    TestGate<T>(21, 264, activation, true);
    TestGate<T>(9, 33, activation, true);  // no vectors
    TestGate<T>(9, 64, activation, false);
  }
  TestGate<T>(0, 8, DenseActivation::kSilu, true);
  TestGate<T>(5, 0, DenseActivation::kSilu, true);

  TestLayerNorm<T>(11, 768, 0.1f, true, true, true);
  TestLayerNorm<T>(40, 64, 0.5f, true, false, true);
  TestLayerNorm<T>(5, 512, 0.0f, true, true, true);
  TestLayerNorm<T>(5, 1024, 0.3f, false, true, true);
  TestLayerNorm<T>(3, 1088, 0.1f, true, true, true);  // one block per row
  TestLayerNorm<T>(20, 77, 0.1f, true, true, true);   // no vectors
  TestLayerNorm<T>(20, 77, 0.0f, false, false, true);
  TestLayerNorm<T>(9, 128, 0.1f, true, true, false);
  TestLayerNorm<T>(0, 64, 0.0f, true, true, true);
  for (int64_t columns : {77, 768, 1024}) {
    TestLayerNorm<T>(11, columns, 0.1f, true, true, columns != 77, 1.0f, true);
    TestLayerNorm<T>(11, columns, 0.0f, true, false, columns != 77, 1.0f, true);
  }
  if (sizeof(T) == 4) {  // sums that leave float32's range
    TestLayerNorm<T>(4, 128, 0.0f, true, true, true, 1e19f);
    TestLayerNorm<T>(2, 1088, 0.0f, true, true, true, 1e19f);
  }

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
  return Report("cuda_kernels_test");
}
