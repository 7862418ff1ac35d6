"""The hyperparameters of a BERT model and the two JSON files that contain them.

google-research/bert writes `bert_config.json`, Hugging Face writes `config.json`. One key has two
meanings: `"hidden_act": "gelu"` is the tanh approximation in google-research/bert (modeling.py,
since February 2019) and the exact erf form in Hugging Face and in `BertConfig`.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import (
    FLAG,
    OBJECT,
    SCALAR,
    Kind,
    check,
    integer,
    list_of,
    mapping_of,
    may_lack,
    number,
    object_of,
    one_of,
    optional,
    text,
)
from bert_tf.errors import ConfigError, UserError, require
from bert_tf.families import file_values
from bert_tf.families.family import LARGE
from bert_tf.families.file_values import ACTIVATION_NAMES, EXACT_GELU, TF1_KEY
from bert_tf.families.network_families import BERT, BERT_GENERATION, BERTS, FAMILIES
from bert_tf.families.pruned_heads import checked_pruned_heads

LAYER_NORM_EPSILON = 1e-12  # google-research/bert modeling.py, layer_norm

# How a sequence is reduced to one vector: the pooler on the first token, or over the real tokens.
POOLING_MODES = ("cls", "mean", "max", "mean_max")
# A classifier of a left-to-right model reads the last token, which has seen all (GPT). "late" is
# the mean of what the pooler makes of each token (EuroBERT).
CLASSIFIER_POOLING_MODES = (*POOLING_MODES, "last", "late")

# The types of a classifier's labels, with Hugging Face's names (config.json, `problem_type`).
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)
# The logit of a class that an example does not have: an answer cannot start at padding.
PADDING_LOGIT = -1e9

# What tells a token its place: a learned vector that is added to its embedding, rotations of
# queries and keys (Su et al. 2021, arXiv 2104.09864), scores of distances (DeBERTa), a number
# for each distance (Press et al. 2022, 2108.12409), or nothing (static embeddings).
ABSOLUTE, ROTARY, DISENTANGLED, ALIBI = "absolute", "rotary", "disentangled", "alibi"
NO_POSITIONS = "none"
_POSITIONS = one_of(ABSOLUTE, ROTARY, DISENTANGLED, ALIBI, NO_POSITIONS)
_TIED = "tie_word_embeddings"

_SIZE = integer(least=1)
_RATE = number("in [0, 1)", lambda value: 0 <= value < 1)
_SMALL = number("in (0, 1)", lambda value: 0 < value < 1)
_THETA = number("above 1", lambda value: value > 1)
_AT_LEAST_1 = number("at least 1", lambda value: value >= 1)
_ODD_OR_0 = Kind("odd or 0", lambda value: integer().fits(value) and (value == 0 or value % 2 == 1))
_MOST_BLOCKS = 1024  # of a sequence with random attention, whose table of pairs is small then
_BUCKETS = integer(4, 511)  # a quarter of them have one distance each, which must be below 128
_ACTIVATION = Kind(
    f"one of {sorted(ACTIVATION_NAMES)}",
    lambda value: isinstance(value, str) and value in ACTIVATION_NAMES,
)
# Groups of fields: those that google-research/bert's file has no keys for, and those that BERT's
# own network does not need, which are written where it is another one.
_NOT_IN_TF1, _SWITCH = "not in TF1", "switch"


def _field(default: Any, kind: Kind, group: str | None = None) -> Any:
    """Declares a field of `BertConfig`, with the kind of its values."""
    return dataclasses.field(default=default, metadata={"kind": kind, "group": group})


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Hyperparameters of a BERT encoder. The defaults are BERT-base's, uncased.

    Args:
        vocab_size: Number of token ids, `V`.
        hidden_size: Width of the encoder, `H`.
        num_hidden_layers: Number of encoder blocks, `L`. 0 is for static embeddings, whose
            `position_embedding_type` is "none".
        num_attention_heads: Number of heads `N`; must divide `hidden_size`.
        intermediate_size: Width of the feed-forward layer, `F`.
        hidden_act: "gelu" (erf), "gelu_new" (tanh), "quick_gelu" (sigmoid), "relu" or "silu".
        hidden_dropout_prob: Dropout rate after the embeddings and after each sublayer.
        attention_probs_dropout_prob: Dropout rate on the attention probabilities.
        max_position_embeddings: Longest sequence, in tokens.
        type_vocab_size: Number of segment ids. 0 is the network of BERT-generation (Rothe et al.
            2019) or DistilBERT: it ignores segment ids.
        task_type_vocab_size: Number of task embeddings (ERNIE), of which the first is added to
            every token. None adds nothing.
        initializer_range: Standard deviation of the initial weights.
        layer_norm_eps: Added to the variance in every LayerNorm.
        pad_token_id: The token id of padding.
        classifier_dropout: Dropout rate before a task head. None means `hidden_dropout_prob`.
        attention_window: How many tokens on either side a token attends to. None means its whole
            sequence. Other programs do not know this key and compute full attention.
        num_global_tokens: With a window, the number of tokens at the start of a sequence that
            attend to all tokens and that all tokens attend to.
        num_random_blocks: Makes the attention that of BigBird: a block of tokens attends to its
            neighbours, to the first and the last block, which attend to all, and to this number of
            random blocks, other ones in each layer. Texts of at most `5 + 2 * num_random_blocks`
            blocks have full attention. None means full attention for all texts.
        attention_block_size: With `num_random_blocks`, the number of tokens of a block.
        pruned_heads: The pruned heads of each block, both counted from 0: {0: [1, 3]}.
        model_type: Hugging Face's name of the network in files: "bert", "roberta", …. The arguments
            below say what differs in the network. None means "bert", or "bert-generation" without
            segments.
        embedding_size: Width of the embeddings `E`, which a dense layer turns into `H` (ELECTRA,
            ALBERT). None means `hidden_size`, without that layer.
        position_offset: Row of the position table for the first token of a sequence. If it is not
            0, positions count only real tokens (RoBERTa, where it is `pad_token_id + 1`).
        relative_attention_num_buckets: Number of buckets for the distances of tokens. For each head
            and bucket, a number is added to the attention scores (MPNet). None adds nothing.
        shared_blocks: Whether all blocks have the same weights (ALBERT). `pruned_heads` of block 0
            then applies to all blocks.
        pooler_act: Activation of the pooler: "tanh", "relu" (DistilBERT) or "gelu" (ELECTRA).
        causal: Whether a token attends only to itself and to earlier tokens (GPT). Other programs
            do not know this key and compute attention in both directions.
        position_embedding_type: "absolute" adds a learned vector for each position to the
            embeddings, "rotary" turns queries and keys by angles that grow with the position,
            "disentangled" scores vectors of distances with queries and keys (DeBERTa), "alibi"
            lowers the scores of a head in proportion to the distance (Jina BERT, MosaicBERT), and
            with "none" the order of the tokens does not count (static embeddings).
        position_buckets: With "disentangled", the number of vectors for distances in each
            direction: near distances have one each, and the last is that of
            `max_relative_positions`. -1 means one for each distance.
        max_relative_positions: With "disentangled", the distance that all larger ones are taken
            for. -1 means `max_position_embeddings`.
        norm_rel_ebd: With "disentangled", "layer_norm" if LayerNorm follows the vectors of
            distances, else "none".
        share_att_key: With "disentangled", whether the dense layers of queries and keys also turn
            vectors of distances into queries and keys. If False, others do.
        key_bias: Whether keys have a bias where `attention_bias` gives one to queries and values.
        conv_kernel_size, conv_act: The number of tokens, an odd one, that a convolution in the
            first block sees, and its activation (DeBERTa-v2). 0 means no convolution.
        rope_theta: With "rotary", the base of the angles: for a head of size D, angle c of
            position p is `p * rope_theta ** (-2 c / D)`.
        rope_scaling_factor: With "rotary", f of static NTK scaling: the base is `f * rope_theta`,
            and all angles are divided by `f ** (2 / D)` (Su Jianlin 2023, kexue.fm/archives/9706).
        local_rope_theta: The base in blocks with a window; None means `rope_theta`.
        global_attn_every_n_layers: With a window, every n-th block, beginning with the first,
            attends to whole sequences. None means that no block does.
        norm_first: Whether LayerNorm precedes attention and feed-forward (pre-LN), with one more
            after the last block. If False, it follows them and their residual.
        first_block_norm: With `norm_first`, whether the attention of the first block has it.
        gated_mlp: Whether the feed-forward computes `act(x A) * (x B)` instead of `act(x A)`
            (GeGLU, SwiGLU).
        attention_bias, mlp_bias, norm_bias: Whether the dense layers of attention, those of the
            feed-forward, and LayerNorm add a bias.
        mlp_output_bias: The same for the last layer of the feed-forward; None means `mlp_bias`.
        rms_norm: Whether RMSNorm replaces LayerNorm: `gamma * x / sqrt(mean(x²) + epsilon)`.
        embedding_norm: Whether LayerNorm follows the sum of the embeddings.
        num_key_value_heads: With fewer of these than heads, each is shared by a group of heads
            (grouped-query attention). None means `num_attention_heads`.
        classifier_bias: Whether the pooler and the first layer of the masked-LM head have a bias.
        output_embedding_size: Width of the masked-LM head's own table, by which vectors become
            logits. None means that it shares the word embeddings.
        masked_lm_transform: Whether a dense layer, an activation and LayerNorm precede that table
            in the masked-LM head. Without them, the head has a bias only with `mlp_bias`.
        pooler_norm: Whether LayerNorm follows the activation of the pooler.
        pooler_use: Which vectors pass through the pooler before a head: "cls", the vector of the
            first token if that is the pooling; "pooled", that of every pooling (EuroBERT); or
            "tokens", also those of single tokens (ModernBERT).
        ignored_token_ids: Ids of tokens that the network leaves out as it leaves out padding, such
            as the special and unknown tokens of static embeddings.
        extra: Other keys of the file (`id2label`, `problem_type`, …), which are written back.

    Raises:
        ConfigError: If a value is out of range or unknown.

    Example:
        >>> BertConfig.base().hidden_size
        768
        >>> BertConfig(hidden_size=128, num_attention_heads=2, intermediate_size=512).head_size
        64

    Reference: Devlin et al. 2019 (arXiv 1810.04805), section 3; google-research/bert `BertConfig`.
    """

    vocab_size: int = _field(30522, _SIZE)
    hidden_size: int = _field(768, _SIZE)
    num_hidden_layers: int = _field(12, integer())
    num_attention_heads: int = _field(12, _SIZE)
    intermediate_size: int = _field(3072, _SIZE)
    hidden_act: str = _field("gelu", _ACTIVATION)
    hidden_dropout_prob: float = _field(0.1, _RATE)
    attention_probs_dropout_prob: float = _field(0.1, _RATE)
    max_position_embeddings: int = _field(512, _SIZE)
    type_vocab_size: int = _field(2, integer())
    initializer_range: float = _field(0.02, _SMALL)
    layer_norm_eps: float = _field(LAYER_NORM_EPSILON, _SMALL, _NOT_IN_TF1)
    pad_token_id: int = _field(0, integer(), _NOT_IN_TF1)
    classifier_dropout: float | None = _field(None, optional(_RATE), _NOT_IN_TF1)
    attention_window: int | None = _field(None, optional(integer()), _NOT_IN_TF1)
    num_global_tokens: int = _field(1, integer(), _NOT_IN_TF1)
    num_random_blocks: int | None = _field(None, optional(integer()), _NOT_IN_TF1)
    attention_block_size: int = _field(64, _SIZE, _NOT_IN_TF1)
    pruned_heads: Mapping[int, Sequence[int]] = dataclasses.field(
        default_factory=dict, hash=False, metadata={"group": _NOT_IN_TF1}
    )
    model_type: str | None = _field(None, one_of(*FAMILIES))
    embedding_size: int | None = _field(None, optional(_SIZE), _SWITCH)
    position_offset: int = _field(0, integer(), _SWITCH)
    relative_attention_num_buckets: int | None = _field(None, optional(_BUCKETS), _SWITCH)
    shared_blocks: bool = _field(False, FLAG, _SWITCH)
    pooler_act: str = _field("tanh", one_of("tanh", "relu", "gelu"), _SWITCH)
    position_embedding_type: str = _field(ABSOLUTE, _POSITIONS, _SWITCH)
    position_buckets: int = _field(-1, integer(least=-1), _SWITCH)
    max_relative_positions: int = _field(-1, integer(least=-1), _SWITCH)
    norm_rel_ebd: str = _field("layer_norm", one_of("none", "layer_norm"), _SWITCH)
    share_att_key: bool = _field(True, FLAG, _SWITCH)
    key_bias: bool = _field(True, FLAG, _SWITCH)
    conv_kernel_size: int = _field(0, _ODD_OR_0, _SWITCH)
    conv_act: str = _field("tanh", one_of("tanh", "relu", "gelu"), _SWITCH)
    rope_theta: float = _field(10_000.0, _THETA, _SWITCH)
    rope_scaling_factor: float = _field(1.0, _AT_LEAST_1, _SWITCH)
    local_rope_theta: float | None = _field(None, optional(_THETA), _SWITCH)
    global_attn_every_n_layers: int | None = _field(None, optional(_SIZE), _SWITCH)
    norm_first: bool = _field(False, FLAG, _SWITCH)
    first_block_norm: bool = _field(True, FLAG, _SWITCH)
    gated_mlp: bool = _field(False, FLAG, _SWITCH)
    attention_bias: bool = _field(True, FLAG, _SWITCH)
    mlp_bias: bool = _field(True, FLAG, _SWITCH)
    norm_bias: bool = _field(True, FLAG, _SWITCH)
    mlp_output_bias: bool | None = _field(None, optional(FLAG), _SWITCH)
    rms_norm: bool = _field(False, FLAG, _SWITCH)
    embedding_norm: bool = _field(True, FLAG, _SWITCH)
    task_type_vocab_size: int | None = _field(None, optional(_SIZE), _SWITCH)
    num_key_value_heads: int | None = _field(None, optional(_SIZE), _SWITCH)
    classifier_bias: bool = _field(True, FLAG, _SWITCH)
    output_embedding_size: int | None = _field(None, optional(_SIZE), _SWITCH)
    masked_lm_transform: bool = _field(True, FLAG, _SWITCH)
    pooler_norm: bool = _field(False, FLAG, _SWITCH)
    pooler_use: str = _field("cls", one_of("cls", "pooled", "tokens"), _SWITCH)
    ignored_token_ids: Sequence[int] = _field((), list_of(integer(), most=100), _SWITCH)
    causal: bool = _field(False, FLAG, _NOT_IN_TF1)
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self):
        if self.model_type in (None, *BERTS):
            model_type = BERT if self.type_vocab_size else BERT_GENERATION
            object.__setattr__(self, "model_type", model_type)
        kinds = {**_kinds(type(self)), "extra": object_of(_EXTRA)}
        check(vars(self), object_of(kinds), None, ConfigError)
        rule = f"must be in [0, vocab_size={self.vocab_size})"
        require(self.pad_token_id < self.vocab_size, rule, pad_token_id=self.pad_token_id)
        object.__setattr__(self, "ignored_token_ids", tuple(self.ignored_token_ids))
        has_blocks = self.num_hidden_layers > 0 or self.position_embedding_type == NO_POSITIONS
        rule = "must be a positive integer; 0 is for position_embedding_type='none'"
        require(has_blocks, rule, num_hidden_layers=self.num_hidden_layers)
        sizes = {"hidden_size": self.hidden_size, "num_attention_heads": self.num_attention_heads}
        is_multiple = self.hidden_size % self.num_attention_heads == 0
        require(is_multiple, "must be a multiple of `num_attention_heads`", **sizes)
        object.__setattr__(self, "hidden_act", ACTIVATION_NAMES[self.hidden_act])
        if self.position_embedding_type == ROTARY:
            is_even = self.head_size % 2 == 0
            rule = "must give heads an even size with rotary positions"
            require(is_even, rule, **sizes)
        if self.num_random_blocks is not None:
            rule = "must be None with `attention_window`, `causal` or scores of distances"
            has_scores = self.position_embedding_type in (ALIBI, DISENTANGLED)
            others = (has_scores, self.causal, self.relative_attention_num_buckets)
            is_alone = self.attention_window is None and not any(others)
            require(is_alone, rule, num_random_blocks=self.num_random_blocks)
            size, most = self.attention_block_size, self.max_position_embeddings
            rule = f"must be at least `max_position_embeddings` / {_MOST_BLOCKS}"
            is_large = size * _MOST_BLOCKS >= most
            require(is_large, rule, attention_block_size=size, max_position_embeddings=most)
        groups = self.num_key_value_heads
        if groups is not None:
            rule = "must divide `num_attention_heads`, without `pruned_heads`"
            fits = self.num_attention_heads % groups == 0 and not self.pruned_heads
            given = {"num_attention_heads": self.num_attention_heads}
            require(fits, rule, num_key_value_heads=groups, **given, pruned_heads=self.pruned_heads)
        sizes = (self.num_hidden_layers, self.num_attention_heads)
        object.__setattr__(self, "pruned_heads", checked_pruned_heads(self.pruned_heads, *sizes))
        if self.shared_blocks:
            rule = "must name block 0 only, because all blocks have its weights"
            require(set(self.pruned_heads) <= {0}, rule, pruned_heads=self.pruned_heads)

    @property
    def head_size(self) -> int:
        """The size of an attention head, `D`."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_blocks(self) -> int:
        """The number of blocks with weights of their own."""
        return 1 if self.shared_blocks else self.num_hidden_layers

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings, `E`."""
        return self.embedding_size or self.hidden_size

    def kept_heads(self, block: int) -> list[int]:
        """Returns the heads of a block that are not pruned, by their original numbers."""
        pruned = self.pruned_heads.get(0 if self.shared_blocks else block, ())
        return [head for head in range(self.num_attention_heads) if head not in pruned]

    def require_bert_blocks(self, use: str) -> None:
        """Raises `UserError` if blocks differ from BERT's in what `use` does not know.

        `use` says what the blocks are for, as in "must have BERT's blocks to be generated from".
        """
        usual = {field.name: field.default for field in dataclasses.fields(BertConfig)}
        others = {n: getattr(self, n) for n in _BLOCK_SWITCHES if getattr(self, n) != usual[n]}
        require(not others, f"must be as in BERT to be {use}", UserError, **others)

    @classmethod
    def base(cls, **changes) -> "BertConfig":
        """Returns BERT-base, uncased (L=12, H=768, N=12, F=3072), with `changes`."""
        return cls(**changes)

    @classmethod
    def large(cls, **changes) -> "BertConfig":
        """Returns BERT-large, uncased (L=24, H=1024, N=16, F=4096), with `changes`."""
        return cls(**{**LARGE, **changes})

    @classmethod
    def modern(cls, **changes) -> "BertConfig":
        """Returns ModernBERT-base (L=22, H=768, N=12, F=1152), with `changes`.

        Reference: Warner et al. 2024 (arXiv 2412.13663), table 4.
        """
        family = FAMILIES["modernbert"]
        sizes = {**family.defaults, **family.fixed, "attention_window": 64}
        return cls(**{**sizes, "model_type": "modernbert", **changes})

    @classmethod
    def static(cls, **changes) -> "BertConfig":
        """Returns static embeddings: a vector for each token and no blocks, with `changes`.

        Example:
            >>> config = BertConfig.static(vocab_size=1000, hidden_size=64)
            >>> config.num_hidden_layers
            0

        Reference: model2vec, `StaticModel`.
        """
        return cls(**{**FAMILIES["model2vec"].fixed, "model_type": "model2vec", **changes})

    @classmethod
    def from_json_file(
        cls,
        path: str | os.PathLike,
        defaults: "BertConfig | None" = None,
        allow_decoder: bool = False,
    ) -> "BertConfig":
        """Reads google-research/bert's `bert_config.json` or Hugging Face's `config.json`.

        Args:
            path: The file. Its name or its keys show which of the two it is.
            defaults: Another configuration of the same model, for `extra` and all values that the
                file does not contain.
            allow_decoder: Whether the file may be that of a decoder, which has the same layers.

        Raises:
            ConfigError: If the file does not exist or is not JSON, a value is out of range, or a
                key requires another network (another `model_type`, relative positions, a decoder).
        """
        if not os.path.exists(path):
            raise ConfigError(f"{path} must be a BERT configuration. Received: no such file.")
        values = read_json(path, _FILE, ConfigError)
        if allow_decoder:
            values = {key: values[key] for key in values if key not in file_values.DECODER_KEYS}
        is_huggingface = file_values.is_huggingfaces(path, values)
        if defaults is not None and defaults.model_type != BERT:
            is_huggingface = True
        return cls._from_values(path, values, is_huggingface, defaults)

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any], path: str, key: str) -> "BertConfig":
        """Reads a `config.json` that is a part of another one.

        Args:
            values: The values of the part.
            path: The file, for errors.
            key: The key of the part in the file.

        Raises:
            ConfigError: See `from_json_file`.
        """
        check(values, _FILE, path, ConfigError, key)
        return cls._from_values(f"{path}, {key}", values, is_huggingface=True)

    @classmethod
    def _from_values(cls, place, values, is_huggingface, defaults=None) -> "BertConfig":
        try:
            values = file_values.fields_of_file(values, _LACKABLE_FIELDS, SWITCHES, defaults)
            return cls._from_named(values, is_huggingface, defaults)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None

    @classmethod
    def _from_named(cls, values, is_huggingface, defaults) -> "BertConfig":
        fields = {field.name for field in dataclasses.fields(cls)} - {"extra"}
        known = {key: value for key, value in values.items() if key in fields}
        if not is_huggingface:
            own = (*_TF1_FIELDS, *SWITCHES)
            known = file_values.fields_of_tf1(values, known, own, has_defaults=defaults is not None)
        if defaults is not None:
            return dataclasses.replace(defaults, **known)
        ours = fields | set(_TF1_KEYS)
        return cls(**known, extra={key: values[key] for key in values if key not in ours})

    def to_dict(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON values; `BertConfig` of them is equal."""
        values = dataclasses.asdict(self)
        values["pruned_heads"] = {str(key): list(v) for key, v in self.pruned_heads.items()}
        # The values of BERT's own network are left out.
        usual = BertConfig(type_vocab_size=self.type_vocab_size)
        blocks = ("num_random_blocks", "attention_block_size")
        switches = ("model_type", "causal", *blocks, *SWITCHES)
        unused = {name for name in switches if values[name] == getattr(usual, name)}
        return {name: value for name, value in values.items() if name not in unused}

    def to_huggingface(self) -> dict[str, Any]:
        """Returns the content of Hugging Face's `config.json`."""
        values = self.to_dict()
        left_out = (_TIED, *file_values.CODE_KEYS)  # the family says whether words are tied
        extra = {k: v for k, v in values.pop("extra").items() if k not in left_out}
        if self.attention_window is None:  # not Hugging Face's keys
            del values["attention_window"], values["num_global_tokens"]
        if not self.pruned_heads:
            del values["pruned_heads"]
        values["model_type"], family = self.model_type, FAMILIES[self.model_type]
        named = {name: getattr(self, name) for name in SWITCHES if name in family.defaults}
        values |= {name: value for name, value in named.items() if value is not None}
        values.setdefault("position_embedding_type", ABSOLUTE)
        return {**family.others, **extra, **family.write(values)}

    def to_tf1(self) -> dict[str, Any]:
        """Returns the content of google-research/bert's `bert_config.json`.

        In that file, "gelu" is the tanh form. `from_json_file` reads two keys that the original
        ignores: `bert_tf_exact_gelu`, if `hidden_act` is "gelu" (erf), and `bert_tf_config`.
        """
        return file_values.values_of_tf1(self.to_dict(), BertConfig().to_dict(), _TF1_FIELDS)


def _group(name: str) -> tuple[str, ...]:
    """Returns the names of the fields of a group."""
    fields = dataclasses.fields(BertConfig)
    return tuple(field.name for field in fields if field.metadata.get("group") == name)


@functools.cache
def _kinds(config_class: type[BertConfig]) -> dict[str, Kind]:
    """Returns the kinds of the fields of `BertConfig` or of a subclass."""
    fields = dataclasses.fields(config_class)
    return {field.name: field.metadata["kind"] for field in fields if "kind" in field.metadata}


SWITCHES, _TF1_FIELDS = _group(_SWITCH), _group(_NOT_IN_TF1)
_BLOCK_SWITCHES = (
    *("position_embedding_type", "norm_first", "global_attn_every_n_layers"),
    *("key_bias", "conv_kernel_size"),
)
# Keys that do not change the network but are read.
_EXTRA = {
    "model_type": optional(text()),
    "architectures": optional(list_of(text())),
    "id2label": optional(mapping_of(SCALAR)),
    "problem_type": optional(text()),
    _TIED: optional(FLAG),
    "bert_tf": optional(OBJECT),  # a model's class and options, which `checkpoints` reads
}
_LACKABLE_FIELDS = {name: may_lack(kind) for name, kind in _kinds(BertConfig).items()}
# Other programs have other names for it, which families check.
_LACKABLE_FIELDS["position_embedding_type"] = optional(text())
_OWN_FIELDS = {
    name: _LACKABLE_FIELDS[name] for name in (*_TF1_FIELDS, *SWITCHES) if name in _LACKABLE_FIELDS
}
_TF1_KEYS = {TF1_KEY: optional(object_of(_OWN_FIELDS)), EXACT_GELU: optional(FLAG)}
# config.json and bert_config.json.
_FILE = object_of({**_LACKABLE_FIELDS, **_EXTRA, **_TF1_KEYS})


@functools.cache
def arguments_of(config_class: type[BertConfig]) -> Kind:
    """Returns the kind of the results of `to_dict`, as this package's files store them."""
    fields = {name: may_lack(kind) for name, kind in _kinds(config_class).items()}
    others = {"pruned_heads": optional(OBJECT), "extra": may_lack(object_of(_EXTRA))}
    return object_of({**fields, **others}, only=True)


ARGUMENTS = arguments_of(BertConfig)
