"""Changes of the logits before a token is chosen: penalties, forbidden tokens, restrictions.

They compute what the logits processors of transformers compute, in the graph and for all sequences
at once. Each is a function of the logits, the value of an option of `GenerationConfig` and what is
known; it is called if the option differs from its default.

Glossary: `n` sequences, `S` maximum length with the start token, `T` tokens of a source, `G`
sequences of ids in an option, `V` vocabulary. The tokens `[n, S]` are known up to `position`, and
the logits float32 `[n, V]` are those of the next position.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import numpy_function
from bert_tf.errors import user_error
from bert_tf.generation.generation_config import GenerationConfig

FORBIDDEN = float("-inf")
_MOST_OF_TOP_H = 100  # transformers, `TopHLogitsWarper`
NO_TOKEN = -1  # an id where a text has no token
MOST_ROWS = 2**31  # the number of a row is smaller


class Known(NamedTuple):
    """What is known when a token is chosen.

    Attributes:
        token_ids: The sequences with their start tokens, int32 `[n, S]`.
        position: The last known position, a scalar int32.
        end_ids: The ids of the tokens that end a sequence.
        source_ids: The sources, `NO_TOKEN` for padding, int32 `[n, T]`, or `()` if there are none.
        row_numbers: The numbers of the sources, int `[n]`, or `()` if no option needs them.
    """

    token_ids: tf.Tensor
    position: tf.Tensor
    end_ids: tuple[int, ...]
    source_ids: tf.Tensor | tuple = ()
    row_numbers: tf.Tensor | tuple = ()

    def text_ids(self) -> tf.Tensor:
        """Returns the tokens, `NO_TOKEN` where they are unknown, int32 `[n, S]`."""
        is_known = tf.range(self.token_ids.shape[1]) <= self.position
        return tf.where(is_known, self.token_ids, NO_TOKEN)

    def last_ids(self, count: int) -> tf.Tensor:
        """Returns the last tokens, int32 `[n, count]`, below `NO_TOKEN` where there are none."""
        places = self.position + 1 - count + tf.range(count)
        ids = tf.gather(self.token_ids, tf.maximum(places, 0), axis=1)
        return tf.where(places >= 0, ids, NO_TOKEN - 1)


def process_logits(logits: tf.Tensor, config: GenerationConfig, known: Known) -> tf.Tensor:
    """Applies the rules that hold for every way of choosing tokens, in the order of transformers.

    Where the rules forbid all tokens, greedy decoding and sampling choose the token 0.

    Args:
        logits: Float32 `[n, V]`: for beam search log probabilities. The result has the same shape.
        config: The `GenerationConfig`.
        known: What is known when the token is chosen.
    """
    return _applied(_RULES, logits, config, known)


def restrict_logits(logits: tf.Tensor, config: GenerationConfig) -> tf.Tensor:
    """Applies the options of sampling to float32 `[n, V]`, in the order of transformers."""
    return _applied(_RESTRICTIONS, logits, config)


def _applied(processors, logits, config, *known):
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name, process in processors.items():
        value = getattr(config, name)
        if value != defaults[name]:
            logits = process(logits, value, *known)
    return logits


def _bias_sequences(logits, pairs, known):
    """Adds a number to the logit of each token that completes one of some sequences of ids."""
    by_length = {}
    for sequence, bias in pairs:
        by_length.setdefault(len(sequence), []).append((sequence, bias))
    added = tf.zeros_like(logits)
    for length, group in by_length.items():
        ids = np.array([sequence for sequence, _ in group], np.int32)  # [G, length]
        last = known.last_ids(length - 1)[:, tf.newaxis]  # [n, 1, length - 1]
        is_match = tf.reduce_all(last == ids[:, :-1], axis=2)  # [n, G]
        biases = tf.where(is_match, np.array([bias for _, bias in group], np.float32), 0.0)
        completing = tf.broadcast_to(ids[:, -1], tf.shape(biases))  # [n, G]
        added = tf.tensor_scatter_nd_add(added, _places(completing), biases)
    return logits + added


def _forbid_sequences(logits, sequences, known):
    """Forbids the tokens that complete one of some sequences of ids."""
    return _bias_sequences(logits, [(sequence, FORBIDDEN) for sequence in sequences], known)


def _penalize_repetitions(logits, penalty, known):
    """Makes the tokens that occurred less likely (for a `penalty` above 1), each once."""
    return _penalized(logits, penalty, known.text_ids())


def _reward_source(logits, penalty, known):
    """Makes the tokens of the source more likely (for a `penalty` above 1), each once."""
    return _penalized(logits, 1.0 / penalty, known.source_ids)


def _penalized(logits, penalty, text_ids):
    """Makes the tokens of texts `[n, T]` less likely."""
    other = tf.maximum(tf.reduce_max(text_ids, axis=1, keepdims=True), 0)  # [n, 1]
    seen = tf.where(text_ids == NO_TOKEN, other, text_ids)  # [n, T]
    values = tf.gather(logits, seen, batch_dims=1)  # [n, V] at [n, T] -> [n, T]
    values = tf.where(values < 0, values * penalty, values / penalty)
    return tf.tensor_scatter_nd_update(logits, _places(seen), values)


def _forbid_repeated_ngrams(logits, size, known):
    """Forbids the tokens that would complete a sequence of `size` tokens for the second time.

    Reference: Paulus et al. 2017 (arXiv 1705.04304), section 2.5.
    """
    return _without_ngrams(logits, known.text_ids(), known.last_ids(size - 1))


def _forbid_ngrams_of_source(logits, size, known):
    """Forbids the tokens that would complete a sequence of `size` tokens of the source."""
    return _without_ngrams(logits, known.source_ids, known.last_ids(size - 1))


def _without_ngrams(logits, text_ids, last_ids):
    """Forbids the tokens that follow `last_ids`, `[n, size - 1]`, in texts `[n, T]`."""
    # A window is `size` tokens in a row. It matches if all its tokens but the last are the last
    # known tokens. Then its last token must not follow again.
    before, length = last_ids.shape[1], tf.shape(text_ids)[1]
    padded = tf.pad(text_ids, [[0, 0], [0, before]], constant_values=NO_TOKEN)
    completing = padded[:, before:]  # [n, T]
    is_match = completing != NO_TOKEN
    for index in range(before):
        is_match &= padded[:, index : index + length] == last_ids[:, index : index + 1]
    values = tf.where(is_match, FORBIDDEN, -FORBIDDEN)
    return tf.tensor_scatter_nd_min(logits, _places(tf.maximum(completing, 0)), values)


def _forbid_early_end(logits, count, known):
    """Forbids the end tokens before there are `count` tokens."""
    is_end = np.isin(np.arange(logits.shape[1]), known.end_ids)  # [V]
    return tf.where(is_end & (known.position < count), FORBIDDEN, logits)


def _allow_sequences(logits, sequences, known):
    """Forbids all tokens but those that continue one of some sequences of ids, or end it."""
    length = known.token_ids.shape[1]
    # The first end token follows each sequence, which is its end or cannot be reached.
    allowed = np.full([len(sequences), length], known.end_ids[0], np.int32)  # [G, S]
    for row, sequence in zip(allowed, sequences, strict=True):
        row[: len(sequence)] = sequence
    is_match = known.token_ids[:, tf.newaxis, 1:] == allowed[:, :-1]  # [n, G, S - 1]
    is_match |= tf.range(length - 1) >= known.position
    is_match = tf.reduce_all(is_match, axis=2)  # [n, G]
    following = tf.gather(tf.constant(allowed), known.position, axis=1)  # [G]
    following = tf.broadcast_to(following, tf.shape(is_match))
    mask = tf.tensor_scatter_nd_max(
        tf.fill(tf.shape(logits), FORBIDDEN), _places(following), tf.where(is_match, 0.0, FORBIDDEN)
    )
    return logits + mask


class FunctionOfCall:
    """Calls the `prefix_allowed_tokens_fn` of the call of `generate` that a row belongs to.

    A graph that holds it is traced once for all functions, also if threads pass different ones.
    """

    def __init__(self):
        self._functions, self._numbers = {}, itertools.count(1)

    @contextlib.contextmanager
    def calling(self, function: Callable) -> Iterator[int]:
        """Yields what is to be added to the numbers of rows that belong to `function`."""
        call = next(self._numbers)
        self._functions[call] = function
        try:
            yield call * MOST_ROWS
        finally:
            del self._functions[call]

    def __call__(self, number: int, ids: list[int]) -> Iterable[int]:
        return self._functions[number // MOST_ROWS](number % MOST_ROWS, ids)


def _allow_by_function(logits, function, known):
    """Forbids all tokens but those that a Python function returns for each open sequence."""
    vocab_size, ends = logits.shape[1], set(known.end_ids)

    def allowed_of(numbers, token_ids, position):
        allowed = np.zeros([len(numbers), vocab_size], bool)
        for row, number, ids in zip(allowed, numbers, token_ids[:, : position + 1].tolist()):
            chosen = range(vocab_size) if ends & {*ids[1:]} else function(int(number), ids)
            chosen = np.array(list(chosen))
            fits = len(chosen) and chosen.dtype.kind == "i" and chosen.min() >= 0
            if not fits or chosen.max() >= vocab_size:
                expected = f"return one or more ids below {vocab_size}"
                received = (
                    f"{chosen[:5].tolist()} after the tokens {ids} of row {int(number) % MOST_ROWS}"
                )
                raise user_error("`prefix_allowed_tokens_fn`", expected, received)
            row[chosen] = True
        return allowed

    inputs = (known.row_numbers, known.token_ids, known.position)
    allowed = numpy_function(allowed_of, inputs, tf.bool, stateful=False)
    return tf.where(tf.ensure_shape(allowed, logits.shape), logits, FORBIDDEN)


def _force_prefix(logits, ids, known):
    """Forces the first tokens of every sequence, whatever other rules say."""
    place = tf.minimum(known.position, len(ids) - 1)
    is_forced = tf.range(logits.shape[1]) == tf.gather(tf.constant(ids, tf.int32), place)  # [V]
    forced = tf.where(is_forced, 0.0, FORBIDDEN)
    return tf.where(known.position < len(ids), forced, logits)


def _favor_end(logits, start_and_factor, known):
    """Multiplies the sizes of the logits of end tokens: by `factor` once per token after `start`.

    Negative logits get as much added as positive ones of the same size.
    """
    start, factor = start_and_factor
    is_end = np.isin(np.arange(logits.shape[1]), known.end_ids)  # [V]
    steps = tf.cast(tf.maximum(known.position - start, 0), tf.float64)
    growth = tf.cast(tf.constant(factor, tf.float64) ** steps - 1, tf.float32)
    return tf.where(is_end & tf.math.is_finite(logits), logits + tf.abs(logits) * growth, logits)


def _renormalize(logits, _, known):
    """Returns log probabilities; all of them stay forbidden where all are."""
    total = tf.reduce_logsumexp(logits, axis=1, keepdims=True)  # [n, 1]
    return tf.where(tf.math.is_finite(total), logits - total, logits)


def _divide_by_temperature(logits, temperature):
    """Makes the differences of probabilities smaller (for a `temperature` above 1)."""
    return logits / temperature


def _keep_share_of_entropy(logits, top_h):
    """Keeps the most probable tokens that have at most `top_h` of the entropy of the first 100.

    Reference: Potraghloo et al. 2025 (arXiv 2509.02510).
    """
    count = min(_MOST_OF_TOP_H, logits.shape[1])
    values, order = tf.math.top_k(logits, count)  # [n, 100]
    log_probs = tf.nn.log_softmax(values)
    terms = tf.where(tf.math.is_finite(log_probs), -tf.exp(log_probs) * log_probs, 0.0)
    is_left_out = tf.cumsum(terms, axis=1) > top_h * tf.reduce_sum(terms, axis=1, keepdims=True)
    values = tf.where(is_left_out & (tf.range(count) > 0), FORBIDDEN, values)
    return tf.tensor_scatter_nd_update(tf.fill(tf.shape(logits), FORBIDDEN), _places(order), values)


def _keep_most_probable(logits, count):
    """Keeps all tokens that are as probable as the last of the `count` most probable ones."""
    lowest = tf.math.top_k(logits, min(count, logits.shape[1])).values[:, -1:]  # [n, 1]
    return tf.where(logits < lowest, FORBIDDEN, logits)


def _keep_nucleus(logits, top_p):
    """Forbids the least probable tokens, one by one, while their sum is at most 1 - `top_p`.

    Reference: Holtzman et al. 2020 (arXiv 1904.09751).
    """
    if top_p == 1.0:
        return logits
    vocab_size = logits.shape[1]
    order = tf.argsort(logits, stable=True)  # [n, V], the most probable last
    values = tf.gather(logits, order, batch_dims=1)
    is_left_out = _cumulative(values) <= 1.0 - top_p
    is_left_out &= tf.range(vocab_size) < vocab_size - 1
    values = tf.where(is_left_out, FORBIDDEN, values)
    return tf.tensor_scatter_nd_update(logits, _places(order), values)


def _keep_relatively_probable(logits, min_p):
    """Keeps the tokens with at least `min_p` times the probability of the most probable one.

    Reference: Nguyen et al. 2024 (arXiv 2407.01082).
    """
    probabilities = tf.nn.softmax(logits)
    lowest = min_p * tf.reduce_max(probabilities, axis=1, keepdims=True)  # [n, 1]
    return tf.where(probabilities < lowest, FORBIDDEN, logits)


def _keep_typical(logits, typical_p):
    """Keeps the tokens whose information is closest to the entropy, until their sum is reached.

    Reference: Meister et al. 2022 (arXiv 2202.00666).
    """
    if typical_p == 1.0:
        return logits
    log_probs = tf.nn.log_softmax(logits)
    products = tf.where(tf.math.is_finite(log_probs), tf.exp(log_probs) * log_probs, 0.0)
    entropy = -tf.reduce_sum(products, axis=1, keepdims=True)  # [n, 1]
    distances = tf.abs(-log_probs - entropy)  # [n, V]
    order = tf.argsort(distances, stable=True)
    sums = _cumulative(tf.gather(logits, order, batch_dims=1))
    last = tf.math.count_nonzero(sums < typical_p, axis=1, keepdims=True, dtype=tf.int32)  # [n, 1]
    last = tf.gather(order, tf.minimum(last, logits.shape[1] - 1), batch_dims=1)
    return tf.where(distances > tf.gather(distances, last, batch_dims=1), FORBIDDEN, logits)


def _keep_above_epsilon(logits, epsilon):
    """Keeps the most probable tokens, and those with a probability of at least `epsilon`.

    Reference: Hewitt et al. 2022 (arXiv 2210.15191).
    """
    is_most = logits >= tf.reduce_max(logits, axis=1, keepdims=True)
    return tf.where((tf.nn.softmax(logits) >= epsilon) | is_most, logits, FORBIDDEN)


def _keep_above_eta(logits, epsilon):
    """Does the same with a smaller `epsilon` where the entropy is large."""
    log_probs = tf.nn.log_softmax(logits)
    products = tf.where(tf.math.is_finite(log_probs), tf.exp(log_probs) * log_probs, 0.0)
    negative_entropy = tf.reduce_sum(products, axis=1, keepdims=True)  # [n, 1]
    lowest = tf.minimum(epsilon, tf.sqrt(epsilon) * tf.exp(negative_entropy))
    return _keep_above_epsilon(logits, lowest)


def _cumulative(logits):
    """Returns the sums of the probabilities from the first token on, float32 `[n, V]`."""
    # PyTorch's cumsum adds in float64 and rounds each sum to float32.
    sums = tf.cumsum(tf.cast(tf.nn.softmax(logits), tf.float64), axis=1)
    return tf.cast(sums, tf.float32)


def _places(token_ids):
    """Returns the indices of these tokens in `[n, V]`: `[n, count]` -> `[n, count, 2]`."""
    rows = tf.range(tf.shape(token_ids)[0])[:, tf.newaxis]  # [n, 1]
    return tf.stack([tf.broadcast_to(rows, tf.shape(token_ids)), token_ids], axis=2)


_RULES: dict[str, Callable[[tf.Tensor, Any, Known], tf.Tensor]] = {
    "sequence_bias": _bias_sequences,
    "encoder_repetition_penalty": _reward_source,
    "repetition_penalty": _penalize_repetitions,
    "no_repeat_ngram_size": _forbid_repeated_ngrams,
    "encoder_no_repeat_ngram_size": _forbid_ngrams_of_source,
    "bad_words_ids": _forbid_sequences,
    "min_new_tokens": _forbid_early_end,
    "allowed_sequences": _allow_sequences,
    "prefix_allowed_tokens_fn": _allow_by_function,
    "forced_prefix_ids": _force_prefix,
    "exponential_decay_length_penalty": _favor_end,
    "renormalize_logits": _renormalize,
}
_RESTRICTIONS: dict[str, Callable[[tf.Tensor, Any], tf.Tensor]] = {
    "temperature": _divide_by_temperature,
    "top_h": _keep_share_of_entropy,
    "top_k": _keep_most_probable,
    "top_p": _keep_nucleus,
    "min_p": _keep_relatively_probable,
    "typical_p": _keep_typical,
    "epsilon_cutoff": _keep_above_epsilon,
    "eta_cutoff": _keep_above_eta,
}
