"""What `BertTokenClassifier` reads and answers: sentences of words with tags, texts with spans.

Glossary: `S` windows, `W` words of all sentences, `T` tokens, `C` labels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import is_text, object_array, plain_rows, refuse_missing
from bert_tf.errors import UserError
from bert_tf.models.label_inputs import row_weights
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.text_inputs import TextColumns, as_columns
from bert_tf.models.text_streams import collected
from bert_tf.tasks.token_classification.word_windows import (
    WordWindows,
    flat_words,
    holds_word_lists,
    is_sentence,
    word_lists,
)
from bert_tf.tasks.token_classification.words import Words, word_spans, words_of_texts
from bert_tf.text.text_slices import TextSlices


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


class TokenClassificationPreprocessor(Preprocessor):
    """Sentences to windows, tags to label ids, label ids to spans.

    Args:
        labels: The names of the labels, in the order of their ids.
        **options: The arguments of `Preprocessor`.
    """

    takes_batches_of_text = False

    def __init__(self, *, labels: Sequence[str], **options):
        super().__init__(**options)
        self.labels = labels

    @staticmethod
    def is_example(item):
        """Returns whether an item of a generator is a sentence: text, or a list of words."""
        return is_text(item) or is_sentence(item)

    def read_columns(self, x):
        """Returns sentences as one array of lists of words.

        Raises:
            DataError: If a sentence is missing, or a word is not valid Unicode.
            UserError: If a sentence is not a list of words.
        """
        if isinstance(x, TextColumns):
            return x
        if not holds_word_lists(x):
            raise UserError(
                "Sentences must be lists of words, with a tag for each word. Received: text. `tag` "
                "finds spans in text."
            )
        return TextColumns([object_array(word_lists(x, self.text_errors))])

    def targets(self, y, x):
        """As `Preprocessor.targets`: for lists of words an array of lists of tags."""
        if y is None or not isinstance(x, TextColumns):
            return super().targets(y, x)
        rows = plain_rows(y, "y")
        refuse_missing(rows, "y")
        return object_array([list(map(_name, plain_rows(row, "y"))) for row in rows])

    def training_rows(self, columns, y, sample_weight):
        """Returns the windows to train on, and arrays of their labels and weights, if any.

        Raises:
            UserError: If there is no word, not one known tag for each word, or not one weight for
                each sentence.
        """
        (sentences,) = columns
        if y is None or len(sentences) != len(y):
            raise UserError(
                "`y` must have a list of tags for each sentence. Received: "
                f"{len(sentences)} sentences, {'no' if y is None else len(y)} lists of tags"
            )
        windows = self.rows(columns)
        if not len(windows):
            raise UserError("`x` must have at least one word. Received: none.")
        ids = {label: index for index, label in enumerate(self.labels)}
        for number, (words, row) in enumerate(zip(sentences, y)):
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
        labels = (windows.labels(np.array([ids[tag] for row in y for tag in row], np.int32)),)
        if sample_weight is not None:
            labels += (row_weights(sample_weight, len(sentences))[windows.examples],)
        return windows, labels

    def rows(self, columns, window_stride=None):
        """Returns the windows of the sentences.

        Raises:
            UserError: If there is no tokenizer, or `window_stride` is given.
        """
        if window_stride is not None:
            raise UserError(
                "`window_stride` must be None: long sentences are cut at words. "
                f"Received: window_stride={window_stride!r}"
            )
        self.require_tokenizer()
        return WordWindows(self.tokenizer, *flat_words(columns[0]), self.max_length)

    def outputs(self, values, rows, columns, pooling):
        """Returns `logits` `[W, C]` of the words, and the `row_splits` of the sentences."""
        return {"logits": rows.marked_values(values), "row_splits": rows.word_splits}

    def read_words(self, texts: Any) -> tuple[Words, list]:
        """Returns the words of texts or of lists of words, and the texts or lists themselves.

        The words of a list begin and end where they are in the list.
        """
        texts = collected(texts, self.is_example)
        if holds_word_lists(texts):
            sentences = list(self.read_columns(texts)[0])
            words, row_splits = flat_words(sentences)
            places = tf.ragged.range(row_splits[1:] - row_splits[:-1]).values
            return Words(row_splits, places, places + 1, words), sentences
        self.require_tokenizer()
        columns = as_columns(texts, self.text_errors)
        if len(columns) != 1:
            raise UserError(
                f"Texts must be a list of strings. Received: {len(columns)} texts in an example."
            )
        texts = [text.decode("utf-8", errors="replace") for text in columns[0]]
        tensor = tf.constant(texts, tf.string)
        return words_of_texts(self.tokenizer, tensor, TextSlices(tensor)), texts

    def spans(self, words: Words, tags: np.ndarray, texts: list) -> list[list[TaggedSpan]]:
        """Returns the spans of every text; `tags` int `[W]` are the label ids of the words."""
        rows = words.row_ids.numpy()
        starts, ends = words.starts.numpy(), words.ends.numpy()
        found: list[list[TaggedSpan]] = [[] for _ in texts]
        spans = word_spans(self.labels, tf.constant(tags, tf.int32), words.row_ids)
        for first, last, label in zip(*(part.numpy().tolist() for part in spans)):
            row, start, end = rows[first], int(starts[first]), int(ends[last])
            text = texts[row][start:end]
            text = text if isinstance(text, str) else " ".join(text)
            found[row].append(TaggedSpan(start, end, label.decode(), text))
        return found


def _name(tag):
    return tag.decode("utf-8", "replace") if isinstance(tag, bytes) else tag
