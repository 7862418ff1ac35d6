// libcuda.so.1 for tests on machines without a GPU. It has the functions that cuda_driver.cc calls,
// and "runs" a kernel of a module by running the emulated kernel of the same name with the
// arguments of the launch. So a test that passes has found the name of every kernel in the code
// that NVRTC made, and has launched it with the right grid, shared memory and arguments.
//
// EMULATED_CAPABILITY (default 90) and EMULATED_DRIVER (default 12090) describe the GPU.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "custom_ops/kernels/cuda/cuda_emulation.h"

namespace bert_tf::cuda::emulation {
namespace {

constexpr int kInvalid = 1, kNoImage = 200, kNotFound = 500;  // CUresult
constexpr int kSharedBytes = 48 * 1024;                       // without asking for more
constexpr int kMostSharedBytes = 227 * 1024;                  // of sm_90

struct Function {
  KernelOnAddresses kernel;
  int shared_bytes = kSharedBytes;
};

int Setting(const char* name, int fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : fallback;
}

// Removes scopes and what surrounds "Kernel<T, 64>" in a signature or in a demangled name.
std::string Bare(std::string name) {
  const size_t argument = name.find("kKernel = ");
  if (argument != std::string::npos)
    name = name.substr(argument + 10, name.rfind(']') - argument - 10);
  for (const char* word :
       {"(anonymous namespace)::", "{anonymous}::", "bert_tf::", "cuda::", "void "}) {
    for (size_t at; (at = name.find(word)) != std::string::npos;) name.erase(at, std::strlen(word));
  }
  return name.substr(0, name.find('('));
}

KernelOnAddresses Find(const char* mangled) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  if (demangled == nullptr) return nullptr;
  const std::string name = Bare(demangled);
  std::free(demangled);
  for (const auto& [signature, kernel] : Kernels()) {
    if (Bare(signature) == name) return kernel;
  }
  return nullptr;
}

}  // namespace
}  // namespace bert_tf::cuda::emulation

using namespace bert_tf::cuda::emulation;

extern "C" {

int cuInit(unsigned) { return 0; }

int cuDriverGetVersion(int* version) {
  *version = Setting("EMULATED_DRIVER", 12090);
  return 0;
}

int cuCtxGetCurrent(void** context) {
  static char only_one;
  *context = &only_one;
  return 0;
}

int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = Setting("EMULATED_CAPABILITY", 90);
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int*) { return 0; }

int cuModuleLoadData(void** module, const void* image) {
  if (std::memcmp(image, "\177ELF", 4) != 0) return kNoImage;
  *module = const_cast<void*>(image);
  return 0;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  const KernelOnAddresses kernel = Find(name);
  if (kernel == nullptr) return kNotFound;
  *function = new Function{kernel};  // for the rest of the process, as in a loaded module
  return 0;
}

int cuFuncSetAttribute(void* function, int, int value) {
  if (value > kMostSharedBytes) return kInvalid;
  static_cast<Function*>(function)->shared_bytes = value;
  return 0;
}

int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned shared_bytes, void*, void** parameters, void**) {
  const Function& launched = *static_cast<Function*>(function);
  if (x == 0 || y == 0 || z != 1 || y > 65535 || threads > 1024) return kInvalid;
  if (static_cast<int>(shared_bytes) > launched.shared_bytes) return kInvalid;
  Run(dim3(x, y), static_cast<int>(threads), shared_bytes, [&] { launched.kernel(parameters); });
  return 0;
}

// NVRTC 12.9 asks for one, and does without.
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}

int cuGetErrorName(int status, const char** name) {
  *name = status == kNotFound ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR";
  return 0;
}

}  // extern "C"
