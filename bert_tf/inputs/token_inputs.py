"""The dictionary of token tensors that every model takes, checked before a layer reads it.

What is unknown while a function is traced is checked when it runs, but not under XLA. Shapes: `B`
batch, `T` sequence length, `S` sequences of a row, `L` layers, `N` heads, `E` width of the word
embeddings.
"""

import keras
import tensorflow as tf

from bert_tf.base import hooks
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, user_error
from bert_tf.ops.native import needs_static_shapes

PACKED_PLACES = "packed_places"
# Floats, which are not reshaped with the examples that they belong to.
_FLOATS = ("head_mask", "word_vectors")
_SHAPED_LIKE_IDS = ("segment_ids", "padding_mask", "sequence_ids", "positions")
_TOKEN_INPUTS = ("token_ids", *_SHAPED_LIKE_IDS, "sequence_starts", "head_mask", "word_vectors")
_TOKEN_INPUTS += (PACKED_PLACES,)
# The same inputs in Hugging Face's transformers, google-research/bert and tf-models.
_OTHER_NAMES = {
    "input_ids": "token_ids",
    "input_word_ids": "token_ids",
    "attention_mask": "padding_mask",
    "input_mask": "padding_mask",
    "token_type_ids": "segment_ids",
    "input_type_ids": "segment_ids",
    "position_ids": "positions",
}


def checked_token_inputs(inputs: dict[str, tf.Tensor], config: BertConfig) -> dict[str, tf.Tensor]:
    """Returns the inputs of the backbone: integers as int32, `padding_mask` as bool.

    `segment_ids` and `padding_mask` are always among them.

    Raises:
        UserError: If `inputs` is no dictionary with `token_ids`, holds an unknown name, or a tensor
            has another shape or dtype than documented or values out of range.
        tf.errors.InvalidArgumentError: The same, when a graph runs.
    """
    check_names(inputs)
    tensors = {}
    for name in _TOKEN_INPUTS:
        if inputs.get(name) is None:
            continue
        tensor = tf.convert_to_tensor(inputs[name])
        if name == "padding_mask":
            tensor = tf.cast(tensor, tf.bool)
        elif name not in _FLOATS:
            if not tensor.dtype.is_integer:
                raise UserError(f"`{name}` must be integers. Received: dtype={tensor.dtype.name}")
            tensor = tf.cast(tensor, tf.int32)
        tensors[name] = tensor
    checks = [*_shape_checks(tensors, config), *_range_checks(tensors, config)]
    if checks:
        tensors = depending_on(checks, tensors)
    tensors["padding_mask"] = real_tokens(tensors, config)
    if "segment_ids" not in tensors:
        tensors["segment_ids"] = tf.zeros_like(tensors["token_ids"])
    return tensors


def real_tokens(inputs: dict[str, tf.Tensor], config: BertConfig) -> tf.Tensor:
    """Returns which tokens are neither padding nor ignored, bool `[B, T]`.

    What is padding is said by the `padding_mask` of the inputs, or else by the ids.
    """
    ids, mask = inputs["token_ids"], inputs.get("padding_mask")
    mask = tf.not_equal(ids, config.pad_token_id) if mask is None else tf.cast(mask, tf.bool)
    for ignored in config.ignored_token_ids:
        mask &= tf.not_equal(ids, ignored)
    return mask


def num_rows(x) -> int | tf.Tensor:
    """Returns the number of rows of a nest of tensors, an int where it is known."""
    if isinstance(x, dict) and PACKED_PLACES in x:
        x = x["token_ids"]
    for values in tf.nest.flatten(x):
        if values is not None:
            return tf.shape(values)[0] if values.shape[0] is None else values.shape[0]


def one_sequence_per_row(tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns tokens `[B, K, T]` as `[B * K, T]`; `[B, T]`, `[B]` and floats stay."""

    def reshaped(values):
        batch, count, length = keras.ops.shape(values)
        return tf.reshape(values, [batch * count, length])  # [B, K, T] -> [B * K, T]

    return {
        name: reshaped(values) if values.shape.rank > 2 and name not in _FLOATS else values
        for name, values in tokens.items()
    }


def checked_padding(tokens: dict[str, tf.Tensor], cls_token_id: int) -> dict[str, tf.Tensor]:
    """Returns the token dictionary of a request, whose padding is checked when the graph runs.

    Other texts than the first one of an example may be padding.

    Args:
        tokens: `token_ids`, `padding_mask` and others, `[B, T]` or `[B, K, T]`.
        cls_token_id: The id of `[CLS]`.

    Raises:
        tf.errors.InvalidArgumentError: If a row has no token, or its `[CLS]` is padding.
    """
    ids, mask = tokens["token_ids"], tokens["padding_mask"]
    if ids.shape.rank > 2:  # the first text, or none in a batch without rows
        ids, mask = tf.reduce_sum(ids[:, :1], axis=1), tf.reduce_any(mask[:, :1], axis=1)  # [B, T]
    counts = tf.cumsum(tf.cast(mask, tf.int32), axis=1)
    is_cls = tf.equal(ids, cls_token_id)
    is_lost = tf.reduce_any(is_cls & (counts == 0), axis=1)  # before the first token
    begins_row = tf.reduce_any(is_cls & mask & (counts == 1), axis=1)
    wrong = tf.where(~tf.reduce_any(mask, axis=1) | (is_lost & ~begins_row))[:, 0]
    must = "`padding_mask` must be true at one token or more of each row, and at its `[CLS]`"
    checks = require_tensor(tf.equal(tf.size(wrong), 0), must, [wrong], "rows where it is not")
    return depending_on(checks, tokens)


def rows_of_examples(tokens: dict[str, tf.Tensor], texts: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the tokens `[B * K, T]` of texts `[B, K]` as `[B, K, T]`."""
    shape = tf.concat([tf.shape(texts), tf.shape(tokens["token_ids"])[1:]], axis=0)
    reshaped = {name: tf.reshape(values, shape) for name, values in tokens.items()}
    return {name: tf.ensure_shape(reshaped[name], [*texts.shape, None]) for name in tokens}


# What begins the messages about values out of range, as a regular expression.
OUT_OF_RANGE = r"`\w+` must be from 0 to below"


def row_checks(
    name: str, ids: tf.Tensor, limit: int | tf.Tensor, of: str, counted: tf.Tensor | bool = True
) -> list:
    """Checks that the integers `ids` `[B, ...]` are in [0, limit) where they count; names rows."""
    if needs_static_shapes():
        return []
    is_wrong = ((ids < 0) | (ids >= limit)) & counted
    rows = tf.where(tf.reduce_any(is_wrong, axis=range(1, ids.shape.rank)))[:, 0]
    must = f"`{name}` must be from 0 to below {of}"
    received = [tf.boolean_mask(ids, is_wrong), rows, limit]
    return require_tensor(
        tf.equal(tf.size(rows), 0), must, received, "values, their rows in the batch and the limit"
    )


def require_tensor(
    condition: tf.Tensor, must: str, received: list, what: str
) -> list[tf.Operation]:
    """Raises `UserError` if `condition` is known and False; else returns what checks it, if needed.

    The error is the sentence `must` and the tensors `received`, which `what` describes.
    """
    known = tf.get_static_value(condition)
    if known or (known is None and needs_static_shapes()):
        return []
    if known is None:
        return [tf.debugging.Assert(condition, [f"{must}. Received ({what}):", *received])]
    values = ", ".join(str(tf.get_static_value(value)) for value in received)
    raise UserError(f"{must}. Received ({what}): {values}")


def depending_on(checks: list[tf.Operation], tensors: dict) -> dict:
    """Returns the tensors, not to be read before the checks have passed."""
    if not checks:
        return tensors
    with tf.control_dependencies(checks):
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}


def check_names(inputs: dict[str, tf.Tensor]) -> None:
    """Checks that inputs are a dictionary with `token_ids` and known names.

    Raises:
        UserError: If they are not.
    """
    if not isinstance(inputs, dict):
        raise UserError(
            "Inputs must be a dictionary with `token_ids` [B, T] and optionally `segment_ids` and "
            f"`padding_mask` (a BertTokenizer makes it). Received: {type(inputs).__name__}"
        )
    others = inputs.keys() - set(_TOKEN_INPUTS)
    if others and (others := others.difference(hooks.task_inputs())):
        unknown = [name for name in inputs if name in others]
        renamed = [f"`{old}` is `{_OTHER_NAMES[old]}`" for old in unknown if old in _OTHER_NAMES]
        hint = f" In this package {', '.join(renamed)}." if renamed else ""
        hint = hint or (
            " If they are inputs of your own task, declare them in its spec (CONTRIBUTING.md)."
        )
        received = f"{', '.join(map(str, unknown))}.{hint}"
        raise user_error("The names of inputs", f"be among {', '.join(_TOKEN_INPUTS)}", received)
    if inputs.get("token_ids") is None:
        received = sorted(inputs)
        raise user_error("Inputs", "hold `token_ids` [B, T] (a BertTokenizer makes them)", received)


def _shape_checks(tensors, config):
    token_ids = tensors["token_ids"]
    if token_ids.shape.rank != 2:
        raise UserError(f"`token_ids` must be [B, T]. Received: shape={token_ids.shape}")
    longest = config.max_position_embeddings
    batch, length = keras.ops.shape(token_ids)
    must = (
        f"`token_ids` must have at least one and at most {longest} columns "
        "(max_position_embeddings): shorten texts with the tokenizer's `max_length`"
    )
    fits = (length <= longest) & ((length > 0) | (batch == 0))
    if fits is not True:
        yield from require_tensor(fits, must, [length], "columns")
    is_known = token_ids.shape.is_fully_defined()
    for name in _SHAPED_LIKE_IDS:
        if name in tensors and not (is_known and tensors[name].shape == token_ids.shape):
            yield from _same_shape(name, tensors[name], token_ids)
    blocks, heads = config.num_hidden_layers, config.num_attention_heads
    described = f"[B, {blocks}, {heads}], a factor for every head of every block, pruned ones too"
    rests = {"head_mask": ([blocks, heads], described), "sequence_starts": ([None], "[B, S]")}
    for name, rest in rests.items():
        if name in tensors:
            yield from _same_rows(name, tensors[name], token_ids, *rest)
    if "word_vectors" in tensors:
        yield from _vector_per_token(tensors["word_vectors"], token_ids, config.embedding_width)


def _same_shape(name, tensor, token_ids):
    must = f"`{name}` must have the shape of `token_ids`"
    if not tensor.shape.is_compatible_with(token_ids.shape):
        raise UserError(f"{must}, {token_ids.shape}. Received: shape={tensor.shape}")
    shapes = [tf.shape(tf.ensure_shape(tensor, [None, None])), tf.shape(token_ids)]
    are_equal = tf.reduce_all(tf.equal(*shapes))
    return require_tensor(are_equal, must, shapes, f"shapes of `{name}` and `token_ids`")


def _same_rows(name, tensor, token_ids, rest, described):
    if not tensor.shape.is_compatible_with([token_ids.shape[0], *rest]):
        received = f"shape={tensor.shape}"
        raise user_error(f"`{name}`", f"be {described}, with B={token_ids.shape[0]}", received)
    if tensor.shape[0] is not None and token_ids.shape[0] is not None:
        return []
    rows = [tf.shape(tensor)[0], tf.shape(token_ids)[0]]
    must = f"`{name}` must have as many rows as `token_ids`"
    return require_tensor(tf.equal(*rows), must, rows, f"rows of `{name}` and `token_ids`")


def _vector_per_token(vectors, token_ids, width):
    must = f"`word_vectors` must be [B, T, {width}], a vector for every one of `token_ids`"
    if not vectors.dtype.is_floating or not vectors.shape.is_compatible_with([None, None, width]):
        raise UserError(f"{must}. Received: {vectors.dtype.name} of shape {vectors.shape}")
    shapes = [tf.shape(vectors)[:2], tf.shape(token_ids)]
    are_equal = tf.reduce_all(tf.equal(*shapes))
    return require_tensor(
        are_equal, must, shapes, "rows and columns of `word_vectors` and `token_ids`"
    )


def _range_checks(tensors, config):
    limits = {
        "token_ids": (config.vocab_size, "vocab_size"),
        "segment_ids": (config.type_vocab_size, "type_vocab_size"),
        "positions": (config.max_position_embeddings, "max_position_embeddings"),
        "sequence_starts": (tf.shape(tensors["token_ids"])[1], "the number of columns"),
    }
    if not config.type_vocab_size:
        del limits["segment_ids"]  # not used
    for name, (limit, of) in limits.items():
        if name in tensors:
            least, largest = tf.reduce_min(tensors[name]), tf.reduce_max(tensors[name])
            # If there are no values, the minimum is greater than the maximum: the check passes.
            inside = (least > largest) | ((least >= 0) & (largest < limit))
            must, received = f"`{name}` must be from 0 to below {of}", [least, largest, limit]
            yield from require_tensor(inside, must, received, "smallest, largest and limit")
