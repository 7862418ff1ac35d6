// cuda_platform.h for the launchers, which any C++ compiler compiles: no CUDA toolkit is needed. A
// launcher names a kernel, and the kernel is compiled on the machine that launches it
// (cuda_driver.cc). So the instructions are only declared here, and nothing calls them.
#pragma once

#include <cmath>  // the kernels call its functions
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "custom_ops/kernels/base/float_types.h"

#define BERT_TF_DEVICE inline
#define BERT_TF_HOST_DEVICE inline
#define __global__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};
extern dim3 threadIdx, blockIdx, gridDim;

namespace bert_tf::cuda {

char* SharedMemory();
void SyncThreads();
void SyncWarp();
template <typename V>
V Shuffle(V value, int source);
template <typename V>
V ShuffleXor(V value, int mask);
uint32_t MultiplyHigh(uint32_t a, uint32_t b);
float FloatOfBits(uint32_t bits);
float RoundedProduct(float a, float b);
float RoundedDifference(float a, float b);
float FastExp2(float x);
float FastReciprocal(float x);
float ToFloat(float v);
float ToFloat(BFloat16 v);
float ToFloat(Float16 v);
void Round(float v, float* out);
void Round(float v, BFloat16* out);
void Round(float v, Float16* out);
template <typename T>
uint32_t RoundPair(float low, float high);
void LoadMatrices(const void* row, uint32_t (&m)[4]);
void LoadMatricesTransposed(const void* row, uint32_t (&m)[4]);
template <typename T>
void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void CopyAsync(void* shared, const void* global, bool inside);
void CommitCopies();
template <int kLater>
void WaitForCopies();

constexpr int kInvalidValue = 1;  // CUDA_ERROR_INVALID_VALUE

// Stores the message that BertTfCudaError returns next in this thread. Returns the status.
int Fail(int status, const std::string& message);

// A kernel that NVRTC compiles for a GPU when it is first launched there.
class Kernel {
 public:
  // `source` is the path of the .cu.cc file, and `signature` the name of a function whose template
  // argument is the kernel, as GCC and Clang write it.
  Kernel(const char* source, const char* signature, std::vector<size_t> parameter_bytes);

  // Queues the kernel on a stream. Returns 0, or an error that BertTfCudaError describes.
  int Launch(dim3 grid, int threads, size_t shared_bytes, void* stream, void** parameters);

  const char* source() const { return source_; }
  // The name has the template arguments, such as ForwardKernel<BFloat16, 64, true>.
  const std::string& name() const { return name_; }
  const std::vector<size_t>& parameter_bytes() const { return parameter_bytes_; }

 private:
  // The kernel in the memory of a GPU.
  struct Loaded {
    void* context;
    void* function;
    size_t shared_bytes;  // at most
  };

  int Load(void* context);

  const char* const source_;
  const std::string name_;
  const std::vector<size_t> parameter_bytes_;
  std::mutex mutex_;
  std::vector<Loaded> loaded_;
};

namespace {

template <auto kKernel, typename... Parameters>
Kernel MakeKernel(void (*)(Parameters...)) {
  return Kernel(__BASE_FILE__, __PRETTY_FUNCTION__, {sizeof(Parameters)...});
}

// For the types of the parameters; it is not called.
template <auto kKernel>
constexpr decltype(kKernel) kTyped = nullptr;

// All kernels of the launchers exist when the object is loaded, so that tools can list them.
template <auto kKernel>
struct KernelOf {
  static inline Kernel kernel = MakeKernel<kKernel>(kTyped<kKernel>);
};

template <auto kKernel, typename... Parameters>
int LaunchAs(void (*)(Parameters...), dim3 grid, int threads, size_t shared_bytes, void* stream,
             std::common_type_t<Parameters>... arguments) {  // which have these types
  void* parameters[] = {&arguments...};
  return KernelOf<kKernel>::kernel.Launch(grid, threads, shared_bytes, stream, parameters);
}

template <auto kKernel, typename... Arguments>
int Launch(dim3 grid, int threads, size_t shared_bytes, void* stream,
           const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0) return 0;
  return LaunchAs<kKernel>(kTyped<kKernel>, grid, threads, shared_bytes, stream, arguments...);
}

}  // namespace
}  // namespace bert_tf::cuda
