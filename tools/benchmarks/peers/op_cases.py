"""The inputs of one op, the same numbers for every peer, and how many bytes it must move."""

import dataclasses

import numpy as np

# A graph hands the buffer of one op to the next, so an op inside a model overwrites its input.
# Timed alone it could not: the caller still holds the input. A chain of ops shows the real thing.
CHAIN = 8

_EPSILON = 1e-12  # google-research/bert modeling.py, layer_norm


@dataclasses.dataclass(frozen=True)
class OpCase:
    """One op in one direction on one shape.

    Attributes:
        op: "fused_bias_gelu", "fused_residual_layer_norm" or "varlen_attention".
        direction: "forward" or "backward".
        rows: R.
        width: F or H; of attention, N * D.
        sequences: Of attention: how many the R tokens are.
        heads: Of attention: N.
    """

    op: str
    direction: str
    rows: int
    width: int
    sequences: int = 1
    heads: int = 12

    @property
    def name(self) -> str:
        if self.op == "varlen_attention":
            shape = f"{self.sequences}x{self.rows // self.sequences}"
        else:
            shape = f"[{self.rows}, {self.width}]"
        return f"{self.op} {self.direction} {shape}"

    @property
    def bytes_moved(self) -> int:
        """Reads and writes of tensors of full size; the vectors of one row do not count."""
        tensors = {
            ("fused_bias_gelu", "forward"): 2,  # x; y
            ("fused_bias_gelu", "backward"): 3,  # dy, x; dx
            ("fused_residual_layer_norm", "forward"): 3,  # x, residual; y
            ("fused_residual_layer_norm", "backward"): 4,  # dy, x, residual; dx = dresidual
        }[self.op, self.direction]
        return tensors * self.rows * self.width * 4

    @property
    def attention_flops(self) -> float:
        """QKᵀ and PV; backward computes QKᵀ again, and dV, dP, dQ, dK."""
        length = self.rows / self.sequences
        matmuls = 2 if self.direction == "forward" else 7  # forward and backward together
        return matmuls * 2 * self.sequences * length * length * self.width

    def inputs(self) -> dict[str, np.ndarray]:
        generator = np.random.default_rng([self.rows, self.width])

        def normal(*shape, scale=1.0):
            return (scale * generator.standard_normal(shape, np.float32)).astype(np.float32)

        if self.op == "varlen_attention":
            head_size = self.width // self.heads
            splits = np.linspace(0, self.rows, self.sequences + 1).astype(np.int32)
            return {
                "qkv": normal(self.rows, 3, self.heads, head_size),
                "dy": normal(self.rows, self.heads, head_size),
                "row_splits": splits,
            }
        values = {
            "x": normal(self.rows, self.width),
            "dy": normal(self.rows, self.width),
            "bias": normal(self.width, scale=0.02),
        }
        if self.op == "fused_residual_layer_norm":
            values["residual"] = normal(self.rows, self.width)
            values["gamma"] = 1 + normal(self.width, scale=0.02)
            values["beta"] = normal(self.width, scale=0.02)
            summed = values["x"] + values["bias"] + values["residual"]
            values["mean"] = summed.mean(axis=1)
            values["rstd"] = 1 / np.sqrt(summed.var(axis=1) + np.float32(_EPSILON))
        return values
