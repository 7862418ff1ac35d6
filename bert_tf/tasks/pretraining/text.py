"""Raw text files to pre-training batches, with new pairs and new masks every epoch.

A chunk of documents at a time is tokenized and cut into pairs of segments; pairs are shuffled,
packed and batched as ranges of tokens, so that batches before `start_step` cost next to nothing;
the masks are drawn in the graph.

Glossary: `B` rows, `T` sequence length, `P` masked positions, `S` most sequences of a packed row,
`n` examples of a batch.

Reference: google-research/bert create_pretraining_data.py.
"""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.data.masking import SPANBERT_SPANS, check_masking, mask_tokens, num_to_predict
from bert_tf.data.row_packing import Places, first_fit, place_in_rows
from bert_tf.errors import ConfigError, DataError
from bert_tf.files import without_staging
from bert_tf.tasks.pretraining.document_chunks import scan_documents
from bert_tf.tasks.pretraining.example_batches import BATCH_SIGNATURE, ExampleBatches, ExampleEpochs
from bert_tf.tasks.pretraining.segment_pairs import NEXT_SENTENCES
from bert_tf.tasks.pretraining.token_source import TokenSource
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.whole_words import Segmenter

NUMBER_TOKEN = "#NUM#"
CHUNK_BYTES = 16 << 20  # tokenized in seconds; about 25,000 examples of 128 tokens
CACHE_BYTES = 256 << 20
TOKENS_PER_SEQUENCE = 16  # max_sequences_per_row=None: short sequences, yet few unused places
PREFETCHED_BATCHES = 16


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
    shard_index: int = 0,
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
    """Makes pre-training batches from raw text: a sentence a line, a blank line after a document.

    Epoch e is a function of (seed, e) alone, an example's masks of (seed, epoch, example). Batch k
    is the same whether reading began at step 0 or with `start_step=k`, and the k-th batches of all
    shards, one behind the other, are the k-th batch of one process with `num_shards` times the
    batch size. Every shard tokenizes all of the text; where there are many, records (see
    `pretraining_records`) are cheaper.

    Text is shuffled inside chunks, and chunks are shuffled; random next segments come from the same
    chunk.

    Args:
        input_files: paths or glob patterns of UTF-8 text files.
        tokenizer: the tokenizer; its `errors` says what to do with what is not UTF-8.
        batch_size: `B`, the rows of a batch of this shard. With a `token_budget` the most rows, or
            None for any.
        max_seq_length: `T`, the greatest length of an example, and the length of packed rows.
        max_predictions_per_seq: `P`, of an example, or of a packed row.
        masked_lm_prob: the share of tokens to mask.
        masking: "token", "whole_word" or "span"; see `mask_tokens`.
        next_sentence: "nsp" (0 is the next segment, 1 a random one), "sop" (0 is the right order, 1
            the swapped one) or None (one segment, all labels 0); see `make_pairs`.
        short_seq_prob: how often a document is cut to shorter examples of a random length.
        seed: the seed.
        start_step: how many batches are left out at the beginning.
        num_shards: how many readers share the text.
        shard_index: which of them this is.
        packing: "rows" puts several short examples into each row.
        max_sequences_per_row: `S`; None for `T / 16`.
        token_budget: fills batches up to so many tokens instead of `B` rows, padded to the longest.
        segmenter: cuts Chinese text into words, for "whole_word" and "span".
        replace_numbers: whether numbers become `#NUM#`, which must be in the vocabulary.
        span_probabilities: of spans of 1, 2, ... words.
        repeat: whether to go on without end. Otherwise one epoch, whose last batch may be smaller;
            with several shards it is left out.
        chunk_bytes: about how much text is worked on at a time. The memory needed is some ten
            times as much.
        cache_bytes: the tokens of so much text are kept for the next epoch.

    Returns:
        A dataset of (features, labels): `token_ids`, `segment_ids` int32 `[B, T]`, `padding_mask`
        bool `[B, T]`, `masked_positions` int32 `[B, P]`; `masked_ids` int32, `masked_weights`
        float32 `[B, P]`, `next_sentence_labels` int32 `[B]`. Packed rows have more; see
        `place_in_rows`.

    Raises:
        DataError: a file is missing or holds no text, or the text makes no example.
        ConfigError: an argument has no such value, or two contradict each other.

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
    _check_text_options(next_sentence, max_seq_length, short_seq_prob, masking, segmenter)
    _check_batches(
        batch_size, packing, token_budget, max_seq_length, start_step, num_shards, shard_index
    )
    if tokenizer.mask_token_id is None:
        raise ConfigError(
            "Expected a tokenizer with a mask token. Received: mask_token=None. Name the piece of "
            "the vocabulary that hides tokens."
        )
    if replace_numbers and tokenizer.number_token is None:
        tokenizer = BertTokenizer.from_config(
            {**tokenizer.get_config(), "number_token": NUMBER_TOKEN}
        )
    max_sequences = max_sequences_per_row or max(1, max_seq_length // TOKENS_PER_SEQUENCE)

    corpus = scan_documents(_find(input_files), chunk_bytes, tokenizer.errors, progress=False)
    if next_sentence == "nsp" and corpus.documents < 2:
        raise DataError(
            "Expected at least two documents, with a blank line between them, for random next "
            "segments. Received: one document. Separate the documents, or choose "
            "next_sentence='sop' or None."
        )

    def pack(lengths):
        return first_fit(
            lengths,
            max_seq_length,
            max_sequences,
            num_to_predict(lengths, masked_lm_prob, max_predictions_per_seq),
            max_predictions_per_seq,
        )

    examples = ExampleEpochs(
        TokenSource(corpus.chunks, tokenizer, segmenter, cache_bytes),
        len(corpus.chunks),
        max_seq_length,
        next_sentence,
        short_seq_prob,
        seed,
        pack if packing == "rows" else None,
    )
    examples.require_some()
    batches = ExampleBatches(examples, tokenizer, batch_size, token_budget, num_shards, shard_index)
    static_rows = batch_size if token_budget is None and (repeat or num_shards > 1) else None
    static_length = max_seq_length if token_budget is None else None

    def finish(batch: dict[str, tf.Tensor]):
        token_ids, lengths, first = batch["token_ids"], batch["lengths"], batch["first_lengths"]
        columns = tf.range(tf.shape(token_ids)[1])[tf.newaxis, :]
        padding_mask = columns < lengths[:, tf.newaxis]  # [n, T]
        special = (
            (columns == 0)
            | (columns == first[:, tf.newaxis] - 1)
            | (columns == lengths[:, tf.newaxis] - 1)
        )
        masked = mask_tokens(
            token_ids,
            padding_mask & ~special,
            lengths,
            batch["streams"],
            seed=seed,
            mask_token_id=tokenizer.mask_token_id,
            vocab_size=tokenizer.vocab_size,
            max_predictions=max_predictions_per_seq,
            masked_lm_prob=masked_lm_prob,
            masking=masking,
            word_starts=batch["word_starts"],
            span_probabilities=span_probabilities,
        )
        features = {
            "token_ids": masked.token_ids,
            "segment_ids": tf.cast(padding_mask & (columns >= first[:, tf.newaxis]), tf.int32),
            "padding_mask": padding_mask,
            "masked_positions": masked.masked_positions,
        }
        labels = {
            "masked_ids": masked.masked_ids,
            "masked_weights": masked.masked_weights,
            "next_sentence_labels": batch["next_sentence_labels"],
        }
        if packing == "rows":
            if next_sentence is None:
                labels["next_sentence_weights"] = tf.zeros(tf.shape(lengths))
            places = Places(*(batch[field] for field in Places._fields))
            features, labels = place_in_rows(
                features,
                labels,
                places,
                batch["num_rows"],
                max_seq_length,
                max_sequences,
                max_predictions_per_seq,
                tokenizer.pad_token_id,
            )
        for part in (features, labels):
            for name, value in part.items():
                width = (
                    static_length
                    if value.shape.rank == 2 and name in _TOKEN_FEATURES
                    else (value.shape[-1])
                )
                part[name] = tf.ensure_shape(value, [static_rows, width][: value.shape.rank])
        return features, labels

    with tf.device("CPU:0"):
        dataset = tf.data.Dataset.from_generator(
            lambda: batches.from_step(start_step, repeat), output_signature=BATCH_SIGNATURE
        )
        dataset = dataset.map(finish, num_parallel_calls=2, deterministic=True)
    options = tf.data.Options()
    if num_shards > 1:
        # The text is divided here already; tf.distribute must not do it again.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options).prefetch(PREFETCHED_BATCHES)


_TOKEN_FEATURES = ("token_ids", "segment_ids", "padding_mask", "sequence_ids", "positions")


def _find(input_files: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """Paths and glob patterns to paths; what is no pattern is left to the reader to refuse."""
    if isinstance(input_files, (str, os.PathLike)):
        input_files = [input_files]
    paths: list[str] = []
    for path in map(os.fspath, input_files):
        if os.path.exists(path):
            paths.append(path)
        else:
            paths += sorted(without_staging(tf.io.gfile.glob(path))) or [path]
    if not paths:
        raise DataError("Expected at least one text file. Received: input_files=[].")
    return paths


def _check_text_options(
    next_sentence: str | None,
    max_seq_length: int,
    short_seq_prob: float,
    masking: str,
    segmenter: Segmenter | None,
) -> None:
    if next_sentence not in NEXT_SENTENCES:
        raise ConfigError(
            f"Expected next_sentence to be one of {NEXT_SENTENCES}. "
            f"Received: next_sentence={next_sentence!r}."
        )
    least = 3 if next_sentence is None else 5  # a token in each segment
    if max_seq_length < least:
        raise ConfigError(
            f"Expected max_seq_length to be at least {least} with next_sentence="
            f"{next_sentence!r}. Received: max_seq_length={max_seq_length}."
        )
    if not 0 <= short_seq_prob <= 1:
        raise ConfigError(
            f"Expected short_seq_prob from 0 to 1. Received: short_seq_prob={short_seq_prob}."
        )
    if segmenter is not None and masking == "token":
        raise ConfigError(
            "Expected masking='whole_word' or 'span' with a segmenter. Received: masking='token', "
            "which knows no words."
        )


def _check_batches(
    batch_size: int | None,
    packing: str | None,
    token_budget: int | None,
    max_seq_length: int,
    start_step: int,
    num_shards: int,
    shard_index: int,
) -> None:
    if packing not in (None, "rows"):
        raise ConfigError(f"Expected packing to be 'rows' or None. Received: packing={packing!r}.")
    if packing and token_budget is not None:
        raise ConfigError(
            "Expected packing='rows', of static shape, or a token_budget, of any shape. "
            f"Received: both, token_budget={token_budget}."
        )
    if token_budget is not None and token_budget < max_seq_length:
        raise ConfigError(
            "Expected a token_budget of at least one sequence. Received: "
            f"token_budget={token_budget}, max_seq_length={max_seq_length}."
        )
    if (batch_size is None and token_budget is None) or (batch_size is not None and batch_size < 1):
        raise ConfigError(
            "Expected batch_size to be at least 1, or None with a token_budget. "
            f"Received: batch_size={batch_size}, token_budget={token_budget}."
        )
    if num_shards < 1 or not 0 <= shard_index < num_shards or start_step < 0:
        raise ConfigError(
            "Expected shard_index from 0 to num_shards - 1 and start_step from 0. Received: "
            f"num_shards={num_shards}, shard_index={shard_index}, start_step={start_step}."
        )
