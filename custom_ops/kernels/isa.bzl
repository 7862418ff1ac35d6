"""Compiles a kernel source three times, once for each instruction set."""

load("@rules_cc//cc:defs.bzl", "cc_library")

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
}

_X86_64 = ["@platforms//cpu:x86_64"]

def isa_kernels(name, srcs, hdrs = [], deps = [], copts = []):
    """Defines a library `name` that contains `srcs` once per instruction set.

    The code of the sources must be in `namespace BERT_TF_ISA` (a macro: portable, avx2 or avx512),
    and their helpers in an unnamed namespace inside it, so that an inline function that is compiled
    for an instruction set is never called on a processor without it. On processors other than
    x86-64, only the portable copy is compiled (on ARM, the compiler's vectors use NEON there).
    """
    for isa, flags in _COPTS.items():
        cc_library(
            name = name + "_" + isa,
            srcs = srcs,
            hdrs = hdrs,
            copts = copts + flags + ["-O3", "-ffp-contract=fast", "-DBERT_TF_ISA=" + isa],
            target_compatible_with = [] if isa == "portable" else _X86_64,
            deps = deps,
        )
    cc_library(
        name = name,
        hdrs = hdrs,
        deps = deps + [":" + name + "_portable"] + select({
            "//custom_ops/kernels:x86_64": [
                ":" + name + "_" + isa
                for isa in _COPTS
                if isa != "portable"
            ],
            "//conditions:default": [],
        }),
    )
