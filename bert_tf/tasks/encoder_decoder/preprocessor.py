"""What `BertEncoderDecoder` reads: pairs of a source and a target.

Glossary: `n` pairs, `B` pairs of a batch, `T` tokens of the decoder's input.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_rows import TokenizedTexts, TokenRows
from bert_tf.tasks.shared.preprocessors import SourceTargetPreprocessor

DECODER_TOKEN_IDS = "decoder_token_ids"
DECODER_PADDING_MASK = "decoder_padding_mask"


class SourcesAndTargets(TokenRows):
    """Tokenized pairs: what the encoder reads, and what the decoder reads.

    The decoder's first token is `start_token_id`. Targets are padded to `target_length` tokens;
    None is the longest of a batch.
    """

    def __init__(self, sources, targets, start_token_id: int, target_length: int | None = None):
        self._sources = sources
        self._targets = targets
        self._start_token_id = start_token_id
        self.target_length = target_length

    def lengths(self):
        return self._sources.lengths() + self._targets.lengths()

    def sizes(self, padded):
        return np.stack([self._sources.lengths(), self._targets.lengths()], axis=1)

    def longest_target(self) -> int:
        """Returns the number of tokens of the longest target, `[CLS]` and `[SEP]` included."""
        return int(self._targets.lengths().max(initial=2))

    def batch(self, rows: np.ndarray, length: int | None = None) -> dict[str, np.ndarray]:
        """Returns the features of the pairs `[B]`; `length` is that of the sources."""
        targets = self._targets.batch(rows, self.target_length)
        ids, mask = targets["token_ids"][:, :-1], targets["padding_mask"][:, 1:]
        ids[:, :1] = self._start_token_id  # see `shifted`
        decoder = {DECODER_TOKEN_IDS: np.where(mask, ids, 0), DECODER_PADDING_MASK: mask}
        return {**self._sources.batch(rows, length), **decoder}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class EncoderDecoderPreprocessor(SourceTargetPreprocessor):
    """Maps sources to what the encoder reads, targets to what the decoder reads and to labels.

    `special_ids` are the `decoder_start_token_id` and the `eos_token_id` of the model.
    """

    special_ids: tuple = dataclasses.field(default=(None, None), init=False, repr=False)

    @property
    def start_token_id(self) -> int:
        """The first token of the decoder."""
        start, _ = self.special_ids
        return self.tokenizer.cls_token_id if start is None else start

    @property
    def end_token_id(self) -> int:
        """The last label of a target."""
        _, end = self.special_ids
        return self.tokenizer.sep_token_id if end is None else end

    def tokenize(self, *texts):
        """Returns sources as tokens; with targets, what the decoder reads too."""
        tokens = super().tokenize(texts[0])
        if len(texts) == 1:
            return tokens
        targets = self.tokenizer(texts[1], max_length=self.longest_target)
        return {**tokens, **shifted(targets, self.start_token_id)}

    def token_labels(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the word after each token of the decoder's input, int32 `[B, T]`."""
        token_ids, mask = tokens[DECODER_TOKEN_IDS], tokens[DECODER_PADDING_MASK]
        is_followed = tf.pad(mask[:, 1:], [[0, 0], [0, 1]])
        following = tf.pad(token_ids[:, 1:], [[0, 0], [0, 1]])
        following = tf.where(is_followed, following, self.end_token_id)
        return tf.where(mask, following, IGNORED)

    def example_rows(self, columns):
        sources, targets = ((column,) for column in columns)
        return SourcesAndTargets(
            TokenizedTexts.of(self.tokenizer, sources, self.max_sequence_length),
            TokenizedTexts.of(self.tokenizer, targets, self.longest_target),
            self.start_token_id,
            self.longest_target if self.static_length else None,
        )

    def encode(self, columns, window_stride=None):
        self.require_tokenizer()
        rows = self.example_rows(columns)
        # The logits of all targets are one array.
        rows.target_length = rows.target_length or rows.longest_target()
        return rows

    def postprocess(self, values, rows, columns, pooling):
        return values[:, : rows.longest_target() - 1]


def shifted(targets: dict[str, tf.Tensor], start_token_id: int) -> dict[str, tf.Tensor]:
    """Returns what the decoder reads of targets: the start token, and all but the last token.

    `targets` are the token dictionary of `[CLS] target [SEP]`, `[B, T + 1]`, padded on the right.
    The results are `decoder_token_ids` int32 and `decoder_padding_mask` bool, `[B, T]`.

    Example:
        >>> targets = {"token_ids": tf.constant([[2, 7, 8, 3], [2, 9, 3, 0]])}
        >>> targets["padding_mask"] = targets["token_ids"] > 0
        >>> shifted(targets, start_token_id=2)["decoder_token_ids"].numpy()
        array([[2, 7, 8],
               [2, 9, 0]], dtype=int32)
    """
    token_ids, mask = targets["token_ids"], targets["padding_mask"][:, 1:]
    start = tf.fill([tf.shape(token_ids)[0], 1], start_token_id)
    shifted_ids = tf.concat([start, token_ids[:, 1:-1]], axis=1)  # [B, T]
    return {DECODER_TOKEN_IDS: tf.where(mask, shifted_ids, 0), DECODER_PADDING_MASK: mask}
