// XLA's buffers as the arguments of the kernels, in the same way for CPU and GPU. The operands and
// results have the order of the inputs and outputs of the op. If a kernel needs scratch, its buffer
// is after the results. T is the element type of the kernels, or void for a GPU, whose launchers
// take the type as a number.
#ifndef BERT_TF_CUSTOM_OPS_XLA_FFI_ARGS_H_
#define BERT_TF_CUSTOM_OPS_XLA_FFI_ARGS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {

// The operands of a call, one after the other.
class Operands {
 public:
  explicit Operands(const xla::ffi::RemainingArgs& args) : args_(args) {}

  xla::ffi::AnyBuffer Next() { return args_.get<xla::ffi::AnyBuffer>(next_++).value(); }

  template <typename T>
  const T* NextData() {
    return static_cast<const T*>(Next().untyped_data());
  }

  // Null if the op does not have this optional input.
  template <typename T>
  const T* NextDataIf(bool given) {
    return given ? NextData<T>() : nullptr;
  }

  template <typename T>
  T NextScalar() {
    return *NextData<T>();
  }

 private:
  const xla::ffi::RemainingArgs& args_;
  size_t next_ = 0;
};

// The results of a call, one after the other.
class Results {
 public:
  explicit Results(const xla::ffi::RemainingRets& rets) : rets_(rets) {}

  template <typename T>
  T* NextData() {
    return static_cast<T*>(rets_.get<xla::ffi::AnyBuffer>(next_++).value()->untyped_data());
  }

  // Null if the op does not have this optional output.
  template <typename T>
  T* NextDataIf(bool wanted) {
    return wanted ? NextData<T>() : nullptr;
  }

 private:
  const xla::ffi::RemainingRets& rets_;
  size_t next_ = 0;
};

// Reads the next operand, [..., columns], and sets its sizes as a matrix.
template <typename T, typename Args>
const T* NextMatrix(Operands* in, Args* args) {
  const xla::ffi::AnyBuffer buffer = in->Next();
  const int64_t columns = buffer.dimensions().back();
  args->columns = columns;
  args->rows = columns == 0 ? 0 : static_cast<int64_t>(buffer.element_count()) / columns;
  return static_cast<const T*>(buffer.untyped_data());
}

// The next operand as the seed: its value, or its address if T is void.
template <typename T>
SeedOf<T> NextSeed(Operands* in) {
  if constexpr (std::is_void_v<T>) {
    return in->NextData<int64_t>();
  } else {
    return in->NextScalar<uint64_t>();
  }
}

// Whether an optional input or output, whose number of tensors is an attribute, is given.
inline bool IsOne(const xla::ffi::Dictionary& attributes, std::string_view name) {
  return attributes.get<int64_t>(name).value() == 1;
}

template <typename T>
BiasGeluArgs<T> BiasGeluArgsOf(const xla::ffi::RemainingArgs& operands,
                               const xla::ffi::RemainingRets& results,
                               const xla::ffi::Dictionary& attributes) {
  Operands in(operands);
  Results out(results);
  BiasGeluArgs<T> args;
  args.x = NextMatrix<T>(&in, &args);
  args.bias = in.NextData<T>();
  args.approximate = attributes.get<bool>("approximate").value();
  args.y = out.NextData<T>();
  return args;
}

template <typename T>
BiasGeluGradArgs<T> BiasGeluGradArgsOf(const xla::ffi::RemainingArgs& operands,
                                       const xla::ffi::RemainingRets& results,
                                       const xla::ffi::Dictionary& attributes) {
  Operands in(operands);
  Results out(results);
  BiasGeluGradArgs<T> args;
  args.dy = NextMatrix<T>(&in, &args);
  args.x = in.NextData<T>();
  args.bias = in.NextData<T>();
  args.approximate = attributes.get<bool>("approximate").value();
  args.dx = out.NextData<T>();
  args.dbias = out.NextData<T>();
  args.scratch = out.NextData<float>();
  return args;
}

template <typename T>
ResidualLayerNormArgs<T> ResidualLayerNormArgsOf(const xla::ffi::RemainingArgs& operands,
                                                 const xla::ffi::RemainingRets& results,
                                                 const xla::ffi::Dictionary& attributes) {
  Operands in(operands);
  Results out(results);
  ResidualLayerNormArgs<T> args;
  args.x = NextMatrix<T>(&in, &args);
  args.residual = in.NextDataIf<T>(IsOne(attributes, "num_residual"));
  args.bias = in.NextDataIf<T>(IsOne(attributes, "num_bias"));
  args.gamma = in.NextData<T>();
  args.beta = in.NextData<T>();
  args.epsilon = attributes.get<float>("epsilon").value();
  args.dropout_rate = attributes.get<float>("dropout_rate").value();
  args.seed = NextSeed<T>(&in);
  args.y = out.NextData<T>();
  args.mean = out.NextData<float>();
  args.rstd = out.NextData<float>();
  return args;
}

template <typename T>
ResidualLayerNormGradArgs<T> ResidualLayerNormGradArgsOf(const xla::ffi::RemainingArgs& operands,
                                                         const xla::ffi::RemainingRets& results,
                                                         const xla::ffi::Dictionary& attributes) {
  const bool has_bias = IsOne(attributes, "num_bias");
  Operands in(operands);
  Results out(results);
  ResidualLayerNormGradArgs<T> args;
  args.dy = NextMatrix<T>(&in, &args);
  args.x = in.NextData<T>();
  args.residual = in.NextDataIf<T>(IsOne(attributes, "num_residual"));
  args.bias = in.NextDataIf<T>(has_bias);
  args.gamma = in.NextData<T>();
  args.mean = in.NextData<float>();
  args.rstd = in.NextData<float>();
  args.dropout_rate = attributes.get<float>("dropout_rate").value();
  args.seed = NextSeed<T>(&in);
  args.dx = out.NextData<T>();
  args.dresidual = out.NextDataIf<T>(IsOne(attributes, "num_dresidual"));
  args.dbias = out.NextDataIf<T>(has_bias);
  args.dgamma = out.NextData<T>();
  args.dbeta = out.NextData<T>();
  args.scratch = out.NextData<float>();
  return args;
}

// The binding of all handlers. Context is the context of the platform that a handler needs.
template <typename Context>
auto BindOp() {
  return xla::ffi::Ffi::Bind().Ctx<Context>().RemainingArgs().RemainingRets().Attrs();
}

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_XLA_FFI_ARGS_H_
