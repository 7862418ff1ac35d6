"""What all task models share: a backbone, a tokenizer, raw strings in, checkpoints in and out."""

import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import is_container
from bert_tf.deprecation import renamed_method
from bert_tf.errors import UserError
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.label_inputs import row_weights
from bert_tf.models.pretrained_model import PretrainedModel
from bert_tf.models.raw_inputs import RawInputs
from bert_tf.models.serialized_part import deserialized
from bert_tf.models.text_batches import EXAMPLE_INDEX, in_given_order, pooled_windows, text_batches
from bert_tf.models.text_inputs import TextColumns
from bert_tf.models.text_streams import as_data_errors, yields_text
from bert_tf.models.tokenized_texts import TokenizedTexts
from bert_tf.models.training_model import TrainingModel
from bert_tf.text.tokenizer import BertTokenizer

DEFAULT_BATCH_SIZE = 32  # Keras's own


class TaskModel(RawInputs, PretrainedModel, TrainingModel):
    """A backbone, a head and the tokenizer that fits them.

    `fit`, `evaluate` and `predict` take what Keras takes (token dictionaries) and raw text, which
    is tokenized first; a dataset is tokenized as it comes. The rule is the same in every task:

    - A string is one text, a tuple of strings is one example of several texts (a pair).
    - A container of strings is a text for each row, a tuple of containers is their columns: for
      pairs `(firsts, seconds)`. A container of tuples of strings is a pair for each row, as is an
      array or data frame `[n, 2]`.
    - A container is a list, array, tensor, deque or generator; a column of pandas, Polars, pyarrow
      or a Hugging Face data set. Its rows are taken by place, never by an index label. Labels and
      sample weights may be any of these too.
    - A `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of batches yields strings `[B]`,
      or tuples `(x, y)` and `(x, y, sample_weight)` of them.

    A missing value is an error that names its rows. Called directly, a model takes a string tensor
    too, and tokenizes it in the graph.

    Args:
        backbone: The `BertBackbone`.
        tokenizer: The `BertTokenizer`; without one the model takes token dictionaries only.
        max_length: Longest sequence in tokens, `[CLS]` and `[SEP]` counted; longer text is cut.
            None means the length of the position table.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> isinstance(classifier, TaskModel)
        True
        >>> classifier(tf.constant(["a good film", "bad ."])).shape
        TensorShape([2, 2])
    """

    # Whether training needs labels although no loss is compiled: it is the model's own.
    needs_labels = False

    def __init__(
        self, backbone: BertBackbone, tokenizer=None, max_length: int | None = None, **kwargs
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

    freeze_for_inference = renamed_method("freeze_for_inference", "prepack_for_inference")

    def prepack_for_inference(self) -> None:
        """Packs the encoder's kernels: faster, and only forward. See `BertBackbone`."""
        self.backbone.prepack_for_inference()

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

    def tokens_of(self, inputs) -> dict[str, tf.Tensor]:
        """`inputs` as a token dictionary, tokenizing them if they are strings."""
        if isinstance(inputs, dict):
            return inputs
        columns = self.tensor_columns(inputs)
        if len(columns) > 2:
            raise UserError(
                f"{type(self).__name__} takes single texts or pairs. Received: {len(columns)} "
                "texts an example"
            )
        return self.tokenize(*columns)

    def predict_step(self, data):
        outputs = super().predict_step(data)
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if isinstance(inputs, dict) and EXAMPLE_INDEX in inputs:
            return outputs, inputs[EXAMPLE_INDEX]
        return outputs

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        validation_steps=None,
        validation_batch_size=None,
        validation_freq=1,
    ):
        """`keras.Model.fit` that also takes raw text, for training and for validation.

        `class_weight` may be by the names of the classes.
        """
        if class_weight is not None:
            self.class_weights(class_weight)  # what is wrong with it comes before the labels
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
        self._require_labels(arguments["x"], arguments["y"])
        with as_data_errors():
            return super().fit(
                **arguments,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                class_weight=class_weight,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps_per_epoch,
                validation_steps=validation_steps,
                validation_freq=validation_freq,
            )

    def fit_arguments(
        self,
        x,
        y=None,
        *,
        batch_size=None,
        shuffle=True,
        validation_split=0.0,
        validation_data=None,
        validation_batch_size=None,
        sample_weight=None,
    ):
        """What `fit` takes, as arguments of `keras.Model.fit`: text becomes token dictionaries."""
        x = self.raw(x)
        y = self.plain_targets(y, x)
        validation_batch = validation_batch_size or batch_size
        if validation_data is not None:
            validation_data = self._validation_dataset(validation_data, validation_batch)
        elif validation_split and isinstance(x, TextColumns):
            (x, y, sample_weight), held_out = _split_off(x, y, sample_weight, validation_split)
            validation_data = self._prepared_validation(*held_out, validation_batch)
            validation_split = 0.0
        data = self._prepare(x, y, sample_weight, batch_size, shuffle, training=True)
        return {
            **data,
            "shuffle": shuffle and not isinstance(data["x"], tf.data.Dataset),
            "validation_split": validation_split,
            "validation_data": validation_data,
            "validation_batch_size": validation_batch_size,
        }

    def evaluate(
        self,
        x=None,
        y=None,
        batch_size=None,
        verbose="auto",
        sample_weight=None,
        steps=None,
        callbacks=None,
        return_dict=False,
        **kwargs,
    ):
        """`keras.Model.evaluate` that also takes raw text."""
        options = {
            "verbose": verbose,
            "steps": steps,
            "callbacks": callbacks,
            "return_dict": return_dict,
            **kwargs,
        }
        if options.get("_use_cached_eval_dataset"):  # Keras's `fit`: its validation data are ready
            with as_data_errors():
                return super().evaluate(x, y, batch_size, sample_weight=sample_weight, **options)
        x = self.raw(x)
        data = self._prepare(
            x, self.plain_targets(y, x), sample_weight, batch_size, shuffle=False, training=False
        )
        self._require_labels(data["x"], data["y"])
        with as_data_errors():
            return super().evaluate(**data, **options)

    def _require_labels(self, x, y):
        """Raises `UserError` where the loss needs labels and there are none."""
        if getattr(self, "loss", None) is None and not self.needs_labels:
            return
        if isinstance(x, tf.data.Dataset):
            has_labels = isinstance(x.element_spec, tuple) and len(x.element_spec) > 1
        else:
            has_labels = y is not None or not isinstance(x, dict)
        if not has_labels:
            raise UserError(
                "Labels were expected, a row for every example. Received: y=None. Pass "
                "`fit(x, y)`, or a dataset of tuples (x, y)."
            )

    def predict(
        self,
        x,
        batch_size=None,
        verbose="auto",
        steps=None,
        callbacks=None,
        *,
        token_budget=None,
        window_stride=None,
        window_pooling="mean",
    ):
        """`keras.Model.predict` that also takes raw text.

        Texts without a `batch_size` are sorted by length and batched by tokens, so that neither
        padding nor small batches cost time. The results come in the order of the texts. For an
        empty list they are empty.

        Args:
            x: What `fit` takes.
            batch_size: Rows of a batch, in the given order.
            verbose: As in Keras.
            steps: As in Keras.
            callbacks: As in Keras.
            token_budget: Tokens of a batch of texts, padding counted; default 4,096.
            window_stride: For texts longer than `max_length`: predict windows of that length, one
                every so many tokens, and pool what they give; None cuts the texts.
            window_pooling: "mean" or "max" over the windows of a text.

        Raises:
            UserError: If `token_budget` or `window_stride` is given together with `batch_size`, or
                for input that is not a list, array or tensor of texts.
        """
        x = self.raw(x)
        options = {"verbose": verbose, "steps": steps, "callbacks": callbacks}
        by_tokens = isinstance(x, TextColumns) and batch_size is None
        if token_budget is not None and not by_tokens:
            raise UserError(
                "`token_budget` is for a list of texts without `batch_size`. Received: "
                f"token_budget={token_budget}, batch_size={batch_size}, x={type(x).__name__}"
            )
        if window_stride is not None:
            self._check_windows(x, by_tokens, window_stride, window_pooling)
        if isinstance(x, TextColumns) and not x.num_rows:
            return self._predict_nothing(x)
        if window_stride is not None:
            return self._predict_sorted(x, token_budget, window_stride, window_pooling, **options)
        if by_tokens and not self.jit_compile:  # XLA would compile every shape of a batch
            return self._predict_sorted(x, token_budget, **options)
        data = self._prepare(x, None, None, batch_size, shuffle=False, training=False)
        with as_data_errors():
            return super().predict(data["x"], data["batch_size"], **options)

    def _predict_nothing(self, columns):
        """The outputs `[0, ...]` for no texts: those of one empty text, without its row."""
        one = TextColumns(np.full([1, *column.shape[1:]], b"", object) for column in columns)
        outputs = self._predict_sorted(one, None, verbose=0)
        return tf.nest.map_structure(lambda values: values[:0], outputs)

    def _check_windows(self, x, by_tokens, stride, pooling):
        if not by_tokens or len(x) > 1:
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
        batches = text_batches(
            self.tokenizer, tuple(columns), self._longest(), token_budget, window_stride
        )
        with warnings.catch_warnings():
            # How many batches there are shows only as they come; Keras takes that for a mistake.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            outputs, indices = super().predict(batches, **kwargs)
        if window_stride is not None:
            return pooled_windows(outputs, indices, window_pooling)
        return in_given_order(outputs, indices)

    def _validation_dataset(self, data, batch_size):
        """What `fit` takes as `validation_data`, as `keras.Model.fit` takes it."""
        if is_container(data) and not isinstance(data, tuple):
            has_parts = isinstance(data, list) and data and is_container(data[0])
            data = tuple(data) if has_parts and not self.is_example(data[0]) else (data,)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        x = self.raw(x)
        return self._prepared_validation(x, self.plain_targets(y, x), sample_weight, batch_size)

    def _prepared_validation(self, x, y, sample_weight, batch_size):
        """`validation_data` of `raw` inputs and plain labels."""
        prepared = self._prepare(x, y, sample_weight, batch_size, shuffle=False, training=False)
        if prepared["y"] is None:
            return prepared["x"]
        return prepared["x"], prepared["y"], prepared["sample_weight"]

    def _prepare(self, x, y, sample_weight, batch_size, shuffle, training):
        """The arguments for Keras: text becomes a dataset of token dictionaries.

        Args:
            x: What `raw` gave.
            y: What `plain_targets` gave.
            sample_weight: What the user passed.
            batch_size: Rows of a batch, or None.
            shuffle: Whether each epoch has an order of its own.
            training: Whether it is for steps of training.
        """
        if isinstance(x, TextColumns):
            x = self._token_dataset(x, y, sample_weight, batch_size, shuffle)
            return {"x": x, "y": None, "sample_weight": None, "batch_size": None}
        if not isinstance(x, tf.data.Dataset):
            if is_container(sample_weight):
                sample_weight = row_weights(sample_weight)
            return {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        if not yields_text(x):
            x = self.with_plain_labels(x)
            return {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        return {"x": self._tokenized(x), "y": None, "sample_weight": None, "batch_size": None}

    def _token_dataset(self, columns, y, sample_weight, batch_size, shuffle) -> tf.data.Dataset:
        """Batches `(tokens, labels, weights)` of texts in memory."""
        self._require_tokenizer()
        rows = self._batches_of_rows(columns.num_rows, y, sample_weight, batch_size, shuffle)
        texts = self.tokenized_texts(columns)
        return rows.map(
            lambda examples, *rest: (texts.batch(examples), *rest),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        ).prefetch(tf.data.AUTOTUNE)

    def tokenized_texts(self, columns: TextColumns) -> TokenizedTexts:
        """The texts that an example is made of, tokenized."""
        return TokenizedTexts.of(self.tokenizer, columns, self._longest())

    def _batches_of_rows(self, num_rows, y, sample_weight, batch_size, shuffle):
        """Batches of the examples' numbers int64 `[B]`, and of labels and weights if any."""
        if not num_rows:
            raise UserError("At least one text was expected. Received: none.")
        parts = [np.arange(num_rows)]
        if y is not None:
            y = np.asarray(y)
            if len(y) != num_rows:
                raise UserError(
                    f"`y` must have a row for every text: {num_rows}. Received: {len(y)} rows."
                )
            parts.append(y)
        if sample_weight is not None:
            if y is None:
                raise UserError("`sample_weight` needs `y`. Received: y=None")
            parts.append(row_weights(sample_weight, num_rows))
        dataset = tf.data.Dataset.from_tensor_slices(tuple(parts))
        if shuffle:
            dataset = dataset.shuffle(num_rows, reshuffle_each_iteration=True)
        return dataset.batch(batch_size or DEFAULT_BATCH_SIZE)

    def _tokenized(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        self._require_tokenizer()
        self.require_batches_of_text(dataset)

        def tokenize(features, *rest):
            return (self.tokens_of(features), *rest)

        return (
            self.with_plain_labels(dataset)
            .map(tokenize, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )

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
            model.enable_lora(lora["rank"], lora["alpha"], lora["layers"])
        return model


def _split_off(columns, y, sample_weight, share):
    """Keras's `validation_split`: the last rows, before any shuffling."""
    count = columns.num_rows
    kept = int(count * (1 - share))
    if not 0 < kept < count:
        raise UserError(
            "`validation_split` must leave rows on both sides. "
            f"Received: validation_split={share}, {count} rows"
        )
    if sample_weight is not None:
        sample_weight = row_weights(sample_weight, count)

    def rows(part):
        return columns.rows(part), *(
            None if values is None else values[part] for values in (y, sample_weight)
        )

    return rows(slice(None, kept)), rows(slice(kept, None))
