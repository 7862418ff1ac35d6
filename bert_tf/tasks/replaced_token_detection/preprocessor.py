"""What `BertReplacedTokenDetector` reads and answers: texts, and a score for each piece.

Glossary: `B` texts, `T` tokens of a row.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.columns import TextColumns
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.text import packing


class ScoredPiece(NamedTuple):
    """A piece of a text.

    Attributes:
        start: Its first character (code point) in the text.
        end: The one after its last.
        piece: The piece of the vocabulary.
        probability: How probable it is that it has replaced another one.

    Example:
        >>> ScoredPiece(4, 8, "film", 0.25).piece
        'film'
    """

    start: int
    end: int
    piece: str
    probability: float


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokenPreprocessor(Preprocessor):
    """Maps single texts to tokens, logits to scores of pieces."""

    def targets(self, y, x):
        """Returns the labels of token dictionaries.

        Raises:
            UserError: For texts, of which no token has replaced another one.
        """
        if isinstance(x, TextColumns):
            raise UserError(
                "`x` must be token dictionaries to train or to evaluate on, with labels [B, T]: 1 "
                "where a token has replaced another one, else 0. Received: texts. Replace token "
                "ids in what `tokenize(texts)` returns."
            )
        return super().targets(y, x)

    def scored_pieces(
        self, texts: tf.Tensor, logits: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the fields of the `ScoredPiece`s of texts, in the graph or eagerly.

        Args:
            texts: Strings `[B]`.
            logits: What the model computes for their tokens, float32 `[B, T]`.

        Returns:
            Ragged `[B, (pieces)]`: int64, int64, string and float32. What was cut off is not there.
        """
        pieces = self.tokenizer.tokenize_with_offsets(texts, trim_offsets=True)
        lengths = tf.minimum(pieces.ids.row_lengths(), self.max_sequence_length - 2)
        starts, ends, ids = (
            packing.shortened(values, lengths, self.tokenizer.truncation_side)
            for values in (pieces.char_starts, pieces.char_ends, pieces.ids)
        )
        scores = tf.RaggedTensor.from_tensor(tf.sigmoid(logits[:, 1:]), lengths)
        return starts, ends, tf.gather(tf.constant(self.tokenizer.vocabulary), ids), scores

    def decode(self, values, rows, columns):
        """Returns a list of `ScoredPiece`s for each text; what was cut off has none."""
        fields = self.scored_pieces(tf.constant(columns[0], tf.string), tf.constant(values))
        return [
            [ScoredPiece(start, end, piece.decode(), score) for start, end, piece, score in row]
            for row in (zip(*text) for text in zip(*(field.to_list() for field in fields)))
        ]
