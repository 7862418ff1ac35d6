// cuda_platform.h on a CPU, for tests. The threads of a block are coroutines that run one after
// another from barrier to barrier. Shuffles and tensor core instructions exchange the values of the
// lanes, with the fragment layouts of the PTX manual. Asynchronous copies are made when the kernel
// waits for them, not before. `schedule` reverses the order of the threads: if a result depends on
// it, a barrier is missing. The emulation is slow, and only one host thread may use it at a time.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
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
inline thread_local dim3 threadIdx, blockIdx, gridDim;

namespace bert_tf::cuda {
namespace emulation {

enum class Schedule { kAscending, kDescending };
inline thread_local Schedule schedule = Schedule::kAscending;

struct Copy {
  void* to;
  const void* from;
};

struct Thread {
  enum State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };
  State state = kDone;
  ucontext_t context;
  std::vector<char> stack;
  std::vector<Copy> open_group;
  std::vector<std::vector<Copy>> groups;
  uint64_t brought[8];  // the values of this thread in an exchange in the warp
};

class Block {
 public:
  static inline thread_local Block* current = nullptr;

  Block(int threads, size_t shared_bytes) : shared_(shared_bytes / 16 + 1), threads_(threads) {
    for (Thread& thread : threads_) thread.stack.resize(kStackBytes);
  }

  void Run(const std::function<void()>& kernel) {
    kernel_ = &kernel;
    current = this;
    // Shared memory is initialized with NaNs of every format.
    std::memset(shared_.data(), 0xFF, shared_.size() * sizeof(shared_[0]));
    for (Thread& thread : threads_) {
      thread.state = Thread::kReady;
      thread.open_group.clear();
      thread.groups.clear();
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      thread.context.uc_link = &scheduler_;
      makecontext(&thread.context, &Block::Entry, 0);
    }
    const int count = static_cast<int>(threads_.size());
    while (!AllAre(0, count, Thread::kDone)) {
      bool ran = false;
      for (int i = 0; i < count; ++i) {
        const int index = schedule == Schedule::kAscending ? i : count - 1 - i;
        if (threads_[index].state != Thread::kReady) continue;
        ran = true;
        running_ = index;
        threadIdx = dim3(static_cast<unsigned>(index));
        swapcontext(&scheduler_, &threads_[index].context);
      }
      for (int first = 0; first < count; first += 32) {
        ran |= Release(first, first + 32, Thread::kAtWarpBarrier);
      }
      ran |= Release(0, count, Thread::kAtBlockBarrier);
      if (!ran) {
        std::fprintf(stderr, "the threads of a block wait for each other at different barriers\n");
        std::abort();
      }
    }
    current = nullptr;
  }

  void Wait(Thread::State barrier) {
    Thread& thread = Running();
    thread.state = barrier;
    swapcontext(&thread.context, &scheduler_);
  }

  Thread& Running() { return threads_[running_]; }
  Thread& LaneOfWarp(int lane) { return threads_[running_ / 32 * 32 + lane]; }
  int lane() const { return running_ % 32; }
  char* shared() { return reinterpret_cast<char*>(shared_.data()); }

 private:
  static constexpr size_t kStackBytes = 64 * 1024;
  struct alignas(16) SharedLine {
    char bytes[16];
  };

  static void Entry() {
    Block* block = current;
    (*block->kernel_)();
    block->Running().state = Thread::kDone;
  }

  bool AllAre(int first, int last, Thread::State state) const {
    for (int i = first; i < last; ++i) {
      if (threads_[i].state != state) return false;
    }
    return true;
  }

  bool Release(int first, int last, Thread::State barrier) {
    if (!AllAre(first, last, barrier)) return false;
    for (int i = first; i < last; ++i) threads_[i].state = Thread::kReady;
    return true;
  }

  std::vector<SharedLine> shared_;
  std::vector<Thread> threads_;
  ucontext_t scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  int running_ = 0;
};

inline void WarpBarrier() { Block::current->Wait(Thread::kAtWarpBarrier); }

// Exchanges the `values` of the lanes of a warp. Calls `use` with a function that returns the
// values of any lane.
template <typename Use>
void Exchange(const void* values, size_t bytes, const Use& use) {
  Block* block = Block::current;
  std::memcpy(block->Running().brought, values, bytes);
  WarpBarrier();
  use([block](int lane) -> const void* { return block->LaneOfWarp(lane).brought; });
  WarpBarrier();
}

}  // namespace emulation

constexpr int kInvalidValue = 1;

namespace emulation {

template <typename Kernel>
void Run(dim3 grid, int threads, size_t shared_bytes, const Kernel& kernel) {
  gridDim = grid;
  Block block(threads, shared_bytes);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      block.Run(kernel);
    }
  }
}

// A kernel whose arguments have these addresses, as CUDA's driver gets them (emulated_driver.cc).
using KernelOnAddresses = void (*)(void** arguments);

template <typename T>
T Next(void**& arguments) {
  return *static_cast<T*>(*arguments++);
}

template <auto kKernel, typename... Parameters>
KernelOnAddresses OnAddresses(void (*)(Parameters...)) {
  return [](void** arguments) {
    std::tuple<Parameters...> values{Next<Parameters>(arguments)...};  // in this order
    std::apply(kKernel, values);
  };
}

// All kernels, by the signature of a function that has a kernel as its template argument.
inline std::map<std::string, KernelOnAddresses>& Kernels() {
  static std::map<std::string, KernelOnAddresses> kernels;
  return kernels;
}

template <auto kKernel>
bool Register() {
  return Kernels().emplace(__PRETTY_FUNCTION__, OnAddresses<kKernel>(kKernel)).second;
}

template <auto kKernel>
struct Registered {
  static inline const bool kDone = Register<kKernel>();
};

}  // namespace emulation

template <auto kKernel, typename... Arguments>
int Launch(dim3 grid, int threads, size_t shared_bytes, void*, Arguments... arguments) {
  static_cast<void>(emulation::Registered<kKernel>::kDone);
  emulation::Run(grid, threads, shared_bytes, [&] { kKernel(arguments...); });
  return 0;
}

inline char* SharedMemory() { return emulation::Block::current->shared(); }
inline void SyncThreads() { emulation::Block::current->Wait(emulation::Thread::kAtBlockBarrier); }
inline void SyncWarp() { emulation::WarpBarrier(); }

template <typename V>
V Shuffle(V value, int source) {
  V result;
  emulation::Exchange(&value, sizeof(V), [&](const auto& brought) {
    std::memcpy(&result, brought(source), sizeof(V));
  });
  return result;
}
template <typename V>
V ShuffleXor(V value, int mask) {
  return Shuffle(value, emulation::Block::current->lane() ^ mask);
}

inline uint32_t MultiplyHigh(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline float FloatOfBits(uint32_t bits) {
  float v;
  std::memcpy(&v, &bits, sizeof(v));
  return v;
}
inline float RoundedProduct(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float RoundedDifference(float a, float b) { return a - b; }
inline float FastExp2(float x) { return std::exp2(x); }
inline float FastReciprocal(float x) { return 1.0f / x; }

inline float ToFloat(float v) { return v; }
inline float ToFloat(BFloat16 v) { return FloatOfBits(static_cast<uint32_t>(v.bits) << 16); }
inline float ToFloat(Float16 v) {
  _Float16 half;
  std::memcpy(&half, &v.bits, sizeof(half));
  return static_cast<float>(half);
}
inline void Round(float v, float* out) { *out = v; }
inline void Round(float v, BFloat16* out) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  out->bits = static_cast<uint16_t>(v != v ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline void Round(float v, Float16* out) {
  const _Float16 half = static_cast<_Float16>(v);
  std::memcpy(&out->bits, &half, sizeof(half));
}
template <typename T>
uint32_t RoundPair(float low, float high) {
  T pair[2];
  Round(low, &pair[0]);
  Round(high, &pair[1]);
  return pair[0].bits | static_cast<uint32_t>(pair[1].bits) << 16;
}

namespace emulation {

inline void LoadMatrices(const void* row, bool transposed, uint32_t (&m)[4]) {
  const int lane = Block::current->lane();
  Exchange(&row, sizeof(row), [&](const auto& brought) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t pair[2];
      for (int e = 0; e < 2; ++e) {
        const int i = transposed ? 2 * (lane % 4) + e : lane / 4;
        const int j = transposed ? lane / 4 : 2 * (lane % 4) + e;
        const uint16_t* line;
        std::memcpy(&line, brought(8 * matrix + i), sizeof(line));
        pair[e] = line[j];
      }
      m[matrix] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  });
}

}  // namespace emulation

inline void LoadMatrices(const void* row, uint32_t (&m)[4]) {
  emulation::LoadMatrices(row, false, m);
}
inline void LoadMatricesTransposed(const void* row, uint32_t (&m)[4]) {
  emulation::LoadMatrices(row, true, m);
}

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".
template <typename T>
void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t values[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const int lane = emulation::Block::current->lane();
  emulation::Exchange(values, sizeof(values), [&](const auto& brought) {
    const auto half = [&](int of_lane, int word, int index) {
      const T v = {static_cast<uint16_t>(static_cast<const uint32_t*>(brought(of_lane))[word] >>
                                         (16 * index))};
      return ToFloat(v);
    };
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + 8 * (e / 2);
      const int column = 2 * (lane % 4) + e % 2;
      for (int k = 0; k < 16; ++k) {
        const float from_a = half(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8), k % 2);
        const float from_b = half(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
        c[e] += from_a * from_b;
      }
    }
  });
}

inline void CopyAsync(void* shared, const void* global, bool inside) {
  static constexpr char kZeros[16] = {};
  emulation::Block::current->Running().open_group.push_back({shared, inside ? global : kZeros});
}
inline void CommitCopies() {
  emulation::Thread& thread = emulation::Block::current->Running();
  thread.groups.push_back(std::move(thread.open_group));
  thread.open_group.clear();
}
template <int kLater>
void WaitForCopies() {
  emulation::Thread& thread = emulation::Block::current->Running();
  while (static_cast<int>(thread.groups.size()) > kLater) {
    for (const emulation::Copy& copy : thread.groups.front()) std::memcpy(copy.to, copy.from, 16);
    thread.groups.erase(thread.groups.begin());
  }
}

}  // namespace bert_tf::cuda
