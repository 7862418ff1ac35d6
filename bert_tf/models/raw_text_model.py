"""`fit` and `evaluate` on raw text, written once."""

from typing import Any

from bert_tf import keras_compat
from bert_tf.models.text_streams import as_data_errors
from bert_tf.models.training_model import TrainingModel


class RawTextModel(TrainingModel):
    """A model whose `fit` and `evaluate` take raw text; a subclass says what becomes of it."""

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
    ) -> dict[str, Any]:
        """Returns the arguments of `keras.Model.fit`: text becomes token dictionaries.

        Args:
            x: As in `fit`.
            y: As in `fit`.
            batch_size: As in `fit`.
            shuffle: As in `fit`.
            validation_split: As in `fit`.
            validation_data: As in `fit`.
            validation_batch_size: As in `fit`.
            sample_weight: As in `fit`.
            training: Whether it is for steps of training.
        """
        raise NotImplementedError

    def require_labels(self, x: Any, y: Any) -> None:
        """Raises `UserError` where the loss needs labels and `fit_arguments` returned none."""

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
        self.require_labels(arguments["x"], arguments["y"])
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
        if keras_compat.is_validation_in_fit(options):  # the data are ready
            with as_data_errors():
                return super().evaluate(x, y, batch_size, sample_weight=sample_weight, **options)
        arguments = self.fit_arguments(
            x, y, batch_size=batch_size, sample_weight=sample_weight, shuffle=False, training=False
        )
        data = {name: arguments[name] for name in ("x", "y", "batch_size", "sample_weight")}
        self.require_labels(data["x"], data["y"])
        with as_data_errors():
            return super().evaluate(**data, **options)
