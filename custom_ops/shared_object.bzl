"""The shared objects that Python loads."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def shared_object(name, deps, objects = [], exports = "nothing", **kwargs):
    """Defines the shared object `name`.

    Args:
      name: The file name.
      deps: The libraries it consists of.
      objects: Other shared objects that it needs. They are found in its folder or in the one above,
        as bert_tf/ops has them.
      exports: "nothing", "launchers" or "our_functions", as custom_ops/export_*.lds say.
      **kwargs: Further arguments of cc_binary.
    """
    script = "//custom_ops:export_%s.lds" % exports
    cc_binary(
        name = name,
        srcs = objects,
        additional_linker_inputs = [script],
        linkopts = [
            # Two copies of an object in one process, such as those of an editable and of an
            # installed package, must not share functions.
            "-Wl,-Bsymbolic",
            "-Wl,--version-script=$(location %s)" % script,
            "-Wl,--strip-all",
        ] + (["-Wl,-rpath,'$$ORIGIN:$$ORIGIN/..'"] if objects else []),
        linkshared = True,
        deps = deps + ["//custom_ops:old_systems"],
        **kwargs
    )
