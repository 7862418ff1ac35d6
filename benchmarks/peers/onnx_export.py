"""Exports the shared weights to an ONNX file, for the peers that read one."""

import os
import warnings

import torch
import transformers

from ..workloads import ENCODER_INPUTS

_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
_OPSET = 17


class _Positional(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, token_type_ids, attention_mask):
        outputs = self.model(
            input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
        )
        return outputs[0], outputs[1]


def export(setup, attention: str = "eager") -> str:
    """Writes the model once per process, for any batch size and length, and returns the path.

    `attention` is "eager" (plain matmuls and softmax) or "sdpa".
    """
    path = os.path.join(setup.scratch, attention, "bert.onnx")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path))
    model = transformers.BertModel.from_pretrained(
        setup.model_directory, attn_implementation=attention, dtype=torch.float32
    )
    shape = [2, min(16, setup.config["max_position_embeddings"])]
    example = torch.ones(shape, dtype=torch.long)
    mask = example.clone()
    mask[1, shape[1] // 2 :] = 0  # with padding, so that the tracer does not remove the mask
    axes = {name: {0: "batch", 1: "length"} for name in (*_INPUTS, "sequence_output")}
    axes["pooled_output"] = {0: "batch"}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Positional(model).eval(),
            (example, torch.zeros_like(example), mask),
            path,
            input_names=list(_INPUTS),
            output_names=["sequence_output", "pooled_output"],
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    return path


def fused(setup) -> str:
    """Writes the model with ONNX Runtime's fusions (Attention, BiasGelu), and returns the path."""
    from onnxruntime.transformers import optimizer

    path = export(setup)
    optimized = optimizer.optimize_model(
        path,
        model_type="bert",
        num_heads=setup.config["num_attention_heads"],
        hidden_size=setup.config["hidden_size"],
    )
    path = os.path.join(os.path.dirname(path), "fused.onnx")
    optimized.save_model_to_file(path)
    return path


def feed(batch):
    """Returns a batch with the names of the exported inputs."""
    return {theirs: batch[ours].astype("int64") for theirs, ours in zip(_INPUTS, ENCODER_INPUTS)}
