"""An encoder before BERT in the place of a `BertBackbone`, and its weights in files."""

import keras
import tensorflow as tf

from bert_tf.checkpoints.assignment import encoder_numbers
from bert_tf.checkpoints.weight_names import FORMATS, OWN, Part, Weight, backbone_weights
from bert_tf.errors import UserError, require
from bert_tf.inputs.token_inputs import checked_token_inputs
from bert_tf.layers.pooling import first_token
from bert_tf.models.backbone import BertBackbone
from research.baselines.config import ELMO, NNLM, WORD_VECTORS, BaselineConfig
from research.baselines.encoder import BaselineEncoder
from research.baselines.lstm_encoder import LstmEncoder
from research.baselines.window_encoder import WindowEncoder
from research.baselines.word_embeddings import WordEmbeddings

_ENCODERS = {WORD_VECTORS: BaselineEncoder, NNLM: WindowEncoder, ELMO: LstmEncoder}
_INPUTS = ("token_ids", "segment_ids", "padding_mask")


@keras.saving.register_keras_serializable(package="bert_tf")
class BaselineBackbone(BertBackbone):
    """Word vectors, the encoder of NNLM or that of ELMo, with BERT's pooler.

    Task models take it as they take a `BertBackbone`. Its checkpoints have the format "bert_tf".
    LoRA, quantization and all else that works on BERT's blocks does not work here.

    Args:
        config: A `BaselineConfig`, or its `to_dict()`.
        **kwargs: See `BertBackbone`.

    Call arguments:
        inputs: A dictionary of `token_ids` int32 `[B, T]` and, optionally, `padding_mask` bool
            `[B, T]` (default: `token_ids != config.pad_token_id`). `segment_ids` have no effect.
        output_hidden_states: Whether to return the vectors of the words and those of each layer.

    Returns:
        A dictionary: `sequence_output` `[B, T, H]`, `pooled_output` `[B, H]` and, on request,
        `hidden_states`, a list of `[B, T, H]`. Vectors at padded positions are zeros.

    Raises:
        UserError: If the inputs are not as described, or an output or an input of BERT's is asked
            for that this encoder does not have.

    Example:
        >>> from research.baselines import BaselineBackbone, BaselineConfig
        >>> sizes = {"hidden_size": 32, "intermediate_size": 48}
        >>> config = BaselineConfig(kind="elmo", num_hidden_layers=2, **sizes)
        >>> outputs = BaselineBackbone(config)({"token_ids": tf.constant([[5, 6, 7, 0]])})
        >>> outputs["sequence_output"].shape
        TensorShape([1, 4, 32])
    """

    config_class = BaselineConfig

    def make_layers(self):
        rule = "must be False for an encoder before BERT"
        is_usual = not self.gradient_checkpointing
        require(is_usual, rule, UserError, gradient_checkpointing=self.gradient_checkpointing)
        config, dtype = self.config, self.dtype_policy
        self.embeddings = WordEmbeddings(config, dtype=dtype, name="embeddings")
        self.encoder = _ENCODERS[config.kind](config, dtype=dtype, name="encoder")

    def call(self, inputs, training=False, output_hidden_states=False, **options):
        tokens = checked_token_inputs(inputs, self.config)
        asked = [name for name, value in options.items() if value]
        self._refuse([*(name for name in tokens if name not in _INPUTS), *asked])
        mask = tokens["padding_mask"]
        words = self.embeddings(tokens["token_ids"], training=training)  # [B, T, H]
        states = [words, *self.encoder(words, mask, training=training)]
        states = [tf.where(mask[..., tf.newaxis], values, 0) for values in states]
        pooled_output = self.pooler(first_token(states[-1], mask))
        outputs = {"sequence_output": states[-1], "pooled_output": pooled_output}
        if output_hidden_states:
            outputs["hidden_states"] = states
        return outputs

    def _refuse(self, names):
        if names:
            raise UserError(
                f"`{names[0]}` must be left out: the encoder does not support it. "
                f"Received: {', '.join(names)} for kind={self.config.kind!r}"
            )

    def require_kernels(self, purpose: str) -> None:
        """Raises `UserError` unless the purpose is training: only BERT's blocks can do more."""
        if purpose != "trained":
            raise UserError(
                f"The backbone must be a `BertBackbone` to be {purpose}. Received: a "
                f"{type(self).__name__} of kind={self.config.kind!r}"
            )

    def prepack_for_inference(self, dtype=None):
        """Raises `UserError`: see `require_kernels`."""
        self.require_kernels("prepacked")

    def require_kind(self, kind: str) -> None:
        """Raises `UserError` if the encoder is of another kind."""
        rule, own = f"of the backbone must be {kind!r}", self.config.kind
        require(own == kind, rule, UserError, kind=own)


@backbone_weights.register
def _weights(backbone: BaselineBackbone) -> list[Weight]:
    """Returns the weights with names of the own format, such as `encoder/layer_0/kernel`."""
    weights = []
    for layer in (backbone.embeddings, backbone.encoder):
        for variable in layer.weights:
            name = f"{layer.name}/{variable.path.partition(f'{layer.name}/')[2]}"
            parts = {**dict.fromkeys(FORMATS, ()), OWN: (Part((name,), tuple(variable.shape)),)}
            weights.append(Weight(name, variable, parts))
    return weights


@encoder_numbers.register
def _numbers(config: BaselineConfig) -> int:
    """Returns the number of values in the tables and kernels."""
    hidden, units = config.hidden_size, config.intermediate_size
    # Each block of ELMo has two LSTMs, with kernels [*, 4 units], and their projections.
    block = 2 * units * (4 * (hidden // 2 + units) + hidden // 2)
    context = (config.context_size or 0) * hidden**2
    return config.vocab_size * hidden + context + config.num_blocks * block
