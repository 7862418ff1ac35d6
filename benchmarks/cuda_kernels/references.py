"""The ops in float64, with PyTorch.

Glossary: `R` rows, `F` columns, `N` heads, `D` head size, `T` length of a sequence.
"""

import ctypes

import torch

from tests.ops.philox_numpy import element_bits

from .launchers import EPSILON


def kept(seed, count, rate, stream=0):
    """Returns which of the first `count` elements of a stream dropout keeps: bool `[count]`."""
    rate = ctypes.c_float(rate).value
    return torch.from_numpy(element_bits(seed, count, stream) >= int(rate * 2.0**32))


def gelu(s, approximate):
    """Computes GELU with full relative precision also for values near zero."""
    if approximate:
        return s * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (s + 0.044715 * s**3))
    return 0.5 * s * torch.erfc(-s / 2**0.5)


def gate(x, activation):
    """Multiplies the second half of the columns by the activated first half: `[R, F]`."""
    s, factor = x.chunk(2, dim=1)
    activated = s * torch.sigmoid(s) if activation == "silu" else gelu(s, activation == "gelu_new")
    return activated * factor


def layer_norm(x, residual, bias, gamma, beta, rate, seed):
    """Computes LayerNorm(residual + dropout(x + bias)), `[R, F]`; residual and bias may be None."""
    z = x if bias is None else x + bias
    if rate > 0:
        keep = kept(seed, x.numel(), rate).reshape(x.shape).to(x.device)
        z = torch.where(keep, z / (1.0 - rate), 0.0)
    z = z if residual is None else z + residual
    return torch.nn.functional.layer_norm(z, gamma.shape, gamma, beta, eps=EPSILON)


def rotated(vectors, rotation, storage):
    """Turns the first S columns of `[T, N, D]` by the rotation `[P, S]` of their places.

    The result is rounded to the dtype `storage`; gradients pass through as if it were not.
    """
    half = rotation.shape[1] // 2
    cosine, sine = rotation[: len(vectors), None].split(half, dim=-1)
    first, second, others = vectors.split([half, half, vectors.shape[-1] - 2 * half], dim=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine, others)
    result = torch.cat(turned, dim=-1)
    return result + (result.to(storage).double() - result).detach()


def attention(
    qkv, lengths, causal, window, global_tokens, rate, seed, bias=None, rotation=None, storage=None
):
    """Computes attention over packed sequences of these lengths, with `qkv` `[R, 3, N, D]`.

    `window` is the largest distance of rows to which a row attends, or negative for no window. It
    does not apply for the first `global_tokens` rows of a sequence. Returns the output `[R, N, D]`
    and the log-sum-exp of the scores `[R, N]`. `bias` `[N, 2 M + 1]` has a number for each distance
    of query and key from -M to M; farther ones have the last numbers. `rotation` `[P, S]` has the
    cosines and the sines of the angles of each place; the turned rows are rounded to `storage`.
    """
    device, heads = qkv.device, qkv.shape[2]
    outputs, logsumexps = [], []
    first = 0
    for length in lengths:
        parts = qkv[first : first + length].unbind(1)  # [T, N, D] each
        if rotation is not None:
            parts = [*(rotated(part, rotation, storage) for part in parts[:2]), parts[2]]
        q, k, v = (part.transpose(0, 1) for part in parts)  # [N, T, D] each
        scores = q @ k.transpose(1, 2) / q.shape[2] ** 0.5  # [N, T, T]
        position = torch.arange(length, device=device)
        query, key = position[:, None], position[None, :]
        if bias is not None:
            reach = bias.shape[1] // 2
            scores = scores + bias[:, (query - key).clamp(-reach, reach) + reach]
        sees = torch.ones(length, length, dtype=torch.bool, device=device)
        if window >= 0:
            near = (query - key).abs() <= window
            sees = near | (query < global_tokens) | (key < global_tokens)
        if causal:
            sees &= key <= query
        scores = scores.masked_fill(~sees, -float("inf"))
        probabilities = scores.softmax(-1)
        if rate > 0 and length:
            streams = [
                (first + row) * heads + head for head in range(heads) for row in range(length)
            ]
            keep = torch.stack([kept(seed, length, rate, stream) for stream in streams])
            keep = keep.reshape(scores.shape).to(device)  # [N T, T] -> [N, T, T]
            probabilities = torch.where(keep, probabilities / (1.0 - rate), 0.0)
        outputs.append((probabilities @ v).transpose(0, 1))  # [T, N, D]
        logsumexps.append(scores.logsumexp(-1).transpose(0, 1))  # [T, N]
        first += length
    return torch.cat(outputs), torch.cat(logsumexps)
