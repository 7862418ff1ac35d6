"""The options of `generate`, with the names that they have in transformers."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

from bert_tf.base.json_schema import (
    FLAG,
    Kind,
    check,
    either,
    integer,
    list_of,
    may_lack,
    number,
    object_of,
    one_of,
    optional,
)
from bert_tf.errors import ConfigError, require

NEVER = "never"
_MOST_SEED = 2**63 - 1  # seeds are int64 in TensorFlow
_POSITIVE = number("a finite number above 0", lambda value: math.isfinite(value) and value > 0)
_SHARE = number("a number above 0 and at most 1", lambda value: 0 < value <= 1)
_PART = number("a number above 0 and below 1", lambda value: 0 < value < 1)
_IDS = list_of(integer(0), least=1)
_BIAS = Kind(
    "a pair of a list of ids and a number",
    lambda value: isinstance(value, (list, tuple)) and len(value) == 2,
    lambda value: (("[0]", _IDS, value[0]), ("[1]", number(), value[1])),
)
_START_AND_FACTOR = Kind(
    "a pair of a number of tokens and a factor",
    lambda value: isinstance(value, (list, tuple)) and len(value) == 2,
    lambda value: (("[0]", integer(0), value[0]), ("[1]", _POSITIVE, value[1])),
)
_STRING = Kind("a string with a character", lambda value: isinstance(value, str) and value != "")
_KINDS = {
    "max_new_tokens": integer(1),
    "min_new_tokens": integer(0),
    "eos_token_id": optional(either(integer(0), _IDS)),
    "stop_strings": optional(either(_STRING, list_of(_STRING, least=1))),
    "num_beams": integer(1),
    "length_penalty": number(),
    "early_stopping": one_of(False, True, NEVER),
    "no_repeat_ngram_size": integer(0),
    "repetition_penalty": _POSITIVE,
    "encoder_no_repeat_ngram_size": integer(0),
    "encoder_repetition_penalty": _POSITIVE,
    "bad_words_ids": optional(list_of(_IDS, least=1)),
    "sequence_bias": optional(list_of(_BIAS, least=1)),
    "allowed_sequences": optional(list_of(_IDS, least=1)),
    "prefix_allowed_tokens_fn": optional(Kind("a function", callable)),
    "forced_prefix_ids": optional(_IDS),
    "exponential_decay_length_penalty": optional(_START_AND_FACTOR),
    "renormalize_logits": FLAG,
    "penalty_alpha": optional(_SHARE),
    "do_sample": FLAG,
    "temperature": _POSITIVE,
    "top_h": optional(_SHARE),
    "top_k": optional(integer(1)),
    "top_p": optional(_SHARE),
    "min_p": optional(_SHARE),
    "typical_p": optional(_SHARE),
    "epsilon_cutoff": optional(_PART),
    "eta_cutoff": optional(_PART),
    "seed": integer(0, _MOST_SEED),
    "num_return_sequences": integer(1),
}
# The options that are lists. They become tuples, since a configuration is a key of a dictionary.
_SEQUENCES = (
    "eos_token_id",
    "stop_strings",
    "bad_words_ids",
    "sequence_bias",
    "allowed_sequences",
    "forced_prefix_ids",
    "exponential_decay_length_penalty",
)
# The options that have an effect on sampling only.
SAMPLING_OPTIONS = (
    "temperature",
    "top_h",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "seed",
)
# The fields that a file or a dictionary has; all but one may be left out.
GENERATION_ARGUMENTS = object_of(
    {name: kind if name == "max_new_tokens" else may_lack(kind) for name, kind in _KINDS.items()},
    only=True,
)


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """How the next tokens are chosen: greedy decoding, sampling, beam or contrastive search.

    The names and their meanings are those of transformers. There are four differences. Options
    without an effect are refused, where transformers warns. `top_k` is off by default, where
    transformers samples from the 50 most probable tokens. `seed` makes sampling reproducible.
    `allowed_sequences` and `forced_prefix_ids` do in a graph what only a Python function does there
    (`prefix_allowed_tokens_fn`).

    A sequence of ids is a list of them. `tokenizer.tokenize(texts).to_list()` makes a list of
    sequences of texts.

    Args:
        max_new_tokens: The maximum number of tokens to generate, with the end token.
        min_new_tokens: The number of tokens before which the end token is not chosen.
        eos_token_id: The id of the token that ends a sequence, or a list of such ids. None means
            the one that the model was trained with.
        stop_strings: A string, or a list of strings, that end a sequence as soon as its text
            contains one, however it is split into tokens. The string stays in the text, with the
            rest of its last token. The text is that of the new tokens without special ones, with a
            space before every word, the first one included. A `BertTokenizer` splits and
            normalizes the strings as it does texts.
        num_beams: The number of beams. 1 means greedy decoding, or sampling.
        length_penalty: Beam search divides the log probability of a sequence by its length to this
            power. Values above 0 favor long sequences, values below 0 short ones.
        early_stopping: When the beam search of a row ends. True: as soon as there are `num_beams`
            finished sequences. False: when a better one is unlikely, judged by the best beam at
            its current length. "never": only when a better one is impossible.
        no_repeat_ngram_size: The length of the sequences of tokens that must not occur twice. 0
            allows all repetitions.
        repetition_penalty: Makes tokens that occurred less likely if it is above 1: positive logits
            are divided by it, negative logits are multiplied. Beam search applies it to log
            probabilities.
        encoder_no_repeat_ngram_size: The same for the sequences of tokens of the source, which must
            not occur at all.
        encoder_repetition_penalty: Makes the tokens of the source more likely if it is above 1.
        bad_words_ids: Sequences of ids that must not occur.
        sequence_bias: Pairs of a sequence of ids and a number, which is added to the logit of the
            last id where the others precede it.
        allowed_sequences: Sequences of ids of which the result must be one, before the end token.
        prefix_allowed_tokens_fn: A Python function of the number of a source and of the list of the
            tokens so far, with the start token. It returns the ids of the tokens of which the next
            one must be. It is called for every sequence in every step, as long as no end token is
            in it. A model cannot hold it or be exported with it, and XLA cannot compile it. Pass
            the same function again, so that the graph is traced only once.
        forced_prefix_ids: The ids of the first tokens of every result.
        exponential_decay_length_penalty: A pair of a number of tokens and a factor, with which the
            logits of end tokens grow for each token after these. Logits below 0 get added what
            their absolute values would grow by.
        renormalize_logits: Whether beam search makes the scores log probabilities again, after
            forbidden tokens and other changes.
        penalty_alpha: Contrastive search: each token is the one of the `top_k` most probable with
            the best score, its probability times `1 - penalty_alpha`, minus `penalty_alpha` times
            its greatest similarity to a token before.
        do_sample: Whether to draw the tokens at random by their probabilities.
        temperature: The logits are divided by it before sampling.
        top_h: Sampling draws from the most probable tokens that have at most this part of the
            entropy of the 100 most probable ones. None means all tokens.
        top_k: Sampling draws from this number of most probable tokens, and contrastive search
            chooses from it. None means all tokens.
        top_p: Sampling draws from the most probable tokens whose probabilities reach this sum. None
            or 1 means all tokens.
        min_p: Sampling draws from the tokens with at least this part of the probability of the most
            probable one. None means all tokens.
        typical_p: Sampling draws from the tokens whose information is closest to the entropy, and
            whose probabilities reach this sum. None or 1 means all tokens.
        epsilon_cutoff: Sampling draws from the tokens with at least this probability, and from the
            most probable one. None means all tokens.
        eta_cutoff: The same with a limit of at most `sqrt(eta_cutoff) * exp(-entropy)`.
        seed: The seed of sampling.
        num_return_sequences: The number of sequences per row: the best of beam search, or
            independent samples.

    Raises:
        ConfigError: If a value is out of range or options contradict each other.

    Example:
        >>> bert_tf.generation.GenerationConfig(max_new_tokens=64, num_beams=4, length_penalty=0.6)
        GenerationConfig(max_new_tokens=64, ..., num_beams=4, length_penalty=0.6, ...)

    Reference: Holtzman et al. 2020, "The curious case of neural text degeneration" (arXiv
    1904.09751), for `top_p`; Nguyen et al. 2024 (arXiv 2407.01082), for `min_p`; Meister et al.
    2022, "Locally typical sampling" (arXiv 2202.00666), for `typical_p`; Hewitt et al. 2022 (arXiv
    2210.15191), for `epsilon_cutoff` and `eta_cutoff`; Potraghloo et al. 2025 (arXiv 2509.02510),
    for `top_h`; Keskar et al. 2019, "CTRL" (arXiv 1909.05858), for `repetition_penalty`; Su et al.
    2022 (arXiv 2202.06417), for `penalty_alpha`; Wu et al. 2016 (arXiv 1609.08144), section 7, for
    `length_penalty`; De Cao et al. 2021 (arXiv 2010.00904), for `allowed_sequences`.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    eos_token_id: int | list[int] | None = None
    stop_strings: str | list[str] | None = None
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    encoder_no_repeat_ngram_size: int = 0
    encoder_repetition_penalty: float = 1.0
    bad_words_ids: list[list[int]] | None = None
    sequence_bias: list[tuple[list[int], float]] | None = None
    allowed_sequences: list[list[int]] | None = None
    prefix_allowed_tokens_fn: Callable[[int, list[int]], Iterable[int]] | None = None
    forced_prefix_ids: list[int] | None = None
    exponential_decay_length_penalty: tuple[int, float] | None = None
    renormalize_logits: bool = False
    penalty_alpha: float | None = None
    do_sample: bool = False
    temperature: float = 1.0
    top_h: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    seed: int = 0
    num_return_sequences: int = 1

    @classmethod
    def of(cls, values: "GenerationConfig | dict | None") -> "GenerationConfig | None":
        """Returns a configuration with these fields; one that is a configuration stays as it is.

        Raises:
            ConfigError: See the class, or if a field is unknown or `max_new_tokens` is missing.
        """
        if not isinstance(values, dict):
            return values
        check(values, GENERATION_ARGUMENTS, None, ConfigError)
        return cls(**values)

    def __post_init__(self):
        check(vars(self), object_of(_KINDS), None, ConfigError)
        for name in _SEQUENCES:
            object.__setattr__(self, name, _tuples(getattr(self, name)))
        longest, beams, copies = self.max_new_tokens, self.num_beams, self.num_return_sequences
        require(
            self.min_new_tokens <= longest,
            "must be at most `max_new_tokens`",
            min_new_tokens=self.min_new_tokens,
            max_new_tokens=longest,
        )
        if self.do_sample:
            require(beams == 1, "must be 1 with `do_sample`", num_beams=beams, do_sample=True)
        else:
            rule = "must be at most `num_beams` without `do_sample`"
            require(copies <= beams, rule, num_return_sequences=copies, num_beams=beams)
            self._refuse("do_sample=True", *SAMPLING_OPTIONS)
        if self.penalty_alpha:
            is_alone = beams == 1 and not self.do_sample
            others = {"num_beams": beams, "do_sample": self.do_sample}
            require(is_alone, "must be 1 and False with `penalty_alpha`", **others)
            rule = "must be at least 2 with `penalty_alpha`"
            require(self.top_k is not None and self.top_k > 1, rule, top_k=self.top_k)
        elif not self.do_sample:
            self._refuse("do_sample=True or `penalty_alpha`", "top_k")
        if beams == 1:
            names = "length_penalty", "early_stopping", "renormalize_logits"
            self._refuse("`num_beams` above 1", *names)
        if self.allowed_sequences:
            most = max(map(len, self.allowed_sequences))
            rule = f"must be at least {most}, the length of the longest of `allowed_sequences`"
            require(most <= longest, rule, max_new_tokens=longest)
            rule = "must be None with `allowed_sequences`"
            prefix = self.forced_prefix_ids
            require(prefix is None, rule, forced_prefix_ids=prefix)
        if self.forced_prefix_ids:
            most = len(self.forced_prefix_ids)
            rule = f"must be at least {most}, the length of `forced_prefix_ids`"
            require(most <= longest, rule, max_new_tokens=longest)

    @property
    def num_steps(self) -> int:
        """The maximum number of tokens that the model reads, with the start token."""
        # Contrastive search chooses the last token by its vector.
        return self.max_new_tokens + bool(self.penalty_alpha)

    def _refuse(self, needed, *names):
        """Refuses options that have no effect without what is `needed`."""
        for field in dataclasses.fields(self):
            if field.name in names:
                value = getattr(self, field.name)
                rule = f"must be {field.default!r}, the default, without {needed}"
                require(value == field.default, rule, **{field.name: value})


def _tuples(value: Any) -> Any:
    """Returns a list with the lists inside as tuples; a single id or string as a tuple of one."""
    if value is None:
        return None
    items = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(_tuples(item) if isinstance(item, (list, tuple)) else item for item in items)
