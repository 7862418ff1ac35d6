"""`fit` and `evaluate` on raw text, written once."""

from typing import Any

import keras

from bert_tf import keras_compat
from bert_tf.models.text_streams import as_data_errors
from bert_tf.models.training_model import TrainingModel, arguments_by_name
from bert_tf.signatures import has_signature_of


class RawTextModel(TrainingModel):
    """A model whose `fit` and `evaluate` take raw text; a subclass says what becomes of it."""

    def fit_arguments(self, x, y=None, *, training: bool = True, **options) -> dict[str, Any]:
        """Returns all arguments of `fit`, or of `evaluate`, with token dictionaries for text."""
        raise NotImplementedError(f"{type(self).__name__} must have `fit_arguments`.")

    def require_labels(self, x: Any, y: Any) -> None:
        """Raises `UserError` where the loss needs labels and `fit_arguments` returned none."""

    @has_signature_of(keras.Model.fit)
    def fit(self, *args, **kwargs):
        """`keras.Model.fit` that also takes raw text, for training and for validation."""
        arguments = arguments_by_name(keras.Model.fit, self, *args, **kwargs)
        if arguments["class_weight"] is not None:
            # What is wrong with it comes before what is wrong with the labels.
            self.class_weights(arguments["class_weight"])
        arguments = self.fit_arguments(**arguments)
        self.require_labels(arguments["x"], arguments["y"])
        with as_data_errors():
            return super().fit(**arguments)

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
        """`keras.Model.evaluate` that also takes raw text.

        Raises:
            UserError: If `y` or `sample_weight` does not have a row for every text, or labels that
                the loss needs are missing.
            DataError: If a text or a label is missing, malformed or unknown.
        """
        data = {"x": x, "y": y, "batch_size": batch_size, "sample_weight": sample_weight}
        if not keras_compat.is_validation_in_fit(kwargs):  # there the data are ready
            arguments = self.fit_arguments(**data, shuffle=False, training=False)
            data = {name: arguments[name] for name in data}
            self.require_labels(data["x"], data["y"])
        options = {"verbose": verbose, "steps": steps, "callbacks": callbacks}
        with as_data_errors():
            return super().evaluate(**data, **options, return_dict=return_dict, **kwargs)
