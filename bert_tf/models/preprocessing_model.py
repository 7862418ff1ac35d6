"""A model with a preprocessor, whose settings are attributes of the model."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.token_inputs import check_names
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.training.losses.sparse_crossentropy import SparseCrossentropy
from bert_tf.training.model_options import OptionsModel, fixed_names, option_names


class PreprocessingModel(OptionsModel):
    """A model with a `tokenizer`, a `max_length` and a preprocessor that is made of its options."""

    # What `make_preprocessor` makes.
    preprocessor_class: type[Preprocessor] = Preprocessor

    @property
    def preprocessor(self) -> Preprocessor:
        """Turns text and labels into batches, and outputs into answers.

        It is made at every access. What is set in it is set in the model, or refused.
        """
        preprocessor = self.make_preprocessor(
            tokenizer=self.tokenizer,
            max_length=self.longest,
            has_sparse_labels=takes_class_ids(self.loss),
            has_static_shapes=self.jit_compile,
            computes_padding=not self.backbone.packs_tokens(),
        )
        preprocessor.set_field = self._set_field
        return preprocessor

    @preprocessor.setter
    def preprocessor(self, value: Any) -> None:
        raise self.unknown_preprocessor(value)

    def _set_field(self, name, value):
        """Sets a field of the preprocessor in the model, and returns the value of the new one."""
        names = [n for n in self.preprocessor_options() if n not in fixed_names(type(self))]
        if name not in names:
            raise UserError(
                f"What is set in a model's preprocessor must be one of {names}; all else follows "
                f"from the model and from `compile`. Received: {name}={value!r:.200}"
            )
        setattr(self, name, value)
        return getattr(self.preprocessor, name)

    @classmethod
    def preprocessor_options(cls) -> list[str]:
        """Returns the names of the model's options that are fields of its preprocessor."""
        fields = [field.name for field in dataclasses.fields(cls.preprocessor_class)]
        return [name for name in fields if name in option_names(cls)]

    @classmethod
    def without_preprocessor(cls, options: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
        """Returns options without `preprocessor`, which may only be None, and without `tokenizer`.

        Raises:
            UserError: If it is something else.
        """
        if "preprocessor" not in options:
            return options
        options = dict(options)
        preprocessor = options.pop("preprocessor")
        if preprocessor is not None or tokenizer is not None:
            raise cls.unknown_preprocessor(preprocessor)
        return options

    @classmethod
    def unknown_preprocessor(cls, value: Any) -> UserError:
        """Returns the error for a preprocessor that a user passes to a model."""
        names = ", ".join(f"`{name}`" for name in cls.preprocessor_options())
        return UserError(
            "`preprocessor` must be left out, or None for a model without a tokenizer: a model "
            f"makes its own. Pass or set the model's {names}. Received: preprocessor={value!r:.200}"
        )

    def make_preprocessor(self, **options: Any) -> Preprocessor:
        """Returns the preprocessor of the task, whose own arguments are attributes of the model."""
        names = {field.name for field in dataclasses.fields(self.preprocessor_class)}
        own = {name: getattr(self, name) for name in names - options.keys()}
        return self.preprocessor_class(**own, **options)

    def tokenize(self, texts: Any, pairs: Any = None) -> dict[str, tf.Tensor]:
        """Returns strings `[B]` as a token dictionary, cut at `max_length`.

        Raises:
            UserError: If there is no tokenizer.
        """
        return self.preprocessor.tokenize(texts, pairs)

    def read_labels(self, y: Any, x: Any) -> Any:
        """Returns labels as the preprocessor reads them.

        Args:
            y: What the user passed, or None.
            x: What the preprocessor's `read` returned.

        Raises:
            DataError: If a label is missing, unknown or out of range. The message names its row.
        """
        y = self.preprocessor.targets(y, x)
        if isinstance(x, dict) and isinstance(y, np.ndarray):
            self.check_labels(x, y)
        return y

    def check_labels(self, tokens: dict[str, Any], y: np.ndarray) -> None:
        """Raises `DataError`, with the rows, if labels of a token dictionary are out of range."""

    def tokens_of(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Returns `inputs` as a token dictionary, tokenizing them if they are strings.

        Raises:
            UserError: If there is no tokenizer for strings, or a dictionary has no `token_ids`.
        """
        if not isinstance(inputs, dict):
            return self.preprocessor.tokens_of(inputs)
        if "token_ids" not in inputs:
            check_names(inputs)
        return inputs


def takes_class_ids(loss) -> bool:
    """Returns whether a compiled loss takes class ids; so does the default."""
    sparse = (keras.losses.SparseCategoricalCrossentropy, SparseCrossentropy)
    if loss is None or isinstance(loss, sparse):
        return True
    return str(getattr(loss, "__name__", loss)).startswith("sparse_")
