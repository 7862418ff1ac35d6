// Compiled once per instruction set (isa.bzl). word_dense.h has the matmul.
#include "custom_ops/kernels/dense/amx_products.h"
#include "custom_ops/kernels/dense/bfloat16_dense.h"
#include "custom_ops/kernels/dense/bfloat16_products.h"
#include "custom_ops/kernels/dense/word_dense.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int64_t kPair = 2;  // numbers in a word

struct NoScale {};

// Dense layers in bfloat16, as word_dense.h describes it.
template <typename Method, typename T>
struct Bfloat16Format : PlainRows<Method, NoScale, StoreSums> {
  using Element = T;
  using Args = Bfloat16DenseArgs<T>;
  using Scale = NoScale;
  static constexpr double kRowCycles = 0.5;

  static Scale WriteRow(const Args& args, const T* x, uint8_t* words) {
    WriteBfloat16(x, args.depth, words);
    PadRow(args.depth * static_cast<int64_t>(sizeof(BFloat16)), words);
    return {};
  }

  struct Columns {
    Columns(const Args&, int64_t) {}
    StoreSums Output(const Scale*, int64_t, float* z) const { return {z, kDensePanel}; }
  };

  struct Results {
    static bool CanWrite(const Args&) { return true; }

    explicit Results(const Args&) {}

    void Write(int64_t, int64_t column, int64_t count, const T* y, uint8_t* words) {
      WriteBfloat16(y, count, words + column * static_cast<int64_t>(sizeof(BFloat16)));
    }
    Scale Finish(int64_t) const { return {}; }
  };
};

// The panel of W that begins at `first_column`.
void PackPanel(const PackDenseArgs<BFloat16>& args, int64_t first_column, BFloat16* packed) {
  const int64_t columns = Smaller(kDensePanel, args.columns - first_column);
  const int64_t row_step = args.transposed ? 1 : args.columns;
  const int64_t column_step = args.transposed ? args.depth : 1;
  const BFloat16* const w = args.kernel + first_column * column_step;
  const int64_t pairs = CeilDivide(args.depth, kPair);
  const int64_t bytes = pairs * kPanelWordBytes;
  if (columns < kDensePanel || args.depth % kPair != 0) {
    std::memset(packed, 0, static_cast<size_t>(bytes));
  }
  for (int64_t k = 0; k < args.depth; ++k) {
    BFloat16* const row = packed + k / kPair * kPair * kDensePanel + k % kPair;
    for (int64_t j = 0; j < columns; ++j) row[j * kPair] = w[k * row_step + j * column_step];
  }
}

// Calls function(method) with the Method for these instructions.
template <typename Function>
void WithMethod([[maybe_unused]] Bfloat16Instructions instructions, const Function& function) {
#if defined(__AVX512F__)
  if (instructions == Bfloat16Instructions::kAmx) return function(AmxPairs<AmxTiles>{});
  if (instructions == Bfloat16Instructions::kAvx512) return function(Bfloat16Pairs{});
#endif
  function(WidenedPairs{});
}

}  // namespace

void PackBfloat16Dense(const Parallel& parallel, const PackDenseArgs<BFloat16>& args) {
  const int64_t panels = CeilDivide(args.columns, kDensePanel);
  const int64_t size = CeilDivide(args.depth, kPair) * kPair * kDensePanel;
  parallel.For(panels, size, [&args, size](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      PackPanel(args, p * kDensePanel, args.packed + p * size);
    }
  });
}

template <typename T>
void Bfloat16Dense(const Parallel& parallel, const Bfloat16DenseArgs<T>& args,
                   Bfloat16Instructions instructions) {
  WithMethod(instructions,
             [&](auto method) { Run<Bfloat16Format<decltype(method), T>>(parallel, args); });
}

template <typename T>
void Bfloat16FeedForward(const Parallel& parallel, const Bfloat16FeedForwardArgs<T>& args,
                         Bfloat16Instructions instructions) {
  WithMethod(instructions, [&](auto method) {
    RunFeedForward<Bfloat16Format<decltype(method), T>>(parallel, args.first, args.second);
  });
}

#define BERT_TF_INSTANTIATE(T)                                                             \
  template void Bfloat16Dense<T>(const Parallel&, const Bfloat16DenseArgs<T>&,             \
                                 Bfloat16Instructions);                                    \
  template void Bfloat16FeedForward<T>(const Parallel&, const Bfloat16FeedForwardArgs<T>&, \
                                       Bfloat16Instructions);
BERT_TF_FOR_STORAGE_TYPES(BERT_TF_INSTANTIATE)

}  // namespace bert_tf::BERT_TF_ISA
