"""LoRA in a model around a backbone: low-rank additions are enabled, required and merged.

Reference: Hu et al. 2021 (arXiv 2106.09685).
"""

from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError, require, user_error

# The dense layers of an encoder block and their attributes; tools read them without TensorFlow.
LORA_LAYERS = {
    "query_key_value": "attention.query_key_value",
    "attention_output": "attention_output",
    "intermediate": "intermediate",
    "output_dense": "output_dense",
}


def enable_lora(model: Any, rank: int, alpha: float | None, target_modules: Sequence[str]) -> None:
    """Does what `TaskModel.enable_lora` does."""
    unknown = set(target_modules) - set(LORA_LAYERS)
    rule = f"must be some of {list(LORA_LAYERS)} and `rank` at least 1"
    is_valid = not unknown and target_modules and rank >= 1
    require(is_valid, rule, UserError, target_modules=list(target_modules), rank=rank)
    if model.lora is not None:
        expected = "have no LoRA yet"
        raise user_error("The model", expected, f"lora={model.lora}. Call `merge_lora()` first.")
    if model.optimizer_has_begun():
        received = "an optimizer that has begun. Compile the model again after it."
        raise user_error("`enable_lora`", "come before the first step of training", received)
    backbone = model.backbone
    backbone.require_kernels("given LoRA")
    for variable in backbone.variables:
        variable.trainable = False
    for block in backbone.encoder.blocks:
        for name in target_modules:
            block.dense_layers()[LORA_LAYERS[name]].enable_lora(rank, alpha)
    model.lora = {"rank": rank, "alpha": alpha, "target_modules": list(target_modules)}


def merge_lora(model: Any) -> None:
    """Does what `TaskModel.merge_lora` does."""
    for dense in model.backbone.encoder.dense_layers().values():
        dense.merge_lora()
    model.lora = None
