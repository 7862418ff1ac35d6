// Compares the choice of the instruction set with the environment variable BERT_TF_EXPECTED_ISA, if
// it is set, such as "neon dotprod": what a copy is called, and the instructions for bytes.
#include "custom_ops/kernels/base/isa.h"

#include <cstdlib>
#include <string>

#include "custom_ops/kernels/base/kernel_test_util.h"

int main() {
  using namespace bert_tf::testing;
  const std::string found =
      std::string(Name(bert_tf::BestIsa())) + " " + Name(bert_tf::BestByteInstructions());
  std::printf("The kernels use: %s\n", found.c_str());
  const char* const expected = std::getenv("BERT_TF_EXPECTED_ISA");
  if (expected != nullptr) Check(found == expected, found + ", expected " + expected);
  Check(*bert_tf::WhyNoCopy() == '\0', "all copies are built");
  return Report("isa_test");
}
