"""What `BertReplacedTokenDetector` reads and answers: texts with a label or score for each piece.

Glossary: `n` texts, `T` tokens of a row.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import object_array, plain_rows, refuse_missing, shown
from bert_tf.errors import UserError
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.text_inputs import TextColumns
from bert_tf.training.evaluation.probabilities import sigmoid


class ScoredPiece(NamedTuple):
    """A piece of a text.

    Attributes:
        start: Its first character (code point) in the text.
        end: The one after its last.
        piece: The piece of the vocabulary.
        probability: That it has replaced another one.

    Example:
        >>> ScoredPiece(4, 8, "film", 0.25).piece
        'film'
    """

    start: int
    end: int
    piece: str
    probability: float


class ReplacedTokenPreprocessor(Preprocessor):
    """Single texts to tokens, a 0 or 1 for each piece to labels, logits to scores of pieces."""

    texts_per_example = (1,)
    example_form = "A text is a string."
    takes_batches_of_text = False

    def targets(self, y, x):
        """As `Preprocessor.targets`: for texts an array of lists of 0 and 1."""
        if y is None or not isinstance(x, TextColumns):
            return super().targets(y, x)
        rows = plain_rows(y, "y")
        refuse_missing(rows, "y")
        return object_array([plain_rows(row, "y") for row in rows])

    def training_rows(self, columns, y, sample_weight):
        """As `Preprocessor.training_rows`; labels ragged int32 `[n, (T)]`, 0 at special tokens.

        Raises:
            UserError: Also if a text has not a 0 or 1 for each of its pieces.
        """
        if y is None:
            raise UserError("`y` must have a list of 0 and 1 for each text. Received: y=None")
        rows, (y, *weights) = super().training_rows(columns, y, sample_weight)
        pieces = self.tokenizer.tokenize(columns[0]).row_lengths().numpy()
        labels = []
        for number, (row, count) in enumerate(zip(y, pieces)):
            if len(row) != count or any(label not in (0, 1) for label in row):
                raise UserError(
                    "`y` must have a 0 or 1 for every piece of `tokenizer.pieces(text)`. Received "
                    f"for text {number}: {count} pieces, y={shown(row)}"
                )
            labels.append([0, *map(int, row[: self.max_length - 2]), 0])  # which may be cut
        return rows, (tf.ragged.constant(labels, tf.int32, ragged_rank=1), *weights)

    def decode(self, values, rows, columns):
        """Returns a list of `ScoredPiece`s for each text; what was cut off has none."""
        pieces = self.tokenizer.tokenize_with_offsets(tf.constant(columns[0], tf.string), True)
        fields = (pieces.char_starts, pieces.char_ends, pieces.ids)
        vocabulary, scores = self.tokenizer.vocabulary, sigmoid(np.asarray(values, np.float64))
        lengths = rows.lengths()
        return [
            [
                ScoredPiece(start, end, vocabulary[index], score)
                for start, end, index, score in zip(*places, row[1 : length - 1].tolist())
            ]
            for *places, row, length in zip(*(f.to_list() for f in fields), scores, lengths)
        ]
