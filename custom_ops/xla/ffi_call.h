// The call of a foreign function of XLA, as custom_ops/ops/op_call.h describes it. The operands and
// results have the order of the inputs and outputs of the op, whose names are in the attributes
// kInputNames and kOutputNames. If a kernel needs scratch, its buffer is after the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/ops/op_call.h"
#include "custom_ops/xla/tensor_names.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {

class FfiCall {
 public:
  FfiCall(xla::ffi::RemainingArgs operands, xla::ffi::RemainingRets results,
          xla::ffi::Dictionary attributes)
      : operands_(operands),
        results_(results),
        attributes_(attributes),
        inputs_(NamesOf(kInputNames)),
        outputs_(NamesOf(kOutputNames)) {}

  const std::vector<std::string_view>& InputNames() const { return inputs_; }
  const std::vector<std::string_view>& OutputNames() const { return outputs_; }

  Buffer InputAt(int place) const {
    const auto operand = operands_.get<xla::ffi::AnyBuffer>(place).value();
    const auto sizes = operand.dimensions();
    return {operand.untyped_data(),
            {sizes.begin(), sizes.end()},
            operand.element_type() == xla::ffi::S64,
            operand.element_type() == xla::ffi::BF16  ? FloatType::kBFloat16
            : operand.element_type() == xla::ffi::F16 ? FloatType::kFloat16
                                                      : FloatType::kFloat32};
  }

  void* OutputAt(size_t place, std::initializer_list<absl::string_view> = {}) const {
    return results_.get<xla::ffi::AnyBuffer>(place).value()->untyped_data();
  }

  float* Scratch(int64_t) const { return static_cast<float*>(OutputAt(outputs_.size())); }

  template <typename T>
  void Attribute(const char* name, T* value) {
    *value = attributes_.get<T>(name).value();
  }
  void Attribute(const char* name, std::string* value) {
    *value = attributes_.get<std::string_view>(name).value();
  }

  absl::Status status() const { return absl::OkStatus(); }

 private:
  std::vector<std::string_view> NamesOf(const char* attribute) const {
    return absl::StrSplit(attributes_.get<std::string_view>(attribute).value(), kNameSeparator);
  }

  const xla::ffi::RemainingArgs operands_;
  const xla::ffi::RemainingRets results_;
  const xla::ffi::Dictionary attributes_;
  const std::vector<std::string_view> inputs_, outputs_;
};

inline xla::ffi::Error ErrorOf(const absl::Status& status) {
  if (status.ok()) return xla::ffi::Error::Success();
  return xla::ffi::Error(static_cast<xla::ffi::ErrorCode>(status.code()),
                         std::string(status.message()));
}

template <typename T>
constexpr xla::ffi::DataType kFfiType = xla::ffi::F32;
template <>
inline constexpr xla::ffi::DataType kFfiType<BFloat16> = xla::ffi::BF16;
template <>
inline constexpr xla::ffi::DataType kFfiType<Float16> = xla::ffi::F16;

// Calls `function` with a number of the type of the first operand, one of Types.
template <typename... Types, typename Function>
xla::ffi::Error WithType(const xla::ffi::RemainingArgs& operands, const Function& function) {
  const auto type = operands.get<xla::ffi::AnyBuffer>(0).value().element_type();
  auto error =
      xla::ffi::Error::InvalidArgument("The first operand must have a dtype that the op has.");
  ((type == kFfiType<Types> ? void(error = function(Types{})) : void()), ...);
  return error;
}

}  // namespace bert_tf

// Registers a foreign function for an op. Context is what the platform gives to HANDLER first. The
// function also tells its traits to a program that registers it again, such as JAX.
#define BERT_TF_REGISTER_HANDLER(NAME, PLATFORM, CONTEXT, HANDLER, TRAITS)                     \
  XLA_FFI_REGISTER_HANDLER(                                                                    \
      XLA_FFI_GetApi(), "BertTf>" NAME, PLATFORM,                                              \
      +[](XLA_FFI_CallFrame* frame) {                                                          \
        static auto* const handler = xla::ffi::Ffi::Bind()                                     \
                                         .Ctx<CONTEXT>()                                       \
                                         .RemainingArgs()                                      \
                                         .RemainingRets()                                      \
                                         .Attrs()                                              \
                                         .To(HANDLER, {static_cast<xla::ffi::Traits>(TRAITS)}) \
                                         .release();                                           \
        return handler->Call(frame);                                                           \
      },                                                                                       \
      TRAITS)
