// Compares fused_dense with float64: every number of rows up to 40, odd sizes, all epilogues and
// storage types, unaligned data, special values, and equal bits for every number of threads and
// with any other rows, with every instruction set of this processor.
#include "custom_ops/kernels/dense/fused_dense.h"

#include "custom_ops/kernels/base/kernel_test_util.h"
#include "custom_ops/kernels/dense/dense_test_util.h"

namespace bert_tf {
namespace testing {
namespace {

template <typename T>
struct Tensors : EpilogueTensors<T> {
  Tensors(const Case& c, std::mt19937& random)
      : EpilogueTensors<T>(c, random),
        x(c.rows * c.depth, random, 1.0f),
        kernel(c.depth * c.columns, random, 1.0f),
        packed(PackedDenseSize(c.depth, c.columns)) {}

  FusedDenseArgs<T> Args(const Case& c) {
    FusedDenseArgs<T> args;
    this->SetArgs(c, &args);
    args.x = x.data();
    args.packed = packed.data();
    return args;
  }

  Buffer<T> x, kernel, packed;
};

template <typename T>
void Run(Isa isa, const Parallel& parallel, const FusedDenseArgs<T>& args) {
  BERT_TF_CALL_ISA(isa, FusedDense, parallel, args);
}

template <typename T>
void Pack(Isa isa, const Parallel& parallel, const Buffer<T>& kernel, bool transposed,
          int64_t depth, int64_t columns, Buffer<T>* packed) {
  const PackDenseArgs<T> args{kernel.data(), transposed, depth, columns, packed->data()};
  BERT_TF_CALL_ISA(isa, PackDense, parallel, args);
}

template <typename T>
void TestCase(Isa isa, const Case& c) {
  const std::string context = std::string(Name(isa)) + " " + TypeName<T>() + " " + Describe(c);
  std::mt19937 random(static_cast<uint32_t>(c.rows * 10007 + c.depth * 101 + c.columns));
  Tensors<T> t(c, random);
  Pack(isa, SerialParallel(), t.kernel, false, c.depth, c.columns, &t.packed);
  Run(isa, SerialParallel(), t.Args(c));
  // The LayerNorm of a row of one or two numbers may consist of rounding errors only.
  if (!c.layer_norm || c.columns > 2) t.CheckProducts(c, t.x, t.kernel, context);
  Check(ToFloat(t.y.data()[-1]) == 7.0f && ToFloat(t.y.data()[t.y.size()]) == 7.0f,
        context + "wrote outside of y");
  for (int threads : {1, 2, 3, 7, 16}) {
    const ThreadParallel parallel(threads);
    Tensors<T> t2 = t;
    FusedDenseArgs<T> args = t2.Args(c);
    if (c.has_residual) {
      t2.y = t2.residual;  // in place
      args.residual = t2.y.data();
    }
    Run(isa, parallel, args);
    Check(t.y.SameBits(t2.y), context + std::to_string(threads) + " threads");
  }
}

template <typename T>
void TestCases(Isa isa) {
  const DenseActivation none = DenseActivation::kNone;
  for (int64_t rows = 0; rows <= 40; ++rows) {
    for (const auto& [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 33}, {31, 5}, {67, 100}, {515, 17}}) {
      TestCase<T>(isa, {rows, depth, columns, rows % 2 == 0, none, rows % 3 == 0, false});
      TestCase<T>(isa, {rows, depth, columns, rows % 3 == 0, none, rows % 2 == 0, true});
    }
  }
  for (int64_t rows : {1, 150, 333}) {
    for (const auto& [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{70, 130}, {300, 67}}) {
      TestCase<T>(isa, {rows, depth, columns, false, none, false, false});
      TestCase<T>(isa, {rows, depth, columns, true, DenseActivation::kGelu, false, false});
      TestCase<T>(isa,
                  {rows, depth, columns, true, DenseActivation::kApproximateGelu, false, false});
      TestCase<T>(isa, {rows, depth, columns, true, DenseActivation::kSilu, false, false});
      TestCase<T>(isa, {rows, depth, columns, true, none, true, false});
      TestCase<T>(isa, {rows, depth, columns, true, none, true, true});
      TestCase<T>(isa, {rows, depth, columns, false, none, false, true});
    }
  }
  TestCase<T>(isa, {5, 0, 37, true, DenseActivation::kGelu, false, false});
  TestCase<T>(isa, {5, 0, 37, true, none, true, true});
  TestCase<T>(isa, {5, 7, 0, true, none, true, true});
  TestCase<T>(isa, {29, 1100, 64, true, none, true, false});
  TestCase<T>(isa, {3, 2, 3000, true, none, true, true});
  TestCase<T>(isa, {2000, 9, 40, true, none, true, true});
}

// A packed transpose is the packed matrix, on any number of threads.
template <typename T>
void TestPack(Isa isa) {
  std::mt19937 random(1);
  for (const auto& [depth, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 33}, {64, 64}, {257, 31}, {700, 130}}) {
    const Buffer<T> kernel(depth * columns, random, 1.0f);
    Buffer<T> transposed(depth * columns), packed(PackedDenseSize(depth, columns));
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        transposed.at(j * depth + k) = kernel.data()[k * columns + j];
      }
    }
    Pack(isa, SerialParallel(), kernel, false, depth, columns, &packed);
    Buffer<T> on_portable(packed.size());
    Pack(Isa::kPortable, SerialParallel(), kernel, false, depth, columns, &on_portable);
    const std::string context = std::string(Name(isa)) + " " + TypeName<T>() + " pack ";
    Check(packed.SameBits(on_portable), context + "differs between instruction sets");
    for (int threads : {1, 2, 3, 7, 16}) {
      Buffer<T> packed2(packed.size(), FromFloat<T>(7.0f));
      Pack(isa, ThreadParallel(threads), transposed, true, depth, columns, &packed2);
      Check(packed.SameBits(packed2), context + "transposed");
    }
  }
}

template <typename T>
void TestGate(Isa isa) {
  const auto make = [isa](const Case& c, std::mt19937* random) {
    Tensors<T> t(c, *random);
    Pack(isa, SerialParallel(), t.kernel, false, c.depth, c.columns, &t.packed);
    return t;
  };
  CheckGate<T>(std::string(Name(isa)) + " " + TypeName<T>() + " ", make,
               [isa](const Parallel& parallel, const auto& args) { Run(isa, parallel, args); });
}

// The bits of a row do not depend on the other rows.
template <typename T>
void TestRowsAlone(Isa isa) {
  std::mt19937 random(2);
  for (bool layer_norm : {false, true}) {
    const Case c{45, 600, 70, true, DenseActivation::kNone, true, layer_norm};
    Tensors<T> t(c, random);
    Pack(isa, SerialParallel(), t.kernel, false, c.depth, c.columns, &t.packed);
    Run(isa, SerialParallel(), t.Args(c));
    for (int64_t i = 0; i < c.rows; ++i) {
      Buffer<T> row(c.columns);
      FusedDenseArgs<T> args = t.Args(c);
      args.x += i * c.depth;
      args.residual += i * c.columns;
      args.rows = 1;
      args.y = row.data();
      Run(isa, SerialParallel(), args);
      Check(std::memcmp(row.data(), t.y.data() + i * c.columns,
                        static_cast<size_t>(c.columns) * sizeof(T)) == 0,
            std::string(Name(isa)) + " " + TypeName<T>() + " a row alone");
    }
  }
}

// A NaN or an infinity affects only its own row (from x) or its own column (from W).
void TestSpecialValues(Isa isa) {
  std::mt19937 random(3);
  for (bool layer_norm : {false, true}) {
    const Case c{9, 40, 37, true, DenseActivation::kNone, true, layer_norm};
    Tensors<float> t(c, random);
    t.x.at(2 * c.depth + 39) = std::nanf("");
    t.x.at(5 * c.depth + 1) = INFINITY;
    Pack(isa, SerialParallel(), t.kernel, false, c.depth, c.columns, &t.packed);
    Run(isa, SerialParallel(), t.Args(c));
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        const double y = t.y[i * c.columns + j];
        const bool ok = i == 2       ? std::isnan(y)
                        : i != 5     ? std::isfinite(y)
                        : layer_norm ? std::isnan(y)
                                     : std::isinf(y);
        Check(ok, std::string(Name(isa)) + " special rows");
      }
    }
  }
  const Case c{9, 40, 37, true, DenseActivation::kGelu, false, false};
  Tensors<float> t(c, random);
  t.kernel.at(7 * c.columns + 36) = std::nanf("");
  t.kernel.at(7 * c.columns + 3) = INFINITY;
  Pack(isa, SerialParallel(), t.kernel, false, c.depth, c.columns, &t.packed);
  Run(isa, SerialParallel(), t.Args(c));
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      const double y = t.y[i * c.columns + j];
      const double x = t.x[i * c.depth + 7];
      const bool ok = j == 36  ? std::isnan(y)
                      : j == 3 ? (x > 0.0 ? y == INFINITY : y == 0.0)
                               : std::isfinite(y);
      Check(ok, std::string(Name(isa)) + " special columns");
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace bert_tf

int main() {
  using namespace bert_tf::testing;
  for (bert_tf::Isa isa : SupportedIsas()) {
    TestCases<float>(isa);
    TestCases<bert_tf::Float16>(isa);
    TestGate<float>(isa);
    TestGate<bert_tf::Float16>(isa);
    TestPack<float>(isa);
    TestRowsAlone<float>(isa);
    TestRowsAlone<bert_tf::Float16>(isa);
    TestSpecialValues(isa);
  }
  return Report("fused_dense_test");
}
