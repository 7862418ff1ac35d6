// The foreign functions of gpu_handlers.cc for a program other than TensorFlow, such as JAX, which
// asks for them by number and registers them itself (benchmarks/gpu_runs/compiled_step.py).
#include <cstdint>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

namespace {

struct Handler {
  std::string name;
  XLA_FFI_Handler* execute;
};

std::vector<Handler>& Handlers() {
  static auto* const handlers = new std::vector<Handler>();
  return *handlers;
}

XLA_FFI_Error* Add(XLA_FFI_Handler_Register_Args* args) {
  Handlers().push_back({{args->name.ptr, args->name.len}, args->bundle.execute});
  return nullptr;
}

}  // namespace

extern "C" {

// The static variables of gpu_handlers.cc register their functions through this one, which replaces
// that of libtensorflow_framework.so.2 in this object.
const XLA_FFI_Api* XLA_FFI_GetApi() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api api = {};
    api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    api.XLA_FFI_Handler_Register = Add;
    return api;
  }();
  return &api;
}

// Returns the name of a foreign function and sets its address, or returns null.
const char* BertTfCudaHandler(int64_t number, XLA_FFI_Handler** execute) {
  if (number < 0 || number >= static_cast<int64_t>(Handlers().size())) return nullptr;
  *execute = Handlers()[number].execute;
  return Handlers()[number].name.c_str();
}

}  // extern "C"
