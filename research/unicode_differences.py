r"""Lists the code points that the tokenizer would treat differently with another Unicode version.

    python -m research.unicode_differences --python=python3.10 --python=python3.13

The tool compares the Unicode version of the package (bert_tf/text/unicode_data.txt) with the
`unicodedata` of other Python interpreters, with TensorFlow's ICU (`tf.strings.lower`, and NFD by
tensorflow-text) and with TensorFlow's RE2 (`\\p{Mn}` and similar patterns in
`tf.strings.regex_full_match`). It prints the Markdown table of docs/tokenization.md.
"""

import collections
import itertools
import operator
import pathlib
import subprocess

from absl import flags

import bert_tf.text
from bert_tf.errors import UserError
from bert_tf.tools.common import tool

from . import make_unicode_data

FLAGS = flags.FLAGS

flags.DEFINE_multi_string("python", [], "A Python interpreter whose unicodedata to compare.")
flags.DEFINE_bool(
    "tensorflow", True, "Whether to compare the ICU and the RE2 of the installed TensorFlow."
)

FINAL_SIGMA = "\u03c2"

# Maps kinds in unicode_data.txt to the words for code points with it and without it.
WORDS = {
    "mark": ("a mark (Mn)", "no mark"),
    "punctuation": ("punctuation (P)", "no punctuation"),
    "control": ("removed (Cc, Cf)", "not removed"),
    "space": ("white space", "no white space"),
    "lower": ("lower-cased", "not lower-cased"),
    "nfd": ("decomposed", "not decomposed"),
    "combining": ("ordered by NFD", "not ordered by NFD"),
    "cased": ("cased next to a sigma", "not cased next to a sigma"),
    "ignorable": ("ignored next to a sigma", "not ignored next to a sigma"),
}

# The same questions to RE2 that make_unicode_data.py has for unicodedata.
PATTERNS = {
    "mark": r"\p{Mn}",
    "punctuation": r"[!-/:-@\[-`{-~\p{P}]",
    "control": r"[\p{Cc}\p{Cf}\x{fffd}]",
    "space": r"[\t\n\r\x{2028}\x{2029}\p{Zs}]",
}

# Maps kinds to the values of the code points that have them, in the spelling of unicode_data.txt.
Properties = dict[str, dict[int, str]]


def parse(text: str) -> tuple[str, Properties]:
    """Reads the content of a `unicode_data.txt`: its Unicode version and its properties."""
    header, *lines = text.splitlines()
    properties: Properties = {kind: {} for kind in WORDS}
    for line in lines:
        if not line.startswith("#"):
            kind, first, last, *values = line.split("\t")
            for code_point in range(int(first, 16), int(last, 16) + 1):
                properties[kind][code_point] = values[0] if values else ""
    return header.removeprefix("# Unicode "), properties


def of_python(python: str) -> tuple[str, Properties]:
    """Returns a name for another interpreter and the properties that it knows."""
    options = {"check": True, "capture_output": True, "text": True}
    show_version = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        version = subprocess.run([python, "-c", show_version], **options).stdout.strip()
        data = subprocess.run([python, make_unicode_data.__file__], **options).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", None) or error
        raise UserError(
            f"--python must be a Python interpreter. Received: --python={python} ({detail})"
        ) from None
    unicode_version, properties = parse(data)
    return f"Python {version} (Unicode {unicode_version})", properties


def of_icu() -> Properties:
    """Returns what TensorFlow's ICU says about case and decomposition."""
    import tensorflow as tf
    import tensorflow_text

    # NUL is left out, because tf.strings.lower ends a string there with every Unicode version.
    code_points = _code_points()[1:]
    chars = [chr(code_point) for code_point in code_points]

    def lower(texts):
        return [text.decode() for text in tf.strings.lower(texts, encoding="utf-8").numpy()]

    decomposed = [text.decode() for text in tensorflow_text.normalize_utf8(chars, "NFD").numpy()]
    # A sigma is final after a cased character (see make_unicode_data.py).
    cased = [text.endswith(FINAL_SIGMA) for text in lower([c + "\u03a3" for c in chars])]
    passed = [text.endswith(FINAL_SIGMA) for text in lower([f"A{c}\u03a3" for c in chars])]
    return {
        "lower": _changed(code_points, chars, lower(chars)),
        "nfd": _changed(code_points, chars, decomposed),
        "cased": _having(code_points, cased),
        "ignorable": _having(code_points, map(operator.gt, passed, cased)),
    }


def of_re2() -> Properties:
    """Returns what TensorFlow's RE2 says about categories."""
    import tensorflow as tf

    code_points = _code_points()
    chars = tf.constant([chr(code_point) for code_point in code_points])
    properties = {
        kind: _having(code_points, tf.strings.regex_full_match(chars, pattern).numpy())
        for kind, pattern in PATTERNS.items()
    }
    for char in "\t\n\r":  # category Cc, but white space for google-research/bert
        del properties["control"][ord(char)]
    return properties


def differences(own: Properties, others: dict[str, Properties]) -> dict[tuple, list[int]]:
    """Groups the code points for which another source disagrees with the package.

    Kinds that one of `others` does not have are not compared with it. The keys of the groups are
    (kind, what the package says, what the others say, their names).
    """
    groups = collections.defaultdict(list)
    for kind, (has, has_not) in WORDS.items():
        asked = {name: source[kind] for name, source in others.items() if kind in source}
        for code_point in sorted(set(own[kind]).union(*asked.values())):
            value = own[kind].get(code_point)
            names: dict[str, list[str]] = collections.defaultdict(list)
            for name, values in asked.items():
                other = values.get(code_point)
                if other != value:
                    says = has if value is None else f"{has}, otherwise"
                    names[has_not if other is None else says].append(name)
            for says, who in names.items():
                groups[kind, has_not if value is None else has, says, tuple(who)].append(code_point)
    return groups


def as_ranges(code_points: list[int]) -> str:
    """Formats sorted code points as `U+0300-036F U+0483`."""
    spans = []
    # Consecutive code points have the same distance from their places in the list.
    for _, span in itertools.groupby(enumerate(code_points), lambda pair: pair[1] - pair[0]):
        span = [f"{code_point:04X}" for _, code_point in span]
        ends = dict.fromkeys((span[0], span[-1]))  # a single one if they are equal
        spans.append(f"U+{'-'.join(ends)}")
    return " ".join(spans)


def _code_points() -> list[int]:
    """Returns all but surrogates and Hangul syllables, which unicode_data.txt does not list."""
    return [
        code_point
        for code_point in range(make_unicode_data.NUM_CODE_POINTS)
        if code_point not in make_unicode_data.SURROGATES and not 0xAC00 <= code_point <= 0xD7A3
    ]


def _having(code_points: list[int], has_it) -> dict[int, str]:
    return dict.fromkeys(itertools.compress(code_points, has_it), "")


def _changed(code_points: list[int], before: list[str], after: list[str]) -> dict[int, str]:
    return {
        code_point: " ".join(f"{ord(char):X}" for char in new)
        for code_point, old, new in zip(code_points, before, after)
        if new != old
    }


def main():
    path = pathlib.Path(bert_tf.text.__file__).with_name("unicode_data.txt")
    version, own = parse(path.read_text(encoding="ascii"))
    others = dict(map(of_python, FLAGS.python))
    if FLAGS.tensorflow:
        others.update({"ICU": of_icu(), "RE2": of_re2()})
    if not others:
        raise UserError(
            "--python or --tensorflow must be set. Received: --python=[], --tensorflow=False"
        )
    print(f"| Unicode {version} says | other | who | code points |\n|---|---|---|---|")
    for (_, said, says, who), code_points in differences(own, others).items():
        print(
            f"| {said} | {says} | {', '.join(who)} | {len(code_points)}: {as_ranges(code_points)} |"
        )


if __name__ == "__main__":
    tool.run(main)
