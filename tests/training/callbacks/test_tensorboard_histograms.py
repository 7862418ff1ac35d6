"""Histograms of attention and embeddings during training, read back by TensorBoard."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training.callbacks import TensorBoardHistograms
from bert_tf.training.callbacks.tensorboard import TensorBoardScalars, histogram, summaries
from tests.conformance.task import make as make_task
from tests.conformance.tasks import TASKS

TEXTS = ["good film .", "the bad film the bad film .", "a"]


@pytest.fixture
def model(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary)
    return BertTextClassifier(BertBackbone(tiny_config), tokenizer=tokenizer, labels=["no", "yes"])


def test_padding_and_pruned_heads_are_not_counted(model):
    """Texts in a batch give what the texts by themselves give."""
    model.backbone.prune_heads({1: [0, 2]})
    scalars, histograms = summaries(model.backbone, model.tokenize(TEXTS))
    names = {f"attention_entropy/layer_00/head_0{head}" for head in range(4)}
    names |= {f"attention_entropy/layer_01/head_0{head}" for head in (1, 3)}
    assert set(scalars) == names
    entropies, weights, states = collections.defaultdict(list), [], []
    for text in TEXTS:
        options = {"output_attentions": True, "output_hidden_states": True}
        outputs = model.backbone(model.tokenize([text]), **options)
        weights.append(outputs["attentions"][0].numpy())
        states.append(outputs["hidden_states"][0].numpy())
        for layer, heads in enumerate((range(4), (1, 3))):
            for head, rows in zip(heads, outputs["attentions"][layer][0].numpy()):
                values = [-sum(p * np.log(p) for p in row) for row in rows]
                entropies[f"attention_entropy/layer_0{layer}/head_0{head}"] += values
    for name, values in entropies.items():
        assert scalars[name] == pytest.approx(np.mean(values), rel=1e-4)
    counts = np.histogram(np.concatenate([w.ravel() for w in weights]), 30, (0, 1))[0]
    np.testing.assert_allclose(histograms["attention/layer_00"][:, 2], counts, atol=2)
    assert histograms["attention/layer_00"][:, 2].sum() == counts.sum()
    states = np.concatenate([s.ravel() for s in states])
    found = histograms["hidden_states/embeddings"]
    assert found[:, 2].sum() == states.size
    np.testing.assert_allclose(found[[0, -1], [0, 1]], [states.min(), states.max()], rtol=1e-5)
    assert set(histograms) == {
        *("attention/layer_00", "attention/layer_01", "hidden_states/embeddings"),
        *("hidden_states/layer_00", "hidden_states/layer_01", "word_embeddings/norms"),
    }
    norms = np.linalg.norm(model.backbone.embeddings.word_embeddings.numpy(), axis=1)
    assert histograms["word_embeddings/norms"][-1, 1] == pytest.approx(norms.max())


def test_quantized_words_have_the_norms_of_the_words(model):
    before = summaries(model.backbone, model.tokenize(TEXTS))[1]["word_embeddings/norms"]
    model.quantize("int8")
    after = summaries(model.backbone, model.tokenize(TEXTS))[1]["word_embeddings/norms"]
    assert after[-1, 1] == pytest.approx(before[-1, 1], rel=0.02)


def steps_of(directory):
    """The steps of each tag, read without TensorBoard."""
    steps = collections.defaultdict(list)
    for path in directory.glob("events*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                steps[value.tag].append(event.step)
    return steps


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize("every,expected", [(None, [0, 2, 4]), (3, [0, 3])])
def test_when_it_writes(model, tmp_path, every, expected):
    watch = TensorBoardHistograms(tmp_path, TEXTS, every=every)
    options = {"batch_size": 2, "verbose": 0, "callbacks": [watch]}
    model.fit(TEXTS, ["yes", "no", "yes"], epochs=2, **options)
    steps = steps_of(tmp_path)
    assert len(steps) == 2 * 4 + 6
    assert all(found == expected for found in steps.values())


def test_texts_or_tokens(model, tmp_path):
    for name, x in (("texts", TEXTS), ("tokens", model.tokenize(TEXTS))):
        watch = TensorBoardHistograms(tmp_path / name, x)
        watch.set_model(model)
        watch.on_train_begin()
        assert set(steps_of(tmp_path / name)["attention/layer_00"]) == {0}


@pytest.mark.parametrize("name", ["multiple choice", "sentence encoding", "late interaction"])
def test_examples_of_several_texts_are_as_many_rows(name, tmp_path):
    task = TASKS[name]
    model = make_task(task)
    watch = TensorBoardHistograms(tmp_path, task.text)
    watch.set_model(model)
    watch.on_train_begin()
    assert set(steps_of(tmp_path)["attention/layer_01"]) == {0}


def test_a_wrong_number_of_steps(tmp_path):
    with pytest.raises(UserError, match="Received: every=0"):
        TensorBoardHistograms(tmp_path, TEXTS, every=0)


def test_buckets_of_no_value_and_of_equal_ones():
    assert histogram(np.array([])).shape == (30, 3) and not histogram(np.array([])).any()
    assert histogram(np.full(5, 2.0))[-1].tolist() == [2.0, 2.0, 5.0]
    assert histogram(np.array([np.nan, 1.0, np.inf]))[:, 2].sum() == 1


def test_tensorboard_reads_them(model, tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    from tensorboard.util import tensor_util

    watch = TensorBoardHistograms(tmp_path / "ours", TEXTS)
    model.fit(TEXTS, ["yes", "no", "yes"], verbose=0, callbacks=[watch])
    events = accumulator.EventAccumulator(str(tmp_path / "ours"))
    events.Reload()
    scalars, histograms = summaries(model.backbone, model.tokenize(TEXTS))  # after training
    assert set(events.Tags()["tensors"]) == {*scalars, *histograms}
    assert set(events.PluginTagToContent("scalars")) == set(scalars)
    assert set(events.PluginTagToContent("histograms")) == set(histograms)
    for name, expected in {**scalars, **histograms}.items():
        last = events.Tensors(name)[-1]
        assert last.step == 1
        np.testing.assert_allclose(tensor_util.make_ndarray(last.tensor_proto), expected, rtol=1e-5)


def test_buckets_are_those_of_tf_summary(tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    from tensorboard.util import tensor_util

    cases = {"normal": np.random.default_rng(0).normal(size=1000), "equal": np.full(7, 3.0)}
    for name, values in cases.items():
        with tf.summary.create_file_writer(str(tmp_path / "theirs")).as_default(step=0):
            tf.summary.histogram(name, values)
        TensorBoardScalars(tmp_path / "ours").write(0, {}, {name: histogram(values)})
    found = []
    for folder in ("theirs", "ours"):
        events = accumulator.EventAccumulator(str(tmp_path / folder))
        events.Reload()
        metadata = {name: events.SummaryMetadata(name).plugin_data for name in cases}
        arrays = {
            name: tensor_util.make_ndarray(events.Tensors(name)[0].tensor_proto) for name in cases
        }
        found.append((metadata, arrays))
    (their_metadata, theirs), (our_metadata, ours) = found
    assert our_metadata == their_metadata
    for name in cases:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)
