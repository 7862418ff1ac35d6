"""Greedy decoding, sampling and beam search on lists: the reference of `generate`.

Everything is computed for one row, by a function `logits(token_ids) -> [V]` of the sequence with
its start token.
"""

import numpy as np


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def processed(scores, token_ids, config, end_id):
    """The scores of the next token after a sequence, with the rules of the configuration."""
    scores = np.array(scores, np.float64)
    for token_id in set(token_ids):
        penalty = config.repetition_penalty
        scores[token_id] *= penalty if scores[token_id] < 0 else 1 / penalty
    size = config.no_repeat_ngram_size
    if size:
        ngrams = {tuple(token_ids[i : i + size]) for i in range(len(token_ids) - size + 1)}
        last = token_ids[len(token_ids) + 1 - size :]
        for token_id in range(len(scores)):
            if (*last, token_id) in ngrams:
                scores[token_id] = -np.inf
    if len(token_ids) - 1 < config.min_new_tokens:
        scores[end_id] = -np.inf
    return scores


def distribution(logits, config):
    """The probabilities that sampling draws from."""
    logits = np.asarray(logits, np.float64) / config.temperature
    order = np.argsort(logits, kind="stable")  # the most probable last
    if config.top_k is not None:
        order = order[logits[order] >= logits[order[-min(config.top_k, len(order))]]]
    if config.top_p not in (None, 1.0):
        sums = np.cumsum(np.exp(log_softmax(logits[order])))
        order = np.append(order[:-1][sums[:-1] > 1 - config.top_p], order[-1])
    result = np.zeros_like(logits)
    result[order] = np.exp(log_softmax(logits[order]))
    return result


def extend(logits, start_id, config, end_id, random_numbers=None):
    """The tokens that are chosen one after the other, by random numbers or the most probable."""
    token_ids = [start_id]
    for index in range(config.max_new_tokens):
        scores = processed(logits(token_ids), token_ids, config, end_id)
        if random_numbers is None:
            chosen = int(np.argmax(scores))
        else:
            sums = np.cumsum(distribution(scores, config))
            chosen = int(np.searchsorted(sums, random_numbers[index], side="right"))
        token_ids.append(chosen)
        if chosen == end_id:
            break
    return token_ids[1:]


def search_beams(logits, start_id, config, end_id):
    """The finished sequences and their scores, the best first."""
    beams, finished = [(0.0, [start_id])], []
    for length in range(1, config.max_new_tokens + 1):
        candidates = []
        for total, token_ids in beams:
            scores = processed(log_softmax(logits(token_ids)), token_ids, config, end_id)
            candidates += [(total + score, [*token_ids, i]) for i, score in enumerate(scores)]
        candidates = sorted(candidates, key=lambda found: -found[0])[: 2 * config.num_beams]
        beams = []
        for rank, (total, token_ids) in enumerate(candidates):
            if token_ids[-1] != end_id and length < config.max_new_tokens:
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
    return finished
