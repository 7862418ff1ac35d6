"""The module extension through which MODULE.bazel (Bazel 7 and 8) gets @local_tensorflow."""

load("//third_party:tensorflow_repository.bzl", "tensorflow_repository")

def _tensorflow_extension_impl(_module_ctx):
    tensorflow_repository(name = "local_tensorflow")

tensorflow_extension = module_extension(implementation = _tensorflow_extension_impl)
