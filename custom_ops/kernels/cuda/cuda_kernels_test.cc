// Compares the bias with GELU, the gate, layer normalization and the optimizer on an emulated GPU
// with the CPU's: every storage type, aligned and odd sizes, in place, and dropout.
#include "custom_ops/kernels/cuda/emulation_test_util.h"
#include "custom_ops/kernels/dense/fused_gate.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

namespace bert_tf {
namespace testing {
namespace {

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
  const double tolerance = 4e-6, unit = 1.0 / scale;  // of what is divided by the deviation
  CheckNear(gpu[0].y, cpu.y, tolerance, context + "y");
  CheckNear(gpu[0].mean, cpu.mean, tolerance, context + "mean", scale);
  CheckNear(gpu[0].rstd, cpu.rstd, tolerance, context + "rstd", unit);
  CheckNear(gpu[0].dx, cpu.dx, tolerance, context + "dx", unit);
  if (has_dresidual) {
    CheckNear(gpu[0].dresidual, cpu.dresidual, tolerance, context + "dresidual", unit);
  }
  if (has_bias) CheckNear(gpu[0].dbias, cpu.dbias, tolerance, context + "dbias", unit);
  CheckNear(gpu[0].dgamma, cpu.dgamma, tolerance, context + "dgamma");
  CheckNear(gpu[0].dbeta, cpu.dbeta, tolerance, context + "dbeta");
  Check(SameBits(gpu[0].y, gpu[1].y) && SameBits(gpu[0].mean, gpu[1].mean) &&
            SameBits(gpu[0].rstd, gpu[1].rstd) && SameBits(gpu[0].dx, gpu[1].dx) &&
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
  for (int i = 0; i < kTensors; ++i) {
    if (!aligned && i == 60) {
      Check(std::isnan(gpu[0][i].x[7777]) && std::isnan(cpu[i].x[7777]), context + "NaN");
      for (Values* values : {&cpu[i], &gpu[0][i], &gpu[1][i]}) {
        values->x.data()[7777] = values->m.data()[7777] = values->v.data()[7777] = 0.0f;
      }
    }
    CheckNear(gpu[0][i].x, cpu[i].x, 1e-6, context + "variable");
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
