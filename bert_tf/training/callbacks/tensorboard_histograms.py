"""Attention and embeddings of a few fixed texts during training, for TensorBoard.

Glossary: `B` texts, `K` texts of an example, `T` tokens, `R` real tokens, `N` heads, `L` layers,
`H` hidden size, `V` vocabulary.
"""

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.callbacks.event_file import EventFile, histogram
from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.distribution.strategies import is_chief

_TOKENS = ("token_ids", "segment_ids", "padding_mask")  # [B, K, T] for examples of several texts


@dataclasses.dataclass(eq=False)
class TensorBoardHistograms(StepCallback):
    """Writes, before training and after every epoch, what a model does with the same few texts.

    `tensorboard --logdir=<directory>` shows them. Layers and heads are counted from 0, pruned heads
    included. Padding is not counted.

    - `attention_entropy/layer_<l>/head_<n>`: a scalar, the mean over the tokens of the entropy of
      their attention, in nats: 0 if a head looks at one token, ln T if it looks at all T alike.
    - `attention/layer_<l>`: a histogram of the attention weights.
    - `hidden_states/embeddings` and `hidden_states/layer_<l>`: histograms of the values after the
      embeddings and after each layer.
    - `word_embeddings/norms`: a histogram of the lengths of the vectors of all pieces.

    Args:
        directory: The directory of the event files. Each start of a run adds a file.
        x: The texts as the model takes them, or a token dictionary. All are computed at once, with
            all their attention, so some ten are enough.
        every: The number of steps after which the values are written; None for the end of every
            epoch.
        initial_step: The step from which the run is resumed.

    Raises:
        UserError: If `every` is not positive, the files cannot be written, or the encoder has no
            attention.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> watch = bert_tf.training.callbacks.TensorBoardHistograms("tensorboard", texts[:8])
        >>> history = model.fit(texts, labels, verbose=0, callbacks=[watch])

    Reference: Clark et al. 2019 (arXiv 1906.04341), section 3.3, for the entropy.
    """

    directory: str | os.PathLike
    x: Any
    every: int | None = None
    initial_step: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.every is not None and self.every < 1:
            raise UserError(f"`every` must be at least 1, or None. Received: every={self.every}")
        self._file = EventFile(self.directory)
        self._written = None  # the last step that was written

    def on_train_begin(self, logs=None):
        self._write()

    def on_step_end(self, logs):
        if self.every is not None and self.step % self.every == 0:
            self._write()

    def on_epoch_end(self, epoch, logs=None):
        if self.every is None:
            self._write()

    @property
    def _watched(self):
        return getattr(self.model, "student", self.model)  # of a `DistillationModel`

    def _write(self):
        if self.step == self._written or not is_chief(self.model.distribute_strategy):
            return
        self._written = self.step
        tokens = self.x if isinstance(self.x, dict) else self._watched.tokens_of(self.x)
        rows = {name: tokens[name] for name in _TOKENS if name in tokens}
        rows = {name: tf.reshape(v, [-1, v.shape[-1]]) for name, v in rows.items()}  # [B K, T]
        scalars, histograms = summaries(self._watched.backbone, {**tokens, **rows})
        self._file.write(self.step, scalars, histograms)


def summaries(backbone: Any, tokens: dict[str, Any]) -> tuple[dict, dict]:
    """Returns the scalars and the histograms of `TensorBoardHistograms`, each by name.

    Args:
        backbone: The `BertBackbone`.
        tokens: What it takes, `[B, T]`.
    """
    outputs = backbone(tokens, output_hidden_states=True, output_attentions=True)
    is_real = backbone.padding_mask_of(tokens).numpy()  # [B, T]
    scalars, histograms = {}, {}
    for layer, weights in enumerate(outputs["attentions"]):
        weights = _float32(weights)  # [B, n, T, T]
        entropies = -np.sum(weights * np.log(np.maximum(weights, 1e-30)), axis=-1)  # [B, n, T]
        means = np.moveaxis(entropies, 1, 0)[:, is_real].mean(axis=1)  # [n, R] -> [n]
        for head, mean in zip(backbone.config.kept_heads(layer), means, strict=True):
            scalars[f"attention_entropy/layer_{layer:02}/head_{head:02}"] = float(mean)
        both = is_real[:, :, np.newaxis] & is_real[:, np.newaxis]  # [B, T, T]
        values = np.moveaxis(weights, 1, 0)[:, both]
        histograms[f"attention/layer_{layer:02}"] = histogram(values, (0.0, 1.0))
    names = ["embeddings", *(f"layer_{n:02}" for n in range(len(outputs["attentions"])))]
    for name, states in zip(names, outputs["hidden_states"], strict=True):
        states = _float32(states)[is_real]  # [B, T, H] -> [R, H]
        histograms[f"hidden_states/{name}"] = histogram(states)
    norms = np.linalg.norm(_float32(backbone.embeddings.word_table()), axis=1)  # [V, E] -> [V]
    histograms["word_embeddings/norms"] = histogram(norms)
    return scalars, histograms


def _float32(tensor) -> np.ndarray:
    return tf.cast(tensor, tf.float32).numpy()
