"""The steps of `BertPrefixLM.generate`: the source at once, then one token after the other.

The keys and values of the source, without its `[SEP]`, are the memory. The `[SEP]` is the first
token of the loop, because the first word of the target is predicted from it.

Glossary: `B` sources, `S` tokens of a source, `n` sequences that are written, a multiple of B.
"""

import tensorflow as tf

from bert_tf.errors import user_error
from bert_tf.inputs.token_inputs import depending_on, require_tensor
from bert_tf.models.backbone import BertBackbone


def prefix_mask(inputs: dict[str, tf.Tensor], padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns which tokens come before the first one with a segment id above 0, bool `[B, T]`.

    Args:
        inputs: Inputs of a backbone. Without `segment_ids`, all real tokens are in the prefix.
        padding_mask: bool `[B, T]`, True for real tokens.

    Raises:
        UserError: If a row holds several sequences.

    Example:
        >>> inputs = {"segment_ids": tf.constant([[0, 0, 1, 1]])}
        >>> prefix_mask(inputs, tf.constant([[True, True, True, False]])).numpy()
        array([[ True,  True, False, False]])
    """
    if inputs.get("sequence_ids") is not None:
        expected = "not hold `sequence_ids` where a prefix is seen whole: a row is one sequence"
        raise user_error("Inputs", expected, sorted(inputs))
    if inputs.get("segment_ids") is None:
        return padding_mask
    in_target = padding_mask & (tf.convert_to_tensor(inputs["segment_ids"]) > 0)
    return padding_mask & (tf.cumsum(tf.cast(in_target, tf.int32), axis=1) == 0)


def read_sources(
    backbone: BertBackbone, tokens: dict[str, tf.Tensor], max_new_tokens: int
) -> tuple[list, dict]:
    """Returns the state and the memory before the first token.

    Args:
        backbone: The BERT.
        tokens: The token dictionary of the sources, `[CLS] source [SEP]`.
        max_new_tokens: The maximum number of steps.

    Returns:
        The state: the empty `KeyValueCache` of each block, with B rows. And the memory: `mask`,
        bool `[B, S]`, True for real tokens of the source but its last; `end`, int32 `[B]`, the
        position of the last; and `blocks`, for each block the keys and the values of the source,
        two tensors `[B, N, S, D]`.

    Raises:
        UserError: If the tokens and `max_new_tokens` are more than the positions; in a running
            graph, that is a `tf.errors.InvalidArgumentError`.
    """
    blocks = []

    def keep(_, qkv, layout, rule):
        blocks.append(_keys_and_values(qkv, layout))

    is_source = prefix_mask(tokens, backbone.padding_mask_of(tokens))
    backbone(tokens, causal=True, attended_mask=is_source, observe=keep)
    columns = tf.range(tf.shape(is_source)[1])
    last = tf.reduce_max(tf.where(is_source, columns, 0), axis=1)  # [B]
    end = last
    if tokens.get("positions") is not None:
        end = tf.gather(tf.cast(tokens["positions"], tf.int32), last, batch_dims=1)
    longest, limit = tf.reduce_max(end) + 1, backbone.config.max_position_embeddings
    most = limit - max_new_tokens + 1
    must = f"A source must have at most {most} tokens with max_new_tokens={max_new_tokens}"
    memory = {"end": end, "mask": is_source & (columns < last[:, tf.newaxis])}
    memory = depending_on(require_tensor(longest <= most, must, [longest], "tokens"), memory)
    num_rows = is_source.shape[0] or tf.shape(is_source)[0]
    layers = backbone.encoder.attention_layers().values()
    state = [layer.empty_cache(num_rows, max_new_tokens) for layer in layers]
    return state, {**memory, "blocks": blocks}


def _keys_and_values(qkv, layout):
    """`[R, 3, N, D]` -> 2 of `[B, N, S, D]`."""
    num_heads, head_size = qkv.shape[2:]
    rows = tf.reshape(qkv[:, 1:], [-1, 2 * num_heads * head_size])  # [R, 2ND]
    batch, length = tf.unstack(tf.shape(layout.padding_mask))
    shape = [batch, length, 2, num_heads, head_size]
    key_values = tf.reshape(layout.to_batch(rows), shape)  # [B, S, 2ND] -> [B, S, 2, N, D]
    return tuple(tf.unstack(tf.transpose(key_values, [2, 0, 3, 1, 4])))


def next_vectors(
    backbone: BertBackbone, token_ids: tf.Tensor, position: tf.Tensor, state: list, memory: dict
) -> tuple[tf.Tensor, tf.Tensor | None, list]:
    """Computes the vectors of one more token of each sequence.

    Args:
        backbone: The BERT.
        token_ids: int32 `[n]`. Sequence i belongs to source `i // (n // B)`.
        position: A scalar int32: 0 for the `[SEP]` of the source, 1 for the first word.
        state: What the last step returned, or `read_sources`.
        memory: What `read_sources` returned.

    Returns:
        The vectors `[n, H]`, the embeddings of the words `[V, E]` (None if they are quantized) and
        the next state.
    """
    places = memory["end"][:, tf.newaxis] + position  # [B, 1]
    by_source = tf.reshape(token_ids, [tf.shape(places)[0], -1])  # [n] -> [B, n / B]
    places = tf.reshape(tf.broadcast_to(places, tf.shape(by_source)), [-1])  # [n]
    segment_ids = tf.fill(tf.shape(token_ids), tf.cast(position > 0, tf.int32))
    rows, words = backbone.embeddings(token_ids, segment_ids=segment_ids, positions=places)
    caches = []
    blocks = backbone.encoder.stack()
    for block, cache, prefix in zip(blocks, state, memory["blocks"], strict=True):
        rows, cache = block.step(rows, position, cache, prefix, memory["mask"])
        caches.append(cache)
    return rows, words, caches
