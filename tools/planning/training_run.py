"""What is to be trained: the model, the batch and how it is computed.

Glossary: B batch, T sequence length, P predicted words per sequence, V vocabulary.
"""

import dataclasses

from bert_tf.config import BertConfig

OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop", "ltr")  # tasks/pretraining/model.py
OPTIMIZERS = ("adamw", "lamb")
MASKED_SHARE = 0.15  # google-research/bert create_pretraining_data.py, masked_lm_prob


@dataclasses.dataclass(frozen=True)
class Precision:
    """The sizes of numbers under a Keras dtype policy.

    Attributes:
        weight_bytes: Bytes of a weight and of its gradient.
        compute_bytes: Bytes of an activation, and of the weight that a matmul reads.
        has_master_copy: Whether the optimizer keeps a float32 copy of each weight.
    """

    weight_bytes: int
    compute_bytes: int
    has_master_copy: bool


PRECISIONS = {
    "float32": Precision(4, 4, False),
    "mixed_bfloat16": Precision(4, 2, False),
    "mixed_float16": Precision(4, 2, False),
    "bfloat16": Precision(2, 2, True),
}


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A pre-training run.

    Args:
        config: The model.
        train_batch_size: Sequences per step, over all devices.
        max_seq_length: T.
        real_tokens: The mean share of tokens that are not padding, in (0, 1].
        max_predictions: The mean number of predicted words per sequence. None is 15 % of the real
            tokens. "ltr" predicts every real token.
        objective: One of `OBJECTIVES`.
        optimizer: One of `OPTIMIZERS`.
        precision: A key of `PRECISIONS`.
        padding_free: Whether only real tokens are computed, as with the native ops; stock
            TensorFlow ops compute the padding too.
    """

    config: BertConfig
    train_batch_size: int
    max_seq_length: int
    real_tokens: float = 1.0
    max_predictions: float | None = None
    objective: str = "mlm_nsp"
    optimizer: str = "adamw"
    precision: str = "float32"
    padding_free: bool = True

    @property
    def tokens(self) -> float:
        """The mean number of tokens per sequence that are computed."""
        return self.max_seq_length * (self.real_tokens if self.padding_free else 1.0)

    @property
    def predictions(self) -> float:
        """The mean number of predicted words per sequence, P."""
        if self.objective == "ltr":
            return self.tokens
        if self.max_predictions is not None:
            return self.max_predictions
        return max(1, round(MASKED_SHARE * self.max_seq_length * self.real_tokens))

    @property
    def has_sentences(self) -> bool:
        """Whether the loss has a term on pairs of sentences."""
        return self.objective in ("mlm_nsp", "mlm_sop")

    @property
    def sizes(self) -> Precision:
        return PRECISIONS[self.precision]
