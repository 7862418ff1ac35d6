"""Which tokens of a corpus make which example: pairs of segments, as ranges of tokens.

Sentences lie one behind the other in one array of ids, so a segment is a range of it. Pairs can
then be made, counted and skipped from the lengths of the sentences alone.

Reference: google-research/bert create_pretraining_data.py, `create_instances_from_document`.
"""

import bisect
from typing import NamedTuple

import numpy as np

NEXT_SENTENCES = ("nsp", "sop", None)
_DRAWS_AT_ONCE = 65536


class SegmentPairs(NamedTuple):
    """Examples as ranges of tokens, all int64 `[E]` but `labels`.

    Attributes:
        first_starts: where the first segment starts.
        first_lengths: its tokens.
        second_starts: the same of the second segment.
        second_lengths: its tokens; 0 where there are no pairs.
        labels: int32; 1 for a random next segment, or for swapped segments.
    """

    first_starts: np.ndarray
    first_lengths: np.ndarray
    second_starts: np.ndarray
    second_lengths: np.ndarray
    labels: np.ndarray

    def taken(self, order: np.ndarray) -> "SegmentPairs":
        """The examples of these indices."""
        return SegmentPairs(*(field[order] for field in self))


def special_tokens(next_sentence: str | None) -> int:
    """How many special tokens an example has: `[CLS] a [SEP] b [SEP]` or `[CLS] a [SEP]`."""
    return 2 if next_sentence is None else 3


def make_pairs(
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
    max_seq_length: int,
    next_sentence: str | None,
    short_seq_prob: float,
    generator: np.random.Generator,
) -> SegmentPairs:
    """Cuts documents into examples.

    Sentences are gathered until they fill the length that the document aims at (a shorter one with
    probability `short_seq_prob`), and are divided at a random sentence.

    - "nsp": with probability 1/2, and where there is one sentence only, the second part is put back
      and a random document continues from a random sentence instead. The random document is never
      the same one (the original tries ten times); where there is no other, nothing is random and
      single sentences make no example.
    - "sop": with probability 1/2 the parts change places; single sentences make no example.
    - None: one segment.

    What is too long loses tokens of the longer segment, each from its front or its end.

    Args:
        sentence_splits: `[sentences + 1]`, the first token of each sentence; none is empty.
        document_splits: `[documents + 1]`, the first sentence of each document; none is empty.
        max_seq_length: the greatest length, special tokens counted.
        next_sentence: "nsp", "sop" or None.
        short_seq_prob: see above.
        generator: what is drawn from.

    Returns:
        The examples, in the order of the documents.
    """
    limit = max_seq_length - special_tokens(next_sentence)
    splits, documents = sentence_splits.tolist(), document_splits.tolist()
    num_documents = len(documents) - 1
    draw = _draws(generator)
    found: list[tuple[int, int, int, int, int]] = []
    for document in range(num_documents):
        start, last = documents[document], documents[document + 1]
        target = limit
        if draw() < short_seq_prob:
            target = 2 + int(draw() * (limit - 1))
        while start < last:
            end = min(bisect.bisect_left(splits, splits[start] + target, start + 1, last), last)
            sentences = end - start
            if next_sentence is None:
                found.append((splits[start], splits[end], 0, 0, 0))
                start = end
                continue
            middle = start + 1 + (int(draw() * (sentences - 1)) if sentences > 1 else 0)
            single = sentences == 1
            if next_sentence == "sop":
                if not single:
                    first, second = (splits[start], splits[middle]), (splits[middle], splits[end])
                    swapped = draw() < 0.5
                    found.append((*second, *first, 1) if swapped else (*first, *second, 0))
                start = end
            elif num_documents > 1 and (single or draw() < 0.5):
                other = int(draw() * (num_documents - 1))
                other += other >= document
                begin, stop = documents[other], documents[other + 1]
                begin += int(draw() * (stop - begin))
                # At least one sentence, also where the first segment is long enough alone.
                missing = max(target - (splits[middle] - splits[start]), 1)
                stop = min(
                    bisect.bisect_left(splits, splits[begin] + missing, begin + 1, stop), stop
                )
                found.append((splits[start], splits[middle], splits[begin], splits[stop], 1))
                start = middle
            else:
                if not single:
                    found.append((splits[start], splits[middle], splits[middle], splits[end], 0))
                start = end
    ranges = np.array(found, np.int64).reshape(-1, 5)
    return _truncated(ranges, limit, generator)


def _draws(generator: np.random.Generator):
    """A function that returns the next uniform number; one array of them at a time is fast."""

    def numbers():
        while True:
            yield from generator.random(_DRAWS_AT_ONCE).tolist()

    return numbers().__next__


def _truncated(ranges: np.ndarray, limit: int, generator: np.random.Generator) -> SegmentPairs:
    """Ranges [E, 5] with ends to lengths, shortened to `limit` as `truncate_seq_pair` does it."""
    starts = ranges[:, [0, 2]]
    lengths = ranges[:, [1, 3]] - starts
    first = np.minimum(lengths[:, 0], np.maximum(limit - limit // 2, limit - lengths[:, 1]))
    kept = np.stack([first, np.minimum(lengths[:, 1], limit - first)], axis=1)
    # Each token that goes is the first or the last one with probability 1/2.
    starts = starts + generator.binomial(lengths - kept, 0.5)
    return SegmentPairs(
        starts[:, 0], kept[:, 0], starts[:, 1], kept[:, 1], ranges[:, 4].astype(np.int32)
    )
