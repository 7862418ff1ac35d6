"""`fit` and `evaluate` on raw text, and on single batches of it, written once."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.base.signatures import has_signature_of
from bert_tf.errors import UserError
from bert_tf.inputs.streams import as_data_errors
from bert_tf.training.optimizers.adam_weight_decay import AdamWeightDecay
from bert_tf.training.schedules.warmup_linear_decay import WarmupLinearDecay
from bert_tf.training.training_model import TrainingModel, arguments_by_name

# The defaults of `fit` without `compile` are those of google-research/bert's run_classifier.py; the
# paper's appendix A.3 tries 2e-5 to 5e-5.
LEARNING_RATE = 5e-5
WARMUP = 0.1
ALL_ROWS = 1 << 31  # a batch size with which all rows of `train_on_batch` are one batch
_DATA = ("x", "y", "sample_weight")


class RawTextModel(TrainingModel):
    """A model whose `fit` and `evaluate` take raw text; a subclass says what becomes of it.

    A model that is not compiled is compiled with `default_compile`.
    """

    def fit_arguments(
        self, x, y=None, *, training: bool = True, trainer: TrainingModel | None = None, **options
    ) -> dict[str, Any]:
        """Returns all arguments of `fit`, or of `evaluate`, with token dictionaries for text.

        Args:
            x, y, **options: The arguments of the user.
            training: Whether they are those of `fit`.
            trainer: The model whose `fit` it is, where that is another one.
        """
        raise NotImplementedError(f"{type(self).__name__} must have `fit_arguments`.")

    def require_labels(self, x: Any, y: Any) -> None:
        """Raises `UserError` where the loss needs labels and `fit_arguments` returned none."""

    def default_compile(self, y: Any) -> dict[str, Any]:
        """Returns the arguments of `compile` for a model that is trained without it.

        Args:
            y: The labels that `fit` or `evaluate` was given, or None.
        """
        return {"optimizer": AdamWeightDecay(WarmupLinearDecay(LEARNING_RATE, warmup=WARMUP))}

    def _compile_once(self, y):
        if not self.compiled:
            with self.distribute_strategy.scope():
                self.compile(**self.default_compile(y))

    @has_signature_of(keras.Model.fit, token_budget=None)
    def fit(self, *args, token_budget: int | None = None, **kwargs):
        """Trains as Keras does, and also takes raw text, for training and for validation."""
        arguments = arguments_by_name(keras.Model.fit, self, *args, **kwargs)
        self._compile_once(arguments["y"])
        if arguments["class_weight"] is not None:
            # What is wrong with it comes before what is wrong with the labels.
            arguments["class_weight"] = self.class_weights(arguments["class_weight"])
        if token_budget is not None:
            arguments["token_budget"] = token_budget
        arguments = self.fit_arguments(**arguments, trainer=self)
        self.require_labels(arguments["x"], arguments["y"])
        with as_data_errors():
            return super().fit(**arguments)

    @has_signature_of(keras.Model.evaluate)
    def evaluate(self, *args, **kwargs):
        """Evaluates as Keras does, and also takes raw text.

        Raises:
            UserError: If `y` or `sample_weight` does not have a row for every text, or labels that
                the loss needs are missing.
            DataError: If a text or a label is missing, malformed or unknown.
        """
        arguments = arguments_by_name(keras.Model.evaluate, self, *args, **kwargs)
        arguments.update(arguments.pop("kwargs"))
        self._compile_once(arguments["y"])
        if not keras_compat.is_validation_in_fit(kwargs):  # there the data are ready
            data = {name: arguments[name] for name in (*_DATA, "batch_size")}
            prepared = self.fit_arguments(**data, shuffle=False, training=False, trainer=self)
            arguments.update({name: prepared[name] for name in data})
            self.require_labels(arguments["x"], arguments["y"])
        with as_data_errors():
            return super().evaluate(**arguments)

    @has_signature_of(keras.Model.train_on_batch)
    def train_on_batch(self, *args, **kwargs):
        """Trains on a batch as Keras does, and also takes raw text and the names of labels.

        Raises:
            UserError: See `evaluate`, or if texts are not one batch: on several replicas, or where
                `no_duplicates` does not allow their rows together.
            DataError: If a text or a label is missing, malformed or unknown.
        """
        arguments = arguments_by_name(keras.Model.train_on_batch, self, *args, **kwargs)
        arguments.update(self._one_batch(arguments, training=True))
        return super().train_on_batch(**arguments)

    @has_signature_of(keras.Model.test_on_batch)
    def test_on_batch(self, *args, **kwargs):
        """Evaluates a batch as Keras does, and also takes raw text and the names of labels.

        Raises:
            UserError: See `train_on_batch`.
            DataError: See `train_on_batch`.
        """
        arguments = arguments_by_name(keras.Model.test_on_batch, self, *args, **kwargs)
        arguments.update(self._one_batch(arguments, training=False))
        return super().test_on_batch(**arguments)

    def _one_batch(self, arguments, training):
        """Returns x, y and sample weights of a batch, with token dictionaries for text."""
        data = {name: arguments[name] for name in _DATA}
        options = {"batch_size": ALL_ROWS, "shuffle": False, "training": training}
        prepared = self.fit_arguments(**data, **options, trainer=self)
        data = {name: prepared[name] for name in _DATA}
        self.require_labels(data["x"], data["y"])
        is_distributed = isinstance(data["x"], keras_compat.DistributedAdapter)
        if not is_distributed and not isinstance(data["x"], tf.data.Dataset):
            return data
        with as_data_errors():
            batches = [] if is_distributed else list(data["x"].take(2))
        if len(batches) != 1:
            raise UserError(
                "`x` must be one batch: its rows together, on one replica. Received: a "
                f"{type(arguments['x']).__name__} that makes several. Call `fit` or `evaluate`."
            )
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batches[0])
        return {"x": x, "y": tf.nest.map_structure(np.asarray, y), "sample_weight": sample_weight}
