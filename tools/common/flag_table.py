"""Defines flags from a table, whose text is that of `--help`.

An entry has the name of a flag, its type and limits, its default and its help; without a default,
the flag is None:

    max_length (int >= 1, 128): Maximum number of tokens of a text; longer text is truncated.
    dropout (float 0 to 1): Dropout rate before the classifier. Default: as the config file says.
    precision (auto|float32|bfloat16, auto): What the model computes in.

The types are those of `_DEFINE`; any other is the values that the flag may have, with `|` between
them, after `repeated` if it may have several. Further lines of an entry are indented.
"""

import re
import textwrap

from absl import flags

FLAGS = flags.FLAGS
flags.disclaim_key_flags()  # absl takes the module with the table for that of the flags

_DEFINE = {
    "str": flags.DEFINE_string,
    "repeated str": flags.DEFINE_multi_string,
    "list": flags.DEFINE_list,
    "bool": flags.DEFINE_bool,
    "int": flags.DEFINE_integer,
    "float": flags.DEFINE_float,
}
_ENTRY = re.compile(r"(\w+) \((.+?)(?:, (.*?))?\): (.*)")
_LIMITED = re.compile(r"(int|float) (?:>= (\S+)|(\S+) to (\S+))")
_EMPTY = ('""', "[]")  # defaults


def define_flags(table: str, **options) -> tuple[str, ...]:
    """Defines the flags of a table, in its order, and returns their names.

    Args:
        table: The entries; see above.
        **options: Further arguments of absl's functions, such as `flag_values`.

    Example:
        >>> from absl import flags
        >>> values = flags.FlagValues()
        >>> define_flags(
        ...     '''
        ...     seed (int, 7): The seed.
        ...     unit (word|character): What is masked.
        ...     ''',
        ...     flag_values=values,
        ... )
        ('seed', 'unit')
        >>> values["seed"].default, values["unit"].default, values["unit"].parser.enum_values
        (7, None, ['word', 'character'])
    """
    names = []
    for entry in re.split(r"\n(?! )", textwrap.dedent(table).strip()):
        name, kind, default, text = _ENTRY.fullmatch(" ".join(entry.split())).groups()
        default = "" if default in _EMPTY else default
        if limited := _LIMITED.fullmatch(kind):
            kind, least, low, high = limited.groups()
            number = {"int": int, "float": float}[kind]
            limits = [None if limit is None else number(limit) for limit in (least or low, high)]
            _DEFINE[kind](name, default, text, *limits, **options)
        elif kind in _DEFINE:
            _DEFINE[kind](name, default, text, **options)
        elif kind.startswith("repeated "):
            values = kind.removeprefix("repeated ").split("|")
            flags.DEFINE_multi_enum(name, default, values, text, **options)
        else:
            flags.DEFINE_enum(name, default, kind.split("|"), text, **options)
        names.append(name)
    return tuple(names)
