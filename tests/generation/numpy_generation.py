"""Greedy decoding, sampling and beam search on lists: the reference of `generate`.

Everything is computed for one row, by a function `logits(token_ids) -> [V]` of the sequence with
its start token.
"""

import re

import numpy as np


class Ends:
    """What ends sequences: tokens, and strings in the text of their pieces."""

    def __init__(self, config, end_id, vocabulary=()):
        self.ids = config.eos_token_id or (end_id,)
        # The text has a space before a full stop.
        self.strings = [re.sub(r"(?<=\S)\.", " .", text) for text in config.stop_strings or ()]
        self.vocabulary = vocabulary

    def __call__(self, token_ids):
        text = "".join(
            added_text(self.vocabulary[token_id]) for token_id in token_ids if self.strings
        )
        return token_ids[-1] in self.ids or any(string in text for string in self.strings)


def added_text(piece):
    """What a piece of WordPiece adds to a text."""
    if piece in ("[CLS]", "[SEP]", "[PAD]"):
        return ""
    return piece[2:] if piece.startswith("##") else f" {piece}"


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def contains(sequence, part):
    return any(sequence[i : i + len(part)] == part for i in range(len(sequence) - len(part) + 1))


def penalized(scores, token_ids, penalty):
    for token_id in set(token_ids):
        scores[token_id] *= penalty if scores[token_id] < 0 else 1 / penalty


def processed(scores, token_ids, config, end_ids, source=()):
    """The scores of the next token after a sequence, with the rules of the configuration."""
    scores = np.array(scores, np.float64)
    every = range(len(scores))
    token_ids, source = list(map(int, token_ids)), list(map(int, source))

    def completes(sequence, token_id):
        return [*token_ids, token_id][-len(sequence) :] == list(sequence)

    def forbid(is_forbidden):
        scores[[token_id for token_id in every if is_forbidden(token_id)]] = -np.inf

    for sequence, bias in config.sequence_bias or ():
        scores[sequence[-1]] += bias * completes(sequence, sequence[-1])
    penalized(scores, source, 1 / config.encoder_repetition_penalty)
    penalized(scores, token_ids, config.repetition_penalty)
    sizes = config.no_repeat_ngram_size, config.encoder_no_repeat_ngram_size
    for size, text in zip(sizes, (token_ids, source)):
        if 0 < size <= len(token_ids) + 1:
            last = token_ids[len(token_ids) + 1 - size :]
            forbid(lambda token_id, last=last, text=text: contains(text, [*last, token_id]))
    for sequence in config.bad_words_ids or ():
        forbid(lambda token_id, sequence=sequence: completes(sequence, token_id))
    new = token_ids[1:]
    if len(new) < config.min_new_tokens:
        forbid(lambda token_id: token_id in end_ids)
    if config.allowed_sequences:
        allowed = [[*sequence, end_ids[0]] for sequence in config.allowed_sequences]
        forbid(lambda i: all(a[: len(new) + 1] != [*new, i] for a in allowed))
    if len(new) < len(config.forced_prefix_ids or ()):
        scores[:] = -np.inf
        scores[config.forced_prefix_ids[len(new)]] = 0
    if config.exponential_decay_length_penalty:
        start, factor = config.exponential_decay_length_penalty
        for token_id in {*end_ids} & {*np.flatnonzero(np.isfinite(scores))}:
            scores[token_id] += abs(scores[token_id]) * (factor ** max(len(new) - start, 0) - 1)
    if config.renormalize_logits and scores.max() > -np.inf:
        scores = log_softmax(scores)
    return scores


def distribution(logits, config):
    """The probabilities that sampling draws from."""
    logits = np.asarray(logits, np.float64) / config.temperature
    order = np.argsort(logits, kind="stable")  # the most probable last
    if config.top_h is not None:
        order = order[-100:]
        log_probs = log_softmax(logits[order])
        with np.errstate(invalid="ignore"):
            terms = np.nan_to_num(-np.exp(log_probs) * log_probs)
        is_kept = np.cumsum(terms[::-1])[::-1] <= config.top_h * terms.sum()
        order = np.append(order[:-1][is_kept[:-1]], order[-1])
    if config.top_k is not None:
        order = order[logits[order] >= logits[order[-min(config.top_k, len(order))]]]
    if config.top_p not in (None, 1.0):
        sums = np.cumsum(np.exp(log_softmax(logits[order])))
        order = np.append(order[:-1][sums[:-1] > 1 - config.top_p], order[-1])
    if config.min_p is not None:
        probabilities = np.exp(log_softmax(logits[order]))
        order = order[probabilities >= config.min_p * probabilities.max()]
    if config.typical_p not in (None, 1.0):
        log_probs = log_softmax(logits[order])
        order, log_probs = order[log_probs > -np.inf], log_probs[log_probs > -np.inf]
        entropy = -(np.exp(log_probs) * log_probs).sum()
        distances = np.abs(-log_probs - entropy)
        nearest = np.argsort(distances, kind="stable")
        sums = np.cumsum(np.exp(log_probs[nearest]))
        last = nearest[min((sums < config.typical_p).sum(), len(nearest) - 1)]
        order = order[distances <= distances[last]]
    for name in ("epsilon_cutoff", "eta_cutoff"):
        lowest = getattr(config, name)
        if lowest is not None:
            log_probs = log_softmax(logits[order])
            seen = log_probs[log_probs > -np.inf]
            if name == "eta_cutoff":
                lowest = min(lowest, lowest**0.5 * np.exp((np.exp(seen) * seen).sum()))
            order = order[(np.exp(log_probs) >= lowest) | (log_probs == log_probs.max())]
    result = np.zeros_like(logits)
    result[order] = np.exp(log_softmax(logits[order]))
    return result


def extend(logits, start_id, config, ends, random_numbers=None, source=()):
    """The tokens that are chosen one after the other, by random numbers or the most probable."""
    token_ids = [start_id]
    for index in range(config.max_new_tokens):
        scores = processed(logits(token_ids), token_ids, config, ends.ids, source)
        if random_numbers is None or scores.max() == -np.inf:
            chosen = int(np.argmax(scores))
        else:
            sums = np.cumsum(distribution(scores, config))
            chosen = int(np.searchsorted(sums, random_numbers[index], side="right"))
        token_ids.append(chosen)
        if ends(token_ids[1:]):
            break
    return token_ids[1:]


def search_beams(logits, start_id, config, ends, source=()):
    """The finished sequences and their scores, the best first."""
    beams, finished = [(0.0, [start_id])], []
    for length in range(1, config.max_new_tokens + 1):
        candidates = []
        for total, token_ids in beams:
            scores = log_softmax(logits(token_ids))
            scores = processed(scores, token_ids, config, ends.ids, source)
            candidates += [
                (total + score, [*token_ids, i])
                for i, score in enumerate(scores)
                if score > -np.inf
            ]
        count = config.num_beams * (1 + len(ends.ids))
        candidates = sorted(candidates, key=lambda found: -found[0])[:count]
        beams = []
        for rank, (total, token_ids) in enumerate(candidates):
            if not ends(token_ids[1:]) and length < config.max_new_tokens:
                beams.append((total, token_ids))
            elif rank < config.num_beams:
                finished.append((total / length**config.length_penalty, token_ids[1:]))
        beams = beams[: config.num_beams]
        finished = sorted(finished, key=lambda found: -found[0])[: config.num_beams]
        if beams and len(finished) == config.num_beams:
            is_longest_best = config.early_stopping == "never" and config.length_penalty > 0
            best_length = config.max_new_tokens if is_longest_best else length
            possible = beams[0][0] / best_length**config.length_penalty
            if config.early_stopping is True or possible <= finished[-1][0]:
                break
    missing = [(-1e9, [])] * (config.num_beams - len(finished))
    return finished + missing


def contrastive_scores(probabilities, vectors, before, alpha):
    """The scores of candidates `[K]`, by their vectors `[K, H]` and those before `[T, H]`."""

    def units(values):
        values = np.asarray(values, np.float64)
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    penalties = (units(vectors) @ units(before).T).max(axis=1)
    return (1 - alpha) * np.asarray(probabilities) - alpha * penalties


def search_contrastively(logits, vectors, start_id, config, ends, source=()):
    """The sequence of contrastive search; `vectors(token_ids)` are those of its tokens."""
    token_ids = [start_id]
    for _ in range(config.max_new_tokens):
        scores = processed(logits(token_ids), token_ids, config, ends.ids, source)
        probabilities = np.exp(log_softmax(scores))
        candidates = np.argsort(-probabilities, kind="stable")[: config.top_k]
        found = [vectors([*token_ids, candidate])[-1] for candidate in candidates]
        scores = contrastive_scores(
            probabilities[candidates], found, vectors(token_ids), config.penalty_alpha
        )
        token_ids.append(int(candidates[np.argmax(scores)]))
        if ends(token_ids[1:]):
            break
    return token_ids[1:]
