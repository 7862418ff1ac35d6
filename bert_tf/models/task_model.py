"""What all task models share: a backbone, a tokenizer, raw strings in, checkpoints in and out."""

import functools
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.keras_compat import DistributedAdapter
from bert_tf.base.signatures import has_signature_of
from bert_tf.errors import UserError, require, require_one_of
from bert_tf.inputs.batches import ROW_NUMBER, TOKEN_BUDGET, TokenRows, sorted_batches
from bert_tf.inputs.columns import TextColumns, holds_text, refuse_labels_in
from bert_tf.inputs.containers import is_container
from bert_tf.inputs.epochs import TextEpochs
from bert_tf.inputs.labels import row_weights
from bert_tf.inputs.streams import as_data_errors, yields_text
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.inference_precision import AUTO, optimize_for_inference
from bert_tf.models.preprocessing_model import PreprocessingModel
from bert_tf.models.pretrained_model import PretrainedModel
from bert_tf.models.raw_text_model import ALL_ROWS, RawTextModel
from bert_tf.training.callback_lists import with_callback
from bert_tf.training.distribution.replica_batches import new_seed, replica_batches

# What has an `element_spec`.
_BATCHES = (tf.data.Dataset, DistributedAdapter)


class TaskModel(PretrainedModel, PreprocessingModel, RawTextModel):
    """A backbone, a head and the tokenizer that fits them.

    `fit`, `evaluate` and `predict` take what Keras takes (token dictionaries) and raw text:

    - A string is one text, a tuple of strings is one example of several texts (a pair).
    - A container of strings is a text for each row, a tuple of containers is their columns: for
      pairs `(firsts, seconds)`. A container of tuples of strings is a pair for each row, as is an
      array or data frame `[n, 2]`.
    - A container is a list, array, tensor, deque or generator; a column of pandas, Polars, pyarrow
      or a Hugging Face data set. Its rows are taken by position. So are labels and sample weights.
    - A `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of batches yields strings `[B]`,
      or tuples `(x, y)` and `(x, y, sample_weight)` of them.

    A missing value is an error that names its rows. Called directly, a model tokenizes string
    tensors in the graph. `predict` returns what the model computes; a method of the task, such as
    `classify`, returns what it means. A task overrides `head`, or all of `call`, the terms of its
    loss and `preprocessor_class`.

    Args:
        backbone: The `BertBackbone`.
        tokenizer: The `BertTokenizer`; without one the model takes token dictionaries only.
        max_length: Longest sequence in tokens, `[CLS]` and `[SEP]` counted, or None for the
            configuration's. Longer text is cut.
        **kwargs: Keras's. `preprocessor=None`, keras-hub's way to a model that takes token
            dictionaries only, is one without a tokenizer.

    Raises:
        UserError: If `max_length` is out of range, the vocabulary does not fit the backbone, or
            there is another `preprocessor`.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> isinstance(classifier, TaskModel)
        True
        >>> classifier(tf.constant(["a good film", "bad ."])).shape
        TensorShape([2, 2])
    """

    built_with = ("backbone",)
    # Whether training needs labels although no loss is compiled: it is the model's own.
    needs_labels = False
    # The axis of the outputs with one entry per token, if any, and what `predict` pads it with.
    output_token_axis: int | None = None
    output_padding: float = 0

    def __init__(
        self, backbone: BertBackbone, tokenizer=None, max_length: int | None = None, **kwargs
    ):
        super().__init__(**self.without_preprocessor(kwargs, tokenizer))
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.max_length = max_length
        TaskModel.check_options(self)

    def check_options(self):
        config, max_length = self.backbone.config, self.max_length
        limit = config.max_position_embeddings
        fits = max_length is None or 3 <= max_length <= limit
        rule = f"must be in [3, {limit}] (max_position_embeddings)"
        require(fits, rule, UserError, max_length=max_length)
        if self.tokenizer is not None:
            self.tokenizer.require_size_of(config.vocab_size)

    def optimize_for_inference(self, precision: str = AUTO, **quantization) -> str:
        """Makes the model faster, for good and for inference only. See `BertBackbone`.

        Args:
            precision: "auto", "float32", "bfloat16" or "int8".
            **quantization: Further arguments of `quantize`, for "int8" only.

        Returns:
            The precision: "float32", "bfloat16" or "int8".

        Raises:
            UserError: See `BertBackbone.optimize_for_inference`.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.optimize_for_inference("int8", calibration=["A quiet film.", "No."])
            'int8'
        """
        return optimize_for_inference(self, precision, quantization)

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the encoder's kernels: faster, for inference only. See `BertBackbone`.

        Args:
            dtype: See `BertBackbone.prepack_for_inference`.

        Raises:
            UserError: See `BertBackbone.prepack_for_inference`.
        """
        self.backbone.prepack_for_inference(dtype)

    def head_dropout(self, dropout: float | None) -> float:
        """Returns the dropout rate before a head: `dropout`, or if None the configuration's."""
        config = self.backbone.config
        rates = (dropout, config.classifier_dropout, config.hidden_dropout_prob)
        return next(rate for rate in rates if rate is not None)

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        outputs = self.backbone(tokens, training=training, **self.backbone_options())
        return self.head(outputs, tokens, training=training)

    def backbone_options(self) -> dict[str, bool]:
        """Returns arguments of the backbone's call for further outputs that `head` needs."""
        return {}

    def head(self, outputs: dict[str, Any], tokens: dict[str, tf.Tensor], training: bool = False):
        """Returns what the model computes from the outputs of the backbone.

        Args:
            outputs: What the backbone returned.
            tokens: The token dictionary that it got.
            training: Whether dropout is applied.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `head` or `call`.")

    def predict_step(self, data):
        outputs = super().predict_step(data)
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(inputs, dict) or ROW_NUMBER not in inputs:
            return outputs
        outputs = self.row_outputs(outputs, inputs)
        axis = self.output_token_axis
        if axis is not None:
            paddings = [[0, 0] for _ in outputs.shape]
            paddings[axis][1] = self.longest - tf.shape(outputs)[axis]
            outputs = tf.pad(outputs, paddings, constant_values=self.output_padding)
        return outputs, inputs[ROW_NUMBER]

    def row_outputs(self, outputs: Any, inputs: dict[str, tf.Tensor]) -> Any:
        """Returns the outputs to keep for a batch of texts; a task may reduce them."""
        return outputs

    def default_metrics(self) -> list[Any] | None:
        """Returns the metrics of a model that is trained without `compile`; None for no others."""
        return None

    def default_compile(self, y):
        metrics = self.default_metrics()
        return super().default_compile(y) | ({} if metrics is None else {"metrics": metrics})

    @has_signature_of(keras.Model.fit, token_budget=None)
    def fit(self, *args, **kwargs):
        """Trains as Keras does, also on raw text, with the names of classes and without `compile`.

        Without `compile`, the model is compiled with `AdamWeightDecay`, the task's loss and its
        metrics. The learning rate rises to 5e-5 in the first tenth of the steps and then falls to
        0; a second `fit` is a run of its own.

        Args:
            *args, **kwargs: See Keras.
            token_budget: For a list of texts, in place of `batch_size`: the maximum number of
                tokens of a batch. The texts of a batch have similar lengths, and every epoch has
                the same number of batches. Padding counts where the model computes it (see
                `padding_free` of `BertBackbone`). A longer text is a batch of its own.

        Raises:
            UserError: See `evaluate`, or if the model is prepacked or quantized, or `token_budget`
                is given with `batch_size`, `jit_compile` or something else than texts.
            DataError: If a text or a label is missing, malformed or unknown.

        Example:
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> history = classifier.fit(texts, labels, token_budget=64, verbose=0)
            >>> len(history.epoch)
            1
        """
        return super().fit(*args, **kwargs)

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
        training=True,
        token_budget=None,
        trainer=None,
        callbacks=None,
        class_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        **unchanged,
    ):
        preprocessor = self.preprocessor
        trainer = trainer or self
        refuse_labels_in(x, y)
        x = preprocessor.read(x)
        y = self.read_labels(y, x)
        held_out = None
        if validation_data is not None:
            held_out = self._read_validation(validation_data)
        elif validation_split and isinstance(x, TextColumns):
            (x, y, sample_weight), held_out = _split_off(x, y, sample_weight, validation_split)
            validation_split = 0.0
        if held_out is not None:
            rows = validation_batch_size or batch_size
            prepared = self._prepare(*held_out, rows, trainer, shuffle=False, training=False)
            labelled = (prepared["x"], prepared["y"], prepared["sample_weight"])
            validation_data = labelled[0] if prepared["y"] is None else labelled
        options = {"shuffle": shuffle, "training": training, "token_budget": token_budget}
        if y is not None:
            class_weight = self.balanced_class_weight(class_weight, y)
        options["class_weight"] = class_weight
        if training and isinstance(x, TextColumns):
            seed = new_seed(trainer.distribute_strategy)
            epochs = TextEpochs(seed, initial_epoch, goes_on=steps_per_epoch is not None)
            options["epochs"] = epochs
            callbacks = with_callback(callbacks, epochs)
        data = self._prepare(x, y, sample_weight, batch_size, trainer, **options)
        return {
            **unchanged,
            **data,
            "callbacks": callbacks,
            "initial_epoch": initial_epoch,
            "steps_per_epoch": steps_per_epoch,
            "shuffle": shuffle and not isinstance(data["x"], _BATCHES),
            "validation_split": validation_split,
            "validation_data": validation_data,
            "validation_batch_size": validation_batch_size,
        }

    def require_labels(self, x, y):
        if self.loss is None and not self.needs_labels:
            return
        if isinstance(x, _BATCHES):
            has_labels = isinstance(x.element_spec, tuple) and len(x.element_spec) > 1
        else:
            has_labels = y is not None or not isinstance(x, dict)
        if not has_labels:
            raise UserError(
                "`y` must be labels, a row for every example. Received: y=None. Pass "
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
        """Predicts as Keras does, and also takes raw text.

        Texts are sorted by length and batched by tokens. The results are in the texts' order.

        Args:
            x: What `fit` takes.
            batch_size: The number of rows of a batch; of texts the maximum.
            verbose: See Keras.
            steps: See Keras; not for texts.
            callbacks: See Keras.
            token_budget: For texts: the maximum number of tokens of a batch, padding counted. None
                for 4,096, or for no maximum where there is a `batch_size`.
            window_stride: For texts longer than `max_length`: predict windows of that length, one
                every so many tokens, and pool the results; None cuts the texts.
            window_pooling: "mean" or "max" over the windows of a text.

        Returns:
            What `call` returns, as arrays with a row for every example. Where a task cuts an
            example into windows, a dictionary: `logits` of all of them, and `row_splits` int64
            `[n + 1]`: those of example i are `logits[row_splits[i] : row_splits[i + 1]]`.

        Raises:
            UserError: If `token_budget` or `window_stride` is given for something else than texts,
                `steps` for texts, or there is no tokenizer for texts.
            DataError: If a text is missing or malformed.
        """
        require_one_of("window_pooling", window_pooling, ("mean", "max"))
        preprocessor = self.preprocessor
        x = preprocessor.read(x)
        if isinstance(x, TextColumns):
            rule = "must be None for texts; it counts the batches of a dataset"
            require(steps is None, rule, UserError, steps=steps)
            if window_stride is not None:
                preprocessor.require_windows(x, window_stride)
                rule = "must be None for outputs of tokens, which are others in each window"
                has_tokens = self.output_token_axis is not None
                require(not has_tokens, rule, UserError, window_stride=window_stride)
            rows = preprocessor.rows(x, window_stride)
            values = self._compute(rows, batch_size, verbose, callbacks, token_budget)
            return preprocessor.outputs(values, rows, x, window_pooling)
        for name, value in {"token_budget": token_budget, "window_stride": window_stride}.items():
            _require_texts(x, value, name)
        if yields_text(x) and not preprocessor.predicts_datasets_of_text:
            raise UserError(
                "`x` must be a list of texts, or token dictionaries. Received: a dataset of text."
            )
        data = self._prepare(x, None, None, batch_size, self, shuffle=False, training=False)
        x, batch_size = data["x"], data["batch_size"]
        with as_data_errors():
            return super().predict(x, batch_size, verbose, steps, callbacks)

    def predict_on_batch(self, x):
        """Predicts a batch as Keras does, and also takes raw text.

        Args:
            x: A token dictionary, or texts as `fit` takes them, which are computed in one batch.

        Returns:
            What `predict` returns.

        Raises:
            UserError: If there is no tokenizer for texts.
            DataError: If a text is missing or malformed.
        """
        if isinstance(x, dict) and x:
            return super().predict_on_batch(x)
        return self.predict(x, batch_size=ALL_ROWS, verbose=0)

    def predict_decoded(
        self,
        texts: Any,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Any:
        """Returns what the outputs for raw text mean, for programs that work with any task.

        The answer is that of the task's own method, such as `classify`, `tag` or `answer`.

        Args:
            texts: Raw text as `fit` takes it: a list of examples, or one.
            batch_size: See `predict`.
            token_budget: See `predict`.
            verbose: See `predict`.

        Returns:
            A list or array with an answer for each example; for one example its own.

        Raises:
            UserError: If there is no tokenizer, the task takes other texts or has no answers.
            DataError: If a text is missing or malformed.

        Example:
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> classifier.predict_decoded("a good film").label in ("bad", "good")
            True
        """
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples(texts)
        rows = preprocessor.rows(columns)
        values = self._compute(rows, batch_size, verbose, token_budget=token_budget)
        answers = preprocessor.decode(values, rows, columns)
        return answers[0] if columns.is_single else answers

    def _compute(
        self, rows: TokenRows, batch_size=None, verbose=0, callbacks=None, token_budget=None
    ) -> Any:
        """Returns the outputs for rows of tokens, in their order."""
        if not len(rows):  # one empty text shows the shape of the outputs
            row = {**self.preprocessor.empty_row(), ROW_NUMBER: tf.zeros([1], tf.int64)}
            outputs, _ = self.predict_on_batch(row)
            return tf.nest.map_structure(lambda values: values[:0], outputs)
        length = self.preprocessor.static_length
        if length is not None:
            batch_size = batch_size or max(1, TOKEN_BUDGET // length)
        batches = sorted_batches(rows, token_budget, batch_size, length)
        with warnings.catch_warnings():
            # Keras takes it for a mistake that the number of batches is unknown at first.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            outputs, numbers = super().predict(batches, verbose=verbose, callbacks=callbacks)
        order = np.argsort(numbers)
        outputs = tf.nest.map_structure(lambda values: np.asarray(values)[order], outputs)
        if self.output_token_axis is not None:
            before = (slice(None),) * self.output_token_axis
            outputs = outputs[(*before, slice(rows.lengths().max()))]
        return outputs

    def _read_validation(self, data):
        """Returns inputs, labels and weights of `validation_data`, which are read."""
        if is_container(data) and not isinstance(data, tuple):
            has_parts = isinstance(data, list) and data and is_container(data[0])
            is_one = not has_parts or self.preprocessor.is_example(data[0])
            data = (data,) if is_one else tuple(data)
        # Without labels a tuple of two columns is pairs, and not Keras's (x, y).
        if not self.preprocessor.has_labels and isinstance(data, tuple) and len(data) == 2:
            data = (data,) if all(map(holds_text, data)) else data
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        x = self.preprocessor.read(x)
        return x, self.read_labels(y, x), sample_weight

    def _prepare(self, x, y, sample_weight, batch_size, trainer, *, class_weight=None, **options):
        """Returns the arguments for Keras: text becomes batches of token dictionaries.

        `options` are those of `Preprocessor.batches`.
        """
        if options.get("token_budget") is not None:
            _check_token_budget(options["token_budget"], x, batch_size)
        data = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        if yields_text(x):
            for name in ("y", "sample_weight"):
                rule = "must be None for a dataset, which has its own"
                require(data[name] is None, rule, UserError, **{name: type(data[name]).__name__})
        if isinstance(x, TextColumns) or yields_text(x):
            make_batches = functools.partial(self.preprocessor.batches, **data, **options)
            strategy = trainer.distribute_strategy
            data = dict.fromkeys(data)
            if isinstance(x, TextColumns) and strategy.num_replicas_in_sync > 1:
                parts = trainer.gradient_accumulation_steps if options["training"] else 1
                data["x"] = replica_batches(strategy, make_batches, parts, class_weight)
                class_weight = None  # it is in the batches
            else:
                data["x"] = make_batches()
        elif isinstance(x, tf.data.Dataset):
            data["x"] = self.preprocessor.with_graph_targets(x)
        elif is_container(sample_weight):
            data["sample_weight"] = row_weights(sample_weight)
        return {**data, "class_weight": class_weight}

    def get_config(self):
        tokenizer = keras.saving.serialize_keras_object(self.tokenizer)
        return {**super().get_config(), "tokenizer": tokenizer, "max_length": self.max_length}


def _require_texts(x, value, name):
    """Refuses an argument that is for texts only."""
    rule = "must be None for anything but a list of texts"
    fits = value is None or isinstance(x, TextColumns)
    require(fits, rule, UserError, **{name: value}, x=type(x).__name__)


def _check_token_budget(token_budget, x, batch_size):
    _require_texts(x, token_budget, "token_budget")
    if batch_size is not None:
        raise UserError(
            "At most one of `batch_size` and `token_budget` must be given. Received: "
            f"{batch_size=}, {token_budget=}"
        )


def _split_off(columns, y, sample_weight, share):
    """Does Keras's `validation_split`: splits off the last rows, before any shuffling."""
    count = columns.num_rows
    kept = int(count * (1 - share))
    rule = "must leave rows on both sides"
    require(0 < kept < count, rule, UserError, validation_split=share, rows=count)
    if sample_weight is not None:
        sample_weight = row_weights(sample_weight, count)

    def rows(part):
        labels = (None if values is None else values[part] for values in (y, sample_weight))
        return columns.rows(part), *labels

    return rows(slice(None, kept)), rows(slice(kept, None))
