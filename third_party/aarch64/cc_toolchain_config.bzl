"""Says how Debian's cross compiler for aarch64 is called."""

load(
    "@bazel_tools//tools/cpp:cc_toolchain_config_lib.bzl",
    "feature",
    "flag_group",
    "flag_set",
    "tool_path",
    "with_feature_set",
)
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")

_PREFIX = "/usr/bin/aarch64-linux-gnu-"

# Where the packages of the compiler and of its C library put their headers.
_HEADERS = [
    "/usr/aarch64-linux-gnu/include",
    "/usr/lib/gcc-cross/aarch64-linux-gnu",
]

# Bazel's names of the tools. It calls the compiler and the linker by the first one.
_TOOLS = {
    "gcc": "g++",
    "ar": "ar",
    "cpp": "cpp",
    "gcov": "gcov",
    "ld": "ld",
    "nm": "nm",
    "objcopy": "objcopy",
    "objdump": "objdump",
    "strip": "strip",
}

_COMPILE = [
    ACTION_NAMES.assemble,
    ACTION_NAMES.preprocess_assemble,
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
]

_LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _flags(actions, flags, mode = None):
    return flag_set(
        actions = actions,
        flag_groups = [flag_group(flags = flags)],
        with_features = [with_feature_set(features = [mode])] if mode else [],
    )

def _cc_toolchain_config_impl(ctx):
    features = [
        feature(name = "opt"),
        feature(name = "dbg"),
        feature(name = "fastbuild"),
        feature(name = "supports_pic", enabled = True),
        feature(name = "supports_dynamic_linker", enabled = True),
        feature(
            name = "default_flags",
            enabled = True,
            flag_sets = [
                _flags(_COMPILE, [
                    "-no-canonical-prefixes",
                    "-fno-canonical-system-headers",  # else Bazel finds headers outside the repository
                    "-fstack-protector",
                ]),
                _flags(_COMPILE, ["-O2", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"], "opt"),
                _flags(_COMPILE, ["-g"], "dbg"),
                _flags(_LINK, ["-no-canonical-prefixes", "-Wl,-z,relro,-z,now"]),
                _flags(_LINK, ["-Wl,--gc-sections"], "opt"),
            ],
        ),
    ]
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        abi_libc_version = "glibc",
        abi_version = "gcc",
        compiler = "gcc",
        cxx_builtin_include_directories = _HEADERS,
        features = features,
        host_system_name = "local",
        target_cpu = "aarch64",
        target_libc = "glibc",
        target_system_name = "aarch64-linux-gnu",
        tool_paths = [tool_path(name = name, path = _PREFIX + tool) for name, tool in _TOOLS.items()],
        toolchain_identifier = "aarch64-linux-gnu",
    )

cc_toolchain_config = rule(
    implementation = _cc_toolchain_config_impl,
    provides = [CcToolchainConfigInfo],
)
