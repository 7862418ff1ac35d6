// Checks that the hint does not change the contents of memory, for any begin and end.
#include "custom_ops/kernels/base/huge_pages.h"

#include <cstddef>
#include <vector>

#include "custom_ops/kernels/base/kernel_test_util.h"

int main() {
  using bert_tf::testing::Check;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100000}, size_t{9 << 20}}) {
    std::vector<unsigned char> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = static_cast<unsigned char>(i * 31);
    bert_tf::PreferHugePages(values.data(), size);
    bert_tf::PreferHugePages(values.data(), size);
    size_t changed = 0;
    for (size_t i = 0; i < size; ++i) changed += values[i] != static_cast<unsigned char>(i * 31);
    Check(changed == 0, "memory changed");
  }
  return bert_tf::testing::Report("huge_pages_test");
}
