"""Pairs and triplets of texts, data sets for retrieval and results of searches.

A data set of BEIR (Thakur et al. 2021, arXiv 2104.08663) is a directory:

    corpus.jsonl         {"_id": "d1", "title": "A title", "text": "A text."}; the title is optional
    queries.jsonl        {"_id": "q1", "text": "A question?"}
    qrels/<split>.tsv    a header, then tab-separated: query-id, corpus-id, score

A line of a run file of TREC, which trec_eval scores, is `query Q0 document rank score name`,
separated by spaces. As in trec_eval, the scores make the ranking: the ranks, `Q0` and the name are
not read.
"""

import dataclasses
import glob
import math
import os
import re
from collections.abc import Iterator, Mapping

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.base.files import atomic_path
from bert_tf.errors import DataError, user_error
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.training.evaluation.ranking import ranked_documents

PAIR_COLUMNS = ("sentence1", "sentence2")
PARTNER_COLUMNS = ("anchor", "positive")
_NEGATIVE = re.compile(r"negative(?:_(\d+))?")
LABEL_COLUMNS = ("label", "score")


def read_labelled_pairs(path: str | os.PathLike) -> tuple[tuple[list[str], ...], list]:
    """Reads pairs with a class or a score.

    Args:
        path: A `.tsv` or `.csv` file with a header, or a `.jsonl` file, with the columns
            `sentence1`, `sentence2` and `label` or `score`.

    Returns:
        The two lists of texts, and the labels, which are strings except in `.jsonl` files.

    Raises:
        DataError: If the file cannot be read or is empty, a column is missing or a text is empty.
    """
    return _read_labelled(path, PAIR_COLUMNS)


def read_labelled_texts(path: str | os.PathLike) -> tuple[list[str], list]:
    """Reads texts with a class: the columns `text` and `label`; see `read_labelled_pairs`.

    Raises:
        DataError: See there.
    """
    (texts,), labels = _read_labelled(path, ("text",))
    return texts, labels


def _read_labelled(path, names):
    columns, labels = tuple([] for _ in names), []
    for line, row in read_table(path):
        _append_texts(columns, row, names, path, line)
        label = next((row[name] for name in LABEL_COLUMNS if row.get(name) is not None), "")
        if label == "":
            expected = f"have a value in one of the columns {list(LABEL_COLUMNS)}"
            raise data_error(path, expected, sorted(row), line)
        labels.append(label)
    return _checked(columns, path), labels


def read_scored_pairs(
    path: str | os.PathLike, score_scale: float = 1.0
) -> tuple[tuple[list[str], ...], list[float]]:
    """Reads pairs with scores, which are divided by `score_scale`; see `read_labelled_pairs`.

    Raises:
        DataError: See there, or if a score is not in [-score_scale, score_scale].
    """
    columns, labels = read_labelled_pairs(path)
    scores = []
    for number, label in enumerate(labels, start=1):
        try:
            scores.append(float(label) / score_scale)
        except (TypeError, ValueError):
            scores.append(float("nan"))
        if not -1 <= scores[-1] <= 1:
            raise DataError(
                f"{path}, example {number} must have a score in [-{score_scale:g}, "
                f"{score_scale:g}] (the --score_scale of the tool). Received: {label!r}"
            )
    return columns, scores


def read_triplets(path: str | os.PathLike) -> tuple[list[str], ...]:
    """Reads pairs, triplets or examples with more negatives: a list of texts for each column.

    Args:
        path: See `read_labelled_pairs`, with the columns `anchor`, `positive` and, the same in all
            rows, any number of `negative`, `negative_1`, `negative_2`, …; a `negative` of a
            `.jsonl` file may be a list of texts.

    Raises:
        DataError: If the file cannot be read or is empty, a column is missing, a text is empty, or
            rows have different numbers of negatives.
    """
    columns = ()
    for line, row in read_table(path):
        row, negatives = _with_columns_of_negatives(row)
        names = (*PARTNER_COLUMNS, *negatives)
        columns = columns or tuple([] for _ in names)
        if len(names) != len(columns):
            expected = f"have {len(columns) - 2} negatives, as the rows before it"
            raise data_error(path, expected, f"{len(negatives)}: {negatives}", line)
        _append_texts(columns, row, names, path, line)
    return _checked(columns, path)


def read_scored_triplets(path: str | os.PathLike) -> tuple[tuple[list[str], ...], np.ndarray]:
    """Reads what `read_triplets` does, with the scores that a teacher gives to the documents.

    Args:
        path: See there. The column `scores` has one for the positive and one for each of n
            negatives; or `label` or `score` has n margins, the positive's score minus those of the
            negatives. Several numbers are a list, in `.tsv` and `.csv` files with spaces between.

    Returns:
        The lists of texts, and the scores float32 `[examples, n + 1]` or the margins `[examples,
        n]`, as `MarginMSELoss` takes them.

    Raises:
        DataError: See there, or if a row has another number of finite numbers.
    """
    columns, labels = read_triplets(path), []
    for line, row in read_table(path):
        name = next((name for name in ("scores", *LABEL_COLUMNS) if row.get(name) is not None), "")
        value = row.get(name)
        try:
            numbers = value.split() if isinstance(value, str) else np.ravel(value)
            found = np.array(numbers, np.float32)
        except (TypeError, ValueError):
            found = np.array([np.nan], np.float32)
        counts = (len(columns) - 1,) if name == "scores" else (len(columns) - 2, len(columns) - 1)
        counts = (len(labels[0]),) if labels else counts
        if len(found) not in counts or not np.isfinite(found).all():
            expected = f"have {' or '.join(map(str, counts))} numbers in the column `scores`"
            raise data_error(path, expected, repr(value), line)
        labels.append(found)
    return columns, np.stack(labels)


def _with_columns_of_negatives(row):
    """Returns a row in which each negative has a column, and the names of these in order."""
    names = sorted(filter(_NEGATIVE.fullmatch, row), key=lambda name: (len(name), name))
    if isinstance(row.get("negative"), list):
        texts = {f"negative[{index}]": text for index, text in enumerate(row["negative"])}
        row, names = row | texts, [*texts, *names[1:]]
    return row, names


def _append_texts(columns, row, names, path, line):
    for column, name in zip(columns, names):
        text = row.get(name)
        if not isinstance(text, str) or not text.strip():
            raise DataError(
                f"{path}, line {line} must have a text in `{name}`. Received: "
                + (repr(text) if name in row else f"the columns {sorted(row)}")
            )
        column.append(text)


def _checked(columns, path):
    if not columns or not columns[0]:
        raise DataError(f"{path} must have examples. Received: none")
    return columns


QRELS_COLUMNS = ["query-id", "corpus-id", "score"]  # of BEIR
_TREC_COLUMNS = "query, iteration, document and grade"


@dataclasses.dataclass(frozen=True)
class RetrievalDataSet:
    """The files of a data set; `name` is that of its directory."""

    name: str
    corpus: str
    queries: str
    qrels: str


def find_data_sets(directory: str | os.PathLike, split: str = "test") -> list[RetrievalDataSet]:
    """Finds the data set in a directory, or the data sets in its folders, sorted by name.

    Args:
        directory: A directory with `corpus.jsonl`, or with folders that have one, as NanoBEIR has.
        split: The name of the file with the grades.

    Raises:
        DataError: If there is no data set, or a file is missing.
    """
    directory = os.path.abspath(directory)
    pattern = os.path.join(glob.escape(directory), "*", "corpus.jsonl")
    found = [os.path.join(directory, "corpus.jsonl")]
    if not os.path.isfile(found[0]):
        found = sorted(glob.glob(pattern))
    if not found:
        raise data_error(directory, "have a corpus.jsonl, or folders with one", "none")
    return [_data_set(os.path.dirname(corpus), split) for corpus in found]


def _data_set(folder, split):
    files = [
        os.path.join(folder, name)
        for name in ("corpus.jsonl", "queries.jsonl", os.path.join("qrels", f"{split}.tsv"))
    ]
    for file in files:
        if not os.path.isfile(file):
            pattern = os.path.join(glob.escape(os.path.dirname(file)), "*")
            there = sorted(map(os.path.basename, glob.glob(pattern)))
            raise DataError(f"{file} must be a file of the data set. Received: only {there}.")
    return RetrievalDataSet(os.path.basename(folder), *files)


def read_corpus(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Yields the id and the text of each document: its title, if it has one, a space, its text.

    Only the ids are kept in memory, to find repeated ones. A text may be empty.

    Raises:
        DataError: If the file cannot be read, an id is missing or repeated, or a text is missing.
    """
    for line, id_, row in _rows_with_ids(path):
        parts = [_string(row, "text", path, line)]
        if row.get("title") is not None:
            parts.insert(0, _string(row, "title", path, line))
        yield id_, " ".join(parts).strip()


def read_queries(path: str | os.PathLike) -> dict[str, str]:
    """Returns the texts of queries by their ids.

    Raises:
        DataError: If the file cannot be read or is empty, an id is missing or repeated, or a text
            is missing or empty.
    """
    queries = {}
    for line, id_, row in _rows_with_ids(path):
        queries[id_] = _string(row, "text", path, line)
        if not queries[id_].strip():
            raise DataError(f"{path}, line {line} must have a text in `text`. Received: ''.")
    if not queries:
        raise DataError(f"{path} must have queries. Received: none.")
    return queries


def read_qrels(path: str | os.PathLike) -> dict[str, dict[str, int]]:
    """Returns grades by the id of the document, by the id of the query.

    Args:
        path: A file of BEIR, with a header, or of TREC: lines of query, iteration (ignored),
            document and grade, separated by spaces or tabs.

    Raises:
        DataError: If the file cannot be read or is empty, a line has another form, a grade is not a
            whole number, or a document has two different grades for a query.
    """
    qrels = {}
    for line, query, document, value in _graded_pairs(path):
        try:
            grade = int(value)
        except ValueError:
            raise data_error(path, "have a whole number as its grade", repr(value), line) from None
        if qrels.setdefault(query, {}).setdefault(document, grade) != grade:
            expected = "have the same grade as the line before it with this query and document"
            received = f"{grade} and {qrels[query][document]} for {query!r} and {document!r}"
            raise data_error(path, expected, received, line)
    if not qrels:
        raise DataError(f"{path} must have grades of documents. Received: none.")
    return qrels


def trec_fields(text: str) -> list[str]:
    """Splits a line of TREC's files at spaces and tabs; other white space is part of an id."""
    return re.findall(r"[^ \t]+", text)


def _graded_pairs(path):
    """Yields line, query, document and grade."""
    is_beir = False
    for line, text in read_lines(path):
        if not text.strip():
            continue
        if line == 1 and text.split("\t") == QRELS_COLUMNS:
            is_beir = True
            continue
        fields = text.split("\t") if is_beir else trec_fields(text)
        if len(fields) != (3 if is_beir else 4):
            columns = ", ".join(QRELS_COLUMNS) if is_beir else _TREC_COLUMNS
            hint = "" if is_beir else f" BEIR's files begin with the line {QRELS_COLUMNS}."
            raise data_error(path, f"have {columns}", f"{len(fields)} fields.{hint}", line)
        yield line, fields[0], *fields[-2:]


def _rows_with_ids(path):
    """Yields the line, the id and the row of each JSON object."""
    seen = set()
    for line, row in read_table(path, ".jsonl"):
        id_ = _string(row, "_id", path, line)
        if not id_ or id_ in seen:
            raise data_error(path, "have an `_id` that no other line has", repr(id_), line)
        seen.add(id_)
        yield line, id_, row


def _string(row, name, path, line):
    if not isinstance(row.get(name), str):
        received = repr(row[name]) if name in row else f"the keys {sorted(row)}"
        raise data_error(path, f"have a string in `{name}`", received, line)
    return row[name]


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
            expected = "have query, Q0, document, rank, score and name"
            raise data_error(path, expected, f"{len(fields)} fields", line)
        query, _, document, _, value, _ = fields
        try:
            score = float(value)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise data_error(path, "have a number as its score", repr(value), line)
        scores = run.setdefault(query, {})
        if document in scores:
            expected = f"have a document that no other line of the query {query!r} has"
            raise data_error(path, expected, repr(document), line)
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
        expected = "be words without white space"
        raise user_error("Ids and the name in a run file", expected, repr(text), DataError)
