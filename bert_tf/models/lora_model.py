"""LoRA in every model around a backbone: train, save alone, load, merge."""

import os
from collections.abc import Sequence

from bert_tf.base import hooks
from bert_tf.errors import UserError

# The dense layers of an encoder block and their attributes; tools read them without TensorFlow.
LORA_LAYERS = {
    "query_key_value": "attention.query_key_value",
    "attention_output": "attention_output",
    "intermediate": "intermediate",
    "output_dense": "output_dense",
}


class LoraModel:
    """A Keras model with a `backbone` whose dense layers can have low-rank additions.

    Query, key and value are one kernel here, so they share the A of an addition.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.enable_lora(rank=8)
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-3))
        >>> model.fit(texts, labels)
        >>> model.save_lora_weights("reviews.safetensors")  # some hundred kilobytes
        >>> model.merge_lora()  # now a model like any other

    Reference: Hu et al. 2021 (arXiv 2106.09685).
    """

    # The arguments of `enable_lora`, or None.
    lora: dict | None = None

    def enable_lora(
        self,
        rank: int,
        alpha: float | None = None,
        target_modules: Sequence[str] = ("query_key_value",),
    ) -> None:
        """Freezes the backbone and gives its dense layers low-rank additions; heads stay trainable.

        Args:
            rank: Width of the additions.
            alpha: `alpha / rank` scales them; None takes the rank.
            target_modules: Which of a block's layers: "query_key_value", "attention_output",
                "intermediate", "output_dense".

        Raises:
            UserError: For another layer or a rank below 1, if there are additions already, the
                model is prepacked or quantized, or the optimizer has begun.
        """
        unknown = set(target_modules) - set(LORA_LAYERS)
        if unknown or not target_modules or rank < 1:
            raise UserError(
                f"`target_modules` must be some of {list(LORA_LAYERS)} and `rank` at least 1. "
                f"Received: target_modules={list(target_modules)}, {rank=}"
            )
        if self.lora is not None:
            raise UserError(
                f"The model must have no LoRA yet. Received: lora={self.lora}. Call `merge_lora()` "
                "first."
            )
        if self.optimizer_has_begun():
            raise UserError(
                "`enable_lora` must come before the first step of training. Received: an optimizer "
                "that has begun. Compile the model again after it."
            )
        self.backbone.require_kernels("given LoRA")
        for variable in self.backbone.variables:
            variable.trainable = False
        for block in self.backbone.encoder.blocks:
            for name in target_modules:
                block.dense_layers()[LORA_LAYERS[name]].enable_lora(rank, alpha)
        self.lora = {"rank": rank, "alpha": alpha, "target_modules": list(target_modules)}

    def optimizer_has_begun(self) -> bool:
        """Returns whether the optimizer has variables for the weights that the model has now."""
        return self.compiled and self.optimizer is not None and self.optimizer.built

    def merge_lora(self) -> None:
        """Merges the additions into the kernels: the same outputs. The backbone stays frozen."""
        for dense in self.backbone.encoder.dense_layers().values():
            dense.merge_lora()
        self.lora = None

    def save_lora_weights(self, path: str | os.PathLike) -> None:
        """Writes the additions and the heads to a safetensors file.

        Raises:
            UserError: If LoRA is not enabled.
        """
        hooks.save_lora(self, path)

    def load_lora_weights(self, path: str | os.PathLike) -> None:
        """Reads what `save_lora_weights` wrote, and enables LoRA if it is not enabled.

        Raises:
            CheckpointError: If the file is damaged or its tensors do not fit the model.
            UserError: If the model has other additions, or none can be enabled.
        """
        hooks.load_lora(self, path)

    def require_merged(self, purpose: str) -> None:
        """Raises `UserError` if there are low-rank additions."""
        if self.lora is not None:
            raise UserError(
                f"The model must have no LoRA to be {purpose}. Received: a model with LoRA. Call "
                "`merge_lora()` first, or write LoRA alone with `save_lora_weights(path)`."
            )
