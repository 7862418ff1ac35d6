"""SWAG's CSV files: a sentence, the beginning of the next one, four endings.

Layout: rowanz/swagaf data/{train,val,test}.csv (Zellers et al. 2018, arXiv 1808.05326); the text
that goes with each ending as in Devlin et al. 2019, section 4.4.
"""

import csv
import dataclasses
import os

from bert_tf.errors import DataError

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
LABELS = ("0", "1", "2", "3")
COLUMNS = ("sent1", "sent2", *ENDINGS)


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A prompt with its choices.

    Attributes:
        prompt: The text before.
        choices: The texts that may follow.
        label: The right choice, counted from 0, or None where the file has none.
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None = None


def read_swag(path: str | os.PathLike, labels: bool = True) -> list[ChoiceExample]:
    """Reads a file of SWAG.

    Args:
        path: A CSV file with a header; of its columns `sent1`, `sent2`, `ending0` to `ending3` and
            `label` are read, the others may be anything.
        labels: Whether the file must have labels; those of the official test.csv are secret.

    Returns:
        The examples, in the order of the file; a choice is `sent2`, a space and an ending.

    Raises:
        DataError: If the file is missing, empty, not UTF-8 or no CSV file, lacks a column, or a row
            lacks a text or has a label other than 0 to 3; with file and line.

    Example:
        >>> examples = read_swag("swag/val.csv")
        >>> examples[0].choices[examples[0].label]
        'It walks down the street.'
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            try:
                _check_header(path, reader.fieldnames, labels)
                examples = [_example(path, reader.line_num, row, labels) for row in reader]
            except (csv.Error, UnicodeDecodeError) as error:
                raise DataError(
                    f"{path}, behind line {reader.line_num}: expected CSV in UTF-8. "
                    f"Received: {error}"
                ) from None
    except OSError as error:
        raise DataError(f"Expected a data file at {path}: {error.strerror}") from None
    if not examples:
        raise DataError(f"{path} holds no examples: expected one a line, below the header.")
    return examples


def _check_header(path, header, labels):
    wanted = [*COLUMNS, *(["label"] if labels else [])]
    missing = [name for name in wanted if name not in (header or [])]
    if missing:
        raise DataError(
            f"{path}: expected a header line with the columns {', '.join(wanted)} (SWAG's "
            f"train.csv, val.csv or test.csv). Received: {header}, without {', '.join(missing)}"
        )


def _example(path, line, row, labels):
    texts = {name: (row[name] or "").strip() for name in COLUMNS}
    missing = [name for name in ("sent1", *ENDINGS) if not texts[name]]
    if missing or None in row:
        raise DataError(
            f"{path}, line {line}: expected a text in each of sent1, {', '.join(ENDINGS)}. "
            + (
                f"Received: nothing in {', '.join(missing)}"
                if missing
                else "Received: more fields than the header has"
            )
        )
    label = None
    if labels:
        label = (row["label"] or "").strip()
        if label not in LABELS:
            raise DataError(f"{path}, line {line}: expected a label of 0 to 3. Received: {label!r}")
    choices = tuple(f"{texts['sent2']} {texts[name]}".strip() for name in ENDINGS)
    return ChoiceExample(texts["sent1"], choices, None if label is None else int(label))
