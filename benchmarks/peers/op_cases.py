"""The inputs of one op, equal for all peers, and the bytes that it must move."""

import dataclasses

import numpy as np

# In a graph an op can overwrite its input buffer, as in a model. An op that is timed alone cannot,
# because the caller holds the input. Therefore a chain of this many ops is timed.
CHAIN = 8

EPSILON = 1e-12  # google-research/bert modeling.py, layer_norm


@dataclasses.dataclass(frozen=True)
class OpCase:
    """One op in one direction on one shape."""

    op: str  # "fused_bias_gelu", "fused_residual_layer_norm" or "varlen_attention"
    direction: str  # "forward" or "backward"
    rows: int  # R
    width: int  # F or H; for attention, N * D
    sequences: int = 1  # for attention: the number of sequences of the R tokens
    heads: int = 12  # for attention: N

    @property
    def name(self) -> str:
        if self.op == "varlen_attention":
            shape = f"{self.sequences}x{self.rows // self.sequences}"
        else:
            shape = f"[{self.rows}, {self.width}]"
        return f"{self.op} {self.direction} {shape}"

    @property
    def bytes_moved(self) -> int:
        """The bytes read and written for tensors of full size, without vectors of one row."""
        tensors = {
            ("fused_bias_gelu", "forward"): 2,  # x; y
            ("fused_bias_gelu", "backward"): 3,  # dy, x; dx
            ("fused_residual_layer_norm", "forward"): 3,  # x, residual; y
            ("fused_residual_layer_norm", "backward"): 4,  # dy, x, residual; dx = dresidual
        }[self.op, self.direction]
        return tensors * self.rows * self.width * 4

    @property
    def attention_flops(self) -> float:
        """The FLOPs of QKᵀ and PV; the gradient computes QKᵀ again, dV, dP, dQ and dK."""
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
            values["rstd"] = 1 / np.sqrt(summed.var(axis=1) + np.float32(EPSILON))
        return values
