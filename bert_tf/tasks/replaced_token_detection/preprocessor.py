"""What `BertReplacedTokenDetector` reads and answers: texts, and a score for each piece.

Glossary: `B` texts, `T` tokens of a row.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.traced import PIECES, traced
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.serving_module import ServingModule
from bert_tf.text import packing
from bert_tf.text.code_points import Pieces


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

    def decode(self, values, rows, columns):
        """Returns a list of `ScoredPiece`s for each text; what was cut off has none."""
        pieces = self.tokenizer.tokenize_with_offsets(columns[0], trim_offsets=True)
        fields = scored_pieces_eagerly(self.tokenizer, self.max_sequence_length)(pieces, values)
        return [
            [ScoredPiece(start, end, piece.decode(), score) for start, end, piece, score in row]
            for row in (zip(*text) for text in zip(*(field.to_list() for field in fields)))
        ]


def scored_pieces(
    tokenizer, max_length: int, pieces: Pieces, logits: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the fields of the `ScoredPiece`s of texts, in the graph or eagerly.

    They are ragged `[B, (pieces)]`: int64, int64, string and float32, for all pieces of the texts
    but those that are cut off at `max_length`. Logits are float32 `[B, T]`.
    """
    lengths = tf.minimum(pieces.ids.row_lengths(), max_length - 2)
    starts, ends, ids = (
        packing.shortened(values, lengths, tokenizer.truncation_side)
        for values in (pieces.char_starts, pieces.char_ends, pieces.ids)
    )
    scores = tf.RaggedTensor.from_tensor(tf.sigmoid(logits[:, 1:]), lengths)
    return starts, ends, tf.gather(tf.constant(tokenizer.vocabulary), ids), scores


scored_pieces_eagerly = traced(scored_pieces, [PIECES, tf.TensorSpec([None, None])])


class ReplacedTokenDetectionModule(ServingModule):
    """Maps a text to what `detect` returns."""

    def of_text(self, text):
        tokenizer = self.model.tokenizer
        logits = self.model(self.model.tokenize(text), training=False)  # [B, T]
        found = tokenizer.tokenize_with_offsets(text, trim_offsets=True)
        fields = scored_pieces(tokenizer, self.model.max_sequence_length, found, logits)
        starts, ends, pieces, scores = fields
        return {
            "piece_count": tf.cast(pieces.row_lengths(), tf.int32),
            "piece": pieces.to_tensor(),
            "piece_start": tf.cast(starts, tf.int32).to_tensor(),
            "piece_end": tf.cast(ends, tf.int32).to_tensor(),
            "probability": scores.to_tensor(),
        }
