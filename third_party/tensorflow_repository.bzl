"""Makes @local_tensorflow from the TensorFlow wheel that a Python interpreter has installed.

Five values say which one; `make configure` and setup.py pass them as --repo_env=NAME=VALUE:
  BERT_TF_PYTHON              the interpreter (default: python3 on PATH);
  BERT_TF_PYTHONPATH          its PYTHONPATH (pip's isolated builds keep TensorFlow there);
  BERT_TF_TENSORFLOW_VERSION  the version expected there; a change makes Bazel look again, which it
                              would not notice by itself when pip replaces the wheel;
  BERT_TF_TENSORFLOW_PATH     the folder expected; likewise;
  BERT_TF_FOREIGN_TENSORFLOW  the folder of the same TensorFlow for another processor, whose headers
                              and libraries are taken instead (default: empty).

The repository has:
  :headers                   TensorFlow's C++ headers, with the macros its ABI needs;
  :framework                 the headers and libtensorflow_framework.so.2;
  :xla_headers               the headers, and those of XLA and of TensorFlow's bridge to it;
  :compiler                  these and libtensorflow_cc.so.2, which holds XLA;
  :cudnn_headers             the headers of CUDA, cuDNN and cudnn-frontend, if the wheel has them;
  :build_info.json           what the op records about the TensorFlow it was built for;
  :copts.bzl                 TENSORFLOW_COPTS, the C++ standard of the wheel.
"""

_ENVIRON = [
    "BERT_TF_FOREIGN_TENSORFLOW",
    "BERT_TF_PYTHON",
    "BERT_TF_PYTHONPATH",
    "BERT_TF_TENSORFLOW_PATH",
    "BERT_TF_TENSORFLOW_VERSION",
]

_ASK_TENSORFLOW = """
import json
import tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "compiler": tf.version.COMPILER_VERSION,
    "include": tf.sysconfig.get_include(),
    "library": tf.sysconfig.get_lib(),
    "compile_flags": tf.sysconfig.get_compile_flags(),
}))
"""

# The package folders that an OpKernel's headers reach. The wheel has 18,000 headers, twice as many
# as these, and each is one more file for Bazel to track and to lay into every action's sandbox.
_HEADER_FOLDERS = [
    "Eigen",
    "absl",
    "google/protobuf",
    "ml_dtypes",
    "tensorflow/core",
    "tsl",
    "unsupported/Eigen",
    "xla/tsl",
]

# What the lowerings' headers reach beyond those.
_XLA_HEADER_FOLDERS = [
    "external/farmhash_archive/src",
    "external/highwayhash",
    "tensorflow/compiler/jit",
    "tensorflow/compiler/tf2xla",
    "xla",
]

# What cudnn-frontend includes. It names "third_party/gpus/cudnn/cudnn.h", which is elsewhere.
_CUDNN_INCLUDES = [
    "cudnn",
    "include/external/cudnn_frontend_archive/include",
    "include/third_party/gpus/cuda/include",
    "include/third_party/gpus/cuda/libcudacxx/include",
    "include/third_party/gpus/cudnn/include",
]

_BUILD = """
package(default_visibility = ["//visibility:public"])

exports_files(["build_info.json"])

cc_library(
    name = "headers",
    hdrs = glob({globs}),
    defines = {defines},
    includes = ["include"],
)

cc_library(
    name = "framework",
    srcs = ["libtensorflow_framework.so.2"],
    deps = [":headers"],
)

cc_library(
    name = "xla_headers",
    hdrs = glob({xla_globs}),
    includes = [
        "include/external/farmhash_archive/src",
        "include/external/highwayhash",
    ],
    deps = [":headers"],
)

cc_library(
    name = "cudnn_headers",
    hdrs = glob({cudnn_globs}, allow_empty = True),
    includes = {cudnn_includes},
)

cc_library(
    name = "compiler",
    srcs = ["libtensorflow_cc.so.2"],
    deps = [
        ":framework",
        ":xla_headers",
    ],
)
"""

# Bazel 8 has no built-in C++ rules: there the file must load them, and elsewhere loading the shim
# does no harm.
_LOAD = 'load("@rules_cc//cc:defs.bzl", "cc_library")\n'

def _tensorflow_repository_impl(repository_ctx):
    environ = repository_ctx.os.environ
    python = environ.get("BERT_TF_PYTHON") or repository_ctx.which("python3")
    if not python:
        fail("Expected a Python with TensorFlow; there is no python3 on PATH. Run `make configure`, " +
             "or pass --repo_env=BERT_TF_PYTHON=/path/to/python.")
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if environ.get("BERT_TF_PYTHONPATH"):
        environment["PYTHONPATH"] = environ["BERT_TF_PYTHONPATH"]
    answer = repository_ctx.execute([python, "-c", _ASK_TENSORFLOW], environment = environment)
    if answer.return_code != 0:
        fail(("Expected a Python that can import TensorFlow. Received: BERT_TF_PYTHON={}\n{}\n" +
              "Install it there, or name another one with `make configure PYTHON=...`.").format(
            python,
            answer.stderr[-2000:],
        ))
    facts = json.decode(answer.stdout.strip().split("\n")[-1])

    expected = environ.get("BERT_TF_TENSORFLOW_VERSION")
    if expected and expected != facts["version"]:
        fail(("Expected TensorFlow {}, which this tree was configured for. Received: {} in {}. " +
              "Run `make configure` again.").format(expected, facts["version"], python))

    foreign = environ.get("BERT_TF_FOREIGN_TENSORFLOW")
    if foreign:
        facts["library"] = foreign
        facts["include"] = foreign + "/include"

    framework = facts["library"] + "/libtensorflow_framework.so.2"
    if not repository_ctx.path(framework).exists:
        fail("Expected a Linux wheel of TensorFlow with libtensorflow_framework.so.2. Received: " +
             facts["library"] + ". The native ops build on Linux only.")

    defines = [flag[2:] for flag in facts["compile_flags"] if flag.startswith("-D")]
    copts = [
        flag.replace("--std", "-std")
        for flag in facts["compile_flags"]
        if not flag.startswith("-I") and not flag.startswith("-D")
    ]
    repository_ctx.symlink(facts["include"], "include")
    repository_ctx.symlink(framework, "libtensorflow_framework.so.2")
    repository_ctx.symlink(facts["library"] + "/libtensorflow_cc.so.2", "libtensorflow_cc.so.2")
    cudnn = facts["include"] + "/third_party/gpus/cudnn/include"
    if repository_ctx.path(cudnn).exists:
        repository_ctx.symlink(cudnn, "cudnn/third_party/gpus/cudnn")
    repository_ctx.file("BUILD", _LOAD + _BUILD.format(
        cudnn_globs = repr([folder + "/**" for folder in _CUDNN_INCLUDES]),
        cudnn_includes = repr(_CUDNN_INCLUDES),
        defines = repr(defines),
        globs = repr(["include/" + folder + "/**" for folder in _HEADER_FOLDERS]),
        xla_globs = repr(["include/" + folder + "/**" for folder in _XLA_HEADER_FOLDERS]),
    ))
    repository_ctx.file("copts.bzl", "TENSORFLOW_COPTS = {}\n".format(repr(copts)))
    repository_ctx.file("build_info.json", json.encode({
        "tensorflow_version": facts["version"],
        "tensorflow_compiler": facts["compiler"],
        "tensorflow_flags": defines + copts,
    }) + "\n")

tensorflow_repository = repository_rule(
    doc = "The installed TensorFlow wheel as a Bazel repository.",
    implementation = _tensorflow_repository_impl,
    environ = _ENVIRON,
    local = False,
)
