// Shared by the tests of the GPU kernels, which run them thread by thread on a CPU
// (cuda_emulation.h) and compare them with the CPU kernels. Those have their own tests against
// float64. Outputs are initialized with NaN, and two orders of the threads must give equal bits.
//
// This does not test the speed, the approximate exponential and reciprocal of a GPU, and the memory
// of a real GPU between two barriers. benchmarks/cuda_kernels does, on a GPU.
#pragma once

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/cuda/cuda_emulation.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"

namespace bert_tf {
namespace testing {

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

// Checks that no error is above two roundings to T plus `tolerance`, relative to the largest
// expected number or to `unit`, whichever is larger.
template <typename T>
void CheckNear(Numbers<T>& actual, Numbers<T>& expected, double tolerance, const std::string& what,
               double unit = 1.0) {
  double worst = 0.0, largest = unit;
  for (int64_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    const double error = std::fabs(actual[i] - expected[i]);
    worst = error <= worst ? worst : error;
    if (error != error) worst = INFINITY;
  }
  Check(std::isfinite(largest) && worst <= (2 * RoundingError<T>() + tolerance) * largest,
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

}  // namespace testing
}  // namespace bert_tf
