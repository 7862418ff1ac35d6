"""TFRecord files of pre-training examples: both ways, repeatable, and refused when broken."""

import random

import pytest
import tensorflow as tf

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.base.files import staged_files
from bert_tf.errors import ConfigError, DataError
from bert_tf.tasks.pretraining.chunk_examples import example_features, serialize_features
from bert_tf.tasks.pretraining.examples import (
    ExampleOptions,
    MaskingVocabulary,
    PretrainingExample,
    create_examples,
)
from bert_tf.tasks.pretraining.records import check_records, feature_spec, pretraining_records
from tests.tasks.pretraining.record_writer import write_pretraining_records

LENGTH, PREDICTIONS = 24, 4
EXAMPLE = PretrainingExample([2, 4, 40_000, 3, 7, 3], [0, 0, 0, 0, 1, 1], [1], [300], True)


def numbered(number):
    """An example with a number, which distinguishes it from others."""
    return PretrainingExample(
        [2, 1000 + number, 3, 7, 3], [0, 0, 0, 1, 1], [1], [1000 + number], number % 2 == 0
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Six files of 5 to 10 examples, 45 in all."""
    root = tmp_path_factory.mktemp("records")
    start = 0
    for index in range(6):
        write_pretraining_records(
            root / f"part-{index}.tfrecord",
            map(numbered, range(start, start + 5 + index)),
            LENGTH,
            PREDICTIONS,
        )
        start += 5 + index
    return str(root / "part-*.tfrecord")


def read(files, batch_size, **options):
    return pretraining_records([files], batch_size, LENGTH, PREDICTIONS, **options)


def numbers(dataset):
    return [(labels["masked_ids"][:, 0].numpy() - 1000).tolist() for _, labels in dataset]


class TestFeatures:
    def test_parsed_with_the_originals_specification(self):
        serialized = serialize_features(example_features(EXAMPLE, LENGTH, PREDICTIONS))
        # As in run_pretraining.py of the original.
        spec = {
            "input_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
            "input_mask": tf.io.FixedLenFeature([LENGTH], tf.int64),
            "segment_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
            "masked_lm_positions": tf.io.FixedLenFeature([PREDICTIONS], tf.int64),
            "masked_lm_ids": tf.io.FixedLenFeature([PREDICTIONS], tf.int64),
            "masked_lm_weights": tf.io.FixedLenFeature([PREDICTIONS], tf.float32),
            "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
        }
        assert feature_spec(LENGTH, PREDICTIONS) == spec
        parsed = tf.io.parse_single_example(serialized, spec)
        padding = [0] * (LENGTH - 6)
        expected = {
            "input_ids": [2, 4, 40_000, 3, 7, 3] + padding,
            "input_mask": [1] * 6 + padding,
            "segment_ids": [0, 0, 0, 0, 1, 1] + padding,
            "masked_lm_positions": [1, 0, 0, 0],
            "masked_lm_ids": [300, 0, 0, 0],
            "masked_lm_weights": [1, 0, 0, 0],
            "next_sentence_labels": [1],
        }
        assert {name: value.numpy().tolist() for name, value in parsed.items()} == expected

    def test_protobuf_reads_the_same(self):
        features = example_features(EXAMPLE, LENGTH, PREDICTIONS)
        read = tf.train.Example.FromString(serialize_features(features)).features.feature
        assert set(read) == set(features)
        for name, values in features.items():
            kind = read[name].float_list if "weights" in name else read[name].int64_list
            assert list(kind.value) == values
        large = {"x": [0, 127, 128, 2**31, 2**63 - 1]}
        proto = tf.train.Example.FromString(serialize_features(large))
        assert list(proto.features.feature["x"].int64_list.value) == large["x"]
        # The same bytes as protobuf's own.
        assert serialize_features(large) == proto.SerializeToString()

    def test_negative_numbers_are_refused(self):
        with pytest.raises(ValueError, match="Received: -1"):
            serialize_features({"x": [-1]})


def test_reads_what_the_original_writes(tmp_path):
    """A record made as create_pretraining_data.py of google-research makes it."""

    def integers(values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))

    features = {
        "input_ids": integers([2, 9, 4, 3, 8, 3] + [0] * (LENGTH - 6)),
        "input_mask": integers([1] * 6 + [0] * (LENGTH - 6)),
        "segment_ids": integers([0] * 4 + [1] * 2 + [0] * (LENGTH - 6)),
        "masked_lm_positions": integers([2, 0, 0, 0]),
        "masked_lm_ids": integers([11, 0, 0, 0]),
        "masked_lm_weights": tf.train.Feature(
            float_list=tf.train.FloatList(value=[1.0, 0.0, 0.0, 0.0])
        ),
        "next_sentence_labels": integers([0]),
    }
    path = str(tmp_path / "original.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(example.SerializeToString())
    [(inputs, labels)] = pretraining_records([path], 1, LENGTH, PREDICTIONS, repeat=False)
    expected = {
        "token_ids": ("int32", [[2, 9, 4, 3, 8, 3] + [0] * (LENGTH - 6)]),
        "segment_ids": ("int32", [[0] * 4 + [1] * 2 + [0] * (LENGTH - 6)]),
        "padding_mask": ("bool", [[True] * 6 + [False] * (LENGTH - 6)]),
        "masked_positions": ("int32", [[2, 0, 0, 0]]),
        "masked_ids": ("int32", [[11, 0, 0, 0]]),
        "masked_weights": ("float32", [[1, 0, 0, 0]]),
        "next_sentence_labels": ("int32", [0]),
    }
    both = {**inputs, **labels}
    assert {k: (v.dtype.name, v.numpy().tolist()) for k, v in both.items()} == expected
    assert set(inputs) == {"token_ids", "segment_ids", "padding_mask", "masked_positions"}


def test_written_and_read_again(tmp_path):
    rng = random.Random(0)
    documents = [
        [[rng.randrange(5, 90) for _ in range(rng.randint(1, 9))] for _ in range(12)]
        for _ in range(4)
    ]
    vocabulary = MaskingVocabulary(90, 2, 3, 4, bytes(90))
    options = ExampleOptions(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS)
    examples = list(create_examples(documents, vocabulary, options, rng))
    path = tmp_path / "all.tfrecord"
    write_pretraining_records(path, examples, LENGTH, PREDICTIONS)
    dataset = read(str(path), 1, shuffle=False, repeat=False)
    for example, (features, labels) in zip(examples, dataset, strict=True):
        number = int(tf.math.count_nonzero(features["padding_mask"]))
        assert features["token_ids"][0, :number].numpy().tolist() == example.token_ids
        assert features["segment_ids"][0, :number].numpy().tolist() == example.segment_ids
        used = int(labels["masked_weights"].numpy().sum())
        assert features["masked_positions"][0, :used].numpy().tolist() == example.masked_positions
        assert labels["masked_ids"][0, :used].numpy().tolist() == example.masked_ids
        assert labels["next_sentence_labels"].numpy() == [example.is_random_next]


class TestOrder:
    def test_every_epoch_holds_everything_once(self, files):
        stream = sum(numbers(read(files, 9).take(15)), [])
        epochs = [stream[start : start + 45] for start in (0, 45, 90)]
        assert all(sorted(epoch) == list(range(45)) for epoch in epochs)
        assert epochs[0] != epochs[1] != epochs[2]

    @pytest.mark.parametrize(
        "options",
        [
            {"shuffle_buffer": 3},
            pytest.param({"num_shards": 2, "shard_index": 1}, marks=pytest.mark.full),
            {"num_shards": 4, "shard_index": 3},
        ],
    )
    def test_resumed_at_a_step(self, files, options):
        options = {"seed": 7, **options}
        whole = numbers(read(files, 4, **options).take(30))
        for step in (4, 11, 25):  # in the first epoch, across its end, in a later one
            resumed = read(files, 4, start_step=step, **options).take(30 - step)
            assert numbers(resumed) == whole[step:]

    def test_order_depends_on_the_seed_alone(self, files):
        first = numbers(read(files, 8, seed=1).take(8))
        tf.random.set_seed(99)
        assert numbers(read(files, 8, seed=1).take(8)) == first
        assert numbers(read(files, 8, seed=2).take(8)) != first
        assert numbers(read(files, 8, seed=2**40).take(8)) != first

    @pytest.mark.parametrize("num_shards", [3, 4])  # whole files for 3
    def test_shards_are_disjoint_and_complete(self, files, num_shards):
        seen = [
            number
            for index in range(num_shards)
            for batch in numbers(
                read(files, 2, num_shards=num_shards, shard_index=index, repeat=False)
            )
            for number in batch
        ]
        assert sorted(seen) == list(range(45))

    def test_one_epoch_and_its_last_batch(self, files):
        batches = numbers(read(files, 10, repeat=False, shuffle=False))
        assert [len(batch) for batch in batches] == [10, 10, 10, 10, 5]
        assert sum(batches, []) == list(range(45))
        assert numbers(read(files, 10, repeat=False, shuffle=False, start_step=3)) == batches[3:]

    def test_static_shapes(self, files):
        features, labels = read(files, 4).element_spec
        assert features["token_ids"].shape == (4, LENGTH)
        assert labels["next_sentence_labels"].shape == (4,)


class TestBrokenFiles:
    @pytest.fixture
    def content(self, files):
        return tf.io.gfile.GFile(files.replace("*", "5"), "rb").read()

    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize("cut", [1, 100, -5])
    def test_truncated(self, tmp_path, content, cut, whole):
        path = tmp_path / "cut.tfrecord"
        record = len(content) // 10
        path.write_bytes(content[: 3 * record + cut])
        good = 2 if cut < 0 else 3
        with pytest.raises(DataError, match=f"cut.tfrecord .* {good} good records and then one"):
            check_records([path], LENGTH, PREDICTIONS, whole)
        with pytest.raises(DataError, match="truncated or corrupt"):
            read(str(path), 1)

    def test_corrupt(self, tmp_path, content):
        path = tmp_path / "corrupt.tfrecord"
        middle = len(content) // 10 * 4 + 60
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(DataError, match="4 good records and then one"):
            read(str(path), 1)

    @pytest.mark.parametrize(
        "length,predictions,words",
        [
            (16, PREDICTIONS, "max_seq_length=16 .* Received: 24 values of 'input_ids'"),
            (LENGTH, 9, "max_predictions_per_seq=9. Received: 4 values of 'masked_lm_positions'"),
        ],
    )
    def test_other_lengths(self, files, length, predictions, words):
        with pytest.raises(DataError, match=words):
            pretraining_records([files], 2, length, predictions)

    def test_other_content(self, tmp_path):
        path = str(tmp_path / "other.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(serialize_features({"image": [1]}))
        with pytest.raises(DataError, match="without 'input_ids'; it has .'image'"):
            read(path, 1)
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(b"\xff\xff")
        with pytest.raises(DataError, match="must have tf.train.Examples"):
            read(path, 1)
        (tmp_path / "text.txt").write_text("This is no TFRecord file at all, but text.")
        with pytest.raises(DataError, match="0 good records"):
            read(str(tmp_path / "text.txt"), 1)

    def test_patterns_leave_out_what_a_writer_has_not_finished(self, tmp_path):
        write_pretraining_records(tmp_path / "a", map(numbered, range(4)), LENGTH, PREDICTIONS)
        with staged_files(tmp_path) as staging:
            write_pretraining_records(f"{staging}/b", map(numbered, range(9)), LENGTH, PREDICTIONS)
            dataset = read(str(tmp_path / "*"), 4, repeat=False)
            assert sorted(sum(numbers(dataset), [])) == [0, 1, 2, 3]
            for pattern in ("*/*/*", ".bert_tf-*/new/b"):
                with pytest.raises(DataError, match="must match existing files"):
                    read(str(tmp_path / pattern), 4)

    def test_none_or_too_few(self, files, tmp_path):
        with pytest.raises(DataError, match="must match existing files"):
            read(str(tmp_path / "absent*"), 1)
        (tmp_path / "empty").write_bytes(b"")
        with pytest.raises(DataError, match="no record in"):
            read(str(tmp_path / "empty"), 1)
        with pytest.raises(DataError, match="batch of 64 .* Received: 45 examples"):
            read(files, 64)
        with pytest.raises(DataError, match="batch of 12 .* Received: 11 examples in shard 1"):
            read(files, 12, num_shards=4, shard_index=1)
        with pytest.raises(ConfigError, match="shard_index=2"):
            read(files, 1, num_shards=2, shard_index=2)


@pytest.mark.parametrize("length", [100, 2**40, 2**63, 2**64 - 1])
def test_a_length_beyond_the_file_is_refused(length, tmp_path):
    """TensorFlow allocates any length that has the right checksum, and ends the process."""
    header = length.to_bytes(8, "little")
    path = tmp_path / "a"
    path.write_bytes(header + masked(crc32c(header)).to_bytes(4, "little") + b"abc")
    with pytest.raises(DataError, match="must be a complete TFRecord file"):
        check_records([path], LENGTH, PREDICTIONS)
