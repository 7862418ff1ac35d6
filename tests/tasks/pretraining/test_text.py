"""Batches from raw text: the original's statistics, the same batches however they are read."""

import collections
import itertools
import math
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.files import staged_files
from bert_tf.errors import ConfigError, DataError
from bert_tf.inputs.row_packing import padding_share
from bert_tf.tasks.pretraining.segment_pairs import make_pairs
from bert_tf.tasks.pretraining.text import pretraining_text
from bert_tf.text import BertTokenizer
from tests.conftest import REPOSITORY
from tests.tasks.pretraining import original_examples

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"{a}{b}" for a in "bcdfghjklmnp" for b in "bcdfghjklmnp"]
VOCABULARY = SPECIAL + WORDS + ["##ae", "##io", "##ou", "#NUM#", "1", "##2", "手", "机", "很", "好"]
TOKENIZER = BertTokenizer(VOCABULARY)
LENGTH, PREDICTIONS = 32, 5


def random_text(seed=0, documents=60, sentences=12, words=14) -> list[list[str]]:
    rng = random.Random(seed)
    return [
        [
            " ".join(
                rng.choice(WORDS) + rng.choice(["", "", "ae", "ioou"])
                for _ in range(rng.randint(1, words))
            )
            for _ in range(rng.randint(1, sentences))
        ]
        for _ in range(documents)
    ]


def write(path, documents) -> str:
    path.write_text("\n\n".join("\n".join(document) for document in documents), "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> list[str]:
    """Two files; the second begins where a document of the first has ended."""
    folder = tmp_path_factory.mktemp("corpus")
    return [write(folder / f"{seed}.txt", random_text(seed)) for seed in (0, 1)]


def text_dataset(files, batch_size=8, tokenizer=TOKENIZER, length=LENGTH, **options):
    return pretraining_text(files, tokenizer, batch_size, length, PREDICTIONS, **options)


def batches(dataset, count=None):
    """Batches as one dictionary of arrays each."""
    dataset = dataset if count is None else dataset.take(count)
    return [{**features, **labels} for features, labels in dataset.as_numpy_iterator()]


def same(left, right):
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name]) for name in left
    )


def restored(batch):
    """The token ids as they were before they were masked."""
    ids = batch["token_ids"].copy()
    for row, (positions, weights) in enumerate(
        zip(batch["masked_positions"], batch["masked_weights"])
    ):
        used = weights > 0
        ids[row, positions[used]] = batch["masked_ids"][row, used]
    return ids


def within(successes, trials, probability, sigmas=4.5):
    deviation = math.sqrt(trials * probability * (1 - probability))
    assert abs(successes - trials * probability) < sigmas * deviation, (
        f"{successes} of {trials}, expected {probability}"
    )


def test_shapes_and_layout(corpus):
    dataset = text_dataset(corpus)
    shapes = {
        name: (tuple(spec.shape), spec.dtype.name)
        for part in dataset.element_spec
        for name, spec in part.items()
    }
    assert shapes == {
        "token_ids": ((8, LENGTH), "int32"),
        "segment_ids": ((8, LENGTH), "int32"),
        "padding_mask": ((8, LENGTH), "bool"),
        "masked_positions": ((8, PREDICTIONS), "int32"),
        "masked_ids": ((8, PREDICTIONS), "int32"),
        "masked_weights": ((8, PREDICTIONS), "float32"),
        "next_sentence_labels": ((8,), "int32"),
    }
    for batch in batches(dataset, 5):
        for ids, segments, mask in zip(
            restored(batch), batch["segment_ids"], batch["padding_mask"]
        ):
            length = mask.sum()
            assert mask[:length].all() and not ids[length:].any()
            assert ids[0] == 2 and ids[length - 1] == 3 and (ids[:length] == 3).sum() == 2
            first = np.flatnonzero(ids == 3)[0] + 1
            assert not segments[:first].any() and segments[first:length].all()
            assert not segments[length:].any()


def statistics(lengths, firsts, masks, labels):
    return dict(
        length=np.array(lengths),
        first=np.array(firsts),
        masks=np.array(masks),
        label=np.array(labels),
    )


@pytest.mark.parametrize("masking", ["whole_word", pytest.param("token", marks=pytest.mark.full)])
def test_distributions_are_the_originals(corpus, masking, is_full):
    """Lengths, segments, labels and masked counts against the original's algorithm."""
    epochs = 60 if is_full else 6
    documents = []
    for path in corpus:
        with open(path, encoding="utf-8") as file:
            documents += original_examples.read_documents(
                file.read(),
                lambda line: [piece.decode() for piece in TOKENIZER.pieces([line]).values.numpy()],
            )
    original = original_examples.make_instances(
        documents,
        VOCABULARY,
        0,
        LENGTH,
        epochs,
        max_predictions=PREDICTIONS,
        whole_words=masking == "whole_word",
    )
    theirs = statistics(
        *zip(
            *(
                (len(one.tokens), one.segment_ids.index(1), len(one.positions), one.is_random_next)
                for one in original
            )
        )
    )
    # About as many examples of ours.
    found = batches(text_dataset(corpus, 64, masking=masking), len(original) // 64)
    mask = np.concatenate([batch["padding_mask"] for batch in found])
    segments = np.concatenate([batch["segment_ids"] for batch in found])
    ours = statistics(
        mask.sum(1),
        np.argmax(segments, 1),
        np.concatenate([batch["masked_weights"].sum(1) for batch in found]),
        np.concatenate([batch["next_sentence_labels"] for batch in found]),
    )
    for name in theirs:
        a, b = theirs[name].astype(float), ours[name].astype(float)
        error = math.sqrt(a.var() / len(a) + b.var() / len(b))
        # Examples of one document go together, so a mean varies more than of single ones.
        assert abs(a.mean() - b.mean()) < 7 * error, (name, a.mean(), b.mean())
        largest = max(a.max(), b.max()) + 1
        bins = np.arange(largest + 1)
        cumulative = [np.cumsum(np.histogram(x, bins)[0]) / len(x) for x in (a, b)]
        # Kolmogorov and Smirnov's distance; 1.95 is its 0.1 % quantile.
        distance = np.abs(cumulative[0] - cumulative[1]).max()
        assert distance < 2 * 1.95 * math.sqrt(1 / len(a) + 1 / len(b)), (name, distance)


def test_masks(corpus, is_full):
    found = batches(text_dataset(corpus, 64), 60 if is_full else 20)
    kinds = collections.Counter()
    for batch in found:
        before = restored(batch)
        wanted = np.clip(np.rint(batch["padding_mask"].sum(1) * 0.15), 1, PREDICTIONS)
        np.testing.assert_array_equal(batch["masked_weights"].sum(1), wanted)
        used = batch["masked_weights"] > 0
        assert (batch["masked_ids"][used] > 4).all()  # no special token is hidden
        shown = np.take_along_axis(batch["token_ids"], batch["masked_positions"], 1)[used]
        kinds["mask"] += int((shown == 4).sum())
        kinds["same"] += int((shown == batch["masked_ids"][used]).sum())
        kinds["all"] += len(shown)
        np.testing.assert_array_equal((before != batch["token_ids"]).sum(1) <= wanted, True)
    chance = 0.1 / len(VOCABULARY)
    within(kinds["mask"], kinds["all"], 0.8 + chance)
    within(kinds["same"], kinds["all"], 0.1 + chance)


def test_whole_words_are_whole(corpus):
    pieces = np.array(VOCABULARY)
    words = 0
    for batch in batches(text_dataset(corpus, 64, masking="whole_word"), 10):
        ids = restored(batch)
        for row in range(64):
            used = batch["masked_weights"][row] > 0
            chosen = set(batch["masked_positions"][row][used].tolist())
            for column in range(1, LENGTH):
                joined = pieces[ids[row, column]].startswith("##")
                if joined and ids[row, column - 1] not in (2, 3):
                    words += column in chosen
                    assert (column in chosen) == (column - 1 in chosen)
    assert words > 100


def test_next_sentences(corpus):
    """A random next segment is of another document; other segments are consecutive."""
    flat, document_of = [], []
    for number, document in enumerate(random_text(0) + random_text(1)):
        ids = TOKENIZER.tokenize(document).flat_values.numpy().tolist()
        flat += ids
        document_of += [number] * len(ids)
    flat = np.array(flat)

    def places(segment):
        windows = np.lib.stride_tricks.sliding_window_view(flat, len(segment))
        return np.flatnonzero((windows == segment).all(1))

    checked = collections.Counter()
    for batch in batches(text_dataset(corpus, 64), 4):
        ids = restored(batch)
        for row in range(64):
            first_end, end = np.flatnonzero(ids[row] == 3)
            first, second = ids[row, 1:first_end], ids[row, first_end + 1 : end]
            if len(first) < 4 or len(second) < 4:
                continue
            starts, others = places(first), places(second)
            assert len(starts) and len(others)
            if len(starts) == len(others) == 1:
                apart = document_of[starts[0]] != document_of[others[0]]
                assert apart == batch["next_sentence_labels"][row]
                assert apart or starts[0] + len(first) <= others[0]
                checked[apart] += 1
    assert min(checked.values()) > 30


def pairs_of(sentence_lengths, next_sentence, seed=0, length=LENGTH, short=0.0):
    """Documents as lists of sentence lengths, to pairs."""
    flat = [size for document in sentence_lengths for size in document]
    return make_pairs(
        np.cumsum([0] + flat),
        np.cumsum([0] + [len(d) for d in sentence_lengths]),
        length,
        next_sentence,
        short,
        np.random.default_rng(seed),
    )


def test_next_sentence_is_a_coin():
    """Where every example has two sentences: 50 %."""
    pairs = pairs_of([[10] * 3000, [10] * 3000], "nsp", length=23)
    # A random next segment puts one sentence back.
    within(pairs.labels.sum(), len(pairs.labels) - 2, 0.5)
    assert (pairs.first_lengths + pairs.second_lengths <= 20).all()
    starts = pairs.first_starts[pairs.first_starts < 30000]
    assert np.diff(starts).min() == 10 and np.diff(starts).max() == 20  # nothing is lost


def test_sentence_order():
    pairs = pairs_of([[10] * 4000], "sop", length=43)
    within(pairs.labels.sum(), len(pairs.labels), 0.5)
    first, second = pairs.first_starts, pairs.second_starts
    np.testing.assert_array_equal(pairs.labels == 1, second < first)
    np.testing.assert_array_equal(
        np.where(
            pairs.labels,
            second + pairs.second_lengths == first,
            first + pairs.first_lengths == second,
        ),
        True,
    )
    assert len(pairs_of([[10], [7]], "sop").labels) == 0


def test_one_segment():
    pairs = pairs_of([[10] * 5, [200]], None)
    assert not pairs.second_lengths.any() and not pairs.labels.any()
    assert pairs.first_lengths.tolist() == [30, 20, 30]


def test_truncation_takes_from_both_ends():
    pairs = pairs_of([[30, 570]] * 300, "nsp", length=43)
    true = pairs.labels == 0
    assert (pairs.first_lengths == 20).all() and (pairs.second_lengths == 20).all()
    front = (pairs.first_starts % 600)[true]  # of the 10 that go
    within(front.sum(), 10 * true.sum(), 0.5)
    front = (pairs.second_starts % 600)[true] - 30
    within(front.sum(), 550 * true.sum(), 0.5)


def test_short_sequences():
    pairs = pairs_of([[1] * 100] * 4000, None, length=LENGTH, short=0.1)
    first = pairs.first_lengths[pairs.first_starts % 100 == 0]
    # Of the documents that aim lower, 1 in 29 draws the full length after all.
    within((first < LENGTH - 2).sum(), 4000, 0.1 * 28 / 29)
    assert first.min() == 2


VARIANTS = {
    "plain": {},
    "rows": {"packing": "rows", "masking": "whole_word", "max_sequences_per_row": 4},
    "budget": {"token_budget": 200, "batch_size": None, "masking": "span"},
}


@pytest.mark.parametrize("name", [pytest.param("plain", marks=pytest.mark.full), "rows", "budget"])
def test_resume_and_shards(corpus, name, is_full):
    """From step k on, and divided among shards, the batches are the same; over epochs too."""
    # Small chunks that are not kept: they are read and tokenized again.
    options = dict(seed=3, chunk_bytes=12000, cache_bytes=0, batch_size=32) | VARIANTS[name]
    steps = 60 if name == "budget" else 30 if is_full else 12
    whole = batches(text_dataset(corpus, **options), steps)
    for step in (7, steps - 9) if is_full else (steps - 9,):
        tail = batches(text_dataset(corpus, start_step=step, **options), steps - step)
        assert all(map(same, whole[step:], tail))
    if name == "plain" or is_full:  # tokens that are kept are the same
        assert all(
            map(
                same,
                whole,
                batches(text_dataset(corpus, **{**options, "cache_bytes": 1 << 30}), steps),
            )
        )

    if options["batch_size"] is not None:
        options["batch_size"] = 16
    shards = [
        batches(text_dataset(corpus, num_shards=2, shard_index=shard, **options), steps // 2)
        for shard in (0, 1)
    ]
    if name == "budget":
        together = itertools.chain.from_iterable(zip(*shards))
        assert all(map(same, whole, together))
    else:
        for batch, *parts in zip(whole, *shards):
            together = {name: np.concatenate([part[name] for part in parts]) for name in batch}
            assert sorted_rows(together) == sorted_rows(batch)
            tokens = [part["padding_mask"].sum() for part in parts]
            assert max(tokens) < 1.05 * np.mean(tokens)
        in_turn = batches(text_dataset(corpus, num_shards=2, shard_index=[0, 1], **options), 6)
        assert all(map(same, in_turn, itertools.chain.from_iterable(zip(*shards))))
    if name == "plain" or is_full:
        late = batches(
            text_dataset(corpus, num_shards=2, shard_index=1, start_step=9, **options), 3
        )
        assert all(map(same, shards[1][9:12], late))


def sorted_rows(batch):
    """The rows of a batch, in an order that does not depend on that of the batch."""
    return sorted(
        b"".join(batch[name][row].tobytes() for name in sorted(batch))
        for row in range(len(batch["token_ids"]))
    )


def tokens_of_epoch(found):
    """How often each sequence of tokens comes, packed or not."""
    count = collections.Counter()
    for batch in found:
        ids = restored(batch)
        sequence_ids = batch.get("sequence_ids", batch["padding_mask"].astype(int))
        for row in range(len(ids)):
            for number in range(1, sequence_ids[row].max(initial=0) + 1):
                count[tuple(ids[row][sequence_ids[row] == number])] += 1
    return count


def test_an_epoch_is_the_same_examples_however_they_are_packed(corpus):
    plain, rows, budget = (
        tokens_of_epoch(
            batches(
                text_dataset(
                    corpus, repeat=False, chunk_bytes=16000, **{"batch_size": 8, **VARIANTS[name]}
                )
            )
        )
        for name in ("plain", "rows", "budget")
    )
    assert plain == rows == budget and plain.total() > 400


def test_shards_of_an_epoch_are_disjoint(corpus):
    whole = tokens_of_epoch(batches(text_dataset(corpus, 4, repeat=False)))
    shards = [
        tokens_of_epoch(
            batches(text_dataset(corpus, 4, repeat=False, num_shards=2, shard_index=shard))
        )
        for shard in (0, 1)
    ]
    together = sum(shards, collections.Counter())
    assert not together - whole
    assert whole.total() - together.total() < 2 * 4  # the last batch


def test_packed_rows(corpus):
    """Rows hold whole examples, each masked as it would be alone."""
    for batch in batches(text_dataset(corpus, packing="rows", length=64), 6):
        assert batch["token_ids"].shape == (8, 64) and batch["sequence_starts"].shape == (8, 4)
        assert (batch["masked_weights"].sum(1) <= PREDICTIONS).all()
        for row, (ids, positions) in enumerate(zip(batch["sequence_ids"], batch["positions"])):
            weights = batch["next_sentence_weights"][row]
            assert weights.sum() == ids.max()
            for slot in range(ids.max()):
                columns = np.flatnonzero(ids == slot + 1)
                assert batch["sequence_starts"][row, slot] == columns[0]
                assert batch["token_ids"][row, columns[0]] == 2
                assert batch["token_ids"][row, columns[-1]] == 3
                assert positions[columns].tolist() == list(range(len(columns)))
    packed, plain = (
        padding_share(text_dataset(corpus, packing=packing, length=64), 10)
        for packing in ("rows", None)
    )
    assert packed < plain


def test_token_budget(corpus):
    for batch in batches(text_dataset(corpus, None, token_budget=200), 20):
        lengths = batch["padding_mask"].sum(1)
        assert 200 - LENGTH < lengths.sum() <= 200
        assert batch["token_ids"].shape[1] == lengths.max()
    for batch in batches(text_dataset(corpus, 3, token_budget=200), 20):
        assert len(batch["token_ids"]) == 3


def test_every_epoch_has_new_masks(tmp_path):
    path = write(tmp_path / "one.txt", [["bb bc bd bf bg bh bj bk"]])
    found = batches(text_dataset(path, 1, next_sentence=None, short_seq_prob=0.0), 30)
    assert len({(tuple(batch["token_ids"][0]), batch["masked_ids"][0, 0]) for batch in found}) > 8


def test_seeds(corpus):
    first, other = (batches(text_dataset(corpus, seed=seed), 2) for seed in (1, 2))
    assert not same(first[0], other[0])
    tf.random.set_seed(5)  # nothing else decides
    assert all(map(same, first, batches(text_dataset(corpus, seed=1), 2)))


def test_chinese_words(tmp_path):
    path = write(tmp_path / "zh.txt", [["手机很好" * 3, "很好手机"]] * 40)
    words = ["手机", "很好"]

    def segmenter(text):
        return [text[start : start + 2] for start in range(0, len(text), 2)]

    found = batches(
        text_dataset(path, 16, masking="whole_word", segmenter=segmenter, short_seq_prob=0.0), 8
    )
    firsts = {TOKENIZER.token_to_id(word[0]) for word in words}
    cut = total = 0
    for batch in found:
        ids = restored(batch)
        for row in range(16):
            used = batch["masked_weights"][row] > 0
            chosen = set(batch["masked_positions"][row][used].tolist())
            for column in range(1, LENGTH - 1):
                if ids[row, column] in firsts and ids[row, column + 1] not in (0, 2, 3):
                    total += column in chosen
                    cut += (column in chosen) != (column + 1 in chosen)
    assert total > 100 and not cut


def test_numbers_become_one_token(tmp_path):
    path = write(tmp_path / "numbers.txt", [["bb 12 bc", "bd 1.25"], ["bf 7"]])
    ids = {
        int(i)
        for batch in batches(text_dataset(path, 4, replace_numbers=True), 2)
        for i in restored(batch).flat
    }
    assert TOKENIZER.token_to_id("#NUM#") in ids and TOKENIZER.token_to_id("1") not in ids
    with pytest.raises(ConfigError, match="`replace_numbers` must be False .*#NUM#"):
        text_dataset(path, tokenizer=BertTokenizer(SPECIAL + WORDS), replace_numbers=True)


def test_last_batch_of_an_epoch(tmp_path):
    path = write(tmp_path / "few.txt", [["bb bc", "bd"], ["bf"], ["bg"]])
    sizes = [len(batch["token_ids"]) for batch in batches(text_dataset(path, 2, repeat=False))]
    assert sizes[:-1] == [2] * (len(sizes) - 1) and sum(sizes) >= 3
    # Fewer examples than a batch: epochs follow each other.
    (batch,) = batches(text_dataset(path, 16), 1)
    assert batch["token_ids"].shape == (16, LENGTH)


@pytest.mark.parametrize(
    "content,options,message",
    [
        (b"", {}, "must have text"),
        (b"\n \n\t\n", {}, "must have text"),
        (b"bb bc\n", {}, "at least two documents"),
        (b"bb bc\nbd\nbf bg\n", {}, "at least two documents"),
        (b"bb bc\n\nbd\n", {"next_sentence": "sop"}, "documents of two lines"),
        (b"bb\n\nbc \xff\xfe\n", {}, "line 3 must be UTF-8"),
        ("bb\n\nbc\n".encode("utf-16"), {}, "line 1 must be"),
        (b"bb\0bc\n\nbd\n", {}, "line 1 must be text"),
        ("bb\n\né\n".encode() + "é\n".encode("latin-1"), {}, "line 4 must be UTF-8"),
    ],
)
def test_bad_files(tmp_path, content, options, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        text_dataset(path, **options)


def test_text_that_can_be_read_after_all(tmp_path):
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"bb\n\nbc \xff bd\n\n\n\n\xef\xbb\xbfbf\n")
    tokenizer = BertTokenizer(VOCABULARY, errors="replace")
    assert batches(text_dataset(path, 4, tokenizer=tokenizer), 1)
    path.write_text("bb bc bd bf\n")
    assert batches(text_dataset(path, 4, next_sentence=None), 1)


def test_missing_files(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path / "*.txt"):
        with pytest.raises(DataError, match="must match existing files"):
            text_dataset(path)
    with pytest.raises(DataError, match="directory"):
        text_dataset(tmp_path)
    with pytest.raises(DataError, match="input_files"):
        text_dataset([])
    write(tmp_path / "a.txt", random_text(0, 2))
    assert batches(text_dataset(tmp_path / "*.txt", 2), 1)


def test_a_pattern_leaves_out_what_a_writer_has_not_finished(tmp_path):
    path = write(tmp_path / "a.txt", random_text(0, 2))
    with staged_files(tmp_path) as staging:
        with open(os.path.join(staging, "b.txt"), "wb") as file:
            file.write(b"\xff")
        theirs = batches(text_dataset(path, 2), 3)
        for mine, wanted in zip(batches(text_dataset(tmp_path / "*", 2), 3), theirs, strict=True):
            np.testing.assert_array_equal(mine["token_ids"], wanted["token_ids"])
        with pytest.raises(DataError, match="must match existing files"):
            text_dataset(tmp_path / "*" / "*" / "*.txt")


@pytest.mark.parametrize(
    "options,message",
    [
        ({"length": 4}, "max_seq_length=4"),
        ({"length": 2, "next_sentence": None}, "max_seq_length=2"),
        ({"next_sentence": "next"}, "next_sentence='next'"),
        ({"masking": "words"}, "masking='words'"),
        ({"short_seq_prob": 1.5}, "short_seq_prob=1.5"),
        ({"segmenter": list}, "segmenter"),
        ({"packing": "tight"}, "packing='tight'"),
        ({"packing": "rows", "token_budget": 64}, "both"),
        ({"token_budget": 31}, "token_budget=31"),
        ({"batch_size": None}, "batch_size=None"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"num_shards": 2, "shard_index": 2}, "shard_index=2"),
        ({"start_step": -1}, "start_step=-1"),
        ({"tokenizer": BertTokenizer(VOCABULARY, mask_token=None)}, "mask_token=None"),
    ],
)
def test_bad_options(corpus, options, message):
    with pytest.raises(ConfigError, match=message):
        text_dataset(corpus, **options)


def test_shortest_examples(tmp_path):
    path = write(tmp_path / "short.txt", random_text(0, 6))
    for next_sentence, length in (("nsp", 5), ("sop", 5), (None, 3)):
        (batch,) = batches(text_dataset(path, 4, length=length, next_sentence=next_sentence), 1)
        assert batch["padding_mask"].all() and (batch["masked_weights"].sum(1) == 1).all()


ENDS = """
from bert_tf.tasks.pretraining.text import pretraining_text
from bert_tf.text import BertTokenizer
tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bb", "bc", "bd", "bf"])
batches = iter(pretraining_text("text.txt", tokenizer, 8, 32, 5, chunk_bytes=3000, cache_bytes=0))
next(batches)
"""


@pytest.mark.full
def test_a_program_ends_while_an_iterator_is_alive(tmp_path):
    (tmp_path / "text.txt").write_text(("bb bc bd bf\n" * 8 + "\n") * 400)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for _ in range(5):
        command = [sys.executable, "-c", ENDS]
        subprocess.run(command, cwd=tmp_path, env=environment, timeout=60, check=True)
