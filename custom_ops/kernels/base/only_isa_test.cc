// Compiled with isa.cc as if only the copy for AVX-512 were built, which BERT_TF_ISA excludes here.
#include <cstdlib>
#include <string>

#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/kernel_test_util.h"

int main() {
  using namespace bert_tf::testing;
  setenv("BERT_TF_ISA", "portable", /*overwrite=*/1);
  const std::string why = bert_tf::WhyNoCopy();
  std::printf("%s\n", why.c_str());
  Check(why.find("only for the instruction set avx512") != std::string::npos,
        "the set that is built");
  Check(why.find("BERT_TF_ISA=portable excludes") != std::string::npos, "the variable");
  Check(why.find("make ops ALL=1") != std::string::npos, "the way out");
  return Report("only_isa_test");
}
