"""Makes pre-training batches from raw text files, with new pairs and new masks in every epoch.

Pairs of segments are shuffled, packed and batched as ranges of tokens, so batches before
`start_step` are skipped fast. The masks are drawn in the graph.

Glossary: `B` rows, `T` sequence length, `P` masked positions, `S` most sequences of a packed row,
`n` examples of a batch.

Reference: google-research/bert create_pretraining_data.py.
"""

import atexit
import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import from_generator
from bert_tf.errors import DataError, require
from bert_tf.inputs.masking import SPANBERT_SPANS, check_masking, mask_tokens, num_to_predict
from bert_tf.inputs.row_packing import Places, first_fit, place_in_rows
from bert_tf.tasks.pretraining.document_chunks import scan_documents
from bert_tf.tasks.pretraining.example_batches import BATCH_SIGNATURE, ExampleBatches, ExampleEpochs
from bert_tf.tasks.pretraining.records import check_position, find_files
from bert_tf.tasks.pretraining.segment_pairs import NEXT_SENTENCES
from bert_tf.tasks.pretraining.token_source import TokenSource
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.whole_words import Segmenter

NUMBER_TOKEN = "#NUM#"
CHUNK_BYTES = 16 << 20  # about 25,000 examples of 128 tokens
CACHE_BYTES = 256 << 20
TOKENS_PER_SEQUENCE = 16  # of the default of max_sequences_per_row
PREFETCHED_BATCHES = 16
_EXIT_SECONDS = 0.1


def pretraining_text(
    input_files: str | os.PathLike | Sequence[str | os.PathLike],
    tokenizer: BertTokenizer,
    batch_size: int | None,
    max_seq_length: int,
    max_predictions_per_seq: int,
    masked_lm_prob: float = 0.15,
    masking: str = "token",
    next_sentence: str | None = "nsp",
    short_seq_prob: float = 0.1,
    seed: int = 0,
    start_step: int = 0,
    num_shards: int = 1,
    shard_index: int | Sequence[int] = 0,
    packing: str | None = None,
    max_sequences_per_row: int | None = None,
    token_budget: int | None = None,
    segmenter: Segmenter | None = None,
    replace_numbers: bool = False,
    span_probabilities: Sequence[float] = SPANBERT_SPANS,
    repeat: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
    cache_bytes: int = CACHE_BYTES,
) -> tf.data.Dataset:
    """Makes batches from text with one sentence per line and a blank line between documents.

    Epoch e depends on (seed, e), and the masks of an example on (seed, epoch, example). The batches
    after step k are the same with `start_step=k` and from step 0. The k-th batches of all shards
    together have the rows of the k-th batch of one reader of `num_shards` times `B` rows, dealt so
    that all shards have equal tokens (see `deal_rows`; with a `token_budget`, in their order).
    Every shard tokenizes all the text, so `pretraining_records` is faster with many shards.

    Chunks are shuffled, and the examples of each. Random next segments come from the same chunk.

    Args:
        input_files: UTF-8 text files or glob patterns.
        tokenizer: The tokenizer. Its `errors` says how invalid UTF-8 is handled.
        batch_size: `B` of this shard. With a `token_budget` the largest number of rows, or None.
        max_seq_length: `T`, the largest length of an example and the length of packed rows.
        max_predictions_per_seq: `P` of an example or of a packed row.
        masked_lm_prob, masking, span_probabilities: See `mask_tokens`.
        next_sentence: See `make_pairs`: "nsp" (label 1 for a random next segment), "sop" (1 for
            swapped segments) or None (one segment, label 0).
        short_seq_prob: The probability that a document is divided into shorter examples.
        seed: The seed.
        start_step: The number of batches that are skipped.
        num_shards, shard_index: The number of readers that share the text, and this one's index. A
            reader for several shards takes a list of their indices and returns their batches in
            turn.
        packing: "rows" puts several short examples into each row.
        max_sequences_per_row: `S`. None means `T / 16`.
        token_budget: The largest number of tokens of a batch, which is padded to its longest
            example.
        segmenter: Divides Chinese text into words, for "whole_word" and "span".
        replace_numbers: Whether numbers become `#NUM#`, which must be in the vocabulary.
        repeat: Whether to repeat the data forever. Otherwise there is one epoch, whose last batch
            may be smaller, and is dropped with several shards.
        chunk_bytes: The bytes of text that are processed at a time, in about ten times the memory.
        cache_bytes: The bytes of text whose tokens are kept for the next epoch.

    Returns:
        A dataset of (features, labels), as `pretraining_records` returns it. Packed rows have more;
        see `place_in_rows`.

    Raises:
        ConfigError: If an argument is out of range or two arguments cannot be combined.
        DataError: If a file is missing or has no text, or if no example can be made.

    Example:
        >>> dataset = pretraining_text(
        ...     "corpus/*.txt",
        ...     bert_tf.BertTokenizer("vocab.txt"),
        ...     batch_size=8,
        ...     max_seq_length=128,
        ...     max_predictions_per_seq=20,
        ... )
        >>> features, labels = next(iter(dataset))
        >>> features["token_ids"].shape, labels["masked_ids"].shape
        (TensorShape([8, 128]), TensorShape([8, 20]))
    """
    check_masking(masking, masked_lm_prob, max_predictions_per_seq, span_probabilities)
    _check_examples(next_sentence, max_seq_length, short_seq_prob)
    has_words = segmenter is None or masking != "token"
    require(has_words, "must be 'whole_word' or 'span' with a `segmenter`", masking=masking)
    _check_batches(packing, token_budget, max_seq_length, batch_size)
    own_shards = [shard_index] if isinstance(shard_index, int) else list(shard_index)
    for shard in own_shards:
        check_position(start_step, num_shards, shard)
    tokenizer = _with_number_token(tokenizer) if replace_numbers else tokenizer
    tokenizer.require_mask_token()
    chunks = _chunks(find_files(input_files), chunk_bytes, tokenizer.errors, next_sentence)
    is_static = token_budget is None
    sequences = max_sequences_per_row or max(1, max_seq_length // TOKENS_PER_SEQUENCE)
    rows = _Rows(
        tokenizer,
        max_seq_length if is_static else None,
        batch_size if is_static and (repeat or num_shards > 1) else None,
        sequences if packing else None,
        has_next_sentences=next_sentence is not None,
        masks={
            "seed": seed,
            "max_predictions": max_predictions_per_seq,
            "masked_lm_prob": masked_lm_prob,
            "masking": masking,
            "span_probabilities": span_probabilities,
        },
    )
    source = TokenSource(chunks, tokenizer, segmenter, cache_bytes)
    settings = max_seq_length, next_sentence, short_seq_prob, seed, rows.places
    examples = ExampleEpochs(source, len(chunks), *settings)
    examples.require_some()
    batches = ExampleBatches(examples, tokenizer, batch_size, token_budget, num_shards, own_shards)
    with tf.device("CPU:0"):
        dataset = from_generator(
            lambda: _until_exit(batches.from_step(start_step, repeat)),
            output_signature=BATCH_SIGNATURE,
        )
        dataset = dataset.map(rows.masked, num_parallel_calls=2, deterministic=True)
    options = tf.data.Options()
    if num_shards > 1:  # otherwise, tf.distribute would shard the data again
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options).prefetch(PREFETCHED_BATCHES)


def _chunks(paths, chunk_bytes, errors, next_sentence):
    """Returns the chunks of the text files."""
    corpus = scan_documents(paths, chunk_bytes, errors, progress=False)
    if next_sentence == "nsp" and corpus.documents < 2:
        raise DataError(
            "`input_files` must have at least two documents, with a blank line between them, for "
            "random next segments. Received: one document. Separate the documents, or use "
            "next_sentence='sop' or None."
        )
    return corpus.chunks


def _check_examples(next_sentence, max_seq_length, short_seq_prob):
    expected = f"must be one of {NEXT_SENTENCES}"
    require(next_sentence in NEXT_SENTENCES, expected, next_sentence=next_sentence)
    least = 3 if next_sentence is None else 5  # one token per segment
    expected = f"must be at least {least} with next_sentence={next_sentence!r}"
    require(max_seq_length >= least, expected, max_seq_length=max_seq_length)
    require(0 <= short_seq_prob <= 1, "must be in [0, 1]", short_seq_prob=short_seq_prob)


def _check_batches(packing, token_budget, max_seq_length, batch_size):
    require(packing in (None, "rows"), "must be 'rows' or None", packing=packing)
    if token_budget is not None:
        budget = {"token_budget": token_budget}
        require(not packing, "and `packing` must not both be given", **budget)
        is_enough, rule = token_budget >= max_seq_length, "must be at least `max_seq_length`"
        require(is_enough, rule, **budget, max_seq_length=max_seq_length)
    is_valid = token_budget is not None if batch_size is None else batch_size >= 1
    require(is_valid, "must be at least 1, or None with a `token_budget`", batch_size=batch_size)


def _with_number_token(tokenizer):
    """Returns a tokenizer that replaces numbers by `NUMBER_TOKEN`."""
    if tokenizer.number_token is not None:
        return tokenizer
    rule = f"must be False with a vocabulary without the piece {NUMBER_TOKEN}"
    require(NUMBER_TOKEN in tokenizer.vocabulary, rule, replace_numbers=True)
    return BertTokenizer.from_config({**tokenizer.get_config(), "number_token": NUMBER_TOKEN})


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Draws the masks of examples and puts the examples into rows."""

    tokenizer: BertTokenizer
    length: int | None  # T, None for that of the longest example
    count: int | None  # B, None if batches may have different numbers of rows
    sequences: int | None  # S, None if each example has a row of its own
    has_next_sentences: bool
    masks: dict[str, Any]  # arguments of `mask_tokens`

    def places(self, lengths: np.ndarray) -> Places:
        """Returns the places of the examples of a chunk in its rows."""
        if self.sequences is None:
            zeros = np.zeros(len(lengths), np.int32)
            return Places(np.arange(len(lengths), dtype=np.int32), zeros, zeros)
        most = self.masks["max_predictions"]
        predictions = num_to_predict(lengths, self.masks["masked_lm_prob"], most)
        return first_fit(lengths, self.length, self.sequences, predictions, most)

    @tf.autograph.experimental.do_not_convert  # no branch depends on a tensor
    def masked(self, batch: dict[str, tf.Tensor]) -> tuple[dict, dict]:
        """Returns the features and the labels of a batch of `ExampleBatches`."""
        token_ids = tf.ensure_shape(batch["token_ids"], [None, self.length])  # [n, T]
        columns = tf.range(self.length or tf.shape(token_ids)[1])
        first, ends = batch["first_lengths"][:, tf.newaxis], batch["lengths"][:, tf.newaxis]
        padding_mask = columns < ends
        maskable = padding_mask & (columns != 0) & (columns != first - 1) & (columns != ends - 1)
        rows, tokenizer = (token_ids, maskable, batch["lengths"], batch["streams"]), self.tokenizer
        ids = {"mask_token_id": tokenizer.mask_token_id, "vocab_size": tokenizer.vocab_size}
        values = mask_tokens(*rows, word_starts=batch["word_starts"], **ids, **self.masks)._asdict()
        labels = {name: values.pop(name) for name in ("masked_ids", "masked_weights")}
        labels["next_sentence_labels"] = batch["next_sentence_labels"]
        segment_ids = tf.cast(padding_mask & (columns >= first), tf.int32)
        features = {**values, "segment_ids": segment_ids, "padding_mask": padding_mask}
        if self.sequences is not None:
            if not self.has_next_sentences:
                labels["next_sentence_weights"] = tf.zeros(tf.shape(batch["lengths"]))
            places = Places(*(batch[field] for field in Places._fields))
            sizes = self.length, self.sequences, self.masks["max_predictions"]
            features, labels = place_in_rows(
                features, labels, places, batch["num_rows"], *sizes, tokenizer.pad_token_id
            )
        return tf.nest.map_structure(
            lambda value: tf.ensure_shape(value, [self.count, *value.shape[1:]]), (features, labels)
        )


def _until_exit(batches: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches until the interpreter exits.

    Python then kills all threads that run its code, for which a living tf.data iterator would wait
    forever.
    """
    busy = threading.Lock()
    exiting = threading.Event()

    def stop():
        exiting.set()
        with busy:  # the batch that is being made
            pass
        time.sleep(_EXIT_SECONDS)  # in which TensorFlow gets the end of the batches

    atexit.register(stop)
    try:
        while True:
            with busy:
                batch = None if exiting.is_set() else next(batches, None)
            if batch is None:
                return
            yield batch
    finally:
        atexit.unregister(stop)
