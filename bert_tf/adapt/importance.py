"""How much the loss depends on each attention head, and which heads to prune."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_bar
from bert_tf.errors import UserError, require, user_error
from bert_tf.families.pruned_heads import checked_pruned_heads

# Without it the gradients of float16 would vanish. A power of two does not change the digits of the
# other dtypes.
_LOSS_SCALE = 2.0**10


def head_importance(
    model: Any,
    inputs: Any,
    targets: Any,
    batch_size: int = 32,
    normalize: bool = True,
    verbose: int = 0,
) -> np.ndarray:
    """Returns the expected sensitivity of the loss to each attention head.

    It is E |A_h(x)ᵀ dL(x)/dA_h(x)|, where A_h(x) is the output of head h for all tokens of an
    example: a first-order estimate of what removing the head changes. The loss is the compiled one,
    without dropout and padding.

    Args:
        model: A compiled model with one text or pair per row, such as a `BertTextClassifier`.
        inputs: Texts, pairs of texts as a tuple of two lists, or token dictionaries.
        targets: One label per example, from `model.preprocessor.targets(labels, inputs)`.
        batch_size: The number of examples of a batch.
        normalize: Whether the values of each block are divided by their l2 norm, as in the paper.
        verbose: 1 shows a progress bar.

    Returns:
        float64 `[L, N]`; 0 for pruned heads.

    Raises:
        UserError: If the model is not compiled, is prepacked or quantized, or the inputs or
            targets do not fit.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("minilm/", labels=["bad", "good"])
        >>> model.compile()
        >>> importance = bert_tf.adapt.head_importance(model, ["so bad", "wonderful"], [0, 1])
        >>> importance.shape
        (6, 12)

    Reference: Michel et al. 2019 (arXiv 1905.10650), section 4.1.
    """

    if not model.compiled:
        expected = "be compiled: the importance of heads is that for its loss"
        raise user_error("`model`", expected, f"a {type(model).__name__} that is not compiled")
    model.backbone.require_kernels("asked for the importance of its heads")
    columns = inputs if isinstance(inputs, dict) else model.preprocessor.read_columns(inputs)
    targets = _checked_targets(targets, columns)
    compute, total = None, 0.0
    starts = range(0, len(targets), batch_size)
    for start in progress_bar(starts, desc="head importance", unit="batch", disable=not verbose):
        rows = slice(start, start + batch_size)
        if isinstance(columns, dict):
            tokens = {name: tf.convert_to_tensor(column[rows]) for name, column in columns.items()}
        else:
            tokens = model.tokens_of(tuple(tf.convert_to_tensor(text[rows]) for text in columns))
        if compute is None:  # traced once for batches of any size
            signature = [
                {name: tf.TensorSpec([None] * len(v.shape), v.dtype) for name, v in tokens.items()},
                tf.TensorSpec([None, *targets.shape[1:]], targets.dtype),
            ]
            compute = functools.partial(_sensitivities, model)
            compute = tf.function(compute, input_signature=signature, autograph=False)
        total += compute(tokens, targets[rows]).numpy().astype(np.float64)
    importance = total / len(targets)
    if normalize:
        norms = np.linalg.norm(importance, axis=1, keepdims=True)
        importance /= np.where(norms > 0, norms, 1.0)
    return importance


def _sensitivities(model, tokens, targets):
    """Returns the sums over the examples of a batch, `[L, N]`."""
    config = model.backbone.config
    heads = [config.num_hidden_layers, config.num_attention_heads]
    mask = tf.ones([tf.shape(tokens["token_ids"])[0], *heads])  # [B, L, N]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(mask)
        x = {**tokens, "head_mask": mask}
        outputs = model.forward(x, targets, training=False)
        # Divided by 1, the loss is a sum over the examples, so every example has its own gradient.
        parts = model.loss_denominators(x, targets, None)
        totals = tf.nest.map_structure(tf.ones_like, parts)
        if getattr(model.loss, "reduction", None) == "sum":
            totals["rows"] = parts["rows"]
        loss = model.partial_loss(x, targets, outputs, None, False, totals)
        loss *= tf.cast(_LOSS_SCALE, loss.dtype)
    gradient = tape.gradient(loss, mask) / _LOSS_SCALE
    return tf.reduce_sum(tf.abs(gradient), axis=0)  # [B, L, N] -> [L, N]


def _checked_targets(targets, columns):
    values = list(columns.values()) if isinstance(columns, dict) else columns
    if isinstance(columns, dict) and len(np.shape(columns.get("token_ids"))) != 2:
        received = f"token_ids of shape {list(np.shape(columns.get('token_ids')))}"
        raise user_error("`inputs`", "have a text or a pair in each row, [n, T]", received)
    try:
        targets = np.asarray(targets)
    except ValueError:  # lists of several lengths
        targets = np.asarray(targets, object)
    if targets.dtype.kind not in "iufb":
        expected = "be numbers, as `model.preprocessor.targets(labels, inputs)` returns them"
        raise user_error("`targets`", expected, f"dtype={targets.dtype}")
    if not len(values[0]) or targets.ndim == 0 or len(targets) != len(values[0]):
        expected = "be at least one example, and `targets` a label for each"
        received = f"{len(values[0])} examples, labels of shape {list(targets.shape)}"
        raise user_error("`inputs`", expected, received)
    return targets


def least_important_heads(
    importance: np.ndarray,
    count: int | None = None,
    share: float | None = None,
    pruned_heads: Mapping | None = None,
) -> dict[int, list[int]]:
    """Returns the least important heads over all blocks. Every block keeps its best head.

    Args:
        importance: `[L, N]`, as `head_importance` returns it.
        count: The number of heads that are pruned afterwards, including `pruned_heads`.
        share: The same as a share of all L·N heads, rounded.
        pruned_heads: The configuration's `pruned_heads`.

    Returns:
        The heads to prune now by block, as `prune_heads` takes them.

    Raises:
        UserError: If not exactly one of `count` and `share` is given, it is out of range, or the
            importance is not finite or not `[L, N]`.

    Example:
        >>> importance = np.array([[0.9, 0.1, 0.2], [0.3, 0.8, 0.7]])
        >>> bert_tf.adapt.least_important_heads(importance, count=3)
        {0: [1, 2], 1: [0]}

    Reference: Michel et al. 2019 (arXiv 1905.10650), section 4.
    """
    importance = np.asarray(importance, np.float64)
    if importance.ndim != 2 or not importance.size or not np.isfinite(importance).all():
        expected = "be a finite number for every head of every block, [L, N]"
        raise user_error("`importance`", expected, f"shape={list(importance.shape)}")
    num_layers, num_heads = importance.shape
    pruned = checked_pruned_heads(pruned_heads, num_layers, num_heads)
    if (count is None) == (share is None):
        received = f"count={count!r}, share={share!r}"
        raise user_error("Exactly one of `count` and `share`", "be given", received)
    wanted = round(share * importance.size) if count is None else count
    most = num_layers * (num_heads - 1)
    if not 0 <= wanted <= most:
        raise UserError(
            f"`count` must be at most {most} of {importance.size} heads, and `share` their share, "
            f"so that every block keeps one. Received: {count=}, {share=}"
        )
    missing = wanted - sum(map(len, pruned.values()))
    rule = f"or `share` must include the heads that are pruned already: {dict(pruned)}"
    require(missing >= 0, rule, UserError, count=count, share=share)
    gone = {block: set(pruned.get(block, ())) for block in range(num_layers)}
    for place in np.argsort(importance, axis=None, kind="stable"):
        block, head = divmod(int(place), num_heads)
        if missing and len(gone[block]) < num_heads - 1 and head not in gone[block]:
            gone[block].add(head)
            missing -= 1
    chosen = {block: sorted(gone[block].difference(pruned.get(block, ()))) for block in gone}
    return {block: heads for block, heads in chosen.items() if heads}
