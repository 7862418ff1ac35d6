"""Exports the shared weights to an ONNX file, for the peers that read one."""

import os
import warnings

import torch
import transformers

from .pytorch import two_outputs

_INPUTS = {  # ours, theirs
    "token_ids": "input_ids",
    "padding_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}
_OPSET = 17


class _Positional(torch.nn.Module):
    def __init__(self, setup, model):
        super().__init__()
        self.setup, self.model = setup, model

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, **segments}
        return two_outputs(self.setup, self.model(**inputs))


def export(setup, attention: str = "eager") -> str:
    """Writes the model once per process, for any batch size and length, and returns the path.

    `attention` is "eager" (plain matmuls and softmax) or "sdpa", if the network has it.
    """
    path = os.path.join(setup.scratch, attention, "bert.onnx")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path))
    config = transformers.AutoConfig.from_pretrained(setup.model_directory)
    has_both = transformers.MODEL_MAPPING[type(config)]._supports_sdpa
    model = transformers.AutoModel.from_pretrained(
        setup.model_directory,
        attn_implementation=attention if has_both else "eager",
        dtype=torch.float32,
    )
    shape = [2, min(16, setup.config["max_position_embeddings"])]
    example = torch.ones(shape, dtype=torch.long)
    mask = example.clone()
    mask[1, shape[1] // 2 :] = 0  # with padding, so that the tracer does not remove the mask
    names = list(input_names(setup).values())
    examples = (example, mask, torch.zeros_like(example))[: len(names)]
    axes = {name: {0: "batch", 1: "length"} for name in (*names, "sequence_output")}
    axes["pooled_output"] = {0: "batch"}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Positional(setup, model).eval(),
            examples,
            path,
            input_names=names,
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


def input_names(setup) -> dict[str, str]:
    """Returns the names of the exported inputs by ours."""
    return {
        ours: theirs
        for ours, theirs in _INPUTS.items()
        if setup.has_segments or ours != "segment_ids"
    }


def feed(setup, batch):
    """Returns a batch with the names of the exported inputs."""
    return {theirs: batch[ours].astype("int64") for ours, theirs in input_names(setup).items()}
