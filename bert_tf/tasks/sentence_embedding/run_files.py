"""Reads and writes the results of a search in TREC's form, which trec_eval scores.

A line of a run file is `query Q0 document rank score name`, separated by spaces. As in trec_eval,
the scores make the ranking: the ranks, `Q0` and the name are not read.
"""

import math
import os
import re
from collections.abc import Mapping

from bert_tf.base.files import atomic_path
from bert_tf.errors import DataError
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tasks.sentence_embedding.retrieval_files import trec_fields
from bert_tf.training.evaluation.ranking import ranked_documents


def read_run(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """Returns scores by the id of the document, by the id of the query.

    Raises:
        DataError: If the file cannot be read or is empty, a line has not six fields, a score is not
            a number, or a document occurs twice for a query.
    """
    run = {}
    for line, text in read_lines(path):
        fields = trec_fields(text)
        if not fields:
            continue
        if len(fields) != 6:
            raise DataError(
                f"{path}, line {line} must have query, Q0, document, rank, score and name. "
                f"Received: {len(fields)} fields."
            )
        query, _, document, _, value, _ = fields
        try:
            score = float(value)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise DataError(
                f"{path}, line {line} must have a number as its score. Received: {value!r}."
            )
        scores = run.setdefault(query, {})
        if document in scores:
            raise DataError(
                f"{path}, line {line} must have a document that no other line of the query "
                f"{query!r} has. Received: {document!r}."
            )
        scores[document] = score
    if not run:
        raise DataError(f"{path} must have results of a search. Received: none.")
    return run


def write_run(
    path: str | os.PathLike, run: Mapping[str, Mapping[str, float]], name: str = "bert_tf"
) -> None:
    """Writes a run file, atomically.

    Args:
        path: The file; an existing one is replaced.
        run: Scores by the id of the document, by the id of the query. They are
            written with all their digits.
        name: The last field of each line, the name of the system.

    Raises:
        DataError: If an id or the name is empty or has white space, which separates the fields.
        UserError: If a score is NaN.

    Example:
        >>> write_run("out.run", {"q1": {"d1": 0.25, "d2": 0.75}})
        >>> print(open("out.run").read(), end="")
        q1 Q0 d2 1 0.75 bert_tf
        q1 Q0 d1 2 0.25 bert_tf
    """
    require_word(name)
    with atomic_path(path) as new, open(new, "w", encoding="utf-8") as file:
        for query, scores in run.items():
            require_word(query)
            for rank, document in enumerate(ranked_documents(scores), start=1):
                require_word(document)
                file.write(f"{query} Q0 {document} {rank} {float(scores[document])} {name}\n")


def require_word(text: str) -> None:
    """Raises `DataError` if an id, or a name, cannot be a field of a run file."""
    if not text or re.search(r"\s", text, re.ASCII):
        raise DataError(
            f"Ids and the name in a run file must be words without white space. Received: {text!r}."
        )
