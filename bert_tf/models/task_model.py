"""The base class of task models: a backbone, a preprocessor, a head and checkpoints."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import hints, hooks
from bert_tf.base.keras_compat import shown_shapes
from bert_tf.base.keras_files import deserialized
from bert_tf.errors import UserError, require, user_error
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.quantization import DYNAMIC, FLOAT
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.inference_kernels import InferenceKernels
from bert_tf.models.preprocessor import Held, Preprocessor
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.training.model_options import OpeningMethod, option_names
from bert_tf.training.training_model import TrainingModel


class TaskModel(TrainingModel):
    """A backbone, a head and the tokenizer that fits them.

    `fit`, `evaluate` and `predict` take token dictionaries, as Keras does, and raw text:

    - A string is one text, a tuple of strings is one example of several texts (a pair).
    - A container of strings holds one text per example. A tuple of containers holds their columns:
      for pairs `(firsts, seconds)`. A container of tuples of strings, or an array or data frame
      `[n, 2]`, holds one pair per example.
    - A container is a list, array, tensor, deque or generator; a column of pandas, Polars, pyarrow
      or a Hugging Face data set. Its entries are taken by position. The same holds for labels and
      sample weights.
    - A `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of batches yields strings `[B]`,
      or tuples `(x, y)` and `(x, y, sample_weight)` of them.

    The error for missing values names their positions. Called directly, a model tokenizes string
    tensors in the graph. `predict` returns the outputs of the model; a method of the task, such as
    `classify`, returns answers. A task overrides `head`, or all of `call`, and the terms of its
    loss; its spec names the class of its preprocessor.

    Args:
        backbone: The `BertBackbone`.
        tokenizer: The `BertTokenizer`; without one the model takes token dictionaries only.
        max_length: The maximum number of tokens of a sequence, `[CLS]` and `[SEP]` included. None
            means the number of the model's positions. Longer text is truncated.
        preprocessor: A preprocessor of the task, which holds the tokenizer and the other options
            for reading and answering; leave these out then. None means no tokenizer: the model
            takes token dictionaries only, as in keras-hub. "auto" makes one from the other
            arguments.
        **kwargs: The arguments of `keras.Model`.

    Attributes:
        preprocessor: Turns texts into tokens, labels into numbers and outputs into answers. Setting
            one of its options takes effect at once. It can be replaced by another one.
        lora: The arguments of `enable_lora`, or None.

    Raises:
        UserError: If `max_length` is out of range, the vocabulary does not fit the backbone, or
            `preprocessor` belongs to another task or comes with an option that it holds.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> isinstance(classifier, TaskModel)
        True
        >>> classifier(tf.constant(["a good film", "bad ."])).shape
        TensorShape([2, 2])
    """

    lora: dict | None = None
    tokenizer = Held()
    max_length = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        tokenizer=None,
        max_length: int | None = None,
        preprocessor: Preprocessor | str | None = "auto",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.backbone = backbone
        if self.preprocessor_class is None:
            return
        if preprocessor is None:
            rule = "must be None with `preprocessor=None`, a model without text"
            require(tokenizer is None, rule, UserError, tokenizer=tokenizer)
        self.holds_given_options = isinstance(preprocessor, Preprocessor)
        self.preprocessor = None if preprocessor == "auto" else preprocessor
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
        if self.uses_pooler and config.num_hidden_layers == 0:
            expected = "have blocks for a head on the first token, which knows of no other without"
            received = "static embeddings. BertTextClassifier takes them with pooling='mean'"
            raise user_error("`backbone`", expected, received)

    def tokenize(self, texts: Any, pairs: Any = None) -> dict[str, tf.Tensor]:
        """Returns strings `[B]` as a token dictionary, cut at `max_length`.

        Raises:
            UserError: If there is no tokenizer.
        """
        return self.preprocessor.tokenize(*((texts,) if pairs is None else (texts, pairs)))

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        outputs = self.backbone(tokens, training=training, **self.backbone_options())
        return self.head(outputs, tokens, training=training)

    def built_layer(self, kind: type, *arguments: Any, name: str, shape: Any = None, **options):
        """Returns a layer of the head with its variables, in the dtype policy of the model.

        Its constructor takes the arguments; `shape` is what its `build` takes, None for vectors of
        the hidden size.
        """
        layer = kind(*arguments, dtype=self.dtype_policy, name=name, **options)
        with keras.name_scope(self.name):
            layer.build([None, self.backbone.config.hidden_size] if shape is None else shape)
        return layer

    def backbone_options(self) -> dict[str, Any]:
        """Returns arguments of the backbone's call: the attention rule, outputs that `head` needs.

        The spec declares them; a `scalar_mix` of the model needs the outputs of all blocks.
        """
        mix = getattr(self, "scalar_mix", None)
        return self.spec.backbone_options | ({} if mix is None else {"output_hidden_states": True})

    def head(self, outputs: dict[str, Any], tokens: dict[str, tf.Tensor], training: bool = False):
        """Computes the model's outputs from those of the backbone, which got these tokens."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `head` or `call`.")

    def summary(self, *args, **kwargs):
        """Prints the layers, as `keras.Model.summary` does, with the shapes of their outputs."""
        own = [part for part in self.layers if isinstance(part, (BertBackbone, ConfiguredLayer))]
        with shown_shapes(dict.fromkeys(own, (None, None, self.backbone.config.hidden_size))):
            return super().summary(*args, **kwargs)

    def __repr__(self):
        if not vars(self).get("built"):
            return super().__repr__()
        names = ("labels", "num_classes", "pooling", "max_sequence_length")
        values = {name: getattr(self, name, None) for name in names}
        values["max_length"] = values.pop("max_sequence_length")
        if values["labels"]:
            del values["num_classes"]
        lowercase = getattr(getattr(self, "tokenizer", None), "lowercase", None)
        values["cased"] = None if lowercase is None else not lowercase
        return hints.describe(self, {n: v for n, v in values.items() if v is not None})

    __getattr__ = hints.missing_attribute
    from_preset = classmethod(hints.refuse_from_preset)

    @functools.partial(OpeningMethod, backbone=BertBackbone)
    def from_pretrained(cls, path: str | os.PathLike, **options) -> "TaskModel":
        """Builds the model around a checkpoint; heads that it lacks are initialized randomly.

        Args:
            path: What `BertBackbone.from_pretrained` opens.
            **options: Arguments of this class and of `BertBackbone`, instead of the file's;
                `quantization="int8"` quantizes the model, and `adapter` names a task of
                jina-embeddings-v3. Pass `lowercase=False` for a cased TF1 checkpoint, because its
                files do not say that it is cased.

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
        return hooks.declared_spec(cls).task_files().load(cls, path, **options)

    def save_pretrained(self, directory: str | os.PathLike, format: str | None = None) -> None:
        """Writes weights and configuration into `directory`, and labels and tokenizer if any.

        Args:
            directory: See `BertBackbone.save_pretrained`.
            format: "huggingface" (`config.json`, `model.safetensors`, `vocab.txt`,
                `tokenizer_config.json`), "tf1" (google-research/bert), "bert_tf" or "auto", which
                is "bert_tf" for what Hugging Face has no class or keys for. None means
                "huggingface".

        Raises:
            UserError: See `BertBackbone.save_pretrained`; also if the model has LoRA.

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
            format: "tf_saved_model", the only one; `tools/export_onnx.py` makes ONNX of it, and
                `bert_tf.serving.export_litert` writes LiteRT files.
            verbose: An argument of Keras's method, without effect.
            input_signature: An argument of Keras's method. It must be None, because the task
                determines the signatures.
            **options: Arguments of `bert_tf.serving.export`: `version`, `portable`, `pairs`.

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
        return hooks.export_from_model(self, filepath, format, input_signature, **options)

    optimize_for_inference = InferenceKernels.optimize_for_inference

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the encoder's kernels; see `BertBackbone.prepack_for_inference`."""
        self.backbone.prepack_for_inference(dtype)

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

        Args:
            calibration: A few hundred examples of text like that of the application: a list of
                texts, or a tuple of two lists for pairs; or token dictionaries.
            mode, config, attention, skip, activations, **kwargs: See `BertBackbone.quantize`.

        Raises:
            UserError: See `BertBackbone.quantize`; also if `calibration` is a dataset of texts.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.quantize("int8")
            >>> model.predict(["A quiet film."]).shape
            (1, 2)
        """
        if calibration is not None:
            calibration = hooks.calibration_batches(self, "calibration", calibration)
        kwargs.update(attention=attention, skip=skip, activations=activations)
        self.backbone.quantize(mode, config=config, calibration=calibration, **kwargs)

    def quantization_errors(self, texts, activations: str = DYNAMIC) -> dict[str, float]:
        """Returns the relative error of every layer, by its path; see `bert_tf.adapt`.

        Args:
            texts: What `quantize` takes as `calibration`.
            activations: See `quantize`.

        Raises:
            UserError: See `bert_tf.adapt.quantization_errors`; also if `texts` is a dataset of
                texts.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> errors = model.quantization_errors(["A quiet film."])
            >>> worst = max(errors, key=errors.get)
        """
        batches = hooks.calibration_batches(self, "texts", texts)
        return hooks.quantization_errors(self.backbone, batches, activations)

    def prune_heads(self, heads: Mapping[int, Iterable[int]]) -> None:
        """Does what `BertBackbone.prune_heads` does. To train the model further, compile it again.

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

    def enable_lora(
        self,
        rank: int,
        alpha: float | None = None,
        target_modules: Sequence[str] = ("query_key_value",),
    ) -> None:
        """Freezes the backbone and adds low-rank matrices to its kernels; heads stay trainable.

        Query, key and value are one kernel in this package, so they share the matrix A.

        Args:
            rank: The rank of the added matrices.
            alpha: The added matrices are scaled by `alpha / rank`. None means `rank`.
            target_modules: The layers of every block that get them, some of "query_key_value",
                "attention_output", "intermediate" and "output_dense".

        Raises:
            UserError: For another layer or a rank below 1, if the model has LoRA already, is
                prepacked or quantized, or its optimizer has made steps.

        Example:
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.enable_lora(rank=8)
            >>> model.compile(bert_tf.training.AdamWeightDecay(1e-3))
            >>> model.fit(texts, labels)
            >>> model.save_lora_weights("reviews.safetensors")  # some hundred kilobytes
            >>> model.merge_lora()  # now a model like any other

        Reference: Hu et al. 2021 (arXiv 2106.09685).
        """
        hooks.enable_lora(self, rank, alpha, target_modules)

    def merge_lora(self) -> None:
        """Adds the low-rank matrices to the kernels. The outputs and the frozen backbone stay."""
        hooks.merge_lora(self)

    def save_lora_weights(self, path: str | os.PathLike) -> None:
        """Writes the low-rank matrices and the heads to a safetensors file.

        Raises:
            UserError: If LoRA is not enabled.
        """
        hooks.save_lora(self, path)

    def load_lora_weights(self, path: str | os.PathLike) -> None:
        """Reads what `save_lora_weights` wrote, and enables LoRA if it is not enabled.

        Raises:
            CheckpointError: If the file is damaged or its tensors do not fit the model.
            UserError: If the model has other LoRA options, or LoRA cannot be enabled.
        """
        hooks.load_lora(self, path)

    def require_merged(self, purpose: str) -> None:
        """Raises `UserError` if the model has LoRA."""
        if self.lora is not None:
            raise UserError(
                f"The model must have no LoRA to be {purpose}. Received: a model with LoRA. Call "
                "`merge_lora()` first, or write LoRA alone with `save_lora_weights(path)`."
            )

    def get_config(self):
        config = {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            **({"lora": self.lora} if self.lora else {}),
        }
        arguments = option_names(type(self)) - {*config, "tokenizer", "preprocessor"}
        held = (name for name in sorted(arguments) if hasattr(self, name))
        config |= {name: _plain(getattr(self, name)) for name in held}
        if self.preprocessor_class is None:
            return config
        if type(self.preprocessor) is not self.preprocessor_class:
            config["preprocessor"] = keras.saving.serialize_keras_object(self.preprocessor)
        return {**config, "tokenizer": keras.saving.serialize_keras_object(self.tokenizer)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        lora = config.pop("lora", None)
        kinds = {"backbone": BertBackbone, "tokenizer": Tokenizer, "preprocessor": Preprocessor}
        for name, kind in kinds.items():
            if name == "backbone" or config.get(name) is not None:
                config[name] = deserialized(config.get(name), kind, name)
        if "preprocessor" in config:
            for name in config["preprocessor"].arguments():
                config.pop(name, None)
        model = cls(**config)
        if lora is not None:
            model.enable_lora(**lora)
        return model


def _plain(value):
    """Returns an option as JSON can hold it."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    for kind in (list, dict):  # Keras keeps them as its own types
        value = kind(value) if isinstance(value, kind) else value
    return value
