"""Batches of examples: which tokens of which chunk are in which row of which step.

Glossary: `E` examples of a chunk, `n` examples of a batch, `B` rows, `T` sequence length.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, user_error
from bert_tf.inputs.balanced_rows import deal_rows
from bert_tf.inputs.row_packing import Places
from bert_tf.tasks.pretraining.segment_pairs import SegmentPairs, make_pairs, num_special_tokens
from bert_tf.tasks.pretraining.token_source import TokenSource
from bert_tf.text.tokenizer import BertTokenizer

# The stream of random bits of an example has the number (epoch, chunk, index in the chunk).
_CHUNK_BITS, _EXAMPLE_BITS = 20, 24

# `first_lengths` are those of `[CLS] a [SEP]`.
_VECTORS = ("lengths", "first_lengths", "next_sentence_labels", *Places._fields)
BATCH_SIGNATURE = {
    "token_ids": tf.TensorSpec([None, None], tf.int32),
    "word_starts": tf.TensorSpec([None, None], tf.bool),
    **dict.fromkeys(_VECTORS, tf.TensorSpec([None], tf.int32)),
    "streams": tf.TensorSpec([None], tf.int64),
    "num_rows": tf.TensorSpec([], tf.int32),
}


class ShuffledExamples(NamedTuple):
    """The examples of a chunk in one epoch, in the order of their rows."""

    chunk: int
    next_chunk: int | None
    pairs: SegmentPairs
    streams: np.ndarray  # int64 [E]
    lengths: np.ndarray  # int64 [E], with special tokens
    places: Places  # with rows of the chunk
    row_splits: np.ndarray  # [rows + 1], in examples


class _Part(NamedTuple):
    """Some rows of a chunk."""

    examples: ShuffledExamples
    rows: np.ndarray  # [r]

    @property
    def sizes(self) -> np.ndarray:
        """The number of examples in each row, `[r]`."""
        return np.diff(self.examples.row_splits)[self.rows]

    @property
    def taken(self) -> np.ndarray:
        """The examples in these rows."""
        sizes = self.sizes
        first = self.examples.row_splits[self.rows] - (np.cumsum(sizes) - sizes)
        return np.repeat(first, sizes) + np.arange(sizes.sum())

    @property
    def tokens(self) -> np.ndarray:
        """The number of tokens of each row, `[r]`."""
        ends = np.append(0, np.cumsum(self.examples.lengths))[self.examples.row_splits]
        return np.diff(ends)[self.rows]


@dataclasses.dataclass
class ExampleEpochs:
    """The examples of every epoch, as ranges of tokens."""

    source: TokenSource
    num_chunks: int
    max_seq_length: int
    next_sentence: str | None  # as in `make_pairs`
    short_seq_prob: float
    seed: int
    pack: Callable[[np.ndarray], Places]  # from lengths [E]

    def require_some(self) -> None:
        """Raises `DataError` if no example can be made of the text."""
        if any(len(examples.lengths) for examples in self.epoch(0)):
            return
        least = "documents of two lines" if self.next_sentence == "sop" else "lines with words"
        received = f"text that makes no example with next_sentence={self.next_sentence!r}"
        raise user_error("`input_files`", f"have {least}", received, DataError)

    def epoch(self, number: int) -> Iterator[ShuffledExamples]:
        """Yields the examples of an epoch by chunk; they depend on the seed and the number."""
        order = self._generator(number).permutation(self.num_chunks).tolist()
        for chunk, next_chunk in itertools.zip_longest(order, order[1:]):
            yield self._shuffled(number, chunk, next_chunk)

    def _generator(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.seed & (2**64 - 1), *numbers])

    def _shuffled(self, epoch: int, chunk: int, next_chunk: int | None) -> ShuffledExamples:
        generator = self._generator(epoch, chunk)
        options = self.max_seq_length, self.next_sentence, self.short_seq_prob
        pairs = make_pairs(*self.source.sentence_splits(chunk), *options, generator)
        order = generator.permutation(len(pairs.labels))
        lengths = (pairs.first_lengths + pairs.second_lengths)[order]
        lengths += num_special_tokens(self.next_sentence)
        places = self.pack(lengths)
        by_row = np.argsort(places.rows, kind="stable")
        order, lengths = order[by_row], lengths[by_row]
        places = Places(*(field[by_row] for field in places))
        num_rows = places.rows.max(initial=-1) + 1
        first = ((epoch << _CHUNK_BITS) + chunk) << _EXAMPLE_BITS
        return ShuffledExamples(
            chunk,
            next_chunk,
            pairs.taken(order),
            first + order.astype(np.int64),
            lengths,
            places,
            np.searchsorted(places.rows, np.arange(num_rows + 1)),
        )


@dataclasses.dataclass
class ExampleBatches:
    """Divides the rows of all epochs into batches and assembles those of some shards.

    Batches of a fixed number of rows are dealt so that all shards have equal tokens in every step.
    All shards know all lengths, but assemble only their own rows.
    """

    examples: ExampleEpochs
    tokenizer: BertTokenizer
    batch_size: int | None  # B; with a token budget the largest number of rows, or None
    token_budget: int | None  # the largest number of tokens of a batch, or None
    num_shards: int
    own_shards: Sequence[int]

    def from_step(self, start_step: int, repeat: bool) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches after a step, of all epochs or of the first; see `BATCH_SIGNATURE`.

        Batches of several shards come in turn.
        """
        epochs = itertools.count() if repeat else range(1)
        batches = self._batches(itertools.chain.from_iterable(map(self.examples.epoch, epochs)))
        for step in itertools.count():
            group = list(itertools.islice(batches, self.num_shards))  # one batch per shard
            if len(group) < self.num_shards or (self.num_shards > 1 and self._is_short(group[-1])):
                return
            if step >= start_step:
                for parts in self._dealt(group):
                    yield self._assemble(parts)

    def _dealt(self, group: list[list[_Part]]) -> list[list[_Part]]:
        """Returns the batches of the own shards."""
        if self.num_shards == 1 or self.token_budget is not None:
            return [group[shard] for shard in self.own_shards]
        parts = list(itertools.chain.from_iterable(group))
        number = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])  # [rows]
        rows = np.concatenate([part.rows for part in parts])
        order, splits = deal_rows(np.concatenate([p.tokens for p in parts]), self.num_shards)
        dealt = []
        for shard in self.own_shards:
            own = np.sort(order[splits[shard] : splits[shard + 1]])
            kept = [own[number[own] == place] for place in np.unique(number[own])]
            dealt.append([_Part(parts[number[each[0]]].examples, rows[each]) for each in kept])
        return dealt

    def _batches(self, chunks: Iterator[ShuffledExamples]) -> Iterator[list[_Part]]:
        """Divides rows into batches of at most `batch_size` rows and `token_budget` tokens."""
        limits = (self.batch_size or math.inf, self.token_budget or math.inf)
        parts: list[_Part] = []
        rows, tokens = limits
        for examples in chunks:
            ends = np.cumsum(examples.lengths)[examples.row_splits[1:] - 1]  # [rows], in tokens
            begin = 0
            while begin < len(ends):
                before = ends[begin - 1] if begin else 0
                fitting = int(np.searchsorted(ends, before + tokens, side="right"))
                end = min(fitting, begin + rows)
                if end > begin:
                    parts.append(_Part(examples, np.arange(begin, end)))
                    rows -= end - begin
                    tokens -= int(ends[end - 1] - before)
                begin = end
                if begin < len(ends) or not rows:
                    yield parts
                    parts, (rows, tokens) = [], limits
        if parts:
            yield parts

    def _is_short(self, parts: list[_Part]) -> bool:
        """Returns whether it is the last batch of an epoch, with fewer rows than the others."""
        rows = sum(len(part.rows) for part in parts)
        return self.token_budget is None and rows < self.batch_size

    def _assemble(self, parts: list[_Part]) -> dict[str, np.ndarray]:
        if self.token_budget is None:
            width = self.examples.max_seq_length
        else:
            width = max(int(part.examples.lengths[part.taken].max()) for part in parts)
        pieces = []
        num_rows = 0
        for part in parts:
            pieces.append(self._piece(part, width, num_rows))
            num_rows += len(part.rows)
        batch = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        return {**batch, "num_rows": np.int32(num_rows)}

    def _piece(self, part: _Part, width: int, first_row: int) -> dict[str, np.ndarray]:
        examples, taken = part.examples, part.taken
        tokens = self.examples.source.tokens(examples.chunk)
        if examples.next_chunk is not None:
            self.examples.source.prefetch(examples.next_chunk)
        pairs = examples.pairs.taken(taken)
        lengths = examples.lengths[taken]
        columns = np.arange(width)
        # [CLS] a [SEP] b [SEP]
        first_ends = (pairs.first_lengths + 1)[:, np.newaxis]
        second_ends = first_ends + 1 + pairs.second_lengths[:, np.newaxis]
        in_first = (columns > 0) & (columns < first_ends)
        in_second = (columns > first_ends) & (columns < second_ends)
        first_places = columns - 1 + pairs.first_starts[:, np.newaxis]
        second_places = columns - first_ends - 1 + pairs.second_starts[:, np.newaxis]
        indices = np.where(in_first, first_places, np.where(in_second, second_places, 0))
        token_ids = np.where(in_first | in_second, tokens.ids[indices], self.tokenizer.pad_token_id)
        rows = np.arange(len(lengths))
        token_ids[:, 0] = self.tokenizer.cls_token_id
        token_ids[rows, first_ends[:, 0]] = self.tokenizer.sep_token_id
        token_ids[rows, lengths - 1] = self.tokenizer.sep_token_id
        return {
            "token_ids": token_ids.astype(np.int32),
            "word_starts": tokens.word_starts[indices],
            "lengths": lengths.astype(np.int32),
            "first_lengths": first_ends[:, 0].astype(np.int32) + 1,
            "streams": examples.streams[taken],
            "next_sentence_labels": pairs.labels,
            "rows": np.repeat(first_row + np.arange(len(part.rows)), part.sizes).astype(np.int32),
            "columns": examples.places.columns[taken],
            "slots": examples.places.slots[taken],
        }
