"""The options of `generate`, with the names that they have in transformers."""

import dataclasses
import math

from bert_tf.base.json_schema import (
    FLAG,
    check,
    integer,
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
_KINDS = {
    "max_new_tokens": integer(1),
    "min_new_tokens": integer(0),
    "num_beams": integer(1),
    "length_penalty": number(),
    "early_stopping": one_of(False, True, NEVER),
    "no_repeat_ngram_size": integer(0),
    "repetition_penalty": _POSITIVE,
    "do_sample": FLAG,
    "temperature": _POSITIVE,
    "top_k": optional(integer(1)),
    "top_p": optional(number("a number above 0 and at most 1", lambda value: 0 < value <= 1)),
    "seed": integer(0, _MOST_SEED),
    "num_return_sequences": integer(1),
}
# The fields that a file or a dictionary has; all but one may be left out.
GENERATION_ARGUMENTS = object_of(
    {name: kind if name == "max_new_tokens" else may_lack(kind) for name, kind in _KINDS.items()},
    only=True,
)


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """How the next tokens are chosen: greedy decoding, sampling or beam search.

    The names and their meanings are those of transformers. There are three differences. Options
    without an effect are refused, where transformers warns. `top_k` is off by default, where
    transformers samples from the 50 most probable tokens. `seed` makes sampling reproducible.

    Args:
        max_new_tokens: The maximum number of tokens to generate, with the end token.
        min_new_tokens: The number of tokens before which the end token is not chosen.
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
        do_sample: Whether to draw the tokens at random by their probabilities.
        temperature: The logits are divided by it before sampling.
        top_k: Sampling draws from this number of most probable tokens. None means all tokens.
        top_p: Sampling draws from the most probable tokens whose probabilities reach this sum. None
            or 1 means all tokens.
        seed: The seed of sampling.
        num_return_sequences: The number of sequences per row: the best of beam search, or
            independent samples.

    Raises:
        ConfigError: If a value is out of range or options contradict each other.

    Example:
        >>> bert_tf.generation.GenerationConfig(max_new_tokens=64, num_beams=4, length_penalty=0.6)
        GenerationConfig(max_new_tokens=64, ..., num_beams=4, length_penalty=0.6, ...)

    Reference: Holtzman et al. 2020, "The curious case of neural text degeneration" (arXiv
    1904.09751), for `top_p`; Keskar et al. 2019, "CTRL" (arXiv 1909.05858), for
    `repetition_penalty`; Wu et al. 2016 (arXiv 1609.08144), section 7, for `length_penalty`.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
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
        check(dataclasses.asdict(self), object_of(_KINDS), None, ConfigError)
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
            self._refuse("do_sample=True", "temperature", "top_k", "top_p", "seed")
        if beams == 1:
            self._refuse("`num_beams` above 1", "length_penalty", "early_stopping")

    def _refuse(self, needed, *names):
        """Refuses options that have no effect without what is `needed`."""
        for field in dataclasses.fields(self):
            if field.name in names:
                value = getattr(self, field.name)
                rule = f"must be {field.default!r}, the default, without {needed}"
                require(value == field.default, rule, **{field.name: value})
