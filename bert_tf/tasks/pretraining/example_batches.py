"""Batches of examples: which tokens of which chunk are in which row of which step.

Glossary: `E` examples of a chunk, `n` examples of a batch, `B` rows, `T` sequence length.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.row_packing import Places
from bert_tf.errors import DataError
from bert_tf.tasks.pretraining.segment_pairs import SegmentPairs, make_pairs, special_tokens
from bert_tf.tasks.pretraining.token_source import TokenSource
from bert_tf.text.tokenizer import BertTokenizer

# The stream of random bits of an example has the number (epoch, chunk, index in the chunk).
_CHUNK_BITS, _EXAMPLE_BITS = 20, 24

_VECTOR = tf.TensorSpec([None], tf.int32)
BATCH_SIGNATURE = {
    "token_ids": tf.TensorSpec([None, None], tf.int32),
    "word_starts": tf.TensorSpec([None, None], tf.bool),
    "lengths": _VECTOR,
    "first_lengths": _VECTOR,  # of `[CLS] a [SEP]`
    "streams": tf.TensorSpec([None], tf.int64),
    "next_sentence_labels": _VECTOR,
    "rows": _VECTOR,
    "columns": _VECTOR,
    "slots": _VECTOR,
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
    begin: int
    end: int


@dataclasses.dataclass
class ExampleEpochs:
    """The examples of every epoch, as ranges of tokens."""

    source: TokenSource
    num_chunks: int
    max_seq_length: int
    next_sentence: str | None  # as in `make_pairs`
    short_seq_prob: float
    seed: int
    pack: Callable[[np.ndarray], Places] | None  # from lengths [E]; None for one example per row

    def require_some(self) -> None:
        """Raises `DataError` if no example can be made of the text."""
        if any(len(part.lengths) for part in self.epoch(0)):
            return
        least = "documents of two lines" if self.next_sentence == "sop" else "lines with words"
        raise DataError(
            f"`input_files` must have {least}. Received: text that makes no example with "
            f"next_sentence={self.next_sentence!r}"
        )

    def epoch(self, number: int) -> Iterator[ShuffledExamples]:
        """Yields the examples of an epoch by chunk; they depend on the seed and the number."""
        order = self._generator(number).permutation(self.num_chunks).tolist()
        for chunk, next_chunk in itertools.zip_longest(order, order[1:]):
            yield self._shuffled(number, chunk, next_chunk)

    def _generator(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.seed & (2**64 - 1), *numbers])

    def _shuffled(self, epoch: int, chunk: int, next_chunk: int | None) -> ShuffledExamples:
        generator = self._generator(epoch, chunk)
        sentences = self.source.sentences(chunk)
        pairs = make_pairs(
            sentences.splits,
            sentences.document_splits,
            self.max_seq_length,
            self.next_sentence,
            self.short_seq_prob,
            generator,
        )
        count = len(pairs.labels)
        order = generator.permutation(count)
        lengths = (pairs.first_lengths + pairs.second_lengths)[order] + special_tokens(
            self.next_sentence
        )
        if self.pack is None:
            zeros = np.zeros(count, np.int32)
            places = Places(np.arange(count, dtype=np.int32), zeros, zeros)
        else:
            places = self.pack(lengths)
            by_row = np.argsort(places.rows, kind="stable")
            order, lengths = order[by_row], lengths[by_row]
            places = Places(*(field[by_row] for field in places))
        num_rows = int(places.rows[-1]) + 1 if count else 0
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
    """Divides the rows of all epochs into batches and assembles those of one shard."""

    examples: ExampleEpochs
    tokenizer: BertTokenizer
    batch_size: int | None  # B; with a token budget the largest number of rows, or None
    token_budget: int | None  # the largest number of tokens of a batch, or None
    num_shards: int
    shard_index: int

    def from_step(self, start_step: int, repeat: bool) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches after a step, of all epochs or of the first; see `BATCH_SIGNATURE`.

        The batches before are only counted, from the lengths of sentences.
        """
        epochs = itertools.count() if repeat else range(1)
        chunks = itertools.chain.from_iterable(map(self.examples.epoch, epochs))
        for step, parts in enumerate(self._steps(chunks)):
            if step >= start_step:
                yield self._assemble(parts)

    def _steps(self, chunks: Iterator[ShuffledExamples]) -> Iterator[list[_Part]]:
        """Yields the parts that this shard reads at each step."""
        if self.token_budget is not None:
            batches = self._by_tokens(chunks)
            while len(group := list(itertools.islice(batches, self.num_shards))) == self.num_shards:
                yield group[self.shard_index]
            return
        rows = self.batch_size * self.num_shards
        for parts, is_full in self._by_rows(chunks, rows):
            if is_full:
                begin = self.shard_index * self.batch_size
                yield _rows_of(parts, begin, begin + self.batch_size)
            elif self.num_shards == 1:
                yield parts

    def _by_rows(self, chunks, rows: int) -> Iterator[tuple[list[_Part], bool]]:
        parts: list[_Part] = []
        missing = rows
        for examples in chunks:
            begin, num_rows = 0, len(examples.row_splits) - 1
            while begin < num_rows:
                end = min(begin + missing, num_rows)
                parts.append(_Part(examples, begin, end))
                missing -= end - begin
                begin = end
                if not missing:
                    yield parts, True
                    parts, missing = [], rows
        if parts:
            yield parts, False

    def _by_tokens(self, chunks) -> Iterator[list[_Part]]:
        parts: list[_Part] = []
        room, missing = self.token_budget, self.batch_size
        for examples in chunks:
            ends = np.cumsum(examples.lengths)
            begin, num_rows = 0, len(ends)
            while begin < num_rows:
                before = ends[begin - 1] if begin else 0
                end = int(np.searchsorted(ends, before + room, side="right"))
                end = end if missing is None else min(end, begin + missing)
                if end > begin:
                    parts.append(_Part(examples, begin, end))
                    room -= int(ends[end - 1] - before)
                    missing = None if missing is None else missing - (end - begin)
                begin = end
                if end < num_rows:
                    yield parts
                    parts, room, missing = [], self.token_budget, self.batch_size
        if parts:
            yield parts

    def _assemble(self, parts: list[_Part]) -> dict[str, np.ndarray]:
        if self.token_budget is None:
            width = self.examples.max_seq_length
        else:
            width = max(int(part.examples.lengths[_in(part)].max()) for part in parts)
        pieces = []
        row = 0
        for part in parts:
            pieces.append(self._piece(part, width, row))
            row += part.end - part.begin
        batch = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        return {**batch, "num_rows": np.int32(row)}

    def _piece(self, part: _Part, width: int, first_row: int) -> dict[str, np.ndarray]:
        examples, taken = part.examples, _in(part)
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
        indices = columns + np.where(
            in_second,
            pairs.second_starts[:, np.newaxis] - first_ends - 1,
            pairs.first_starts[:, np.newaxis] - 1,
        )
        in_text = in_first | in_second
        indices = np.where(in_text, indices, 0)
        token_ids = np.where(in_text, tokens.ids[indices], self.tokenizer.pad_token_id)
        rows = np.arange(len(lengths))
        token_ids[:, 0] = self.tokenizer.cls_token_id
        token_ids[rows, first_ends[:, 0]] = self.tokenizer.sep_token_id
        token_ids[rows, lengths - 1] = self.tokenizer.sep_token_id
        places = examples.places
        return {
            "token_ids": token_ids.astype(np.int32),
            "word_starts": tokens.word_starts[indices],
            "lengths": lengths.astype(np.int32),
            "first_lengths": first_ends[:, 0].astype(np.int32) + 1,
            "streams": examples.streams[taken],
            "next_sentence_labels": pairs.labels,
            "rows": places.rows[taken] - part.begin + first_row,
            "columns": places.columns[taken],
            "slots": places.slots[taken],
        }


def _in(part: _Part) -> slice:
    """Returns the range of the examples of a part."""
    return slice(*part.examples.row_splits[[part.begin, part.end]].tolist())


def _rows_of(parts: list[_Part], begin: int, end: int) -> list[_Part]:
    """Returns the rows from `begin` to `end` of the concatenated parts."""
    taken = []
    for part in parts:
        size = part.end - part.begin
        low, high = max(begin, 0), min(end, size)
        if low < high:
            taken.append(part._replace(begin=part.begin + low, end=part.begin + high))
        begin, end = begin - size, end - size
    return taken
