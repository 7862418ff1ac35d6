"""`fit` and `evaluate` on raw text, written once."""

from typing import Any

import keras

from bert_tf import keras_compat
from bert_tf.models.text_streams import as_data_errors
from bert_tf.models.training_model import TrainingModel, arguments_by_name
from bert_tf.signatures import has_signature_of
from bert_tf.training.optimizers.adam_weight_decay import AdamWeightDecay
from bert_tf.training.schedules.warmup_linear_decay import WarmupLinearDecay

# Of a model that is not compiled: the paper's appendix A.3 tries 2e-5 to 5e-5, and
# google-research/bert's run_classifier.py has these defaults.
LEARNING_RATE = 5e-5
WARMUP = 0.1


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
        """`keras.Model.fit` that also takes raw text, for training and for validation."""
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
        """`keras.Model.evaluate` that also takes raw text.

        Raises:
            UserError: If `y` or `sample_weight` does not have a row for every text, or labels that
                the loss needs are missing.
            DataError: If a text or a label is missing, malformed or unknown.
        """
        arguments = arguments_by_name(keras.Model.evaluate, self, *args, **kwargs)
        arguments.update(arguments.pop("kwargs"))
        self._compile_once(arguments["y"])
        if not keras_compat.is_validation_in_fit(kwargs):  # there the data are ready
            data = {name: arguments[name] for name in ("x", "y", "batch_size", "sample_weight")}
            prepared = self.fit_arguments(**data, shuffle=False, training=False, trainer=self)
            arguments.update({name: prepared[name] for name in data})
            self.require_labels(arguments["x"], arguments["y"])
        with as_data_errors():
            return super().evaluate(**arguments)
