"""What TensorBoard reads, written without TensorBoard: scalars, and histograms during training.

`tf.summary.scalar` and `tf.summary.histogram` cannot be used, because they need TensorBoard. Here
their tensors and metadata are written by `tf.summary.write`.

Glossary: `B` texts, `K` texts of an example, `T` tokens, `R` real tokens, `N` heads, `L` layers,
`H` hidden size, `V` vocabulary.
"""

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.callbacks.training_log import StepCallback
from bert_tf.training.distribution.strategies import is_chief

NUM_BUCKETS = 30  # tensorboard/plugins/histogram/summary_v2.py, DEFAULT_BUCKET_COUNT
# DATA_CLASS_SCALAR and DATA_CLASS_TENSOR of tensorflow/core/framework/summary.proto
_SCALAR, _TENSOR = 1, 2


def _metadata(plugin_name, data_class):
    plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin_name)
    return tf.compat.v1.SummaryMetadata(plugin_data=plugin, data_class=data_class)


_SCALARS = _metadata("scalars", _SCALAR)
_HISTOGRAMS = _metadata("histograms", _TENSOR)


class TensorBoardScalars:
    """Writes each value as a scalar per step: `tensorboard --logdir=<directory>` shows them.

    Args:
        directory: The directory of the event files. Each start of a run adds a file.

    Example:
        >>> scalars = bert_tf.training.callbacks.TensorBoardScalars("tensorboard")
        >>> scalars.write(100, {"loss": 0.5})
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = os.fspath(directory)
        self._writer = None

    def write(
        self, step: int, values: dict[str, float], histograms: dict[str, np.ndarray] | None = None
    ) -> None:
        """Writes the values, and rows of left edge, right edge and count, `[K, 3]`, by name.

        Raises `UserError` if the files cannot be written.
        """
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self.directory)
            with self._writer.as_default(step):
                for name, value in values.items():
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALARS)
                for name, rows in (histograms or {}).items():
                    tf.summary.write(name, tf.constant(rows, tf.float64), metadata=_HISTOGRAMS)
            self._writer.flush()
        except tf.errors.OpError as error:
            # "{{node}} path; what the system said", and then lines of what follows from it.
            reason = error.message.splitlines()[0].rpartition("; ")[2]
            raise UserError(
                f"{self.directory} must be a writable directory. Received at step {step}: "
                f"{reason}. Make room and start again: the run is resumed from its newest "
                "checkpoint."
            ) from None


def histogram(values: np.ndarray, limits: tuple[float, float] | None = None) -> np.ndarray:
    """Returns the buckets of values, as `tf.summary.histogram` makes them.

    Args:
        values: Numbers, of any shape. Those that are not finite are not counted.
        limits: The first and the last edge; None for the least and the greatest value.

    Returns:
        float64 `[K, 3]`: the left edge, the right edge and the count of each bucket.

    Example:
        >>> from bert_tf.training.callbacks.tensorboard import histogram
        >>> histogram(np.array([0.0, 0.1, 1.0]))[0]
        array([0.        , 0.03333333, 1.        ])
    """
    values = np.asarray(values, np.float64).ravel()
    values = values[np.isfinite(values)]
    if limits is None and len(values):
        limits = values.min(), values.max()
    if limits is None or limits[0] == limits[1]:
        # All are equal, or there is none: one bucket has all of them.
        edge = limits[0] if limits else 0.0
        return np.array([[edge, edge, 0]] * (NUM_BUCKETS - 1) + [[edge, edge, len(values)]])
    counts, edges = np.histogram(values, NUM_BUCKETS, limits)
    return np.stack([edges[:-1], edges[1:], counts], axis=1)


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
        self._file = TensorBoardScalars(self.directory)
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

    `tokens` are what the `BertBackbone` takes, `[B, T]`.
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
