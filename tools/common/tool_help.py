"""The `--help` of the programs: the docstring and the program's own flags, by what they are for.

The flags of absl and of imported libraries are left out; `--helpfull` lists them too. A module of
tools/common gives its flags headings with `FLAG_HEADINGS`: pairs of the beginning of a flag's name
and the heading, of which the first that fits counts. A module without it has one heading, which its
name gives.
"""

import shutil
import sys
import textwrap

from absl import app, flags

from bert_tf.tools.common.command import show

_REQUIRED = "Required flags"
_OWN = "Flags of this program"
_OUR_PACKAGES = ("bert_tf.", "benchmarks.", "research.")
_WIDEST = 100  # columns
_INDENT = " " * 6
_SHOWN_VALUES = 4  # an enum with more names them in the text
_VALUES = {
    "int": "INTEGER",
    "float": "NUMBER",
    "multi int": "INTEGER",
    "comma separated list of strings": "VALUE,VALUE,...",
}
_FOOTER = """\
-v 1 shows TensorFlow's messages, and progress bars also in a log file. --helpfull lists further
flags, those of absl."""


class HelpFlag(flags.BooleanFlag):
    """`--help` and `-h`: prints the help of the program that runs, and ends it."""

    def __init__(self, name: str = "help", short_name: str | None = "h"):
        super().__init__(
            name, False, "Shows this help.", short_name=short_name, allow_override=True
        )

    def parse(self, arg):
        if self._parse(arg):
            show(help_text(sys.modules["__main__"].__doc__ or "", flags.FLAGS, sys.argv[0]))
            sys.exit()


def define_help() -> None:
    """Defines `--help` of the programs in place of absl's."""
    app.define_help_flags()
    flags.DEFINE_flag(HelpFlag())
    flags.DEFINE_flag(HelpFlag("helpshort", None))


def help_text(docstring: str, values: flags.FlagValues, program: str) -> str:
    """Returns the help of a program.

    Args:
        docstring: The docstring of its module.
        values: The flags.
        program: Its path, under which absl knows the flags that it defines itself.
    """
    lines = [textwrap.dedent(docstring).strip()]
    for heading, members in sections(values, program).items():
        lines += ["", f"{heading}:", "", *(describe(flag) for flag in members)]
    return "\n".join([*lines, "", _FOOTER])


def sections(values: flags.FlagValues, program: str) -> dict[str, list[flags.Flag]]:
    """Returns the flags that a program and our modules define, by their headings.

    Args:
        values: The flags.
        program: See `help_text`.
    """
    found = {_REQUIRED: [], _OWN: []}
    for name, members in values.flags_by_module_dict().items():
        if name == program:
            headings = (("", _OWN),)
        elif name.startswith(_OUR_PACKAGES) and name != __name__:
            headings = _headings(sys.modules[name])
        else:
            continue
        for flag in members:
            heading = next(title for start, title in headings if flag.name.startswith(start))
            found.setdefault(_REQUIRED if is_required(flag) else heading, []).append(flag)
    return {heading: members for heading, members in found.items() if members}


def describe(flag: flags.Flag) -> str:
    """Returns a flag's lines of the help: its name and values, the text, the default.

    Example:
        >>> from absl import flags
        >>> values = flags.FlagValues()
        >>> holder = flags.DEFINE_integer("seed", 7, "Of the shuffling.", flag_values=values)
        >>> print(describe(values["seed"]))
          --seed=INTEGER
              Of the shuffling. (default: 7)
    """
    choices = getattr(flag.parser, "enum_values", None)
    text = flag.help.partition(";\n    repeat this option")[0]  # absl's, for several values
    if flag.boolean:
        shown = f"--[no]{flag.name}"
    elif choices:
        text = text.partition(">: ")[2] or text  # absl puts the choices before that of one value
        few = len(choices) <= _SHOWN_VALUES
        shown = f"--{flag.name}={'|'.join(choices) if few else 'VALUE'}"
        text += "" if few else f" One of: {', '.join(choices)}."
    else:
        shown = f"--{flag.name}={_VALUES.get(flag.flag_type(), 'VALUE')}"
    notes = _notes(flag)
    text += f" ({'; '.join(notes)})" if notes else ""
    width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    lines = textwrap.wrap(
        text, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )
    return "\n".join([f"  {shown}", *lines])


def is_required(flag: flags.Flag) -> bool:
    """Returns whether `flags.mark_flag_as_required` was called for a flag."""
    return any("must have a value other than None" in each.message for each in flag.validators)


def _headings(module):
    name = module.__name__.rpartition(".")[2].removesuffix("_flags").replace("_", " ")
    return (*getattr(module, "FLAG_HEADINGS", ()), ("", name.capitalize()))


def _notes(flag):
    """Returns the remarks after a flag's text."""
    notes = []
    if flag.default is not None and flag.default_as_str not in ("''", "'[]'"):
        is_list = isinstance(flag.default, list)
        shown = ",".join(map(str, flag.default)) if is_list else flag.default_as_str[1:-1]
        notes.append(f"default: {shown}")
    limits = flag.parser.syntactic_help
    if limits not in ("", "an integer", "a number", "a comma separated list"):
        notes.append(limits)
    if flag.flag_type().startswith("multi"):
        notes.append("may be repeated")
    return notes
