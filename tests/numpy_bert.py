"""BERT's forward pass in NumPy, written from the paper; shares nothing with the package.

Reads a Hugging Face checkpoint's tensors by their own names. In float64 it is the reference, in
float32 the yardstick for what plain float32 arithmetic loses.
"""

import json
import math

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf

# The keys are the names of `BertConfig` and of `layers.activation`.
ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


class NumpyBert:
    def __init__(self, directory, dtype=np.float64, activation=None):
        self.config = json.loads((directory / "config.json").read_text())
        tensors = load_file(directory / "model.safetensors")
        self.tensors = {
            name.removeprefix("bert."): values.astype(dtype)
            for name, values in tensors.items()
            if values.dtype != np.int64
        }
        self.dtype = dtype
        self.activation = ACTIVATIONS[activation or self.config["hidden_act"]]

    def __call__(self, token_ids, segment_ids, padding_mask, attends=None):
        """Token ids `[B, T]` to (sequence_output, pooled_output, hidden states, probabilities).

        Positions are the columns of the batch; padded columns come out as zeros. `attends`
        `[B, T, T]` says which keys a query attends to; None: to all that are not padding.
        """
        attends = padding_mask[:, np.newaxis] if attends is None else attends
        length = token_ids.shape[1]
        x = (
            self.tensors["embeddings.word_embeddings.weight"][token_ids]
            + self.tensors["embeddings.position_embeddings.weight"][np.arange(length)]
            + self.tensors["embeddings.token_type_embeddings.weight"][segment_ids]
        )
        x = self.layer_norm(x, "embeddings.LayerNorm")
        states, probabilities = [x], []
        for index in range(self.config["num_hidden_layers"]):
            x, weights = self.block(x, attends, f"encoder.layer.{index}")
            states.append(x)
            probabilities.append(weights)
        real, pooled = padding_mask[:, :, None], None
        if "pooler.dense.weight" in self.tensors:
            first = (x * real)[np.arange(len(x)), padding_mask.argmax(axis=1)]  # [B, H]
            pooled = np.tanh(self.dense(first, "pooler.dense"))
        return x * real, pooled, [state * real for state in states], probabilities

    def block(self, x, attends, name, score_bias=0.0):
        """An encoder block: `[B, T, H]` to `[B, T, H]` and the probabilities `[B, N, T, T]`.

        `attends` `[B, T, T]` or `[B, 1, T]` says which keys a query attends to; `score_bias`
        `[N, T, T]` is added to the scores.
        """
        attended, weights = self.attended(x, attends, name, score_bias)
        x = self.layer_norm(x + attended, f"{name}.attention.output.LayerNorm")
        narrow = self.fed_forward(x, name)
        return self.layer_norm(x + narrow, f"{name}.output.LayerNorm"), weights

    def heads(self, x, name):
        """Query, key and value, each `[B, N, T, D]`."""
        batch, length, _ = x.shape
        return (
            self.dense(x, f"{name}.attention.self.{role}")
            .reshape(batch, length, self.config["num_attention_heads"], -1)
            .transpose(0, 2, 1, 3)
            for role in ("query", "key", "value")
        )

    def attended(self, x, attends, name, score_bias):
        """What the attention adds to x, and its probabilities."""
        batch, length, _ = x.shape
        query, key, value = self.heads(x, name)
        scores = query @ key.swapaxes(2, 3) / self.dtype(np.sqrt(query.shape[-1]))
        scores = scores + score_bias
        scores = np.where(attends[:, np.newaxis], scores, self.dtype(-1e30))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context = (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, -1)
        return self.dense(context, f"{name}.attention.output.dense"), weights

    def fed_forward(self, x, name):
        """What the feed-forward adds to x."""
        wide = self.activation(self.dense(x, f"{name}.intermediate.dense"))
        return self.dense(wide, f"{name}.output.dense")

    def masked_lm_logits(self, states):
        """The logits `[..., V]` of BERT's masked LM head for states `[..., H]`."""
        head = "cls.predictions"
        states = self.activation(self.dense(states, f"{head}.transform.dense"))
        states = self.layer_norm(states, f"{head}.transform.LayerNorm")
        words = self.tensors["embeddings.word_embeddings.weight"]
        return states @ words.T + self.tensors[f"{head}.bias"]

    def dense(self, x, name):
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0)

    def layer_norm(self, x, name):
        mean = x.mean(axis=-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        normal = (x - mean) / np.sqrt(variance + self.dtype(self.config["layer_norm_eps"]))
        return normal * self.tensors[f"{name}.weight"] + self.tensors.get(f"{name}.bias", 0)


def error_bound(reference, plain_float32):
    """DESIGN's bound: 1e-5 max(1, max|y|), or twice what plain float32 arithmetic misses."""
    missed = np.abs(np.asarray(plain_float32, np.float64) - reference).max()
    return max(1e-5 * max(1.0, np.abs(reference).max()), 2 * missed)
