// Compiled once per instruction set (isa.bzl).
#include "custom_ops/kernels/fused_residual_layer_norm.h"

#include <cstdlib>

#include "custom_ops/kernels/layer_norm_row.h"
#include "custom_ops/kernels/philox.h"
#include "custom_ops/kernels/row_blocks.h"
#include "custom_ops/kernels/simd.h"

namespace bert_tf {
namespace BERT_TF_ISA {
namespace {

// Rough work per element, for the cost estimate.
constexpr int64_t kForwardCycles = 2;
constexpr int64_t kBackwardCycles = 3;
constexpr int64_t kDropoutCycles = 2;

// A row of `count` numbers of the calling thread. (No std::vector: its code, compiled here for one
// instruction set, could be linked into another's.)
template <typename T>
class Row {
 public:
  explicit Row(int64_t count)
      : data_(static_cast<T*>(std::malloc(sizeof(T) * static_cast<size_t>(count + kLanes)))) {
    if (data_ == nullptr) std::abort();
  }
  ~Row() { std::free(data_); }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  T* data() const { return data_; }

 private:
  T* data_;
};

// Which elements of a row are kept, drawn row by row.
class Dropout {
 public:
  Dropout(float rate, uint64_t seed, int64_t columns)
      : seed_(seed),
        threshold_(DropoutThreshold(rate)),
        scale_(1.0f / (1.0f - rate)),
        words_(columns + 2 * kPhiloxChunk) {}

  BERT_TF_INLINE void Draw(int64_t row, int64_t columns) {
    const int64_t first = row * columns;
    const int64_t first_chunk = first / kPhiloxChunk;
    const int64_t last_chunk = CeilDivide(first + columns, kPhiloxChunk);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
      PhiloxChunk(seed_, 0, static_cast<uint64_t>(chunk),
                  words_.data() + (chunk - first_chunk) * kPhiloxChunk);
    }
    row_words_ = words_.data() + (first - first_chunk * kPhiloxChunk);
  }

  // v / (1 - rate) where kept, zero elsewhere (also where v is NaN), for elements j, j + 1, … The
  // words behind the row's end are in the buffer: no partial load is needed.
  BERT_TF_INLINE Vec Apply(Vec v, int64_t j) const {
    VecU32 words;
    std::memcpy(&words, row_words_ + j, sizeof(words));
    return words >= threshold_ ? v * scale_ : Vec{};
  }

 private:
  uint64_t seed_;
  uint32_t threshold_;
  float scale_;
  Row<uint32_t> words_;
  const uint32_t* row_words_ = nullptr;
};

// z = residual + dropout(x + bias), kLanes elements at column j of the row at `offset`.
template <bool kDropout, bool kResidual, bool kBias, typename T, typename Lanes>
BERT_TF_INLINE Vec Sum(const T* x, const T* residual, const T* bias, const Dropout& dropout,
                       int64_t offset, int64_t j, Lanes lanes) {
  Vec z = Load(x + offset + j, lanes);
  if (kBias) z += Load(bias + j, lanes);
  if (kDropout) z = dropout.Apply(z, j);
  if (kResidual) z += Load(residual + offset + j, lanes);
  return z;
}

template <bool kDropout, bool kResidual, bool kBias, typename T>
void Forward(const Parallel& parallel, const ResidualLayerNormArgs<T>& args) {
  const int64_t columns = args.columns;
  const int64_t cycles = kForwardCycles + (kDropout ? kDropoutCycles : 0);
  parallel.For(args.rows, cycles * columns, [&args, columns](int64_t begin, int64_t end) {
    const Row<float> buffer(columns);
    float* const z = buffer.data();
    Dropout dropout(args.dropout_rate, args.seed, kDropout ? columns : 0);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t offset = row * columns;
      if (kDropout) dropout.Draw(row, columns);
      Vec sums[kAccumulators] = {};
      ForVectors(columns, [&](auto lanes, int64_t j, int k) BERT_TF_INLINE_LAMBDA {
        const Vec v = Sum<kDropout, kResidual, kBias>(args.x, args.residual, args.bias, dropout,
                                                      offset, j, lanes);
        Store(z + j, v, lanes);
        sums[k] += ZeroOutside(v, lanes);
      });
      const RowStatistics statistics = NormalizeRow(z, ReduceAdd(sums), columns, args.gamma,
                                                    args.beta, args.epsilon, args.y + offset);
      args.mean[row] = statistics.mean;
      args.rstd[row] = statistics.rstd;
    }
  });
}

template <bool kDropout, bool kResidual, bool kBias, typename T>
void Backward(const Parallel& parallel, const ResidualLayerNormGradArgs<T>& args) {
  const int64_t rows = args.rows;
  const int64_t columns = args.columns;
  const int64_t rows_in_block = RowsInBlock(rows);
  const int64_t blocks = NumRowBlocks(rows);
  const int64_t stride = 3 * columns;
  const int64_t cycles = kBackwardCycles + (kDropout ? kDropoutCycles : 0);
  const auto block_range = [&args, rows, columns, rows_in_block, stride](int64_t begin,
                                                                         int64_t end) {
    const Row<float> normalized_buffer(columns), g_buffer(columns);
    float* const normalized = normalized_buffer.data();
    float* const g = g_buffer.data();
    Dropout dropout(args.dropout_rate, args.seed, kDropout ? columns : 0);
    const float inverse = 1.0f / static_cast<float>(columns);
    for (int64_t block = begin; block < end; ++block) {
      float* const dgamma = args.scratch + block * stride;
      float* const dbeta = dgamma + columns;
      float* const dbias = dbeta + columns;
      FillZeros(dgamma, stride);
      const int64_t first_row = block * rows_in_block;
      const int64_t last_row = first_row + rows_in_block < rows ? first_row + rows_in_block : rows;
      for (int64_t row = first_row; row < last_row; ++row) {
        const int64_t offset = row * columns;
        const float mean = args.mean[row];
        const float rstd = args.rstd[row];
        if (kDropout) dropout.Draw(row, columns);
        // n = (z - mean) * rstd,  g = dy * gamma
        Vec g_sums[kAccumulators] = {};
        Vec gn_sums[kAccumulators] = {};
        ForVectors(columns, [&](auto lanes, int64_t j, int k) BERT_TF_INLINE_LAMBDA {
          const Vec z = Sum<kDropout, kResidual, kBias>(args.x, args.residual, args.bias, dropout,
                                                        offset, j, lanes);
          const Vec dy = Load(args.dy + offset + j, lanes);
          const Vec n = (z - mean) * rstd;
          const Vec weighted = dy * Load(args.gamma + j, lanes);
          Store(normalized + j, n, lanes);
          Store(g + j, weighted, lanes);
          AddTo(dgamma + j, dy * n, lanes);
          AddTo(dbeta + j, dy, lanes);
          g_sums[k] += weighted;  // zero outside the lanes, as gamma is
          gn_sums[k] += ZeroOutside(weighted * n, lanes);
        });
        const float g_mean = ReduceAdd(g_sums) * inverse;
        const float gn_mean = ReduceAdd(gn_sums) * inverse;
        // dz = rstd * (g - mean(g) - n * mean(g * n))
        ForVectors(columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
          const Vec dz =
              (Load(g + j, lanes) - g_mean - Load(normalized + j, lanes) * gn_mean) * rstd;
          const Vec dx = kDropout ? dropout.Apply(dz, j) : dz;
          Store(args.dx + offset + j, dx, lanes);
          if (kBias) AddTo(dbias + j, dx, lanes);
          if (kDropout && kResidual) Store(args.dresidual + offset + j, dz, lanes);
        });
      }
    }
  };
  parallel.For(blocks, cycles * columns * rows_in_block, block_range);
  SumRowBlocks(parallel, args.scratch, blocks, stride, columns, args.dgamma);
  SumRowBlocks(parallel, args.scratch + columns, blocks, stride, columns, args.dbeta);
  if (kBias) {
    SumRowBlocks(parallel, args.scratch + 2 * columns, blocks, stride, columns, args.dbias);
  }
}

// Calls function(dropout, residual, bias) with each as a type that holds true or false.
template <bool value>
struct Bool {
  static constexpr bool kValue = value;
};

template <typename Args, typename Function>
BERT_TF_INLINE void Specialize(const Args& args, const Function& function) {
  const auto with_dropout = [&](auto residual, auto bias) {
    args.dropout_rate > 0.0f ? function(Bool<true>{}, residual, bias)
                             : function(Bool<false>{}, residual, bias);
  };
  const auto with_residual = [&](auto bias) {
    args.residual != nullptr ? with_dropout(Bool<true>{}, bias) : with_dropout(Bool<false>{}, bias);
  };
  args.bias != nullptr ? with_residual(Bool<true>{}) : with_residual(Bool<false>{});
}

}  // namespace

template <typename T>
void FusedResidualLayerNorm(const Parallel& parallel, const ResidualLayerNormArgs<T>& args) {
  Specialize(args, [&](auto dropout, auto residual, auto bias) {
    Forward<dropout.kValue, residual.kValue, bias.kValue>(parallel, args);
  });
}

template <typename T>
void FusedResidualLayerNormGrad(const Parallel& parallel,
                                const ResidualLayerNormGradArgs<T>& args) {
  Specialize(args, [&](auto dropout, auto residual, auto bias) {
    Backward<dropout.kValue, residual.kValue, bias.kValue>(parallel, args);
  });
}

#define BERT_TF_INSTANTIATE(T)                                                               \
  template void FusedResidualLayerNorm<T>(const Parallel&, const ResidualLayerNormArgs<T>&); \
  template void FusedResidualLayerNormGrad<T>(const Parallel&,                               \
                                              const ResidualLayerNormGradArgs<T>&);
BERT_TF_INSTANTIATE(float)
BERT_TF_INSTANTIATE(BFloat16)
BERT_TF_INSTANTIATE(Float16)
#undef BERT_TF_INSTANTIATE

}  // namespace BERT_TF_ISA
}  // namespace bert_tf
