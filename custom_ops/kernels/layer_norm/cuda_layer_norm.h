// Shared by the forward pass and the gradient of fused_residual_layer_norm on the GPU: which
// threads process a row, and the sum z = residual + dropout(x + bias).
//
// Rows of up to 768 columns are processed by one warp, rows of up to 3,072 columns by a block of
// four warps. A lane keeps at most 24 numbers in registers (32 numbers and their three sums would
// spill), so a row is read once. Other rows (wider, not aligned, or with a width that is not a
// multiple of 64) are processed by one block per row, which reads the row again in every pass.
#pragma once

#include "custom_ops/kernels/cuda/cuda_dispatch.h"
#include "custom_ops/kernels/cuda/cuda_philox.h"

namespace bert_tf::cuda {
namespace {

constexpr int kWideWarps = 4;
constexpr int kNarrowRows = 4;    // rows of a block, one per warp
constexpr int kLaneColumns = 24;  // at most
constexpr int64_t kNarrowColumns = kWarp * kLaneColumns;
constexpr int64_t kWideColumns = kWideWarps * kNarrowColumns;
constexpr int kAnyThreads = kWideWarps * kWarp;  // of the kernels for rows of any width

// The number of rows that a block processes at a time, and of its threads, with kWarps warps per
// row.
template <int kWarps>
constexpr int kBlockRows = kWarps == 1 ? kNarrowRows : 1;
template <int kWarps>
constexpr int kBlockThreads = kBlockRows<kWarps> * kWarps * kWarp;

// The sums of `values` over all threads of a row, with the same bits in all threads. `shared` has
// room for kCount numbers per warp.
template <int kWarps, int kCount, typename V>
BERT_TF_DEVICE void RowSums(V (&values)[kCount], void* shared) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = WarpSum(values[i]);
  if (kWarps == 1) return;
  V* const of_warp = static_cast<V*>(shared);  // [kWarps, kCount]
  SyncThreads();                               // all threads have read earlier sums
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) of_warp[threadIdx.x / kWarp * kCount + i] = values[i];
  }
  SyncThreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = of_warp[i];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) values[i] += of_warp[warp * kCount + i];
  }
}

template <int kWarps, typename V>
BERT_TF_DEVICE V RowSum(V value, void* shared) {
  V values[] = {value};
  RowSums<kWarps>(values, shared);
  return values[0];
}

// The part of a row that a thread processes: kPacks packs, 32 * kWarps packs apart.
template <typename T, int kWarps, int kPacks>
struct Part {
  static constexpr int kWidth = kVectorWidth<T>;
  static constexpr int kCount = kPacks * kWidth;
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int in_row = kWarps == 1 ? lane : static_cast<int>(threadIdx.x);

  BERT_TF_DEVICE int64_t Column(int pack) const {
    return static_cast<int64_t>(pack * kWarps * kWarp + in_row) * kWidth;
  }

  // Calls body(pack, column) for the packs that are inside of a row.
  template <typename Body>
  BERT_TF_DEVICE void ForEachPack(int64_t columns, const Body& body) const {
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      if (Column(pack) < columns) body(pack, Column(pack));
    }
  }
};

// The packs of x and residual that a thread processes.
template <typename T, int kPacks>
struct Addends {
  Pack<T, kVectorWidth<T>> x[kPacks], residual[kPacks];
};

template <typename T, int kWarps, int kPacks, typename Args>
BERT_TF_DEVICE void Load(const Part<T, kWarps, kPacks>& part, const Args& args, int64_t row,
                         Addends<T, kPacks>* addends) {
  constexpr int kWidth = kVectorWidth<T>;
  const int64_t offset = row * args.columns;
  part.ForEachPack(args.columns, [&](int pack, int64_t column) {
    addends->x[pack] = LoadPack<kWidth>(args.x + offset + column);
    if (args.residual != nullptr) {
      addends->residual[pack] = LoadPack<kWidth>(args.residual + offset + column);
    }
  });
}

// z = residual + dropout(x + bias), and zeros after the end of the row. `keep` receives one bit per
// element.
template <bool kDropout, typename T, int kWarps, int kPacks, typename Args>
BERT_TF_DEVICE void Sum(const Part<T, kWarps, kPacks>& part, const Args& args,
                        const Dropout& dropout, uint64_t seed, int64_t row,
                        const Addends<T, kPacks>& addends, float* z, uint32_t* keep) {
  constexpr int kWidth = kVectorWidth<T>;
  const int64_t offset = row * args.columns;
  *keep = 0;
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    const int64_t column = part.Column(pack);
    float* const v = z + pack * kWidth;
    uint32_t kept = 0;
    if (kDropout) {  // all lanes draw, because they exchange their bits
      kept = KeepPack<kWidth>(seed, static_cast<uint64_t>(offset + column), dropout.threshold,
                              part.lane);
      *keep |= kept << (pack * kWidth);
    }
    if (column < args.columns) {
      float b[kWidth] = {};
      if (args.bias != nullptr) LoadFloats<kWidth>(args.bias + column, b);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        v[e] = ToFloat(addends.x[pack].values[e]) + b[e];
        if (kDropout) v[e] = kept >> e & 1u ? v[e] * dropout.scale : 0.0f;
        if (args.residual != nullptr) v[e] += ToFloat(addends.residual[pack].values[e]);
      }
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) v[e] = 0.0f;
    }
  }
}

// One element of z, for the kernels of any width.
template <typename Args>
BERT_TF_DEVICE float SumAt(const Args& args, const Dropout& dropout, uint64_t seed, int64_t row,
                           int64_t column, bool* kept) {
  const int64_t i = row * args.columns + column;
  float z = ToFloat(args.x[i]);
  if (args.bias != nullptr) z += ToFloat(args.bias[column]);
  *kept = true;
  if (dropout.seed != nullptr) {
    *kept = KeepElement(seed, 0, static_cast<uint64_t>(i), dropout.threshold);
    z = *kept ? z * dropout.scale : 0.0f;
  }
  if (args.residual != nullptr) z += ToFloat(args.residual[i]);
  return z;
}

// Calls function(warps, packs, dropout), where the types hold the template arguments for a width.
template <typename T, typename Function>
int WithPart(int64_t columns, bool dropout, const Function& function) {
  constexpr int kEight = 8 / kVectorWidth<T>;  // packs of eight columns
  const auto with_packs = [&](auto warps, auto with_dropout) {
    switch (CeilDivide(columns, 8 * kWarp * warps.value)) {
      case 1:
        return function(warps, Int<kEight>{}, with_dropout);
      case 2:
        return function(warps, Int<2 * kEight>{}, with_dropout);
      default:
        return function(warps, Int<3 * kEight>{}, with_dropout);
    }
  };
  const auto with_warps = [&](auto with_dropout) {
    return columns > kNarrowColumns ? with_packs(Int<kWideWarps>{}, with_dropout)
                                    : with_packs(Int<1>{}, with_dropout);
  };
  return dropout ? with_warps(std::true_type{}) : with_warps(std::false_type{});
}

inline bool FitsRegisters(int64_t columns) {
  return columns > 0 && columns % 64 == 0 && columns <= kWideColumns;
}

}  // namespace
}  // namespace bert_tf::cuda
