// A call of an op, whose inputs, outputs and attributes are found by their names in the op's
// definition. It is the same for OpKernels and for XLA's foreign functions, for CPU and GPU.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/sizes.h"

namespace bert_tf {

struct Buffer {
  const void* data = nullptr;
  absl::InlinedVector<int64_t, 4> sizes;
  bool is_int64 = false;
  FloatType float_type = FloatType::kFloat32;  // kFloat32 also for numbers that are no floats

  int64_t Count() const {
    int64_t count = 1;
    for (const int64_t size : sizes) count = SizeProduct(count, size);
    return count;
  }
};

// Returns the place of a name, or -1. Ops have so few inputs that this takes nanoseconds.
template <typename Names, typename Name>
int PlaceOf(const Names& names, const Name& name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return -1;
}

// A call of an op. Platform is OpKernelCall (kernel_op.h) or FfiCall (ffi_call.h). It has
//   InputNames(), OutputNames()  the names of the tensors of this call in their order. An optional
//                                input or output, a list of no or one tensor, may be missing. In a
//                                list of several tensors, only the first one has its name.
//   InputAt(place)               an input;
//   OutputAt(place, in_place)    the memory of an output, which may be that of the inputs with
//   these
//                                names;
//   Scratch(count)               the memory of `count` floats until the end of the call;
//   Attribute(name, pointer)     and status(), an error of any of these.
template <typename Platform>
class OpCall : public Platform {
 public:
  using Platform::Platform;

  // An input that the op must have. If it does not, `status` is an error, and the result is one
  // number, so that code that reads it before it sees the error does not crash.
  Buffer Input(absl::string_view name) {
    const int place = PlaceOf(this->InputNames(), name);
    if (place >= 0) {
      bound_.push_back(place);
      return this->InputAt(place);
    }
    Fail(absl::StrCat("must have an input `", name, "`."));
    static constexpr int64_t kZero = 0;
    return {&kZero, {1, 1, 1, 1}, true};
  }
  template <typename T>
  void Input(absl::string_view name, const T** field) {
    *field = static_cast<const T*>(Input(name).data);
  }

  // The tensors of a list, which must have at least one.
  std::vector<Buffer> InputList(absl::string_view name) {
    std::vector<Buffer> tensors = {Input(name)};
    const auto& names = this->InputNames();
    const size_t first = static_cast<size_t>(PlaceOf(names, name));
    for (size_t i = first + 1; i < names.size() && names[i].empty(); ++i) {
      tensors.push_back(this->InputAt(static_cast<int>(i)));
    }
    return tensors;
  }

  bool HasInput(absl::string_view name) const { return PlaceOf(this->InputNames(), name) >= 0; }

  // Null if the call does not have this input.
  template <typename T>
  void OptionalInput(absl::string_view name, const T** field) {
    if (HasInput(name)) Input(name, field);
  }

  // Sets `rows` and `columns` of the arguments to the sizes of this input, [..., columns].
  template <typename T, typename Args>
  void Matrix(absl::string_view name, const T** field, Args* args) {
    const Buffer input = Input(name);
    *field = static_cast<const T*>(input.data);
    args->rows = 1;
    for (size_t i = 0; i + 1 < input.sizes.size(); ++i) {
      args->rows = SizeProduct(args->rows, input.sizes[i]);
    }
    args->columns = input.sizes.back();
  }

  // The value of the seed on the CPU, or its address on a GPU, in whose memory the seed stays.
  void Seed(uint64_t* value) { *value = *static_cast<const uint64_t*>(Input("seed").data); }
  void Seed(const int64_t** address) { Input("seed", address); }

  template <typename T>
  void Output(absl::string_view name, T** field,
              std::initializer_list<absl::string_view> in_place = {}) {
    const int place = PlaceOf(this->OutputNames(), name);
    if (place < 0) return Fail(absl::StrCat("must have an output `", name, "`."));
    *field = static_cast<T*>(this->OutputAt(place, in_place));
  }

  template <typename T>
  void OptionalOutput(absl::string_view name, T** field,
                      std::initializer_list<absl::string_view> in_place = {}) {
    if (PlaceOf(this->OutputNames(), name) >= 0) Output(name, field, in_place);
  }

  absl::Status status() const { return mismatch_.ok() ? Platform::status() : mismatch_; }

  // Returns an error if an input of the op was not bound.
  absl::Status AllBound() const {
    const auto& names = this->InputNames();
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty() || PlaceOf(bound_, static_cast<int>(i)) >= 0) continue;
      return absl::InternalError(absl::StrCat("The kernel must bind the input `", names[i], "`."));
    }
    return absl::OkStatus();
  }

 private:
  void Fail(const std::string& rule) {
    mismatch_.Update(absl::InternalError(
        absl::StrCat("The op ", rule, " Received: inputs=", absl::StrJoin(this->InputNames(), ","),
                     ", outputs=", absl::StrJoin(this->OutputNames(), ","))));
  }

  absl::InlinedVector<int, 16> bound_;  // the places of inputs
  absl::Status mismatch_;
};

}  // namespace bert_tf
