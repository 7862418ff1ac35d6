"""TSDAE: a sentence encoder learns from texts alone, by writing them again from their vectors.

Glossary: `B` texts, `T` sequence length, `M` words that are predicted, `H` hidden size, `V`
vocabulary.
"""

from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.token_inputs import PACKED_PLACES
from bert_tf.layers.attention.token_layout import packed_places, real_tokens_first
from bert_tf.layers.decoder import BertDecoder
from bert_tf.layers.dropout import new_seed_generator, next_seed
from bert_tf.layers.pooling import first_columns, last_columns
from bert_tf.ops.native import needs_static_shapes
from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder
from bert_tf.training.training_model import TrainingModel

DELETION_RATE = 0.6  # Wang et al. 2021, section 3.1


class DenoisingAutoencoder(TrainingModel):
    """Trains a sentence encoder to keep a whole text in the vector of a part of its tokens.

    Most tokens of a text are deleted at random. A decoder predicts each token of the text from the
    true tokens before it and from the vector of the rest, which is all that its cross-attention
    reads. The loss is the mean cross-entropy of all tokens of a batch. The decoder shares the
    embeddings and the blocks of the encoder; its cross-attention and its head are new, and are
    needed for the training only.

    `fit` and `evaluate` take single texts without labels, or token dictionaries `[B, T]`.

    Args:
        encoder: The `BertSentenceEncoder`, a BERT whose vectors have the hidden size. Afterwards,
            it is used and saved by itself.
        deletion_rate: The share of the tokens that is deleted, in [0, 1). The first and the last
            token, `[CLS]` and `[SEP]`, stay, and at least one between them.
        seed: The seed of the deletion. None draws a seed.

    Raises:
        UserError: If `deletion_rate` is out of range, or the encoder is another network, has
            vectors of another size, pruned heads or local attention.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/", pooling="cls")
        >>> model = bert_tf.adapt.DenoisingAutoencoder(encoder)
        >>> model.compile(bert_tf.training.AdamWeightDecay(3e-5))
        >>> model.fit(["A dog barks.", "Interest rates rose.", "It rains."])
        >>> encoder.save_pretrained("tsdae/")

    Reference: Wang et al. 2021 (TSDAE, arXiv 2104.06979); sentence-transformers,
    `DenoisingAutoEncoderLoss`, whose data set deletes words, not pieces of words.
    """

    def __init__(
        self,
        encoder: BertSentenceEncoder,
        deletion_rate: float = DELETION_RATE,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**{"dtype": encoder.dtype_policy, **kwargs})
        require(0 <= deletion_rate < 1, "must be in [0, 1)", UserError, deletion_rate=deletion_rate)
        config = encoder.backbone.config
        if encoder.vector_size != config.hidden_size:
            expected = f"have vectors of the hidden size, {config.hidden_size}"
            raise user_error("`encoder`", expected, f"vectors of size {encoder.vector_size}")
        window, blocks = config.attention_window, config.num_random_blocks
        if (window, blocks) != (None, None) or config.pruned_heads:
            received = f"attention_window={window}, num_random_blocks={blocks}, "
            received += f"{config.pruned_heads=}"
            raise user_error("`encoder`", "have full attention and all heads", received)
        encoder.backbone.require_kernels("trained")
        self.deletion_rate = deletion_rate
        self.seed = seed
        self.encoder = encoder
        self.spec, self._heads = encoder.spec, encoder._heads
        self.uses_pooler = False
        self._known.wrapped = (encoder,)
        backbone = encoder.backbone
        self.decoder = BertDecoder(
            config,
            embeddings=backbone.embeddings,
            blocks=backbone.encoder.blocks,
            dtype=encoder.dtype_policy,
            name="decoder",
        )
        self.decoder.build()
        self.seed_generator = new_seed_generator(seed)
        self.built = True

    @property
    def backbone(self):
        """The encoder's backbone."""
        return self.encoder.backbone

    def compile(self, optimizer="adam", **kwargs):
        """Compiles this model and the encoder, which `fit` of this model needs.

        Args:
            optimizer, **kwargs: See `TrainingModel.compile`, without loss and metrics.

        Raises:
            UserError: If a loss or metrics are given.
        """
        given = sorted({"loss", "metrics", "weighted_metrics"} & set(kwargs))
        if given:
            raise user_error("`loss` and `metrics`", "be left out: the model has its own", given)
        self.encoder.compile(**{name: kwargs[name] for name in ("jit_compile",) if name in kwargs})
        super().compile(optimizer, **kwargs)

    def call(self, inputs, training=False):
        return self.encoder(inputs, training=training)

    def read_labels(self, y, x):
        require(y is None, "must be None: the labels are the texts", UserError, y=type(y).__name__)
        return None

    def _tokens(self, x):
        """Returns the tokens of single texts, and which are real, bool `[B, T]`."""
        tokens = tf.nest.map_structure(tf.convert_to_tensor, self.encoder.tokens_of(x))
        if tokens["token_ids"].shape.rank != 2:
            expected = "be [B, T], a single text in each row"
            raise user_error("`token_ids`", expected, f"shape={tokens['token_ids'].shape}")
        return tokens, self.backbone.padding_mask_of(tokens)

    def forward(self, x, y, training):
        """Returns the logits of the next tokens and these tokens.

        They are `[M, V]` and int32 `[M]`, with static shapes `[B * (T - 1), …]` with padding.
        """
        tokens, mask = self._tokens(x)
        seed = next_seed(self.seed_generator) if training else tf.zeros([], tf.int64)
        noisy = without_tokens(tokens, mask, self.deletion_rate, seed)
        if PACKED_PLACES in tokens:
            size = tokens[PACKED_PLACES].shape[0]
            noisy[PACKED_PLACES] = packed_places(noisy["padding_mask"], size)
        vectors = self.encoder(noisy, training=training)  # [B, H]
        memory = tf.cast(vectors, self.compute_dtype)[:, tf.newaxis]  # [B, 1, H]
        ids, is_word = tokens["token_ids"], mask[:, 1:]
        states, words = self.decoder(
            ids[:, :-1],
            padding_mask=mask[:, :-1],
            memory=memory,
            memory_mask=tf.ones(tf.shape(memory)[:2], tf.bool),
            packed=self.backbone.packs_tokens() and not needs_static_shapes(),
            training=training,
        )
        if needs_static_shapes():
            rows = tf.reshape(states, [-1, states.shape[-1]])  # [B, T - 1, H] -> [M, H]
            next_ids, counted = (tf.reshape(values, [-1]) for values in (ids[:, 1:], is_word))
        else:
            rows, next_ids = (tf.boolean_mask(v, is_word) for v in (states, ids[:, 1:]))
            counted = tf.ones_like(next_ids, tf.bool)
        logits = self.decoder.logits(rows, words)
        return {"logits": logits, "ids": next_ids, "counted": counted}

    def loss_denominators(self, x, y, sample_weight):
        if sample_weight is not None:
            raise user_error("`sample_weight`", "be None", type(sample_weight).__name__)
        _, mask = self._tokens(x)
        return {"words": tf.reduce_sum(tf.cast(mask[:, 1:], tf.float32))}

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_pred["ids"], y_pred["logits"])
        losses *= tf.cast(y_pred["counted"], losses.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(losses), totals["words"])

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()  # there are none but the loss

    def get_config(self):
        raise UserError(
            "The model to save must be the encoder. Received: a DenoisingAutoencoder. Call "
            "`encoder.save_pretrained(directory)`."
        )


def without_tokens(
    tokens: dict[str, tf.Tensor], mask: tf.Tensor, rate: float, seed: tf.Tensor
) -> dict[str, Any]:
    """Returns tokens of which some are deleted at random; the others move together.

    Args:
        tokens: `token_ids` and, optionally, `segment_ids`, `[B, T]`.
        mask: bool `[B, T]`, True for real tokens.
        rate: The share of the tokens between the first and the last that is deleted. At least one
            of them stays.
        seed: A scalar int64.

    Returns:
        The tokens `[B, T]` with their `padding_mask`.

    Example:
        >>> tokens = {"token_ids": tf.constant([[2, 5, 6, 7, 3]])}
        >>> rest = without_tokens(tokens, tf.ones([1, 5], tf.bool), 0.99, tf.constant(7, tf.int64))
        >>> rest["padding_mask"].numpy()
        array([[ True,  True,  True, False, False]])
    """
    columns = tf.range(tf.shape(mask)[1])
    ends = (first_columns(mask)[:, tf.newaxis], last_columns(mask)[:, tf.newaxis])  # [B, 1]
    is_inner = mask & (columns > ends[0]) & (columns < ends[1])  # [B, T]
    draws = tf.random.stateless_uniform(tf.shape(mask), tf.stack([seed, 0]))
    draws = tf.where(is_inner, draws, -1.0)
    is_kept = (draws >= rate) | (draws >= tf.reduce_max(draws, axis=1, keepdims=True))
    kept = mask & (is_kept | ~is_inner)
    order = real_tokens_first(kept)
    names = [name for name in ("token_ids", "segment_ids") if tokens.get(name) is not None]
    moved = {name: tf.gather(tokens[name], order, batch_dims=1) for name in names}
    return {**moved, "padding_mask": tf.gather(kept, order, batch_dims=1)}
