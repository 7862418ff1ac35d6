// Shared by the tests of the kernels: checks that count failures and continue, threads, conversions
// of the storage types, the instruction sets of this processor, and reference implementations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {
namespace testing {

inline int& Failures() {
  static int failures = 0;
  return failures;
}

// Counts the failures and prints the first ones.
inline void Check(bool ok, const std::string& what) {
  if (ok) return;
  if (++Failures() <= 20) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

// The exit status of a test's main.
inline int Report(const char* test) {
  std::printf("%s: %s (%d failures)\n", test, Failures() == 0 ? "passed" : "FAILED", Failures());
  return Failures() == 0 ? 0 : 1;
}

// Sets the mode of TensorFlow's threads: subnormal results and inputs are treated as zero.
inline void SetFlushToZero(bool on) {
#if defined(__x86_64__)
  const unsigned int kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned int both = kFlushToZero | kDenormalsAreZero;
  _mm_setcsr(on ? _mm_getcsr() | both : _mm_getcsr() & ~both);
#elif defined(__aarch64__)
  const uint64_t kFlushToZero = 1 << 24;  // results and inputs
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control = on ? control | kFlushToZero : control & ~kFlushToZero;
  asm volatile("msr fpcr, %0" ::"r"(control));
#else
  (void)on;
#endif
}

// Runs loops in `threads` threads, each with one piece of about the same size.
class ThreadParallel : public Parallel {
 public:
  explicit ThreadParallel(int threads) : threads_(threads) {}
  void For(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& fn) const override {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < threads_; ++i) {
      const int64_t begin = total * i / threads_;
      const int64_t end = total * (i + 1) / threads_;
      if (begin < end) threads.emplace_back([&fn, begin, end] { fn(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  int NumThreads() const override { return threads_; }

 private:
  int threads_;
};

// The instruction sets of this processor, best first.
inline std::vector<Isa> SupportedIsas() {
#if defined(__x86_64__)
  if (BestIsa() == Isa::kAvx512) return {Isa::kAvx512, Isa::kAvx2, Isa::kPortable};
  if (BestIsa() == Isa::kAvx2) return {Isa::kAvx2, Isa::kPortable};
#endif
  if (BestIsa() == Isa::kNeon) return {Isa::kNeon, Isa::kPortable};
  return {Isa::kPortable};
}

inline const char* Name(Isa isa) {
  return isa == Isa::kAvx512 ? "avx512"
         : isa == Isa::kAvx2 ? "avx2"
         : isa == Isa::kNeon ? "neon"
                             : "portable";
}

// An instruction set; for AVX-512 also whether the kernel uses an instruction that not every such
// processor has.
struct Path {
  Isa isa;
  bool has_instruction;
};

inline std::vector<Path> SupportedPaths(bool has_instruction) {
  std::vector<Path> paths;
  for (Isa isa : SupportedIsas()) {
    if (isa == Isa::kAvx512 && has_instruction) paths.push_back({isa, true});
    paths.push_back({isa, false});
  }
  return paths;
}

inline std::string Name(const Path& path) {
  return std::string(Name(path.isa)) + (path.has_instruction ? " with its instruction " : " ");
}

// An instruction set, and the instructions that multiply bytes.
struct BytePath {
  Isa isa;
  ByteInstructions instructions;
};

inline std::vector<BytePath> SupportedBytePaths() {
  const ByteInstructions best = BestByteInstructions();
  std::vector<BytePath> paths;
  if (best != ByteInstructions::kNone) paths.push_back({BestIsa(), best});
  if (best == ByteInstructions::kI8mm) {
    paths.push_back({BestIsa(), ByteInstructions::kDotProduct});
  }
  for (Isa isa : SupportedIsas()) paths.push_back({isa, ByteInstructions::kNone});
  return paths;
}

inline const char* Name(ByteInstructions instructions) {
  return instructions == ByteInstructions::kVnni         ? "vnni"
         : instructions == ByteInstructions::kDotProduct ? "dotprod"
         : instructions == ByteInstructions::kI8mm       ? "i8mm"
                                                         : "none";
}

inline std::string Name(const BytePath& path) {
  return std::string(Name(path.isa)) + " " + Name(path.instructions) + " ";
}

inline float ToFloat(float v) { return v; }
inline float ToFloat(BFloat16 v) {
  const uint32_t bits = static_cast<uint32_t>(v.bits) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}
inline float ToFloat(Float16 v) {
  const int exponent = (v.bits >> 10) & 31;
  const int mantissa = v.bits & 1023;
  const float sign = v.bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? std::nanf("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// Rounds to nearest, for finite values (the inputs of the tests).
template <typename T>
T FromFloat(float v);
template <>
inline float FromFloat<float>(float v) {
  return v;
}
template <>
inline BFloat16 FromFloat<BFloat16>(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  if (v != v) return {0x7FC0};
  return {static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}
template <>
inline Float16 FromFloat<Float16>(float v) {
  if (v != v) return {0x7E00};
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const float magnitude = std::fabs(v);
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7C00)};
  if (magnitude == 0.0f) return {sign};
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int unit = std::max(exponent - 11, -24);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  if (unit == -24) return {static_cast<uint16_t>(sign | steps)};
  return {static_cast<uint16_t>(sign | (((unit + 25) << 10) + steps - 1024))};
}

template <typename T>
const char* TypeName() {
  return std::is_same_v<T, float>      ? "float32"
         : std::is_same_v<T, BFloat16> ? "bfloat16"
                                       : "float16";
}

// The largest error of rounding to T: half a unit in the last place, relative to the value for
// normal numbers, and absolute for subnormal numbers.
template <typename T>
double RoundingError() {
  return std::is_same_v<T, float> ? 0x1p-24 : std::is_same_v<T, BFloat16> ? 0x1p-8 : 0x1p-11;
}

template <typename T>
double RoundingErrorAt(double value) {
  const double subnormal = sizeof(T) == 2 ? 0x1p-25 : 0x1p-150;
  return std::max(RoundingError<T>() * std::fabs(value), subnormal);
}

// A scalar implementation of Philox4x32-10.
struct PhiloxWords {
  uint32_t words[4];
};

inline PhiloxWords Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c[4] = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                   static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
        static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    std::copy(next, next + 4, c);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// The word of an element of a stream, as in philox.h.
inline uint32_t ElementBits(uint64_t seed, uint64_t stream, uint64_t element) {
  const uint64_t chunk = element / 64, rest = element % 64;
  return Philox(seed, 16 * chunk + rest % 16, stream).words[rest / 16];
}

// gelu(s) in float64.
inline double GeluReference(double s, bool approximate) {
  if (!approximate) return 0.5 * s * std::erfc(-s * std::sqrt(0.5));
  const double u = std::sqrt(2.0 / M_PI) * (s + 0.044715 * s * s * s);
  return s / (1.0 + std::exp(-2.0 * u));
}

// gelu'(s) in float64.
inline double GeluSlopeReference(double s, bool approximate) {
  if (!approximate) {
    return 0.5 * std::erfc(-s * std::sqrt(0.5)) +
           s * std::exp(-0.5 * s * s) / std::sqrt(2.0 * M_PI);
  }
  const double u = std::sqrt(2.0 / M_PI) * (s + 0.044715 * s * s * s);
  const double u_slope = std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * s * s);
  const double sigmoid = 1.0 / (1.0 + std::exp(-2.0 * u));
  const double other = 1.0 / (1.0 + std::exp(2.0 * u));
  return sigmoid + s * sigmoid * other * 2.0 * u_slope;
}

// The distance between float32 numbers near `value`.
inline double Ulp(double value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

// Every 256th float32 of both signs up to 30, and a few of every other exponent.
inline std::vector<float> FloatsOfAllExponents() {
  std::vector<float> inputs;
  for (uint32_t bits = 0; bits < 0x7F800000u; bits += 0x00100000u) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const uint32_t step = bits >= 0x38000000u && bits < 0x42000000u ? 0x101u : 0x2FFFFu;
      for (uint32_t low = 0; low < 0x00100000u; low += step) {
        const uint32_t word = (bits + low) | sign;
        float value;
        std::memcpy(&value, &word, sizeof(value));
        inputs.push_back(value);
      }
    }
  }
  return inputs;
}

// `count` normally distributed numbers times `scale`, rounded to T, at an address that is not
// aligned to vectors (the first element of the buffer is not used).
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t count, T fill = FromFloat<T>(0.0f))
      : values_(static_cast<size_t>(count) + 2, fill) {}
  Buffer(int64_t count, std::mt19937& random, float scale, float mean = 0.0f) : Buffer(count) {
    std::normal_distribution<float> normal(mean, scale);
    for (T& value : values_) value = FromFloat<T>(normal(random));
  }
  T* data() { return values_.data() + 1; }
  const T* data() const { return values_.data() + 1; }
  double operator[](int64_t i) const { return ToFloat(values_[static_cast<size_t>(i) + 1]); }
  T& at(int64_t i) { return values_[static_cast<size_t>(i) + 1]; }
  int64_t size() const { return static_cast<int64_t>(values_.size()) - 2; }
  bool SameBits(const Buffer& other) const {
    return std::memcmp(data(), other.data(), static_cast<size_t>(size()) * sizeof(T)) == 0;
  }

 private:
  std::vector<T> values_;
};

}  // namespace testing
}  // namespace bert_tf
