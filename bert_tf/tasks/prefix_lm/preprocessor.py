"""What `BertPrefixLM` reads: a source and a target in one row.

Glossary: `n` pairs, `B` pairs of a batch, `T` tokens of a row.
"""

import keras
import tensorflow as tf

from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_rows import RaggedRows, TokenizedTexts
from bert_tf.inputs.traced import IDS, traced
from bert_tf.tasks.shared.preprocessors import SourceTargetPreprocessor
from bert_tf.text import packing


class SourcesWithTargets(RaggedRows):
    """Rows of `[CLS] source [SEP] target [SEP]` in memory.

    Batches without a length are padded to `row_length`; None is their longest row.
    """

    row_length: int | None = None

    def batch(self, examples, length=None):
        return super().batch(examples, length or self.row_length)


@keras.saving.register_keras_serializable(package="bert_tf")
class PrefixLMPreprocessor(SourceTargetPreprocessor):
    """Maps sources and targets, which are cut separately, to pairs, and to labels: target words."""

    @property
    def static_length(self):
        length = self.max_sequence_length + self.longest_target - 1
        return length if self.has_static_shapes else None

    def tokenize(self, *texts):
        """Returns pairs of a source and a target as tokens, or sources alone."""
        if len(texts) == 1:
            return super().tokenize(*texts)
        self.require_tokenizer()
        lengths = (self.max_sequence_length, self.longest_target)
        source_ids, target_ids = (
            self.tokenizer(texts, max_length=length, ragged=True)["token_ids"]
            for texts, length in zip(texts, lengths)
        )
        rows = join_source_and_target(source_ids, target_ids)
        return packing.pad(*rows, self.tokenizer.pad_token_id, length=None, multiple=1)

    def token_labels(self, tokens):
        in_target = tokens["padding_mask"] & (tokens["segment_ids"] > 0)
        following, has_label = (  # those of the token after each, [B, T]
            tf.pad(values[:, 1:], [[0, 0], [0, 1]]) for values in (tokens["token_ids"], in_target)
        )
        return tf.where(has_label, following, IGNORED)

    def example_rows(self, columns):
        parts = (
            TokenizedTexts.of(self.tokenizer, (column,), length)
            for column, length in zip(columns, (self.max_sequence_length, self.longest_target))
        )
        rows = _joined_eagerly()(*(part.ragged(part.token_ids) for part in parts))
        return SourcesWithTargets(*rows, self.tokenizer.pad_token_id)

    def encode(self, columns, window_stride=None):
        self.require_tokenizer()
        rows = self.example_rows(columns)
        rows.row_length = int(rows.lengths().max(initial=3))  # the logits of all are one array
        return rows

    def postprocess(self, values, rows, columns, pooling):
        return values[:, : rows.row_length]


def join_source_and_target(
    source_ids: tf.RaggedTensor, target_ids: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the token ids and the segment ids of pairs, ragged int32 `[n, (S + T - 1)]`.

    `[CLS] source [SEP]` `[n, (S)]` and `[CLS] target [SEP]` `[n, (T)]` become `[CLS] source [SEP]
    target [SEP]`, and 1 for the target and its `[SEP]`, else 0.

    Example:
        >>> source_ids, target_ids = (
        ...     tf.ragged.constant([[2, 7, 3]]),
        ...     tf.ragged.constant([[2, 8, 3]]),
        ... )
        >>> join_source_and_target(source_ids, target_ids)
        (<tf.RaggedTensor [[2, 7, 3, 8, 3]]>, <tf.RaggedTensor [[0, 0, 0, 1, 1]]>)
    """
    target_ids = target_ids[:, 1:]
    segment_ids = tf.concat([tf.zeros_like(source_ids), tf.ones_like(target_ids)], axis=1)
    return tf.concat([source_ids, target_ids], axis=1), segment_ids


_joined_eagerly = traced(join_source_and_target, [IDS, IDS])
