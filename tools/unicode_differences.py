r"""Names the code points that the tokenizer would treat otherwise with another Unicode version.

    python tools/unicode_differences.py --python=python3.10 --python=python3.13

Prints a Markdown table: what the package's Unicode version (bert_tf/text/unicode_data.txt) says,
and who says otherwise: the `unicodedata` of other Pythons, TensorFlow's ICU (`tf.strings.lower`,
NFD by tensorflow-text) and TensorFlow's RE2 (`\\p{Mn}` and its like in
`tf.strings.regex_full_match`).
docs/tokenization.md holds the table.
"""

import collections
import pathlib
import subprocess

from absl import flags

from bert_tf import tool
from bert_tf.errors import UserError
from bert_tf.text import make_unicode_data

FLAGS = flags.FLAGS

flags.DEFINE_multi_string(
    "python", [], "A Python interpreter whose unicodedata is compared; may be repeated."
)
flags.DEFINE_bool("tensorflow", True, "Compare ICU and RE2 of the installed TensorFlow.")

FINAL_SIGMA = "\u03c2"

# Kind in unicode_data.txt, to what a code point is that has it and what it is that has it not.
WORDS = {
    "mark": ("a mark (Mn)", "no mark"),
    "punctuation": ("punctuation (P)", "no punctuation"),
    "control": ("removed (Cc, Cf)", "not removed"),
    "space": ("white space", "no white space"),
    "lower": ("lower-cased", "not lower-cased"),
    "nfd": ("decomposed", "not decomposed"),
    "combining": ("ordered by NFD", "not ordered by NFD"),
    "cased": ("cased beside a sigma", "not cased beside a sigma"),
    "ignorable": ("ignored beside a sigma", "not ignored beside a sigma"),
}

# What make_unicode_data.py asks of unicodedata, asked of RE2.
PATTERNS = {
    "mark": r"\p{Mn}",
    "punctuation": r"[!-/:-@\[-`{-~\p{P}]",
    "control": r"[\p{Cc}\p{Cf}\x{fffd}]",
    "space": r"[\t\n\r\x{2028}\x{2029}\p{Zs}]",
}

# Kind to the values of the code points that have it, as unicode_data.txt spells them.
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
    """The properties that another interpreter knows, with a name for the column."""
    try:
        version = _run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        unicode_version, properties = parse(_run(python, make_unicode_data.__file__))
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", None) or error
        raise UserError(f"--python={python}: {detail}") from None
    return f"Python {version} (Unicode {unicode_version})", properties


def of_icu() -> Properties:
    """What TensorFlow's ICU says about case and decomposition."""
    import tensorflow as tf
    import tensorflow_text

    # Not NUL: tf.strings.lower ends a string there, whatever the Unicode version.
    code_points = _code_points()[1:]
    chars = [chr(code_point) for code_point in code_points]

    def lower(texts):
        return [text.decode() for text in tf.strings.lower(texts, encoding="utf-8").numpy()]

    decomposed = [text.decode() for text in tensorflow_text.normalize_utf8(chars, "NFD").numpy()]
    # The questions of make_unicode_data.py: who makes a sigma after it a final one.
    cased = [text.endswith(FINAL_SIGMA) for text in lower([c + "\u03a3" for c in chars])]
    passed = [text.endswith(FINAL_SIGMA) for text in lower([f"A{c}\u03a3" for c in chars])]
    return {
        "lower": _changed(code_points, chars, lower(chars)),
        "nfd": _changed(code_points, chars, decomposed),
        "cased": {c: "" for c, is_cased in zip(code_points, cased) if is_cased},
        "ignorable": {
            c: "" for c, is_cased, ends in zip(code_points, cased, passed) if ends and not is_cased
        },
    }


def of_re2() -> Properties:
    """What TensorFlow's RE2 says about categories."""
    import tensorflow as tf

    code_points = _code_points()
    chars = tf.constant([chr(code_point) for code_point in code_points])
    properties = {
        kind: {
            c: ""
            for c, has in zip(
                code_points, tf.strings.regex_full_match(chars, pattern).numpy().tolist()
            )
            if has
        }
        for kind, pattern in PATTERNS.items()
    }
    for char in "\t\n\r":  # Cc, but the original takes them for white space
        del properties["control"][ord(char)]
    return properties


def differences(own: Properties, others: dict[str, Properties]) -> dict[tuple, list[int]]:
    """Groups the code points about which somebody disagrees with the package.

    Args:
        own: the package's properties.
        others: name to properties; a kind that is missing there was not asked for.

    Returns:
        (kind, what the package says, what the others say, who they are) to code points.
    """
    groups = collections.defaultdict(list)
    for kind, (has, has_not) in WORDS.items():
        asked = {
            name: properties[kind] for name, properties in others.items() if kind in properties
        }
        touched = set(own[kind]).union(*asked.values())
        for code_point in sorted(touched):
            value = own[kind].get(code_point)
            names: dict[str, list[str]] = collections.defaultdict(list)
            for name, values in asked.items():
                other = values.get(code_point)
                if other != value:
                    says = (
                        has_not
                        if other is None
                        else has
                        if value is None
                        else (f"{has}, otherwise")
                    )
                    names[says].append(name)
            for says, who in names.items():
                groups[kind, has_not if value is None else has, says, tuple(who)].append(code_point)
    return groups


def as_ranges(code_points: list[int]) -> str:
    """Sorted code points as `U+0300-036F U+0483`."""
    spans: list[list[int]] = []
    for code_point in code_points:
        if spans and code_point == spans[-1][1] + 1:
            spans[-1][1] = code_point
        else:
            spans.append([code_point, code_point])
    return " ".join(
        f"U+{first:04X}" if first == last else f"U+{first:04X}-{last:04X}" for first, last in spans
    )


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _code_points() -> list[int]:
    """All but surrogates and Hangul syllables, which unicode_data.txt leaves to a formula."""
    return [
        code_point
        for code_point in range(make_unicode_data.NUM_CODE_POINTS)
        if code_point not in make_unicode_data.SURROGATES and not 0xAC00 <= code_point <= 0xD7A3
    ]


def _changed(code_points: list[int], before: list[str], after: list[str]) -> dict[int, str]:
    return {
        code_point: " ".join(f"{ord(char):X}" for char in new)
        for code_point, old, new in zip(code_points, before, after)
        if new != old
    }


def main():
    path = pathlib.Path(make_unicode_data.__file__).with_name("unicode_data.txt")
    version, own = parse(path.read_text(encoding="ascii"))
    others = dict(map(of_python, FLAGS.python))
    if FLAGS.tensorflow:
        others.update({"ICU": of_icu(), "RE2": of_re2()})
    if not others:
        raise UserError("Nothing to compare with: pass --python, or leave --tensorflow on.")
    print(f"| Unicode {version} says | other | who | code points |\n|---|---|---|---|")
    for (_, said, says, who), code_points in differences(own, others).items():
        print(
            f"| {said} | {says} | {', '.join(who)} | {len(code_points)}: {as_ranges(code_points)} |"
        )


if __name__ == "__main__":
    tool.run(main)
