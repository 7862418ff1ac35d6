"""Vectors for TensorBoard's projector: of a model's pieces, of texts, and of a word in texts.

Its reader (`tf_projector_plugin/projector_binary.js` of the package tensorboard) skips lines that
are blank, ends a row at every line break, and takes the first line for the names of the columns if
and only if there is a tab in it. So every row that is written has a character that is not blank.

Glossary: `B` texts, `T` tokens, `H` hidden size, `V` vocabulary, `E` width of the word embeddings,
`L` layers.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.files import staged_files
from bert_tf.base.printable_text import escape_unprintable
from bert_tf.base.vectors import as_finite_floats, as_matrix
from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.inputs import sorted_batches
from bert_tf.inspection.targets import is_whole, piece_numbers
from bert_tf.models import Preprocessor
from bert_tf.text import CJK_BLOCKS

TENSORS, METADATA, CONFIG = "tensors.tsv", "metadata.tsv", "projector_config.pbtxt"
EMPTY = "(empty)"  # what is shown for a text without characters
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Blank for JavaScript's `trim`, but not for Python's `split`.
_BYTE_ORDER_MARK = "\ufeff"
_ENTRY = """embeddings {{
  tensor_name: "{name}"
  tensor_path: "{folder}{tensors}"
  metadata_path: "{folder}{metadata}"
}}
"""


class Projection(NamedTuple):
    """Vectors and their metadata.

    Attributes:
        vectors: Floats `[n, D]`.
        metadata: Columns of n values by name.

    Example:
        >>> Projection(np.eye(2), {"text": ["one", "two"]}).vectors.shape
        (2, 2)
    """

    vectors: np.ndarray
    metadata: Mapping[str, Sequence[Any]]


def write_projector(
    directory: str | os.PathLike, vectors: np.ndarray, metadata: Mapping[str, Sequence[Any]]
) -> None:
    r"""Writes tensors.tsv, metadata.tsv and projector_config.pbtxt.

    `tensorboard --logdir=DIRECTORY` shows them in three dimensions. The two tables can also be
    loaded at projector.tensorflow.org.

    Args:
        directory: Where the files are written, atomically.
        vectors: Floats `[n, D]`; at most some ten thousand, because a browser draws them.
        metadata: Columns of n values by name, such as texts and clusters. White space becomes
            single spaces; a text of white space alone is written as `\t`, an empty one as
            `(empty)`.

    Raises:
        UserError: If there is no column, the sizes differ, or a value is not finite.

    Example:
        >>> write_projector("projector/", np.eye(2), {"text": ["one", "two"]})
        >>> print(open("projector/metadata.tsv").read(), end="")
        one
        two
    """
    projection = _checked(Projection(vectors, metadata), "")
    with staged_files(directory) as new:
        _write_tables(new, projection)
        _write_config(new, [_ENTRY.format(name="vectors", folder="", **_FILES)])


def write_projections(directory: str | os.PathLike, projections: Mapping[str, Projection]) -> None:
    """Writes several sets of vectors, between which TensorBoard's projector has a menu.

    Args:
        directory: Where projector_config.pbtxt is written, and for each set a folder with
            tensors.tsv and metadata.tsv; all of them together, atomically.
        projections: The sets by name: letters, digits, `_` and `-`.

    Raises:
        UserError: If there is no set, a name has other characters, or for the reasons of
            `write_projector`.

    Example:
        >>> words = Projection(np.eye(2), {"word": ["one", "two"]})
        >>> write_projections("projector/", {"words": words})
        >>> print(open("projector/words/metadata.tsv").read(), end="")
        one
        two
    """
    if not projections or not all(map(_NAME.fullmatch, projections)):
        expected = "have names of letters, digits, `_` and `-`, at least one"
        raise user_error("`projections`", expected, list(projections))
    checked = {name: _checked(values, f" of {name}") for name, values in projections.items()}
    with staged_files(directory) as new:
        for name, projection in checked.items():
            os.mkdir(os.path.join(new, name))
            _write_tables(os.path.join(new, name), projection)
        _write_config(new, [_ENTRY.format(name=n, folder=f"{n}/", **_FILES) for n in checked])


_FILES = {"tensors": TENSORS, "metadata": METADATA}


def _checked(projection, of):
    vectors = as_finite_floats(as_matrix(projection.vectors, f"vectors{of}"), False, f"vectors{of}")
    columns = {name: list(values) for name, values in projection.metadata.items()}
    if not columns or any(len(values) != len(vectors) for values in columns.values()):
        expected = f"have at least one column, each of {len(vectors)} values"
        received = {name: len(values) for name, values in columns.items()}
        raise user_error(f"`metadata`{of}", expected, received)
    return Projection(vectors, columns)


def _write_tables(folder, projection):
    columns = projection.metadata
    rows = list(zip(*columns.values()))
    # TensorBoard takes the first line as the names only if there are several columns.
    header = [tuple(columns)] if len(columns) > 1 else []
    with open(os.path.join(folder, TENSORS), "w", encoding="utf-8") as file:
        for row in projection.vectors.tolist():
            file.write("\t".join(f"{x:.7g}" for x in row) + "\n")
    with open(
        os.path.join(folder, METADATA), "w", encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.writelines("\t".join(map(_field, row)) + "\n" for row in header + rows)


def _write_config(folder, entries):
    with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
        file.writelines(entries)


def _field(value):
    text = str(value)
    words = text.replace(_BYTE_ORDER_MARK, " ").split()
    return " ".join(words) or escape_unprintable(text).replace(" ", r"\x20") or EMPTY


_EDGES = (r"(?<!\w)", r"(?!\w)")  # of a word: no letter, digit or `_` before and after it
MOST_POINTS = 100_000  # that the projector draws: LIMIT_NUM_POINTS of its projector_binary.js
_POOLINGS = ("pooler", "mean")


def project_pieces(model: Any, most: int = MOST_POINTS) -> Projection:
    r"""Returns the word embeddings with their pieces.

    Args:
        model: A task model with a tokenizer.
        most: The maximum number of pieces; the first of the vocabulary are taken.

    Returns:
        Vectors float32 `[min(V, most), E]`, and the columns `piece` and `id`. Characters that are
        not printable are written as `\t` or `\u200b`.

    Raises:
        UserError: If the model has no tokenizer, or `most` is not positive.

    Example:
        >>> model = bert_tf.BertFeatureExtractor.from_pretrained("minilm/")
        >>> pieces = bert_tf.inspection.project_pieces(model, most=2000)
        >>> bert_tf.inspection.write_projections("projector/", {"pieces": pieces})
    """
    require(is_whole(most) and most >= 1, "must be a positive integer", UserError, most=most)
    _require_tokenizer(model)
    pieces = [escape_unprintable(piece) for piece in model.tokenizer.readable_pieces()[:most]]
    vectors = tf.cast(model.backbone.embeddings.word_table()[: len(pieces)], tf.float32).numpy()
    return Projection(vectors, {"piece": pieces, "id": range(len(pieces))})


def project_texts(
    model: Any, texts: Any, labels: Sequence[Any] | None = None, pooling: str = "mean"
) -> Projection:
    """Returns one vector for every text.

    For the vectors of a `BertSentenceEncoder`, with its own pooling and layers after it, write the
    result of `encode`.

    Args:
        model: A task model with a tokenizer.
        texts: Texts or pairs, in the forms that `BertTextClassifier` takes, for every task. Each is
            one row of tokens, cut at the longest that the model takes.
        labels: A label for each, or None.
        pooling: "mean" of the last layer's vectors, or "pooler", the output of BERT's pooler.

    Returns:
        Vectors float32 `[n, H]`, and the columns `text`, `pair` and `label`, where there are such.

    Raises:
        UserError: If the model has no tokenizer, `pooling` is unknown, an example has more than two
            texts, or there is not a label for every text.
        DataError: If a text is missing or malformed.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> reviews = bert_tf.inspection.project_texts(model, texts, labels)
        >>> bert_tf.inspection.write_projections("projector/", {"reviews": reviews})
    """
    require_one_of("pooling", pooling, _POOLINGS)
    columns = _preprocessor(model).read_examples(texts)
    metadata = {name: list(map(_text, column)) for name, column in zip(("text", "pair"), columns)}
    if labels is not None:
        metadata["label"] = _labels(labels, columns.num_rows)
    vectors = np.zeros([columns.num_rows, model.backbone.config.hidden_size], np.float32)
    for numbers, batch, outputs in _outputs(model, columns):
        if pooling == "pooler":
            vectors[numbers] = tf.cast(outputs["pooled_output"], tf.float32)
            continue
        mask = tf.cast(batch["padding_mask"], tf.float32)  # [B, T]
        states = tf.cast(outputs["sequence_output"], tf.float32)  # zeros at padding
        vectors[numbers] = tf.reduce_sum(states, 1) / tf.reduce_sum(mask, 1, keepdims=True)
    return Projection(vectors, metadata)


def project_word(
    model: Any, word: str, texts: Sequence[str], labels: Sequence[Any] | None = None
) -> dict[str, Projection]:
    """Returns the vectors of a word wherever it is in the texts, after each layer.

    They show which senses of the word the layers distinguish. The vector of a word is the mean of
    those of its pieces. Upper and lower case are the same. A word is not found within a longer one,
    except next to ideographs.

    Args:
        model: A task model with a tokenizer.
        word: The word, or several.
        texts: Single texts. Places after the one where a text is cut are left out.
        labels: A label for each text, such as the sense, or None.

    Returns:
        `embeddings`, and `layer_00` and so on: for each the vectors float32 `[n, H]` of all
        places, and the columns `text`, `word` (as it is written there) and `label`.

    Raises:
        UserError: If the model has no tokenizer, the word is in no text, or there is not a label
            for every text.
        DataError: If a text is missing or malformed.

    Example:
        >>> model = bert_tf.BertFeatureExtractor.from_pretrained("minilm/")
        >>> texts = ["He sat on the bank of the river.", "The bank lent him money."]
        >>> senses = bert_tf.inspection.project_word(model, "bank", texts, ["shore", "money"])
        >>> senses["layer_05"].vectors.shape
        (2, 384)
        >>> bert_tf.inspection.write_projections("projector/", senses)

    Reference: Wiedemann et al. 2019 (arXiv 1909.10430).
    """
    columns = _preprocessor(model).read_examples(texts)
    if len(columns) != 1:
        raise user_error("`texts`", "be single texts", f"{len(columns)} texts in an example")
    texts, labels = list(map(_text, columns[0])), _labels(labels, columns.num_rows)
    pattern = _pattern(word)
    spans = [[found.span() for found in pattern.finditer(text)] for text in texts]
    places: list[tuple[int, tuple[int, int]]] = []  # the text and the characters of each
    layers: dict[str, list[np.ndarray]] = {}
    chosen = [number for number, found in enumerate(spans) if found]
    if chosen:
        columns = columns.select(np.array(chosen))
        for numbers, _, outputs in _outputs(model, columns, output_hidden_states=True):
            states = [tf.cast(values, tf.float32).numpy() for values in outputs["hidden_states"]]
            names = ["embeddings", *(f"layer_{number:02}" for number in range(len(states) - 1))]
            for row, number in enumerate(numbers):
                text = chosen[number]
                for span, tokens in _tokens_of(model, texts[text], spans[text]):
                    places.append((text, span))
                    for name, values in zip(names, states, strict=True):
                        layers.setdefault(name, []).append(values[row, tokens].mean(axis=0))
    if not places:
        expected = "be in at least one of the texts, before the place where it is cut"
        raise user_error("`word`", expected, f"word={word!r}, {len(texts)} texts")
    order = sorted(range(len(places)), key=places.__getitem__)
    places = [places[number] for number in order]
    metadata = {
        "text": [texts[text] for text, _ in places],
        "word": [texts[text][start:end] for text, (start, end) in places],
    }
    if labels is not None:
        metadata["label"] = [labels[text] for text, _ in places]
    return {name: Projection(np.stack(rows)[order], metadata) for name, rows in layers.items()}


def _require_tokenizer(model):
    if getattr(model, "tokenizer", None) is None:
        raise UserError(
            "`model` must be a task model with a tokenizer. Received: a "
            f"{type(model).__name__} without one. Open its directory with "
            "`bert_tf.BertFeatureExtractor.from_pretrained`."
        )


def _preprocessor(model) -> Preprocessor:
    """Returns what reads texts and pairs, whatever the examples of the model's task are."""
    _require_tokenizer(model)
    return Preprocessor(model.tokenizer, model.max_sequence_length)


def _outputs(model, columns, **options) -> Iterator[tuple[np.ndarray, dict, dict]]:
    """Yields the numbers of the texts of each batch, the batch and the backbone's outputs."""
    rows = _preprocessor(model).encode(columns)
    for numbers in sorted_batches(rows):
        batch = rows.batch(numbers)
        yield numbers, batch, model.backbone(batch, **options)


def _labels(labels, num_texts):
    labels = None if labels is None else list(labels)
    if labels is not None and len(labels) != num_texts:
        expected = f"have one label for each of the {num_texts} texts"
        raise user_error("`labels`", expected, f"{len(labels)} labels")
    return labels


def _pattern(word):
    """Returns what finds the word, but not in a longer one."""
    is_word = isinstance(word, str) and bool(word.strip())
    require(is_word, "must be a string that is not blank", UserError, word=word)
    word = word.strip()
    edges = []  # none at an ideograph
    for char, edge in zip((word[0], word[-1]), _EDGES):
        is_ideograph = any(first <= ord(char) <= last for first, last in CJK_BLOCKS)
        edges.append("" if is_ideograph else edge)
    before, after = edges
    return re.compile(f"{before}{re.escape(word)}{after}", re.IGNORECASE)


def _tokens_of(model, text, spans):
    """Yields the spans that are not cut, with the numbers of their tokens in the row."""
    tokenizer = model.tokenizer
    pieces = tokenizer.tokenize_with_offsets([text], trim_offsets=True)
    starts, ends = pieces.char_starts[0].numpy(), pieces.char_ends[0].numpy()
    source, _ = piece_numbers(tokenizer, [len(starts)], model.max_sequence_length)
    for start, end in spans:
        wanted = np.flatnonzero((starts < end) & (ends > start))
        tokens = np.flatnonzero(np.isin(source, wanted))
        if len(tokens) and len(tokens) == len(wanted):
            yield (start, end), tokens


def _text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
