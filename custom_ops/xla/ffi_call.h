// The call of a foreign function of XLA, as custom_ops/ops/op_args.h describes it. The operands and
// results have the order of the inputs and outputs of the op. If a kernel needs scratch, its buffer
// is after the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/ops/op_args.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {

class FfiCall {
 public:
  FfiCall(xla::ffi::RemainingArgs operands, xla::ffi::RemainingRets results,
          xla::ffi::Dictionary attributes)
      : operands_(operands), results_(results), attributes_(attributes) {}

  Buffer NextInput() {
    const auto operand = operands_.get<xla::ffi::AnyBuffer>(next_operand_++).value();
    const auto sizes = operand.dimensions();
    return {operand.untyped_data(),
            {sizes.begin(), sizes.end()},
            operand.element_type() == xla::ffi::S64};
  }

  void* NextOutput(std::initializer_list<const void*> = {}) {
    return results_.get<xla::ffi::AnyBuffer>(next_result_++).value()->untyped_data();
  }

  float* NextScratch(int64_t) { return static_cast<float*>(NextOutput()); }

  template <typename T>
  void Attribute(const char* name, T* value) {
    *value = attributes_.get<T>(name).value();
  }
  void Attribute(const char* name, std::string* value) {
    *value = attributes_.get<std::string_view>(name).value();
  }

  absl::Status status() const { return absl::OkStatus(); }

 private:
  const xla::ffi::RemainingArgs operands_;
  const xla::ffi::RemainingRets results_;
  const xla::ffi::Dictionary attributes_;
  size_t next_operand_ = 0;
  size_t next_result_ = 0;
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

// Registers a foreign function for an op. Context is what the platform gives to HANDLER first.
#define BERT_TF_REGISTER_HANDLER(NAME, PLATFORM, CONTEXT, HANDLER, TRAITS) \
  XLA_FFI_REGISTER_HANDLER(                                                \
      XLA_FFI_GetApi(), "BertTf>" NAME, PLATFORM,                          \
      +[](XLA_FFI_CallFrame* frame) {                                      \
        static auto* const handler = xla::ffi::Ffi::Bind()                 \
                                         .Ctx<CONTEXT>()                   \
                                         .RemainingArgs()                  \
                                         .RemainingRets()                  \
                                         .Attrs()                          \
                                         .To(HANDLER)                      \
                                         .release();                       \
        return handler->Call(frame);                                       \
      },                                                                   \
      TRAITS)
