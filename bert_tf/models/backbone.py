"""BERT without a head: token ids in, vectors out."""

import dataclasses
import os

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.pooling import BertPooler
from bert_tf.layers.token_layout import TokenLayout, needs_static_shapes


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(keras.Model):
    """The BERT encoder with its embeddings and pooler.

    Args:
        config: `BertConfig` or the dictionary of its `to_dict`.
        num_encoder_layers: Build only the first k blocks; None builds all.
        padding_free: True computes on real tokens only, False on all `B * T` positions, "auto"
            takes the first wherever the native attention is there and shapes may vary (not under
            XLA, not on a TPU). The numbers are the same.

    Call arguments:
        inputs: A dictionary of `token_ids` int32 `[B, T]` and, optionally, `segment_ids` int32
            `[B, T]` (zeros if left out) and `padding_mask` bool `[B, T]`, True for real tokens
            (left out: `token_ids != config.pad_token_id`). Padding may stand anywhere.
        output_hidden_states: Whether to return the embeddings and the output of every block.
        output_attentions: Whether to return every block's attention probabilities.

    Returns:
        A dictionary: `sequence_output` `[B, T, H]`, `pooled_output` `[B, H]` (of the first
        position), on request `hidden_states`, a list of L + 1 times `[B, T, H]`, and `attentions`,
        a list of L times `[B, N, T, T]`. Vectors at padded positions are zeros.

    Raises:
        UserError: If T is longer than the position table.

    Example:
        >>> config = BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2,
        ...                     num_attention_heads=2, intermediate_size=64)
        >>> outputs = BertBackbone(config)({"token_ids": tf.constant([[5, 6, 7, 0]])})
        >>> outputs["sequence_output"].shape
        TensorShape([1, 4, 32])

    Reference: Devlin et al. 2019 (arXiv 1810.04805); google-research/bert modeling.py, `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig | dict,
        num_encoder_layers: int | None = None,
        padding_free: bool | str = "auto",
        **kwargs,
    ):
        super().__init__(**kwargs)
        config = config if isinstance(config, BertConfig) else BertConfig(**config)
        if num_encoder_layers is not None:
            if not 1 <= num_encoder_layers <= config.num_hidden_layers:
                raise UserError(
                    f"`num_encoder_layers` must be in [1, {config.num_hidden_layers}], the number "
                    f"of blocks. Received: num_encoder_layers={num_encoder_layers!r}"
                )
            config = dataclasses.replace(config, num_hidden_layers=num_encoder_layers)
        if padding_free not in ("auto", True, False):
            raise UserError(
                f"`padding_free` must be 'auto', True or False. Received: {padding_free!r}"
            )
        self.config = config
        self.num_encoder_layers = num_encoder_layers
        self.padding_free = padding_free
        self.embeddings = BertEmbeddings(config, dtype=self.dtype_policy, name="embeddings")
        self.encoder = BertEncoder(config, dtype=self.dtype_policy, name="encoder")
        self.pooler = BertPooler(
            config.hidden_size, config.initializer_range, dtype=self.dtype_policy, name="pooler"
        )
        self.build()

    def build(self, input_shape=None):
        for layer in (self.embeddings, self.encoder, self.pooler):
            if not layer.built:
                layer.build()
        self.built = True

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **options) -> "BertBackbone":
        """Builds the backbone of a checkpoint and loads its weights.

        Args:
            path: A Hugging Face directory (`config.json` and `model.safetensors`) or a TF1
                checkpoint directory (`bert_config.json` and `bert_model.ckpt.*`).
            **options: Arguments of the constructor other than `config`.

        Raises:
            CheckpointError: If a tensor is missing, has another shape, or a file is unreadable.
        """
        from bert_tf.checkpoints import load_backbone

        return load_backbone(path, backbone_class=cls, **options)

    def save_pretrained(self, directory: str | os.PathLike, format: str = "huggingface") -> None:
        """Writes `config.json` and `model.safetensors`, as Hugging Face's `BertModel` reads them.

        Args:
            directory: Made if missing; every file in it is written whole or not at all.
            format: "huggingface".
        """
        from bert_tf.checkpoints import save_model

        save_model(self, directory, format)

    def call(
        self, inputs, training=False, output_hidden_states=False, output_attentions=False
    ):
        token_ids, segment_ids, padding_mask = self._unpack(inputs)
        positions = tf.broadcast_to(tf.range(tf.shape(token_ids)[1]), tf.shape(token_ids))  # [B, T]
        packed = self._packs() and not output_attentions
        layout = TokenLayout.packed(padding_mask) if packed else TokenLayout.padded(padding_mask)
        embedded = self.embeddings(
            layout.to_rows(token_ids),
            segment_ids=layout.to_rows(segment_ids),
            positions=layout.to_rows(positions),
            training=training,
        )
        states, attentions = self.encoder(
            embedded, layout=layout, training=training, return_probabilities=output_attentions
        )
        sequence_output = layout.to_batch(states[-1])  # [R, H] -> [B, T, H]
        outputs = {
            "sequence_output": sequence_output,
            "pooled_output": self.pooler(sequence_output[:, 0]),
        }
        if output_hidden_states:
            outputs["hidden_states"] = [layout.to_batch(rows) for rows in (embedded, *states)]
        if output_attentions:
            outputs["attentions"] = attentions
        return outputs

    def _packs(self) -> bool:
        if self.padding_free != "auto":
            return self.padding_free
        return ops.active_backend() == "native" and not needs_static_shapes()

    def _unpack(self, inputs):
        if not isinstance(inputs, dict) or "token_ids" not in inputs:
            received = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
            raise UserError(
                "Expected a dictionary with `token_ids` [B, T] and optionally `segment_ids` and "
                f"`padding_mask` (a BertTokenizer makes it). Received: {received}"
            )
        token_ids = tf.cast(inputs["token_ids"], tf.int32)
        longest = self.config.max_position_embeddings
        if token_ids.shape.rank != 2:
            raise UserError(f"`token_ids` must be [B, T]. Received: shape={token_ids.shape}")
        if token_ids.shape[1] is not None and token_ids.shape[1] > longest:
            raise UserError(
                f"Sequences of at most {longest} tokens (max_position_embeddings) were expected. "
                f"Received: T={token_ids.shape[1]}. Shorten them with the tokenizer's `max_length`."
            )
        segment_ids = inputs.get("segment_ids")
        segment_ids = tf.zeros_like(token_ids) if segment_ids is None else segment_ids
        padding_mask = inputs.get("padding_mask")
        if padding_mask is None:
            padding_mask = tf.not_equal(token_ids, self.config.pad_token_id)
        return token_ids, tf.cast(segment_ids, tf.int32), tf.cast(padding_mask, tf.bool)

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "config": self.config.to_dict(),
            "num_encoder_layers": self.num_encoder_layers,
            "padding_free": self.padding_free,
        }
