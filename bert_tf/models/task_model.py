"""What all task models share: a backbone, a tokenizer, raw strings in, checkpoints in and out."""

import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.pretrained_model import PretrainedModel
from bert_tf.models.serialized_part import deserialized
from bert_tf.models.text_batches import (
    EXAMPLE_INDEX,
    in_given_order,
    pooled_windows,
    text_batches,
)
from bert_tf.models.text_inputs import as_columns, holds_text
from bert_tf.models.training_model import TrainingModel
from bert_tf.text.tokenizer import BertTokenizer

DEFAULT_BATCH_SIZE = 32  # Keras's own


class TaskModel(PretrainedModel, TrainingModel):
    """A backbone, a head and the tokenizer that fits them.

    `fit`, `evaluate` and `predict` take what Keras takes (token dictionaries) and raw text: a list,
    array or tensor of strings, a tuple of two of them for pairs, or a `tf.data.Dataset` of them.
    Text is tokenized by `tf.data`, ahead of the model. Called directly, a model takes a string
    tensor too, and tokenizes it in the graph.

    Args:
        backbone: The `BertBackbone`.
        tokenizer: The `BertTokenizer`; without one the model takes token dictionaries only.
        max_length: Longest sequence in tokens, `[CLS]` and `[SEP]` counted; longer text is cut.
            None means the length of the position table.
    """

    def __init__(
        self,
        backbone: BertBackbone,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        limit = backbone.config.max_position_embeddings
        if max_length is not None and not 3 <= max_length <= limit:
            raise UserError(
                f"`max_length` must be in [3, {limit}] (max_position_embeddings). "
                f"Received: max_length={max_length!r}"
            )
        if tokenizer is not None and tokenizer.vocab_size != backbone.config.vocab_size:
            raise UserError(
                f"The vocabulary must have as many entries as the word embeddings: "
                f"{backbone.config.vocab_size}. Received: {tokenizer.vocab_size} entries. "
                "Take the vocab.txt that the checkpoint was trained with."
            )
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.max_length = max_length

    def freeze_for_inference(self) -> None:
        """Packs the encoder's kernels: faster, and only forward. See `BertBackbone`."""
        self.backbone.freeze_for_inference()

    def tokenize(self, texts: Any, pairs: Any = None) -> dict[str, tf.Tensor]:
        """Strings `[B]` to the dictionary that the backbone takes, cut at `max_length`."""
        self._require_tokenizer()
        return self.tokenizer(texts, pairs, max_length=self._longest())

    def _longest(self) -> int:
        return self.max_length or self.backbone.config.max_position_embeddings

    def _require_tokenizer(self):
        if self.tokenizer is None:
            raise UserError(
                f"{type(self).__name__} was made without a tokenizer, so it takes token "
                "dictionaries only. Received: text. Pass `tokenizer=BertTokenizer(vocab_file)`."
            )

    def text_columns(self, x: Any) -> tuple[np.ndarray, ...]:
        """Raw text as arrays of a row an example: one, or two for pairs."""
        return as_columns(x)

    def tokens_of(self, inputs) -> dict[str, tf.Tensor]:
        """`inputs` as a token dictionary, tokenizing them if they are strings."""
        if isinstance(inputs, dict):
            return inputs
        if isinstance(inputs, (tuple, list)) and len(inputs) == 2:
            return self.tokenize(inputs[0], inputs[1])
        if isinstance(inputs, tuple):
            raise UserError(
                f"{type(self).__name__} takes single texts or pairs. Received: {len(inputs)} texts "
                "an example"
            )
        return self.tokenize(inputs)

    def predict_step(self, data):
        outputs = super().predict_step(data)
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if isinstance(inputs, dict) and EXAMPLE_INDEX in inputs:
            return outputs, inputs[EXAMPLE_INDEX]
        return outputs

    def fit(self, x=None, y=None, *, batch_size=None, shuffle=True, validation_split=0.0,
            validation_data=None, validation_batch_size=None, sample_weight=None, **kwargs):
        """`keras.Model.fit` that also takes raw text, for training and for validation."""
        arguments = self.fit_arguments(
            x,
            y,
            batch_size=batch_size,
            shuffle=shuffle,
            validation_split=validation_split,
            validation_data=validation_data,
            validation_batch_size=validation_batch_size,
            sample_weight=sample_weight,
        )
        return super().fit(**arguments, **kwargs)

    def fit_arguments(self, x, y=None, *, batch_size=None, shuffle=True, validation_split=0.0,
                      validation_data=None, validation_batch_size=None, sample_weight=None):
        """What `fit` takes, as arguments of `keras.Model.fit`: text becomes token dictionaries."""
        if validation_split and holds_text(x) and not isinstance(x, tf.data.Dataset):
            (x, y, sample_weight), validation_data = _split_off(
                self.text_columns(x), y, sample_weight, validation_split
            )
            validation_split = 0.0
        if validation_data is not None:
            validation_data = self._validation_dataset(
                validation_data, validation_batch_size or batch_size
            )
        data = self._prepare(x, y, sample_weight, batch_size, shuffle)
        return {
            **data,
            "shuffle": shuffle and not isinstance(data["x"], tf.data.Dataset),
            "validation_split": validation_split,
            "validation_data": validation_data,
            "validation_batch_size": validation_batch_size,
        }

    def evaluate(self, x=None, y=None, *, batch_size=None, sample_weight=None, **kwargs):
        """`keras.Model.evaluate` that also takes raw text."""
        return super().evaluate(
            **self._prepare(x, y, sample_weight, batch_size, shuffle=False), **kwargs
        )

    def predict(
        self,
        x,
        *,
        batch_size=None,
        token_budget=None,
        window_stride=None,
        window_pooling="mean",
        **kwargs,
    ):
        """`keras.Model.predict` that also takes raw text.

        A list, array or tensor of texts without a `batch_size` is sorted by length and batched by
        tokens, so that neither padding nor small batches cost time; tokenization runs ahead of the
        model. The results come in the order of the texts.

        Args:
            x: What `fit` takes.
            batch_size: Rows of a batch, in the given order.
            token_budget: Tokens of a batch of texts, padding counted; default 4,096.
            window_stride: For texts longer than `max_length`: predict windows of that length, one
                every so many tokens, and pool what they give; None cuts the texts.
            window_pooling: "mean" or "max" over the windows of a text.
            **kwargs: Keras's: `verbose`, `callbacks`.

        Raises:
            UserError: If `token_budget` or `window_stride` is given together with `batch_size`, or
                for input that is not a list, array or tensor of texts.
        """
        by_tokens = holds_text(x) and not isinstance(x, tf.data.Dataset) and batch_size is None
        if token_budget is not None and not by_tokens:
            raise UserError(
                "`token_budget` is for a list of texts without `batch_size`. Received: "
                f"token_budget={token_budget}, batch_size={batch_size}, x={type(x).__name__}"
            )
        if window_stride is not None:
            self._check_windows(x, by_tokens, window_stride, window_pooling)
            return self._predict_sorted(
                self.text_columns(x), token_budget, window_stride, window_pooling, **kwargs
            )
        if by_tokens and not self.jit_compile:  # XLA would compile every shape of a batch
            return self._predict_sorted(self.text_columns(x), token_budget, **kwargs)
        data = self._prepare(x, None, None, batch_size, shuffle=False)
        data.pop("y")
        data.pop("sample_weight")
        return super().predict(**data, **kwargs)

    def _check_windows(self, x, by_tokens, stride, pooling):
        if not by_tokens or isinstance(x, tuple):
            raise UserError(
                "`window_stride` is for a list of single texts without `batch_size`. Received: "
                f"x={type(x).__name__}"
            )
        size = self._longest() - 2
        if not isinstance(stride, int) or not 1 <= stride <= size:
            raise UserError(
                f"`window_stride` must be in [1, {size}], the tokens of a window. "
                f"Received: window_stride={stride!r}"
            )
        if pooling not in ("mean", "max"):
            raise UserError(
                f"`window_pooling` must be 'mean' or 'max'. Received: window_pooling={pooling!r}"
            )

    def _predict_sorted(
        self, columns, token_budget, window_stride=None, window_pooling=None, **kwargs
    ):
        self._require_tokenizer()
        if not len(columns[0]):
            raise UserError("At least one text was expected. Received: none.")
        batches = text_batches(
            self.tokenizer, columns, self._longest(), token_budget, window_stride
        )
        with warnings.catch_warnings():
            # How many batches there are shows only as they come; Keras takes that for a mistake.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            outputs, indices = super().predict(batches, **kwargs)
        if window_stride is not None:
            return pooled_windows(outputs, indices, window_pooling)
        return in_given_order(outputs, indices)

    def _validation_dataset(self, data, batch_size):
        if isinstance(data, tf.data.Dataset):
            return self._tokenized(data) if holds_text(data) else data
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if not holds_text(x):
            return data
        return self._prepare(x, y, sample_weight, batch_size, shuffle=False)["x"]

    def _prepare(self, x, y, sample_weight, batch_size, shuffle):
        """The arguments for Keras: text becomes a dataset of token dictionaries."""
        if not holds_text(x):
            return {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        if isinstance(x, tf.data.Dataset):
            dataset = x
        else:
            dataset = self._text_dataset(x, y, sample_weight, batch_size, shuffle)
        return {
            "x": self._tokenized(dataset),
            "y": None,
            "sample_weight": None,
            "batch_size": None,
        }

    def _text_dataset(self, x, y, sample_weight, batch_size, shuffle) -> tf.data.Dataset:
        columns = self.text_columns(x)
        if not len(columns[0]):
            raise UserError("At least one text was expected. Received: none.")
        features = columns if len(columns) > 1 else columns[0]
        parts = [features]
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            if values is None:
                continue
            values = np.asarray(values)
            if len(values) != len(columns[0]):
                raise UserError(
                    f"`{name}` must have a row for every text: {len(columns[0])}. "
                    f"Received: {len(values)} rows."
                )
            parts.append(values)
        if y is None and sample_weight is not None:
            raise UserError("`sample_weight` needs `y`. Received: y=None")
        dataset = tf.data.Dataset.from_tensor_slices(tuple(parts))
        if shuffle:
            dataset = dataset.shuffle(len(columns[0]), reshuffle_each_iteration=True)
        return dataset.batch(batch_size or DEFAULT_BATCH_SIZE)

    def _tokenized(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        self._require_tokenizer()

        def tokenize(features, *rest):
            return (self.tokens_of(features), *rest)

        return dataset.map(
            tokenize, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        ).prefetch(tf.data.AUTOTUNE)

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": keras.saving.serialize_keras_object(self.tokenizer),
            "max_length": self.max_length,
            **({"lora": self.lora} if self.lora else {}),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        lora = config.pop("lora", None)
        config["backbone"] = deserialized(config.get("backbone"), BertBackbone, "backbone")
        if config.get("tokenizer") is not None:
            config["tokenizer"] = deserialized(config["tokenizer"], BertTokenizer, "tokenizer")
        model = cls(**config)
        if lora is not None:
            model.enable_lora(**lora)
        return model


def _split_off(columns, y, sample_weight, share):
    """Keras's `validation_split`: the last rows, before any shuffling."""
    count = len(columns[0])
    kept = int(count * (1 - share))
    if not 0 < kept < count:
        raise UserError(
            "`validation_split` must leave rows on both sides. "
            f"Received: validation_split={share}, {count} rows"
        )

    def rows(values, part):
        return None if values is None else np.asarray(values)[part]

    head, tail = slice(None, kept), slice(kept, None)
    x = [tuple(column[part] for column in columns) for part in (head, tail)]
    x = [part if len(part) > 1 else part[0] for part in x]
    train = (x[0], rows(y, head), rows(sample_weight, head))
    validation = (x[1], rows(y, tail))
    if sample_weight is not None:
        validation += (rows(sample_weight, tail),)
    return train, validation
