"""`fit`, `evaluate` and `predict`, once for all models: on texts, and on what Keras takes."""

import inspect
import os
import types
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.base.keras_files import write_atomically
from bert_tf.base.signatures import has_signature_of
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.streams import yields_text
from bert_tf.inputs.token_inputs import check_names
from bert_tf.training.fit_data import (
    ALL_ROWS,
    as_data_errors,
    evaluation_data,
    fit_data,
    one_batch,
    require_texts,
    with_callback,
)
from bert_tf.training.losses.sparse_crossentropy import (
    balanced_weights_by_id,
    class_weights_by_id,
    count_class_ids,
    refuse_class_weight,
)
from bert_tf.training.optimizers.adam_weight_decay import AdamWeightDecay
from bert_tf.training.schedules import WarmupLinearDecay, begin_run
from bert_tf.training.step_model import StepModel
from bert_tf.training.traced_steps import Predictor, may_be_predicted, predict_rows

# The defaults of a model that is not compiled: the paper's appendix A.3 tries 2e-5 to 5e-5, and
# google-research/bert's run_classifier.py has these defaults.
LEARNING_RATE, WARMUP = 5e-5, 0.1


class TrainingModel(StepModel):
    """A `StepModel` with the loops around its steps.

    A schedule without a number of steps is spread over the steps of a `fit`. A model that is not
    compiled is compiled with `default_compile`.

    Attributes:
        preprocessor: Reads texts and labels; None for a model that takes what Keras takes.
        untrained_heads: The parts that a checkpoint lacked, until they are trained or loaded.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._heads = types.SimpleNamespace(untrained=())  # others may hold it too
        self._reserved_positions = 0  # of the backbone's, for something else than a sequence
        self._given_inputs = frozenset(self.spec.given_inputs)

    @property
    def untrained_heads(self) -> tuple[str, ...]:
        """The parts that a checkpoint lacked, until they are trained or loaded."""
        return self._heads.untrained

    @untrained_heads.setter
    def untrained_heads(self, heads: tuple[str, ...]) -> None:
        self._heads.untrained = heads

    @property
    def preprocessor_class(self) -> type | None:
        """The class of its preprocessors; None for a model without text."""
        return self.spec.preprocessor_class()

    @property
    def preprocessor(self) -> Any:
        """Turns texts into tokens, labels into numbers and outputs into answers.

        A model that trains another one has the other one's.
        """
        held = vars(self).get("_preprocessor")
        if held is None:
            return self._known.wrapped[0].preprocessor if self._known.wrapped else None
        positions = self.backbone.config.max_position_embeddings - self._reserved_positions
        state = {
            "has_sparse_labels": self.has_sparse_labels,
            "max_positions": positions,
            "has_static_shapes": bool(self.jit_compile),
            "no_duplicates": getattr(self._objective, "no_duplicates", False),
            "texts_per_label": getattr(self._objective, "texts_per_label", None),
            "packs_tokens": self.backbone.packs_tokens,
            "packs_under_xla": self.spec.packs_under_xla,
        }
        for name in held.followed:
            state[name] = getattr(self, name)
        held.follow(**state)
        return held

    @preprocessor.setter
    def preprocessor(self, value: Any) -> None:
        if self._known.wrapped:
            self._known.wrapped[0].preprocessor = value
            return
        kind = self.preprocessor_class
        value = kind() if value is None else value
        if not isinstance(value, kind):
            expected = f"be a {kind.__name__}, or None for a model without a tokenizer"
            raise user_error("`preprocessor`", expected, f"preprocessor={value!r:.200}")
        before = vars(self).get("_preprocessor")
        self._preprocessor = value
        try:
            value.serve(self, before)
        except Exception:
            self._preprocessor = before
            raise

    @property
    def max_sequence_length(self) -> int:
        """The maximum number of tokens of a sequence."""
        return self.preprocessor.max_sequence_length

    def tokens_of(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Returns `inputs` as a token dictionary, tokenizing them if they are strings.

        Raises `UserError` if there is no tokenizer for strings, or a dictionary lacks an input.
        """
        if not isinstance(inputs, dict):
            return self.preprocessor.tokens_of(inputs)
        if "token_ids" not in inputs:
            check_names(inputs)
        if missing := self._given_inputs - inputs.keys():
            names = ", ".join(sorted(missing))
            raise UserError(f"Inputs must hold {names}. Received: {sorted(inputs)}")
        return inputs

    def default_compile(self, y: Any) -> dict[str, Any]:
        """Returns the arguments of `compile` for a model that is trained without it.

        Args:
            y: The labels that `fit` or `evaluate` was given, or None.
        """
        return {"optimizer": AdamWeightDecay(WarmupLinearDecay(LEARNING_RATE, warmup=WARMUP))}

    def read_labels(self, y: Any, x: Any) -> Any:
        """Returns labels as the loss takes them.

        A subclass also checks those of token dictionaries, which do not pass the preprocessor.

        Args:
            y: What the user passed, or None.
            x: What the preprocessor's `read` returned.

        Raises:
            DataError: If a label is missing, unknown or out of range. The message names its row.
        """
        preprocessor = self.preprocessor
        return y if preprocessor is None else preprocessor.targets(y, x)

    def class_weights(self, class_weight):
        """Returns `class_weight` by class id, as Keras takes it.

        The names of the classes are `labels` of the model, their number is its `num_classes`.
        """
        reason = self.spec.labels.no_class_weights
        if reason is not None:
            refuse_class_weight(class_weight, reason)
        labels, num_classes = (getattr(self, name, None) for name in ("labels", "num_classes"))
        if num_classes is None:
            num_classes = len(labels) if labels else count_class_ids(class_weight)
        return class_weights_by_id(class_weight, num_classes, labels)

    def balanced_class_weight(self, class_weight, y):
        """Returns what `class_weights` returned, for "balanced" the weights of the labels `y`."""
        if isinstance(class_weight, str):
            return balanced_weights_by_id(y, num_classes=len(self.class_weights({})))
        return class_weight

    @has_signature_of(keras.Model.fit, token_budget=None)
    def fit(self, *args, token_budget: int | None = None, **kwargs):
        """`keras.Model.fit`, also on raw text, with the names of classes and without `compile`.

        Without `compile`, the model is compiled with `AdamWeightDecay`, the task's loss and its
        metrics. The learning rate rises to 5e-5 in the first tenth of the steps and then falls to
        0; a second `fit` is a run of its own.

        Args:
            *args, **kwargs: See Keras.
            token_budget: For a list of texts, in place of `batch_size`: the maximum number of
                tokens of a batch. The texts of a batch have similar lengths, and every epoch has
                the same number of batches. Padding counts where the model computes it (see
                `padding_free` of `BertBackbone`). A longer text is a batch of its own. With
                `jit_compile=True`, batches have texts of all lengths instead, the same number of
                them to one, and about the same number of tokens: XLA compiles two programs at most.

        Raises:
            UserError: See `evaluate`; also if the model is prepacked or quantized, `token_budget`
                is given with `batch_size` or something else than texts, or with `jit_compile` is
                less than the longest text or given for a step that divides a batch.
            DataError: If a text or a label is missing, malformed or unknown.

        Example:
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> history = classifier.fit(texts, labels, token_budget=64, verbose=0)
            >>> len(history.epoch)
            1
        """
        given = _arguments(keras.Model.fit, self, args, kwargs)
        self._compile_once(given["y"])
        if given["class_weight"] is not None:
            # What is wrong with it comes before what is wrong with the labels.
            given["class_weight"] = self.class_weights(given["class_weight"])
        given = fit_data(self, given, token_budget)
        retraces = keras.callbacks.LambdaCallback(  # after the callbacks that unfreeze layers
            on_epoch_begin=lambda *_: self.make_train_function()
        )
        given["callbacks"] = with_callback(given["callbacks"], retraces)
        begin_run(self, given)
        with as_data_errors():
            history = super().fit(**given)
        self._heads.untrained = ()
        return history

    @has_signature_of(keras.Model.evaluate)
    def evaluate(self, *args, **kwargs):
        """`keras.Model.evaluate`, also on raw text.

        Raises `UserError` if `y` or `sample_weight` does not have a row for every text, or labels
        that the loss needs are missing, and `DataError` if a text or a label is missing, malformed
        or unknown.
        """
        given = _arguments(keras.Model.evaluate, self, args, kwargs)
        given.update(given.pop("kwargs", {}))
        self._compile_once(given["y"])
        if not keras_compat.is_validation_in_fit(kwargs):  # there the data are ready
            names = ("x", "y", "sample_weight", "batch_size")
            given |= evaluation_data(self, *map(given.get, names))
        with as_data_errors():
            return super().evaluate(**given)

    @has_signature_of(keras.Model.train_on_batch)
    def train_on_batch(self, *args, **kwargs):
        """`keras.Model.train_on_batch`, also on raw text and the names of labels.

        Raises:
            UserError: See `evaluate`; also if texts are not one batch: on several replicas, where
                `no_duplicates` does not allow their rows together.
            DataError: If a text or a label is missing, malformed or unknown.
        """
        given = _arguments(keras.Model.train_on_batch, self, args, kwargs)
        given |= one_batch(self, given["x"], given["y"], given["sample_weight"], training=True)
        if given["class_weight"] is not None:
            class_weight = self.class_weights(given["class_weight"])
            given["class_weight"] = self.balanced_class_weight(class_weight, given["y"])
        results = super().train_on_batch(**given)
        self._heads.untrained = ()
        return results

    @has_signature_of(keras.Model.test_on_batch)
    def test_on_batch(self, *args, **kwargs):
        """`keras.Model.test_on_batch`, also on raw text and the names of labels.

        Raises:
            UserError: See `train_on_batch`.
            DataError: See `train_on_batch`.
        """
        given = _arguments(keras.Model.test_on_batch, self, args, kwargs)
        given |= one_batch(self, given["x"], given["y"], given["sample_weight"], training=False)
        return super().test_on_batch(**given)

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

        Texts are sorted by length and batched by tokens. The results are in the texts' order.

        Args:
            x: What `fit` takes.
            batch_size: The number of rows of a batch; of texts the maximum.
            verbose, callbacks: See Keras.
            steps: See Keras; not for texts.
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
        if window_pooling not in ("mean", "max"):
            raise user_error("`window_pooling`", "be 'mean' or 'max'", f"{window_pooling=}")
        preprocessor = self.preprocessor
        x = x if preprocessor is None else preprocessor.read(x)
        if isinstance(x, TextColumns):
            if steps is not None:
                expected = "be None for texts; it counts the batches of a dataset"
                raise user_error("`steps`", expected, f"{steps=}.")
            if window_stride is not None:
                preprocessor.require_windows(x, window_stride)
                rule = "must be None for outputs of tokens, which are others in each window"
                no_tokens = self.spec.token_axis is None
                require(no_tokens, rule, UserError, window_stride=window_stride)
            rows = preprocessor.encode(x, window_stride)
            values = predict_rows(self, rows, batch_size, verbose, callbacks, token_budget)
            return preprocessor.postprocess(values, rows, x, window_pooling)
        require_texts(x, "token_budget", token_budget)
        require_texts(x, "window_stride", window_stride)
        if yields_text(x):
            rule = "must be a list of texts, or token dictionaries"
            are_taken = self.spec.examples.are_predicted_in_datasets
            require(are_taken, rule, UserError, x="a dataset of text")
            preprocessor.require_tokenizer()
            x, batch_size = preprocessor.batches(x, training=False), None
        with as_data_errors():
            return super().predict(x, batch_size, verbose, steps, callbacks)

    def predict_on_batch(self, x):
        """`keras.Model.predict_on_batch` that also takes raw text.

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

        That is the result of the task's own method, such as `classify`, `tag` or `answer`.

        Args:
            texts: Raw text as `fit` takes it: a list of examples, or one.
            batch_size, token_budget, verbose: See `predict`.

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
        if self.spec.decoded_by is not None:
            batching = {"batch_size": batch_size, "token_budget": token_budget, "verbose": verbose}
            model = self._known.wrapped[0] if self._known.wrapped else self
            return getattr(model, self.spec.decoded_by)(texts, **batching)
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples(texts)
        rows = preprocessor.encode(columns)
        values = predict_rows(self, rows, batch_size, verbose, token_budget=token_budget)
        answers = preprocessor.decode(values, rows, columns)
        return answers[0] if columns.is_single else answers

    def __call__(self, *args, **kwargs):
        is_plain = len(args) == 1 and kwargs in ({}, {"training": False})
        if is_plain and not isinstance(args[0], dict) and may_be_predicted(self, args[0]):
            return Predictor.of(self).tensors(self.tokens_of(args[0]), self._given_inputs)
        return super().__call__(*args, **kwargs)

    def save(self, filepath: str | os.PathLike, overwrite: bool = True, **options) -> None:
        """Writes a `.keras` file as `keras.Model.save` does, atomically.

        Args:
            filepath: The file.
            overwrite: False asks before a file is replaced.
            **options: See `keras.Model.save`.

        Raises:
            UserError: If the model is prepacked.
        """
        write_atomically(super().save, filepath, overwrite, **options)

    def save_weights(self, filepath: str | os.PathLike, overwrite: bool = True, **options) -> None:
        """Writes a `.weights.h5` file as `keras.Model.save_weights` does, atomically.

        The arguments are those of `save`.
        """
        write_atomically(super().save_weights, filepath, overwrite, **options)

    def load_weights(self, *args, **kwargs):
        super().load_weights(*args, **kwargs)
        self.untrained_heads = ()

    def set_weights(self, weights):
        super().set_weights(weights)
        self.untrained_heads = ()

    def require_trained_heads(self, purpose: str) -> None:
        """Raises `UserError` if a head is at random: `purpose` needs a trained model."""
        is_trained = self.optimizer_has_begun() and keras_compat.steps_taken(self.optimizer)
        if self.untrained_heads and not is_trained:
            raise UserError(
                f"A model must be trained before it is {purpose}. Received: a checkpoint without "
                f"{' and '.join(self.untrained_heads)}, which would start at random. Train the "
                "model first (`fit`, or a tool's --do_train), or take the one that training wrote."
            )

    def _compile_once(self, y):
        if not self.compiled and self.preprocessor is not None:
            with self.distribute_strategy.scope():
                self.compile(**self.default_compile(y))


def _arguments(method: Callable, model: keras.Model, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Returns the arguments of a call of a method of Keras, those that are left out too."""
    call = inspect.signature(method).bind(model, *args, **kwargs)
    call.apply_defaults()
    del call.arguments["self"]
    return call.arguments
