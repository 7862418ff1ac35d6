"""Checkpoints in and out, for every model around a backbone."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from bert_tf.base import hooks, keras_compat
from bert_tf.base.signatures import has_signature_of
from bert_tf.errors import ConfigError, UserError
from bert_tf.inputs.batches import sorted_batches
from bert_tf.inputs.columns import as_columns, holds_text
from bert_tf.inputs.containers import is_text
from bert_tf.inputs.streams import collected, yields_text
from bert_tf.inputs.tokenized_texts import TokenizedTexts
from bert_tf.layers.quantization import DYNAMIC, FLOAT
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.keras_files import KerasFiles
from bert_tf.models.lora_model import LoraModel
from bert_tf.text.tokenizer_base import Tokenizer


class PretrainedModel(LoraModel, KerasFiles):
    """A model with a `backbone` that opens checkpoints and writes them.

    Attributes:
        untrained_heads: The parts that the checkpoint lacked, until they are trained or loaded.
    """

    untrained_heads: tuple[str, ...] = ()
    # A model that takes text sets them.
    tokenizer: Tokenizer | None = None
    max_length: int | None = None

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a sequence."""
        return self.max_length or self.backbone.config.max_position_embeddings

    def traced_settings(self, step):
        return super().traced_settings(step), self.backbone.padding_free

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **options) -> "PretrainedModel":
        """Builds the model around a checkpoint; heads that it lacks are initialized randomly.

        Args:
            path: What `BertBackbone.from_pretrained` opens.
            **options: Arguments of this class and of `BertBackbone`, instead of the file's;
                `quantization="int8"` quantizes the model. For a cased TF1 checkpoint, which does
                not say so, `lowercase=False`.

        Raises:
            CheckpointError: If a tensor is missing, has another shape, or a file is unreadable.
            ConfigError: If the vocabulary is cased and nothing says whether to lower-case text.
            UserError: If an option is unknown or out of range.

        Example:
            >>> names = ["bad", "good"]
            >>> model = bert_tf.BertTextClassifier.from_pretrained("bert-base/", labels=names)
            >>> model.untrained_heads
            ('classifier',)
        """
        return hooks.load_task_model(cls, path, **options)

    @has_signature_of(keras.Model.fit)
    def fit(self, *args, **kwargs):
        """Trains as Keras does.

        Raises:
            UserError: If the model is prepacked or quantized.
        """
        history = super().fit(*args, **kwargs)
        self.untrained_heads = ()
        return history

    @has_signature_of(keras.Model.train_on_batch)
    def train_on_batch(self, *args, **kwargs):
        results = super().train_on_batch(*args, **kwargs)
        self.untrained_heads = ()
        return results

    def load_weights(self, *args, **kwargs):
        super().load_weights(*args, **kwargs)
        self.untrained_heads = ()

    def set_weights(self, weights):
        super().set_weights(weights)
        self.untrained_heads = ()

    def require_trained_heads(self, purpose: str) -> None:
        """Raises `UserError` if a head has random weights: `purpose` needs a trained model."""
        has_optimizer = self.compiled and self.optimizer is not None
        is_trained = has_optimizer and keras_compat.steps_taken(self.optimizer)
        if self.untrained_heads and not is_trained:
            raise UserError(
                f"A model must be trained before it is {purpose}. Received: a checkpoint without "
                f"{' and '.join(self.untrained_heads)}, which would start at random. Train the "
                "model first (`fit`, or a tool's --do_train), or take the one that training wrote."
            )

    def require_trainable(self) -> None:
        """Raises `UserError` if the backbone is prepacked or quantized."""
        self.backbone.require_kernels("trained")

    def quantize(
        self,
        mode: str = "int8",
        config=None,
        calibration: Any | None = None,
        attention: str = FLOAT,
        skip: Iterable[str] = (),
        activations: str = DYNAMIC,
        **kwargs,
    ) -> None:
        """Turns the backbone's kernels and word embeddings into 8-bit integers, for inference.

        See `BertBackbone.quantize`.

        Args:
            mode: "int8".
            config: None or the configuration that Keras makes for `mode`.
            calibration: A few hundred examples of text like that of the application: a list of
                texts, or a tuple of two lists for pairs; or token dictionaries.
            attention, skip, activations: See `BertBackbone.quantize`.
            **kwargs: Keras's; `type_check` has no effect.

        Raises:
            UserError: See `BertBackbone.quantize`, or if `calibration` is a dataset of texts.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.quantize("int8")
            >>> model.predict(["A quiet film."]).shape
            (1, 2)
        """
        if calibration is not None:
            calibration = self._calibration_batches("calibration", calibration)
        self.backbone.quantize(
            mode,
            config=config,
            calibration=calibration,
            attention=attention,
            skip=skip,
            activations=activations,
            **kwargs,
        )

    def quantization_errors(self, texts, activations: str = DYNAMIC) -> dict[str, float]:
        """Does what `bert_tf.adapt.quantization_errors` does, with texts.

        Args:
            texts: See `calibration` of `quantize`.
            activations: See `quantize`.

        Returns:
            The relative error of every layer, by its path.

        Raises:
            UserError: See `bert_tf.adapt.quantization_errors`, or if `texts` is a dataset of
                texts.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> errors = model.quantization_errors(["A quiet film."])
            >>> worst = max(errors, key=errors.get)
        """
        batches = self._calibration_batches("texts", texts)
        return hooks.quantization_errors(self.backbone, batches, activations)

    def _calibration_batches(self, name, texts):
        texts = collected(texts, is_text)
        if yields_text(texts):
            raise UserError(
                f"`{name}` must be a list of texts, a tuple of two, or token dictionaries. "
                "Received: a dataset of texts"
            )
        return self._token_batches(texts) if holds_text(texts) else texts

    def prune_heads(self, heads: Mapping[int, Iterable[int]]) -> None:
        """Does what `BertBackbone.prune_heads` does. To train the model further, compile it again.

        Args:
            heads: See `BertBackbone.prune_heads`.

        Raises:
            UserError: See `BertBackbone.prune_heads`.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.compile()  # for its loss
            >>> targets = model.targets(labels)
            >>> importance = bert_tf.adapt.head_importance(model, texts, targets)
            >>> model.prune_heads(bert_tf.adapt.least_important_heads(importance, share=0.3))
            >>> model.compile(bert_tf.training.AdamWeightDecay(2e-5))
            >>> model.fit(texts, labels)
        """
        self.backbone.prune_heads(heads)
        if self.optimizer_has_begun():
            self.optimizer = None

    def save_pretrained(self, directory: str | os.PathLike, format: str | None = None) -> None:
        """Writes weights and configuration into `directory`, and labels and tokenizer if any.

        Args:
            directory: See `BertBackbone.save_pretrained`.
            format: "huggingface" (`config.json`, `model.safetensors`, `vocab.txt`,
                `tokenizer_config.json`), "tf1" (google-research/bert) or "bert_tf". None is
                "huggingface".

        Raises:
            UserError: See `BertBackbone.save_pretrained`, or if the model has LoRA.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.save_pretrained("reviews_tf1/", format="tf1")
        """
        self.backbone.require_not_prepacked("saved as a checkpoint")
        self.require_merged("saved as a checkpoint")
        hooks.save_model(self, directory, format)

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        verbose=None,
        input_signature=None,
        **options,
    ) -> str:
        """Writes the model as a SavedModel that takes raw strings: `bert_tf.serving.export`.

        Args:
            filepath: The model's directory, whose subdirectories are versions, numbered from 1.
            format: "tf_saved_model", the only one; `tools/export_onnx.py` makes ONNX of it.
            verbose: Keras's; has no effect.
            input_signature: Keras's, None: the signatures are those of the task.
            **options: See `bert_tf.serving.export`: `version`, `portable`, `pairs`.

        Returns:
            The path that was written.

        Raises:
            UserError: For another format, an `input_signature` or an unknown option, or if the task
                is not exported or the model has no tokenizer.

        Example:
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> path = classifier.export("serving/reviews")
            >>> served = tf.saved_model.load(path)
            >>> sorted(served.signatures["serving_default"](text=tf.constant(["a film"])))
            ['label', 'logits', 'probabilities']
        """
        if format != "tf_saved_model":
            raise UserError(
                "`format` must be 'tf_saved_model'; tools/export_onnx.py and TensorFlow Lite's "
                f"converter read what that writes. Received: {format=}"
            )
        if input_signature is not None:
            raise UserError(
                "`input_signature` must be None: a task is exported with the signatures of raw "
                f"text, tokens and examples (docs/serving.md). Received: {input_signature!r}"
            )
        if unknown := set(options) - {"version", "portable", "pairs"}:
            raise UserError(
                "The arguments must be those of `bert_tf.serving.export`: version, portable, "
                f"pairs. Received: {', '.join(sorted(unknown))}"
            )
        return hooks.export(self, filepath, **options)

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            **({"lora": self.lora} if self.lora else {}),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        lora = config.pop("lora", None)
        config["backbone"] = _deserialized(config.get("backbone"), BertBackbone, "backbone")
        if config.get("tokenizer") is not None:
            config["tokenizer"] = _deserialized(config["tokenizer"], Tokenizer, "tokenizer")
        model = cls(**config)
        if lora is not None:
            model.enable_lora(**lora)
        return model

    def _token_batches(self, texts):
        """Yields texts, single or in pairs, as the token dictionaries of the backbone."""
        if self.tokenizer is None:
            raise UserError(
                "`tokenizer` must be given for text in `calibration`. Received: tokenizer=None. "
                "Pass token dictionaries."
            )
        columns = as_columns(texts, self.tokenizer.errors)
        yield from sorted_batches(TokenizedTexts.of(self.tokenizer, columns, self.longest))


def _deserialized(config, kind, name):
    """Returns the argument `name` of a model, which `serialize_keras_object` serialized.

    A file may name another class of Keras, and some open files when they are built: it is refused.

    Raises:
        ConfigError: If it is not a description of a `kind` or of a registered subclass.
    """
    registered = config.get("registered_name") if isinstance(config, dict) else None
    found = keras.saving.get_registered_object(registered) if isinstance(registered, str) else None
    if not isinstance(found, type) or not issubclass(found, kind):
        raise ConfigError(
            f"`{name}` must be a serialized {kind.__name__}, or a subclass of it that is "
            f"registered with Keras. Received: registered_name={registered!r:.200}"
        )
    return keras.saving.deserialize_keras_object(config)
