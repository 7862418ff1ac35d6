"""Reads SWAG's CSV files: a sentence, the beginning of the next one and four endings.

The layout is that of rowanz/swagaf data/{train,val,test}.csv (Zellers et al. 2018, arXiv
1808.05326). The choices are those of Devlin et al. 2019, section 4.4.
"""

import dataclasses
import os

from bert_tf.base.file_errors import data_error
from bert_tf.errors import DataError
from bert_tf.inputs.tables.table_files import read_table

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
COLUMNS = ("sent1", "sent2", *ENDINGS)


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A prompt with its choices.

    Attributes:
        prompt, choices: The text before the choices, and the texts that may follow.
        label: The index of the correct choice, or None.
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None = None


def read_swag(path: str | os.PathLike, labels: bool = True) -> list[ChoiceExample]:
    """Reads a file of SWAG.

    Args:
        path: A CSV file with a header; of its columns `sent1`, `sent2`, `ending0` to `ending3` and
            `label` are read.
        labels: Whether the file must have labels, which the official test.csv does not have.

    Returns:
        The examples, in the order of the file. A choice is `sent2`, a space and an ending.

    Raises:
        DataError: If the file is missing, empty or not CSV in UTF-8, or if a column, a text or a
            label is missing. The message names the file and the line.

    Example:
        >>> examples = read_swag("swag/val.csv")
        >>> examples[0].choices[examples[0].label]
        'It walks down the street.'
    """
    wanted = [*COLUMNS, *(["label"] if labels else [])]
    examples = []
    for line, row in read_table(path, ".csv"):
        missing = [name for name in wanted if name not in row]
        if missing:
            expected = f"have the columns {', '.join(wanted)}"
            raise data_error(path, expected, f"{list(row)}, without {', '.join(missing)}")
        texts = {name: row[name].strip() for name in COLUMNS}
        empty = [name for name in ("sent1", *ENDINGS) if not texts[name]]
        if empty:
            expected = f"have a text in sent1, {', '.join(ENDINGS)}"
            raise data_error(path, expected, f"nothing in {', '.join(empty)}", line)
        label = row["label"].strip() if labels else None
        if label not in ("0", "1", "2", "3", None):
            raise data_error(path, "have a label from 0 to 3", repr(label), line)
        choices = tuple(f"{texts['sent2']} {texts[name]}".strip() for name in ENDINGS)
        examples.append(ChoiceExample(texts["sent1"], choices, int(label) if labels else None))
    if not examples:
        raise DataError(f"{path} must have examples. Received: none")
    return examples
