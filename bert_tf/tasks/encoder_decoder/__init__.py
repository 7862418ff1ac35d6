"""Sequence-to-sequence models of two BERTs: translation, summarization."""

from bert_tf.base.json_schema import FLAG, either, integer, list_of, may_lack, optional
from bert_tf.config import ARGUMENTS
from bert_tf.models import task_spec
from bert_tf.models.weight_rows import (
    DENSE,
    ENCODER_BLOCK,
    KEY_VALUE,
    LAYER_NORM,
    TABLE,
    VECTOR,
    Row,
    layer_row,
)
from bert_tf.tasks.shared import GENERATED_TEXT, SOURCE_AND_TARGET


def _row(kind: str, ours: str, theirs: str) -> Row:
    """Returns a layer of the decoder. google-research/bert has none: these names are our own."""
    return layer_row(kind, ours, f"decoder.{theirs}")


def _block_row(kind: str, ours: str, theirs: str) -> Row:
    """Returns a layer of every block of the decoder."""
    return _row(kind, ours, f"bert.encoder.layer.{{index}}.{theirs}")


DECODER = task_spec.Head(
    "decoder",
    rows=(
        _row(TABLE, "embeddings.word_embeddings", "bert.embeddings.word_embeddings"),
        _row(TABLE, "embeddings.position_embeddings", "bert.embeddings.position_embeddings"),
        _row(TABLE, "embeddings.segment_embeddings", "bert.embeddings.token_type_embeddings"),
        _row(LAYER_NORM, "embeddings.layer_norm", "bert.embeddings.LayerNorm"),
        _row(DENSE, "head.transform", "cls.predictions.transform.dense"),
        _row(LAYER_NORM, "head.layer_norm", "cls.predictions.transform.LayerNorm"),
        _row(VECTOR, "head.output_bias", "cls.predictions.bias"),
        _row(TABLE, "output_embeddings", "cls.predictions.decoder"),
    ),
    block_rows=(
        *(_block_row(kind, f"block.{ours}", theirs) for kind, ours, theirs in ENCODER_BLOCK),
        _block_row(DENSE, "cross_attention.query", "crossattention.self.query"),
        _block_row(KEY_VALUE, "cross_attention.key_value", "crossattention.self.{role}"),
        _block_row(DENSE, "cross_attention_output", "crossattention.output.dense"),
        _block_row(LAYER_NORM, "cross_attention_layer_norm", "crossattention.output.LayerNorm"),
    ),
)
SPEC = task_spec.TaskSpec(
    name="encoder_decoder",
    model="BertEncoderDecoder",
    architectures=("EncoderDecoderModel",),
    packs_under_xla=False,
    decoded_by="generate",
    preprocessor="EncoderDecoderPreprocessor",
    examples=SOURCE_AND_TARGET,
    labels=task_spec.NEXT_WORDS,
    inputs={
        "decoder_token_ids": task_spec.TaskInput("int32", (None,), sample=1),
        "decoder_padding_mask": task_spec.TaskInput("bool", (None,)),
    },
    heads={"decoder": DECODER},
    uses_pooler=False,
    serving=GENERATED_TEXT,
    files="EncoderDecoderFiles",
    options={
        "decoder_config": optional(ARGUMENTS),
        "max_target_length": task_spec.MAX_LENGTH,
        "tie_word_embeddings": may_lack(FLAG),
        "share_encoder_decoder_weights": may_lack(FLAG),
        "decoder_start_token_id": optional(integer()),
        "eos_token_id": optional(either(integer(), list_of(integer(), least=1))),
        "generation_config": task_spec.GENERATION_CONFIG,
    },
    built_with=("decoder_config", "tie_word_embeddings", "share_encoder_decoder_weights"),
)
