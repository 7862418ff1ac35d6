"""Makes pairs of segments, as ranges of tokens, from the lengths of the sentences alone.

Reference: google-research/bert create_pretraining_data.py, `create_instances_from_document`.
"""

import bisect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

NEXT_SENTENCES = ("nsp", "sop", None)
_DRAWS_AT_ONCE = 65536


class SegmentPairs(NamedTuple):
    """Examples as ranges of tokens, `[E]`."""

    first_starts: np.ndarray  # int64
    first_lengths: np.ndarray  # int64
    second_starts: np.ndarray  # int64
    second_lengths: np.ndarray  # int64, 0 without a second segment
    labels: np.ndarray  # int32, 1 for a random next segment or for swapped segments

    def taken(self, order: np.ndarray) -> "SegmentPairs":
        """Returns the examples with these indices."""
        return SegmentPairs(*(field[order] for field in self))


def num_special_tokens(next_sentence: str | None) -> int:
    """Returns the number of special tokens: `[CLS] a [SEP] b [SEP]` or `[CLS] a [SEP]`."""
    return 2 if next_sentence is None else 3


def make_pairs(
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
    max_seq_length: int,
    next_sentence: str | None,
    short_seq_prob: float,
    generator: np.random.Generator,
) -> SegmentPairs:
    """Divides documents into examples, in the order of the documents.

    Sentences are collected up to `max_seq_length` (in a document, with probability
    `short_seq_prob`, up to a shorter length) and are divided after a random sentence.

    - "nsp": With probability 1/2, and always for a single sentence, the second part is used later,
      and the second segment begins at a random sentence of another document. If there is none, no
      segment is random and single sentences are dropped.
    - "sop": With probability 1/2, the parts are swapped. Single sentences are dropped.
    - None: There is one segment.

    If an example is too long, the longer segment loses tokens at its start or its end.

    `sentence_splits` `[sentences + 1]` are borders in the tokens, `document_splits`
    `[documents + 1]` in the sentences. `max_seq_length` counts special tokens.
    """
    limit = max_seq_length - num_special_tokens(next_sentence)
    splits, documents = sentence_splits.tolist(), document_splits.tolist()
    num_documents = len(documents) - 1
    draw = _draws(generator).__next__
    found: list[tuple[int, int, int, int, int]] = []
    for document in range(num_documents):
        start, last = documents[document], documents[document + 1]
        target = limit
        if draw() < short_seq_prob:
            target = 2 + int(draw() * (limit - 1))
        while start < last:
            end = bisect.bisect_left(splits, splits[start] + target, start + 1, last)
            if next_sentence is None:
                found.append((splits[start], splits[end], 0, 0, 0))
                start = end
                continue
            single = end - start == 1
            middle = start + 1 + (0 if single else int(draw() * (end - start - 1)))
            first, second = (splits[start], splits[middle]), (splits[middle], splits[end])
            if next_sentence == "nsp" and num_documents > 1 and (single or draw() < 0.5):
                other = int(draw() * (num_documents - 1))
                other += other >= document
                begin, stop = documents[other], documents[other + 1]
                begin += int(draw() * (stop - begin))
                # Takes at least one sentence, even if the first segment has the target length.
                missing = max(target - (first[1] - first[0]), 1)
                stop = bisect.bisect_left(splits, splits[begin] + missing, begin + 1, stop)
                found.append((*first, splits[begin], splits[stop], 1))
                start = middle
                continue
            if next_sentence == "sop" and not single and draw() < 0.5:
                found.append((*second, *first, 1))
            elif not single:
                found.append((*first, *second, 0))
            start = end
    ranges = np.array(found, np.int64).reshape(-1, 5)
    return _truncated(ranges, limit, generator)


def _draws(generator: np.random.Generator) -> Iterator[float]:
    """Yields uniform numbers. It draws arrays, which is fast."""
    while True:
        yield from generator.random(_DRAWS_AT_ONCE).tolist()


def _truncated(ranges: np.ndarray, limit: int, generator: np.random.Generator) -> SegmentPairs:
    """Shortens ranges [E, 5] to `limit` tokens, as `truncate_seq_pair` of the original does."""
    starts = ranges[:, [0, 2]]
    lengths = ranges[:, [1, 3]] - starts
    first = np.minimum(lengths[:, 0], np.maximum(limit - limit // 2, limit - lengths[:, 1]))
    kept = np.stack([first, np.minimum(lengths[:, 1], limit - first)], axis=1)
    # Each dropped token is the first or the last one, with probability 1/2.
    starts += generator.binomial(lengths - kept, 0.5)
    return SegmentPairs(
        starts[:, 0], kept[:, 0], starts[:, 1], kept[:, 1], ranges[:, 4].astype(np.int32)
    )
