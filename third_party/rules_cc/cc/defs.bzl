"""Stands in for rules_cc where Bazel still has the C++ rules built in (Bazel 4 to 7, WORKSPACE).

It saves a download, which Debian's bazel-bootstrap could not make, and it works with that Bazel,
for which Debian's own bazel-rules-cc is too new. With MODULE.bazel the real rules_cc is used.
Bazel's own tool repository (@bazel_tools) loads these names too.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
