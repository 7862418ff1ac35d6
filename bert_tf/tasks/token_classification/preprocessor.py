"""What `BertTokenClassifier` reads and answers: sentences of words with tags, texts with spans.

Glossary: `S` windows, `W` words of all sentences, `T` tokens, `C` labels.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, user_error
from bert_tf.inputs.columns import (
    TextColumns,
    as_columns,
    flat_strings,
    holds_lists,
    object_array,
    plain_rows,
    refuse_missing,
)
from bert_tf.inputs.streams import materialize
from bert_tf.tasks.shared.preprocessors import ItemPreprocessor
from bert_tf.tasks.token_classification.word_windows import (
    WordSpans,
    WordWindows,
    split_texts_eagerly,
    word_lists,
    word_spans_eagerly,
    words_of_texts_eagerly,
)


class TaggedSpan(NamedTuple):
    """A span that the model found.

    Attributes:
        start: Its first character (code point) in the text, or its first word in a list of words.
        end: The one after its last.
        label: Its label.
        text: The text itself; words are joined by spaces.

    Example:
        >>> TaggedSpan(0, 3, "PER", "Ada").label
        'PER'
    """

    start: int
    end: int
    label: str
    text: str


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class TokenClassificationPreprocessor(ItemPreprocessor):
    """Maps sentences to windows, tags to ids in the order of `labels`, label ids to spans.

    For `space_before_all_words` see `BertTokenClassifier`.
    """

    item = "word"

    labels: Sequence[str] | None = None
    space_before_all_words: bool = False

    @property
    def splits_texts(self) -> bool:
        """Whether texts are split as BERT's basic tokenizer does, not where pieces begin words."""
        return self.tokenizer.spans_have_spaces and not self.space_before_all_words

    def read_columns(self, x):
        """Returns sentences as one array of lists of words.

        Raises:
            DataError: If a sentence is missing, or a word is not valid Unicode.
            UserError: If a sentence is not a list of words.
        """
        if isinstance(x, TextColumns):
            return x
        if not holds_lists(x):
            expected = "be lists of words, with a tag for each word"
            raise user_error("Sentences", expected, "text. `tag` finds spans in text.")
        return TextColumns([object_array(word_lists(x, self.text_errors))])

    def targets(self, y, x):
        """Returns the targets; for lists of words an array of lists of tags."""
        if y is None or not isinstance(x, TextColumns):
            return super().targets(y, x)
        rows = plain_rows(y, "y")
        refuse_missing(rows, "y")
        return object_array([list(map(_name, plain_rows(row, "y"))) for row in rows])

    def item_labels(self, lists, y):
        """Returns the label ids of all words, int32 `[W]`.

        Raises:
            UserError: If there is not one known tag for each word.
        """
        if y is None or len(lists) != len(y):
            received = f"{len(lists)} sentences, {'no' if y is None else len(y)} lists of tags"
            raise user_error("`y`", "have a list of tags for each sentence", received)
        ids = {label: index for index, label in enumerate(self.labels)}
        for number, (words, row) in enumerate(zip(lists, y)):
            if len(words) != len(row):
                raise UserError(
                    "`y` must have a tag for every word. Received for sentence "
                    f"{number}: {len(words)} words, {len(row)} tags"
                )
            unknown = next((tag for tag in row if tag not in ids), None)
            if unknown is not None:
                raise UserError(
                    f"Tags must be among the labels {self.labels}. Received in sentence {number}: "
                    f"{unknown!r}. Make the model with all labels that occur."
                )
        return np.array([ids[tag] for row in y for tag in row], np.int32)

    def windows(self, lists):
        spaces = {"space_before_all_words": self.space_before_all_words}
        words = flat_strings(lists)
        return WordWindows(self.tokenizer, *words, self.max_sequence_length, **spaces)

    def read_sentences(self, texts: Any) -> list[str] | list[list[str]]:
        """Returns texts as strings, or lists of words."""
        texts = materialize(texts, self.is_example)
        if holds_lists(texts):
            return list(self.read_columns(texts)[0])
        self.require_tokenizer()
        columns = as_columns(texts, self.text_errors)
        if len(columns) != 1:
            raise user_error("Texts", "be a list of strings", f"{len(columns)} texts in an example")
        return [text.decode("utf-8", errors="replace") for text in columns[0]]

    def words(self, sentences: list[str] | list[list[str]]) -> WordSpans:
        """Returns the words of sentences. Those of a list begin and end where they are in it."""
        if holds_lists(sentences):
            words, row_splits = flat_strings(sentences)
            splits = row_splits.numpy()
            places = np.arange(splits[-1]) - np.repeat(splits[:-1], np.diff(splits))
            return WordSpans(row_splits, places, places + 1, words)
        tensor = tf.constant(sentences, tf.string)
        if self.splits_texts:
            return split_texts_eagerly(self.text_errors)(tensor)
        pieces = self.tokenizer.tokenize_with_offsets(tensor, trim_offsets=True)
        return words_of_texts_eagerly(self.tokenizer)(pieces, tensor)

    def spans(self, words: WordSpans, tags: np.ndarray, sentences: list) -> list[list[TaggedSpan]]:
        """Returns the spans of all sentences; `tags` int `[W]` are the label ids of the words."""
        rows = np.repeat(np.arange(len(sentences)), np.diff(words.row_splits))
        spans = word_spans_eagerly(tuple(self.labels))(tags.astype(np.int32), rows)
        first, last, labels = (part.numpy() for part in spans)
        starts, ends = np.asarray(words.starts)[first], np.asarray(words.ends)[last]
        return tagged_spans(sentences, rows[first], starts, ends, labels)


def tagged_spans(sentences: list, *spans: np.ndarray) -> list[list[TaggedSpan]]:
    """Returns the spans of each sentence: its number, where each begins and ends, and its label."""
    found: list[list[TaggedSpan]] = [[] for _ in sentences]
    for row, start, end, label in zip(*(part.tolist() for part in spans)):
        text = sentences[row][start:end]
        text = text if isinstance(text, str) else " ".join(text)
        found[row].append(TaggedSpan(start, end, label.decode(), text))
    return found


def _name(tag):
    return tag.decode("utf-8", "replace") if isinstance(tag, bytes) else tag
