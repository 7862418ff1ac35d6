// Compiled once per instruction set (isa.bzl).
#include <cstdlib>

#include "custom_ops/kernels/base/philox.h"
#include "custom_ops/kernels/base/row_blocks.h"
#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/kernels/layer_norm/layer_norm_row.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

// Estimated cycles per element.
constexpr int64_t kForwardCycles = 2;
constexpr int64_t kBackwardCycles = 3;
constexpr int64_t kDropoutCycles = 2;

// A buffer of `count` numbers for the calling thread. It is aligned, because accesses to vectors
// that cross a cache line take twice as long. (std::vector is not used, because its code would be
// compiled here for one instruction set and could be linked into the code for another.)
template <typename T>
class Row {
 public:
  explicit Row(int64_t count) {
    const size_t bytes = sizeof(T) * static_cast<size_t>(count);
    data_ = static_cast<T*>(
        std::aligned_alloc(kAlignment, bytes / kAlignment * kAlignment + kAlignment));
    if (data_ == nullptr) std::abort();
  }
  ~Row() { std::free(data_); }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  T* data() const { return data_; }

 private:
  static constexpr size_t kAlignment = 64;
  T* data_;
};

// The dropout of some rows: which elements are kept.
class Dropout {
 public:
  // `count` is the largest number of elements of a call of Draw.
  Dropout(float rate, uint64_t seed, int64_t count)
      : seed_(seed),
        threshold_(DropoutThreshold(rate)),
        scale_(1.0f / (1.0f - rate)),
        words_(count + 2 * kPhiloxChunk) {}

  // Draws for the elements first, first + 1, ... first + count - 1 of the matrix.
  BERT_TF_INLINE void Draw(int64_t first, int64_t count) {
    const int64_t first_chunk = first / kPhiloxChunk;
    const int64_t last_chunk = CeilDivide(first + count, kPhiloxChunk);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
      PhiloxChunk(seed_, 0, static_cast<uint64_t>(chunk),
                  words_.data() + (chunk - first_chunk) * kPhiloxChunk);
    }
    first_word_ = words_.data() + (first - first_chunk * kPhiloxChunk);
  }

  // Returns v / (1 - rate) where elements are kept and zero elsewhere, even where v is NaN. The
  // lanes are the elements i, i + 1, … after the first that was drawn. The buffer is longer than
  // the drawn words, so that no partial load is needed.
  BERT_TF_INLINE Vec Apply(Vec v, int64_t i) const {
    return LoadAs<VecU32>(first_word_ + i) >= threshold_ ? v * scale_ : Vec{};
  }

 private:
  uint64_t seed_;
  uint32_t threshold_;
  float scale_;
  Row<uint32_t> words_;
  const uint32_t* first_word_ = nullptr;
};

template <bool kDropout, typename T>
void Forward(const Parallel& parallel, const ResidualLayerNormArgs<T>& args) {
  const int64_t columns = args.columns;
  const int64_t cycles = kForwardCycles + (kDropout ? kDropoutCycles : 0);
  parallel.For(args.rows, cycles * columns, [&args, columns](int64_t begin, int64_t end) {
    const Row<float> buffer(columns);
    float* const z = buffer.data();
    Dropout dropout(args.dropout_rate, args.seed, kDropout ? columns : 0);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t offset = row * columns;
      if (kDropout) dropout.Draw(offset, columns);
      Vec sums[kAccumulators] = {};
      ForVectors(columns, [&](auto lanes, int64_t j, int k) BERT_TF_INLINE_LAMBDA {
        Vec v = Load(args.x + offset + j, lanes);
        if (args.bias != nullptr) v += Load(args.bias + j, lanes);
        if (kDropout) v = dropout.Apply(v, j);
        if (args.residual != nullptr) v += Load(args.residual + offset + j, lanes);
        Store(z + j, v, lanes);
        sums[k] += ZeroOutside(v, lanes);
      });
      const RowStatistics statistics =
          NormalizeRow(z, ReduceAdd(sums), columns, args.gamma, args.beta, args.epsilon,
                       args.is_rms, args.y + offset);
      args.mean[row] = statistics.mean;
      args.rstd[row] = statistics.rstd;
    }
  });
}

// The scratch memory of a call of BackwardRows.
struct BackwardScratch {
  float* normalized;  // [kRowsTogether, columns]
  Dropout* dropout;
  float* dgamma;  // the sums of the block, [columns] each
  float* dbeta;
  float* dbias;
};

// Four rows are processed together, so that gamma, bias and the sums are loaded (and stored) once
// for four rows.
constexpr int kRowsTogether = 4;

template <int kRows, bool kDropout, typename T>
BERT_TF_INLINE void BackwardRows(const ResidualLayerNormGradArgs<T>& args, int64_t first_row,
                                 const BackwardScratch& scratch) {
  const int64_t columns = args.columns;
  const int64_t first = first_row * columns;
  const bool has_bias = args.bias != nullptr, has_residual = args.residual != nullptr;
  const float inverse = 1.0f / static_cast<float>(columns);
  const auto load_dy = [&args, first](int64_t i, auto lanes) BERT_TF_INLINE_LAMBDA {
    const Vec dy = Load(args.dy + first + i, lanes);
    if (args.other_dy == nullptr) return dy;
    T sum[kLanes];
    Store(sum, dy + Load(args.other_dy + first + i, lanes));
    return Load(sum);
  };
  if (kDropout) scratch.dropout->Draw(first, kRows * columns);
  // n = (z - mean) * rstd,  g = dy * gamma
  float mean[kRows], rstd[kRows], g_mean[kRows], gn_mean[kRows];
  Vec g_sums[kRows] = {};
  Vec gn_sums[kRows] = {};
  for (int row = 0; row < kRows; ++row) {
    mean[row] = args.mean[first_row + row];
    rstd[row] = args.rstd[first_row + row];
  }
  ForSingleVectors(columns, [&](auto lanes, int64_t j) BERT_TF_INLINE_LAMBDA {
    const Vec gamma = Load(args.gamma + j, lanes);
    const Vec bias = has_bias ? Load(args.bias + j, lanes) : Vec{};
    for (int row = 0; row < kRows; ++row) {
      const int64_t i = row * columns + j;
      Vec z = Load(args.x + first + i, lanes);
      if (has_bias) z += bias;
      if (kDropout) z = scratch.dropout->Apply(z, i);
      if (has_residual) z += Load(args.residual + first + i, lanes);
      const Vec n = (z - mean[row]) * rstd[row];
      const Vec g = load_dy(i, lanes) * gamma;
      Store(scratch.normalized + i, n, lanes);
      g_sums[row] += g;  // zero outside of the lanes, because gamma is
      gn_sums[row] += ZeroOutside(g * n, lanes);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    g_mean[row] = args.is_rms ? 0.0f : ReduceAdd(g_sums[row]) * inverse;
    gn_mean[row] = ReduceAdd(gn_sums[row]) * inverse;
  }
  // dz = rstd * (g - mean(g) - n * mean(g * n))
  ForSingleVectors(columns, [&](auto lanes, int64_t j) BERT_TF_INLINE_LAMBDA {
    const Vec gamma = Load(args.gamma + j, lanes);
    Vec dgamma = Load(scratch.dgamma + j, lanes);
    Vec dbeta = Load(scratch.dbeta + j, lanes);
    Vec dbias = has_bias ? Load(scratch.dbias + j, lanes) : Vec{};
    for (int row = 0; row < kRows; ++row) {
      const int64_t i = row * columns + j;
      const Vec n = Load(scratch.normalized + i, lanes);
      const Vec dy = load_dy(i, lanes);
      const Vec dz = (dy * gamma - g_mean[row] - n * gn_mean[row]) * rstd[row];
      const Vec dx = kDropout ? scratch.dropout->Apply(dz, i) : dz;
      dgamma += dy * n;
      dbeta += dy;
      if (has_bias) dbias += dx;
      Store(args.dx + first + i, dx, lanes);
      if (kDropout && has_residual) Store(args.dresidual + first + i, dz, lanes);
    }
    Store(scratch.dgamma + j, dgamma, lanes);
    Store(scratch.dbeta + j, dbeta, lanes);
    if (has_bias) Store(scratch.dbias + j, dbias, lanes);
  });
}

template <bool kDropout, typename T>
void Backward(const Parallel& parallel, const ResidualLayerNormGradArgs<T>& args) {
  const int64_t rows = args.rows;
  const int64_t columns = args.columns;
  const int64_t rows_in_block = RowsInBlock(rows);
  const int64_t blocks = NumRowBlocks(rows);
  const bool has_bias = args.bias != nullptr;
  const int64_t stride = (has_bias ? 3 : 2) * columns;
  const int64_t cycles = kBackwardCycles + (kDropout ? kDropoutCycles : 0);
  const auto block_range = [&args, rows, columns, rows_in_block, stride](int64_t begin,
                                                                         int64_t end) {
    const Row<float> normalized(kRowsTogether * columns);
    Dropout dropout(args.dropout_rate, args.seed, kDropout ? kRowsTogether * columns : 0);
    for (int64_t block = begin; block < end; ++block) {
      float* const dgamma = args.scratch + block * stride;
      FillZeros(dgamma, stride);
      const BackwardScratch scratch = {normalized.data(), &dropout, dgamma, dgamma + columns,
                                       dgamma + 2 * columns};
      int64_t row = block * rows_in_block;
      const int64_t last_row = Smaller(row + rows_in_block, rows);
      for (; row + kRowsTogether <= last_row; row += kRowsTogether) {
        BackwardRows<kRowsTogether, kDropout>(args, row, scratch);
      }
      for (; row < last_row; ++row) {
        BackwardRows<1, kDropout>(args, row, scratch);
      }
    }
  };
  parallel.For(blocks, cycles * columns * rows_in_block, block_range);
  if (has_bias) {
    SumRowBlocks(parallel, args.scratch, blocks, columns, {args.dgamma, args.dbeta, args.dbias});
  } else {
    SumRowBlocks(parallel, args.scratch, blocks, columns, {args.dgamma, args.dbeta});
  }
}

}  // namespace

template <typename T>
void FusedResidualLayerNorm(const Parallel& parallel, const ResidualLayerNormArgs<T>& args) {
  args.dropout_rate > 0.0f ? Forward<true>(parallel, args) : Forward<false>(parallel, args);
}

template <typename T>
void FusedResidualLayerNormGrad(const Parallel& parallel,
                                const ResidualLayerNormGradArgs<T>& args) {
  args.dropout_rate > 0.0f ? Backward<true>(parallel, args) : Backward<false>(parallel, args);
}

BERT_TF_INSTANTIATE_KERNEL(FusedResidualLayerNorm, ResidualLayerNormArgs)
BERT_TF_INSTANTIATE_KERNEL(FusedResidualLayerNormGrad, ResidualLayerNormGradArgs)

}  // namespace bert_tf::BERT_TF_ISA
