"""The stack of encoder blocks, and the biases by distance that its blocks may share."""

import dataclasses
import functools
import math

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import ALIBI, DISENTANGLED, ROTARY, BertConfig
from bert_tf.errors import UserError, require
from bert_tf.layers.attention.rotation import rotation
from bert_tf.layers.attention.self_attention import AttentionProbes, BertSelfAttention
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.embeddings import lookup
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule

WITHOUT_WINDOW = {"window_size": None, "num_global_tokens": 0}  # fields of an `AttentionRule`


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(ConfiguredLayer):
    """A stack of `config.num_hidden_layers` encoder blocks on `[R, H]`.

    `blocks` are those with weights of their own: with `config.shared_blocks` only one.
    `distance_bias`, a number for each bucket of distances and head that all blocks share, is None
    without `config.relative_attention_num_buckets`. `distances`, the vectors of distances of
    disentangled attention `[S, H]`, are None without it, and `distance_norm`, their LayerNorm,
    without `config.norm_rel_ebd`.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        gradient_checkpointing: Whether training stores only the input of every block and
            recomputes the other activations in the backward pass, with the same dropout (Chen et
            al. 2016, arXiv 1604.06174).

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        rule: The `ops.AttentionRule`: which tokens of its sequence a token attends to.
        probes: The `AttentionProbes`, or None. With probes, nothing is recomputed.

    Returns:
        A list of the given rows and the rows after each block, L + 1 tensors `[R, H]`.

    Raises:
        UserError: If `probes` asks for probabilities and the layout is packed.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=2)
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> states = bert_tf.layers.BertEncoder(config)(tf.ones([2, 32]), layout=layout)
        >>> [state.shape for state in states]
        [TensorShape([2, 32]), TensorShape([2, 32]), TensorShape([2, 32])]

    Reference: google-research/bert modeling.py, `transformer_model`.
    """

    def __init__(self, config: BertConfig | dict, gradient_checkpointing: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.gradient_checkpointing = gradient_checkpointing
        heads = [len(self.config.kept_heads(index)) for index in range(self.config.num_blocks)]
        dtype = self.dtype_policy
        self.blocks = [
            BertEncoderBlock(self.config, count, index, dtype=dtype, name=f"layer_{index}")
            for index, count in enumerate(heads)
        ]
        self.final_norm = self.make_layer_norm("final_norm") if self.config.norm_first else None
        self.distance_bias = self.distances = self.distance_norm = self.distance_dropout = None
        self.is_disentangled = self.config.position_embedding_type == DISENTANGLED
        if self.is_disentangled:
            self.distance_dropout = Dropout(self.config.hidden_dropout_prob)
            if self.config.norm_rel_ebd == "layer_norm":
                self.distance_norm = self.make_layer_norm("distance_norm")

    def stack(self) -> list[BertEncoderBlock]:
        """Returns the block of each of the L layers."""
        repeated = self.config.num_hidden_layers if self.config.shared_blocks else 1
        return [*self.blocks] * repeated

    def shared_parts(self) -> list:
        """Returns the variables and layers that all blocks need or that follow the last of them."""
        parts = self.distance_bias, self.distances, self.distance_norm, self.final_norm
        return [part for part in parts if part is not None]

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        if self.config.relative_attention_num_buckets:
            self.distance_bias = self.add_weight(
                name="distance_bias",
                shape=[self.config.relative_attention_num_buckets, self.config.num_attention_heads],
                initializer=truncated_normal(self.config.initializer_range),
                autocast=False,
            )
        if self.is_disentangled:
            count = 2 * number_of_distances(self.config)
            self.distances = self.add_weight(
                name="distances",
                shape=[count, self.config.hidden_size],
                initializer=truncated_normal(self.config.initializer_range),
            )
        for norm in filter(None, (self.distance_norm, self.final_norm)):
            norm.build([None, self.config.hidden_size])
        self.built = True

    def call(
        self,
        rows,
        layout: TokenLayout,
        rule: AttentionRule = EVERY_TOKEN,
        training=False,
        probes: AttentionProbes | None = None,
    ):
        biases = None if self.distance_bias is None else biases_by_distance(self.distance_bias)
        if self.config.position_embedding_type == ALIBI:
            biases = linear_biases(self.config.num_attention_heads, layout.length)
        distances = None
        if self.distances is not None:
            kinds, first, last = reached_kinds(self.config, layout.length)
            distances = tf.convert_to_tensor(self.distances)[first : last + 1]  # [S, H]
            distances = distances if self.distance_norm is None else self.distance_norm(distances)
            rule = dataclasses.replace(rule, distance_rows=kinds)
        is_same = rule.window_size is None and self.config.position_embedding_type != ROTARY
        num_layers = self.config.num_hidden_layers
        rules = [rule] * num_layers if is_same else self._rules(rule, layout)
        if self.config.num_random_blocks is not None:
            fields = {"block_size": self.config.attention_block_size}
            rules = [
                dataclasses.replace(rule, attended_blocks=blocks, **fields)
                for rule, blocks in zip(rules, blocks_of_layers(self.config, layout), strict=True)
            ]
        states = [rows]
        for index, rule in enumerate(rules):
            block = self.blocks[index % len(self.blocks)]  # of `stack`
            if biases is not None:  # [N, 2 M + 1] -> [n, 2 M + 1]
                bias = tf.gather(biases, self.config.kept_heads(index))
                rule = dataclasses.replace(rule, distance_bias=bias)
            of_block = distances  # with a mask of its own in each block, as in `transformers`
            if distances is not None:
                of_block = self.distance_dropout(distances, training=training)
            arguments = layout, rule, training, probes, of_block
            states.append(self.run_block(index, block, states[-1], *arguments))
        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1])
        return states

    def _rules(self, rule: AttentionRule, layout: TokenLayout) -> list[AttentionRule]:
        """Returns the rule of each block, which says its window and its rotation."""
        config, places = self.config, range(self.config.num_hidden_layers)
        every, window = config.global_attn_every_n_layers, rule.window_size
        wide = rule if window is None else dataclasses.replace(rule, **WITHOUT_WINDOW)
        if config.position_embedding_type == ROTARY:
            length, bases = layout.length, [config.rope_theta]
            bases.append(config.local_rope_theta or config.rope_theta)
            factor = config.rope_scaling_factor
            turns = {base: rotation(length, config.head_size, base, factor) for base in {*bases}}
            wide, rule = (
                dataclasses.replace(one, rotation=turns[base])
                for one, base in zip((wide, rule), bases, strict=True)
            )
        is_wide = [window is None or (every is not None and place % every == 0) for place in places]
        return [wide if is_one else rule for is_one in is_wide]

    def run_block(
        self, index, block, rows, layout, rule, training, probes, distances=None
    ) -> tf.Tensor:
        """Computes the block of one of the L layers: `[R, H]` -> `[R, H]`."""
        if probes is not None:
            probes = probes.of_block(index, self.config.kept_heads(index))
        elif self.gradient_checkpointing and training:
            return _recomputed(block, rows, layout, rule, distances)
        options = {} if distances is None else {"distances": distances}
        return block(rows, layout=layout, rule=rule, training=training, probes=probes, **options)

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layers of all blocks by their paths in the encoder."""
        return {
            f"blocks.{index}.{path}": dense
            for index, block in enumerate(self.blocks)
            for path, dense in block.dense_layers().items()
        }

    def attention_layers(self) -> dict[str, BertSelfAttention]:
        """Returns the attention of all blocks by the paths of what follows its dense layer."""
        return {
            f"blocks.{index}.attention_scores": block.attention
            for index, block in enumerate(self.blocks)
        }

    def prune_heads(self, config: BertConfig) -> None:
        """Removes the weights of the attention heads that are pruned in `config`."""
        for index, block in enumerate(self.blocks):
            before, after = self.config.kept_heads(index), config.kept_heads(index)
            if after != before:
                block.keep_heads([before.index(head) for head in after])
        self.config = config


def _recomputed(block, rows, layout, rule, distances):
    """Calls `block` in training and recomputes its activations in the backward pass."""
    seeds = block.draw_seeds()  # drawn once, so that both passes drop the same units
    others = {"distance_bias": rule.distance_bias, "distances": distances}
    others = {name: tensor for name, tensor in others.items() if tensor is not None}
    inputs = [rows, *others.values()]
    # All float variables: tf.custom_gradient does not allow variables that are not arguments, and a
    # variable that is frozen in Keras is still a trainable tf.Variable.
    variables = [v for v in block.variables if keras.backend.is_float_dtype(v.dtype)]

    def forward(rows, *tensors):
        options = dict(zip(others, tensors))
        mapping = list(zip(variables, tensors[len(others) :]))
        with keras.StatelessScope(state_mapping=mapping):
            own = dataclasses.replace(rule, distance_bias=options.pop("distance_bias", None))
            options |= {"training": True, "dropout_seeds": seeds}
            return block(rows, layout=layout, rule=own, **options)

    @tf.custom_gradient
    def compute(rows, *others):
        def gradient(d_output):
            # Graph optimizers would merge the second pass with the first, and all activations would
            # be stored. Adding a zero that depends on the incoming gradient prevents this.
            first = tf.reshape(d_output, [-1])[:1]
            zero = tf.reduce_sum(tf.where(first == first, tf.zeros_like(first), first))
            again = [rows + zero, *others]
            with tf.GradientTape() as tape:
                tape.watch(again)
                output = forward(*again)
            return tape.gradient(output, again, d_output)

        return forward(rows, *others), gradient

    return compute(*inputs, *[tf.convert_to_tensor(variable) for variable in variables])


def blocks_of_layers(config: BertConfig, layout: TokenLayout) -> list[tf.Tensor]:
    """Returns `attended_blocks` of the `AttentionRule` of each layer, bool `[B, n, n]` (BigBird).

    Every block attends to its neighbours, the first block, the last block of its sequence, and
    `num_random_blocks` others. The first and the last attend to all, and so do all blocks of a
    sequence with at most `5 + 2 * num_random_blocks` of them. Of the others, a block takes those
    that come first in an order that depends only on its number and on the layer.

    Raises:
        UserError: If the layout is padded and a row holds several sequences.

    Reference: Zaheer et al. 2020 (arXiv 2007.14062), section 2; `transformers`,
    modeling_big_bird.py.
    """
    size, num_random = config.attention_block_size, config.num_random_blocks
    if layout.row_splits is not None:
        lengths = layout.row_splits[1:] - layout.row_splits[:-1]  # [B]
    else:
        is_single = layout.sequence_ids is None
        rule = "must be None with `sequence_ids` in a padded layout. Use padding_free=True"
        require(is_single, rule, UserError, num_random_blocks=num_random)
        lengths = tf.reduce_sum(tf.cast(layout.padding_mask, tf.int32), axis=1)  # [B]
    counts = -(-lengths[:, tf.newaxis, tf.newaxis] // size)  # [B, 1, 1], the blocks
    longest = -(-layout.length // size)  # n
    query, key = tf.range(longest)[:, tf.newaxis], tf.range(longest)
    known = (tf.abs(query - key) <= 1) | (counts <= 5 + 2 * num_random)
    for block in (query, key):
        known |= (block == 0) | (block == counts - 1)
    if num_random == 0:
        return [known] * config.num_hidden_layers
    others = ~known & (key < counts)  # [B, n, n]
    most, found = -(-config.max_position_embeddings // size), []
    for layer in range(config.num_hidden_layers):
        order = tf.constant(_orders(layer, most))[:longest, :longest]
        last = tf.sort(tf.where(others, order, 2.0))[..., :num_random][..., -1:]  # [B, n, 1]
        found.append(known | (others & (order <= last)))
    return found


@functools.cache
def _orders(layer: int, most: int) -> np.ndarray:
    """Returns the order of the other blocks for each block of a layer, float32 `[most, most]`.

    `RandomState` draws the same numbers in every version of NumPy, and the same first ones for a
    longer position table.
    """
    draws = [np.random.RandomState([layer, block]).random_sample(most) for block in range(most)]
    return np.array(draws, np.float32)


def number_of_distances(config: BertConfig) -> int:
    """Returns how many vectors of distances disentangled attention has in each direction."""
    return config.position_buckets if config.position_buckets > 0 else _largest_distance(config)


def _largest_distance(config: BertConfig) -> int:
    given = config.max_relative_positions
    return given if given > 0 else config.max_position_embeddings


def kinds_of_distances(config: BertConfig) -> np.ndarray:
    """Returns `distance_rows` of an `AttentionRule`, int32 `[2 M + 1]`, for disentangled attention.

    With `position_buckets`, distances below half of them have a vector each; larger ones share
    vectors, ever more of them, up to `max_relative_positions`.

    Reference: He et al. 2021 (arXiv 2006.03654), equation 3; `transformers`,
    `make_log_bucket_position`.
    """
    largest = config.max_position_embeddings  # no text is longer
    distances = np.arange(-largest, largest + 1)
    span = number_of_distances(config)
    if config.position_buckets > 0:
        half, size = span // 2, np.abs(distances)
        far = np.maximum(size, half).astype(np.float32)  # float32, as `transformers` rounds up
        last = np.float32((_largest_distance(config) - 1) / half)
        share = np.log(far / np.float32(half)) / np.log(last)
        far = np.ceil(share * np.float32(half - 1)).astype(np.int64) + half
        distances = np.where(size <= half, distances, far * np.sign(distances))
    return np.clip(distances + span, 0, 2 * span - 1).astype(np.int32)


def reached_kinds(config: BertConfig, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns `distance_rows` for sequences up to `length`, and the first and last of their kinds.

    The rows are int32 `[2 M + 1]`, counted from the first kind. The kinds rise with the distance,
    so that no others are reached.
    """
    kinds = kinds_of_distances(config)
    middle = len(kinds) // 2
    reach = tf.clip_by_value(length - 1, 0, middle)
    first, last = (tf.gather(kinds, middle + end) for end in (-reach, reach))
    return tf.clip_by_value(kinds - first, 0, last - first), first, last


MAX_DISTANCE = 128  # all distances from here on are in the last bucket


def biases_by_distance(biases: keras.Variable) -> tf.Tensor:
    """Returns the `distance_bias` of `ops.varlen_attention`, float32 `[N, 2 M + 1]`.

    `biases` are a number for each bucket of distances and head, `[buckets, N]`. Half of the buckets
    are for keys after the query. In each half, the first buckets hold one distance each, and the
    others ever more of them.

    Reference: Raffel et al. 2020 (arXiv 1910.10683), section 2.1; `transformers`,
    `MPNetEncoder.compute_position_bias`.
    """
    distances = np.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
    buckets = _buckets(distances, biases.shape[0])
    of_distances = lookup(tf.convert_to_tensor(biases), buckets)  # [2 M + 1, N]
    return tf.transpose(tf.cast(of_distances, tf.float32))


def linear_biases(num_heads: int, length: tf.Tensor) -> tf.Tensor:
    """Returns the `distance_bias` of ALiBi for sequences up to `length`, float32 `[N, 2 M + 1]`.

    A head lowers the score of a distance by its slope times the distance. For a power of two of
    heads N, the slopes are `2 ** (-8 n / N)`, n = 1, …, N. Otherwise they are those for the next
    smaller power P, and then every second one of those for 2 P.

    Reference: Press et al. 2022 (arXiv 2108.12409), section 3, in both directions.
    """
    power = 2 ** int(math.log2(num_heads))
    steps = [*np.arange(1, power + 1) / power, *np.arange(1, 2 * power, 2) / (2 * power)]
    slopes = 2.0 ** (-8.0 * np.array(steps[:num_heads]))
    reach = tf.maximum(length - 1, 0)  # M
    distances = tf.abs(tf.range(-reach, reach + 1))  # [2 M + 1]
    return -slopes[:, np.newaxis].astype(np.float32) * tf.cast(distances, tf.float32)


def _buckets(distances: np.ndarray, num_buckets: int) -> np.ndarray:
    """Returns the bucket of each distance, position of the query minus that of the key."""
    half = num_buckets // 2
    exact = half // 2
    size = np.abs(distances)
    # This is float32, because `transformers` rounds down in it.
    logarithm = np.log(np.maximum(size, exact).astype(np.float32) / np.float32(exact))
    share = logarithm / np.float32(np.log(MAX_DISTANCE / exact))
    far = exact + (share * np.float32(half - exact)).astype(np.int64)
    return np.where(size < exact, size, np.minimum(far, half - 1)) + half * (distances < 0)
