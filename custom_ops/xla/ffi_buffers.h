// The buffers that XLA passes to a foreign function, in the order of the inputs and outputs of the
// op. If a kernel needs scratch, its buffer is after the results.
#ifndef BERT_TF_CUSTOM_OPS_XLA_FFI_BUFFERS_H_
#define BERT_TF_CUSTOM_OPS_XLA_FFI_BUFFERS_H_

#include <cstddef>
#include <cstdint>

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

// A buffer [..., columns] as a matrix.
struct Matrix {
  explicit Matrix(const xla::ffi::AnyBuffer& buffer)
      : columns(buffer.dimensions().back()),
        rows(columns == 0 ? 0 : static_cast<int64_t>(buffer.element_count()) / columns) {}

  int64_t columns;
  int64_t rows;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_XLA_FFI_BUFFERS_H_
