// The GPU instructions that the .cu.cc kernels use, each as a function: barriers, shuffles, tensor
// cores and asynchronous copies. The kernels need sm_80 or newer. Three compilers read a .cu.cc
// file:
//   NVRTC, on the machine that runs the kernels when one is first used, compiles the kernel to the
//     real instructions (__CUDACC_RTC__);
//   the C++ compiler compiles the launchers for cuda_driver.h, which has the kernels compiled;
//   for tests, it compiles both for cuda_emulation.h, which runs the same kernels on a CPU, thread
//   by
//     thread, so that their indices, tails and arithmetic can be tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "custom_ops/kernels/base/float_types.h"

#if defined(BERT_TF_EMULATED_GPU)
#include "custom_ops/kernels/cuda/cuda_emulation.h"
#elif !defined(__CUDACC_RTC__)
#include "custom_ops/kernels/cuda/cuda_driver.h"
#else

#define BERT_TF_DEVICE __device__ __forceinline__
#define BERT_TF_HOST_DEVICE __host__ __device__ __forceinline__

namespace bert_tf::cuda {

BERT_TF_DEVICE char* SharedMemory() {
  extern __shared__ __align__(16) char bert_tf_shared_memory[];
  return bert_tf_shared_memory;
}

BERT_TF_DEVICE void SyncThreads() { __syncthreads(); }
BERT_TF_DEVICE void SyncWarp() { __syncwarp(); }

// All 32 lanes must call these functions.
template <typename V>
BERT_TF_DEVICE V Shuffle(V value, int source) {
  return __shfl_sync(0xFFFFFFFFu, value, source);
}
template <typename V>
BERT_TF_DEVICE V ShuffleXor(V value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}

BERT_TF_DEVICE uint32_t MultiplyHigh(uint32_t a, uint32_t b) { return __umulhi(a, b); }
BERT_TF_DEVICE float FloatOfBits(uint32_t bits) { return __uint_as_float(bits); }

// The results are always rounded: they are never part of a fused multiply-add.
BERT_TF_DEVICE float RoundedProduct(float a, float b) { return __fmul_rn(a, b); }
BERT_TF_DEVICE float RoundedDifference(float a, float b) { return __fsub_rn(a, b); }

// 2^x and 1/x within 2 ulp. Subnormal numbers are treated as zero.
BERT_TF_DEVICE float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
BERT_TF_DEVICE float FastReciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

BERT_TF_DEVICE float ToFloat(float v) { return v; }
BERT_TF_DEVICE float ToFloat(BFloat16 v) {
  return __uint_as_float(static_cast<uint32_t>(v.bits) << 16);
}
BERT_TF_DEVICE float ToFloat(Float16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}

// Rounds to nearest, ties to even.
BERT_TF_DEVICE void Round(float v, float* out) { *out = v; }
BERT_TF_DEVICE void Round(float v, BFloat16* out) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out->bits) : "f"(v));
}
BERT_TF_DEVICE void Round(float v, Float16* out) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out->bits) : "f"(v));
}

// Two rounded numbers in one register, `low` in the lower half.
template <typename T>
BERT_TF_DEVICE uint32_t RoundPair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

BERT_TF_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Loads four 8 x 8 matrices of 16-bit numbers from shared memory. Lane l passes the address of row
// l % 8 of matrix l / 8, and receives from each matrix the element (l / 4, 2 (l % 4)) and the next
// element of that row.
BERT_TF_DEVICE void LoadMatrices(const void* row, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// The same for the transposed matrices.
BERT_TF_DEVICE void LoadMatricesTransposed(const void* row, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// c [16, 8] += a [16, 16] b [16, 8] on the tensor cores.
template <typename T>
BERT_TF_DEVICE void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Copies 16 bytes to shared memory asynchronously, or zeros if `inside` is false.
BERT_TF_DEVICE void CopyAsync(void* shared, const void* global, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(SharedAddress(shared)), "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}
BERT_TF_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kLater of the committed groups are incomplete.
template <int kLater>
BERT_TF_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLater) : "memory");
}

}  // namespace bert_tf::cuda

#endif

// For the headers that the CPU kernels also include.
#define BERT_TF_ISA cuda
#define BERT_TF_INLINE BERT_TF_DEVICE

namespace bert_tf::cuda {

constexpr int kWarp = 32;

BERT_TF_HOST_DEVICE constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
BERT_TF_HOST_DEVICE constexpr int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
BERT_TF_HOST_DEVICE constexpr int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// kWidth elements that are loaded or stored with one access.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

template <typename T>
constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

template <int kWidth, typename T>
BERT_TF_DEVICE Pack<T, kWidth> LoadPack(const T* p) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p);
}
template <int kWidth, typename T>
BERT_TF_DEVICE void StorePack(T* p, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(p) = pack;
}
template <int kWidth, typename T>
BERT_TF_DEVICE void LoadFloats(const T* p, float* values) {
  const Pack<T, kWidth> pack = LoadPack<kWidth>(p);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = ToFloat(pack.values[i]);
}
template <int kWidth, typename T>
BERT_TF_DEVICE void StoreFloats(T* p, const float* values) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) Round(values[i], &pack.values[i]);
  StorePack<kWidth>(p, pack);
}

// Whether every row of `columns` elements is aligned to 16 bytes. Null pointers are aligned.
template <typename T, typename... Pointers>
bool Aligned(int64_t columns, Pointers... pointers) {
  uintptr_t bits = 0;
  const uintptr_t addresses[] = {reinterpret_cast<uintptr_t>(pointers)...};
  for (const uintptr_t address : addresses) bits |= address;
  return bits % 16 == 0 && columns % kVectorWidth<T> == 0;
}

template <typename V>
BERT_TF_DEVICE V WarpSum(V value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}

}  // namespace bert_tf::cuda
