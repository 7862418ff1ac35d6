"""The command `bert-tf`: `bert-tf NAME FLAGS` runs the program NAME of tools/.

It imports no TensorFlow; a program does when its work begins.
"""

import difflib
import os
import runpy
import sys

import bert_tf
from bert_tf.tools.common import programs

_NEAR = 0.5  # how alike an unknown name and a suggestion are, in `difflib`'s measure


def main() -> None:
    """Runs the program that the command line names, or lists the programs."""
    name, *arguments = sys.argv[1:] or [""]
    if name in ("help", "--help", "-h", "-?") and arguments:  # bert-tf help run_squad
        name, arguments = arguments[0], ["--help"]
    if name == "--version":
        print(f"bert-tf {bert_tf.__version__}")
    elif name in ("", "help", "--help", "-h", "-?", "--helpfull"):
        show(listing())
        sys.exit(not name)
    else:
        known = name.replace("-", "_")
        if known not in programs.NAMES:
            print(f"error: {unknown(name)}", file=sys.stderr)
            sys.exit(1)
        run(known, arguments)


def run(name: str, arguments: list[str]) -> None:
    """Runs a program in this process, as `python -m bert_tf.tools.NAME` does.

    Args:
        name: The program.
        arguments: Its flags.
    """
    sys.argv = [name, *arguments]
    runpy.run_module(f"bert_tf.tools.{name}", run_name="__main__", alter_sys=True)


def show(text: str) -> None:
    """Prints a text of which a reader such as `head` may take the first lines only.

    Args:
        text: What to print.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush


def listing() -> str:
    """Returns what `bert-tf --help` prints: the programs by what they are for.

    Example:
        >>> print(listing())
        bert-tf: BERT for TensorFlow and Keras 3.
        ...
        Fine-tuning
          run_classifier ...
    """
    width = max(map(len, programs.NAMES)) + 2
    lines = [
        "bert-tf: BERT for TensorFlow and Keras 3.",
        "",
        "    bert-tf PROGRAM --help    the flags of a program, with an example",
        "    bert-tf PROGRAM FLAGS     runs it",
    ]
    for group, members in programs.GROUPS.items():
        lines += ["", group, *(f"  {name:{width}}{programs.summary(name)}" for name in members)]
    return "\n".join(lines)


def unknown(name: str) -> str:
    """Returns what to say about a name that no program has.

    Example:
        >>> unknown("run-clasifier")
        'PROGRAM must be one that `bert-tf --help` lists. ... Did you mean run_classifier...?'
    """
    plain = name.replace("-", "_")
    near = difflib.get_close_matches(plain.removesuffix(".py"), programs.NAMES, 3, _NEAR)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"PROGRAM must be one that `bert-tf --help` lists. Received: {name}.{hint}"
