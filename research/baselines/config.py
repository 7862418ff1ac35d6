"""The configuration of the encoders before BERT."""

import dataclasses

from bert_tf.base.json_schema import integer, one_of, optional
from bert_tf.config import NO_POSITIONS, BertConfig
from bert_tf.errors import require

WORD_VECTORS, NNLM, ELMO = "word_vectors", "nnlm", "elmo"


def _field(default, kind):
    return dataclasses.field(default=default, metadata={"kind": kind})


@dataclasses.dataclass(frozen=True)
class BaselineConfig(BertConfig):
    """Hyperparameters of an encoder before BERT, which has no attention, positions or segments.

    Args:
        kind: "word_vectors", the vectors of the words themselves (`num_hidden_layers` 0); "nnlm",
            a dense layer on the vectors of the last `context_size` tokens (`num_hidden_layers` 1;
            Bengio et al. 2003); or "elmo", bidirectional layers of `intermediate_size` LSTM units
            per direction, projected to `H / 2` (Peters et al. 2018).
        context_size: For "nnlm", the number of tokens that it sees, including the one that it
            computes a vector for. None for the other kinds.

    The other arguments are those of `BertConfig`. Those of attention keep their defaults.

    Raises:
        ConfigError: If a value is out of range, or does not fit the kind.

    Example:
        >>> from research.baselines import BaselineConfig
        >>> BaselineConfig(kind="elmo", hidden_size=64, num_hidden_layers=2).num_blocks
        2
    """

    num_hidden_layers: int = _field(0, integer())
    position_embedding_type: str = _field(NO_POSITIONS, one_of(NO_POSITIONS))
    num_attention_heads: int = _field(1, one_of(1))
    kind: str = _field(WORD_VECTORS, one_of(WORD_VECTORS, NNLM, ELMO))
    context_size: int | None = _field(None, optional(integer(least=1)))

    def __post_init__(self):
        super().__post_init__()
        kind, layers = self.kind, self.num_hidden_layers
        count = {WORD_VECTORS: "0", NNLM: "1", ELMO: "positive"}[kind]
        fits = layers > 0 if kind == ELMO else layers == int(count)
        require(fits, f"must be {count} for kind={kind!r}", num_hidden_layers=layers)
        rule = f"must be {'a number' if kind == NNLM else 'None'} for kind={kind!r}"
        fits = (self.context_size is None) == (kind != NNLM)
        require(fits, rule, context_size=self.context_size)
        rule = "must be even for kind='elmo', whose directions have half of it each"
        require(kind != ELMO or self.hidden_size % 2 == 0, rule, hidden_size=self.hidden_size)
        only = {"pruned_heads": {}, "attention_window": None, "num_random_blocks": None}
        only |= {"position_offset": 0, "relative_attention_num_buckets": None}
        only |= {"embedding_size": None, "shared_blocks": False, "causal": False}
        for name, value in only.items():
            rule = f"must be {value!r} for an encoder before BERT"
            require(getattr(self, name) == value, rule, **{name: getattr(self, name)})

    @property
    def num_blocks(self) -> int:
        """The number of layers of LSTMs; the dense layer of "nnlm" is no block."""
        return self.num_hidden_layers if self.kind == ELMO else 0
