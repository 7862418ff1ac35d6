"""Compiles a kernel once for each instruction set."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

# The namespace of each copy and its compiler flags. Every processor with AVX2 has F16C and FMA.
_COPTS = {
    "portable": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": [
        "-mavx2",
        "-mfma",
        "-mf16c",
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mprefer-vector-width=512",
        # GCC 12 warns of its own _mm512_undefined_ps() hundreds of times (GCC bug 105593).
        "-Wno-maybe-uninitialized",
    ],
    # Every 64-bit ARM processor has NEON; the portable copy does without its intrinsics.
    "neon": ["-DBERT_TF_NEON"],
}

# The processors for which the copies are compiled.
_CPUS = {
    "portable": [],
    "avx2": ["@platforms//cpu:x86_64"],
    "avx512": ["@platforms//cpu:x86_64"],
    "neon": ["@platforms//cpu:aarch64"],
}

# With `bazel build --define=isa=avx2` there is only this copy, and the sources that select a copy
# must know.
ONLY_ISA_DEFINES = select(
    dict(
        [
            ("//custom_ops/kernels:only_" + isa, ["BERT_TF_ONLY_ISA=" + isa])
            for isa in _COPTS
        ] + [("//conditions:default", [])],
    ),
)

def only_isa_settings():
    """Defines the conditions that `--define=isa=...` fulfils."""
    for isa in _COPTS:
        native.config_setting(
            name = "only_" + isa,
            define_values = {"isa": isa},
        )

def kernel(name, folder):
    """Defines the library `name` and the test `name`_test, from the files in `folder`.

    The sources `name`*_isa.cc are compiled once per instruction set. Their code must be in
    `namespace BERT_TF_ISA` (a macro: portable, avx2, avx512 or neon), and their helpers in an
    unnamed namespace inside it, so that an inline function that is compiled for an instruction set
    is never called on a processor without it. simd.h, which these sources include, can be included
    in no other source. On processors other than x86-64 and 64-bit ARM, only
    the portable copy is compiled.
    """
    path = folder + "/" + name
    for isa, flags in _COPTS.items():
        cc_library(
            name = name + "_" + isa,
            srcs = native.glob([path + "*_isa.cc"]),
            copts = flags + [
                "-O3",
                "-ffp-contract=fast",
                "-fvisibility=hidden",  # only `name`.cc calls the copies
                "-DBERT_TF_ISA=" + isa,
            ],
            target_compatible_with = _CPUS[isa],
            deps = [":base"],
        )
    cc_library(
        name = name + "_copies",
        deps = [":" + name + "_portable"] + select({
            "//custom_ops/kernels:x86_64": [":" + name + "_avx2", ":" + name + "_avx512"],
            "//custom_ops/kernels:aarch64": [":" + name + "_neon"],
            "//conditions:default": [],
        }),
    )
    cc_library(
        name = name,
        srcs = [path + ".cc"],
        local_defines = ["BERT_TF_ISA=portable"] + ONLY_ISA_DEFINES,  # for the headers of the copies
        deps = [":base"] + select(dict(
            [
                ("//custom_ops/kernels:only_" + isa, [":" + name + "_" + isa])
                for isa in _COPTS
            ] + [("//conditions:default", [":" + name + "_copies"])],
        )),
        alwayslink = True,  # for _bert_tf_kernels.so
    )
    cc_test(
        name = name + "_test",
        srcs = [path + "_test.cc"],
        local_defines = ["BERT_TF_ISA=portable"],
        linkstatic = True,  # the copies export nothing
        deps = [":" + name, ":kernel_test_util"],
    )
