// Two symbols that newer headers use and older systems lack. As the shared objects define them
// (without exporting them), they load with glibc 2.28 and with libstdc++ of GCC 8.
#include <new>

// glibc 2.32 has it: std::shared_ptr reads it to save atomic instructions in a process with one
// thread. 0 says that there are several.
extern "C" {
extern char __libc_single_threaded __attribute__((visibility("hidden")));
char __libc_single_threaded = 0;
}

// libstdc++ of GCC 11 has it: std::vector calls it for impossible sizes.
namespace std {
[[noreturn]] void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std
