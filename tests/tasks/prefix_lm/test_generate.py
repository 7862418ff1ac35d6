"""BertPrefixLM.generate: its steps compute what the whole rows do; what it writes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPrefixLM, BertTokenizer, ops
from bert_tf.errors import UserError
from tests.conformance.padding import moved
from tests.numpy_bert import NumpyBert, error_bound

SOURCES = ["good film", "the bad film.", "a b c", "film", "bad. the b"]
NEW = 7  # tokens


@pytest.fixture(scope="module")
def model(tiny_config, tiny_vocabulary):
    """One that no test changes; its texts end at different places."""
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    model = BertPrefixLM(BertBackbone(tiny_config), tokenizer)
    source = np.random.default_rng(4)
    for weight in model.weights:
        weight.assign(weight + source.normal(0.0, 0.4, weight.shape))
    bias = model.masked_lm_head.output_bias
    bias.assign(bias + 6.0 * tf.one_hot(model.end_token_id, 64))
    return model


@pytest.fixture(scope="module")
def ids(model):
    """Greedy decoding of `SOURCES`."""
    return model.generate(dict(model.tokenize(SOURCES)), NEW)


def rows_of(model, targets, lengths):
    """The token dictionary of `SOURCES` with targets `[B, NEW]`, of which `lengths` are real."""
    sources = model.tokenizer(SOURCES, ragged=True)["token_ids"].to_list()
    rows = [one + other[:n].tolist() for one, other, n in zip(sources, targets, lengths)]
    width = max(map(len, rows))
    token_ids = np.array([row + [0] * (width - len(row)) for row in rows])
    columns, starts = np.arange(width), np.array([[len(source)] for source in sources])
    mask = columns < np.array([[len(row)] for row in rows])
    segment_ids = (mask & (columns >= starts)).astype(np.int32)
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": mask}, starts


def numpy_logits(bert, token_ids, segment_ids, padding_mask):
    """The logits `[B, T, V]`: all tokens attend to the source, those of the target also to it."""
    is_target = segment_ids == 1
    columns = np.arange(token_ids.shape[1])
    earlier = is_target[:, :, np.newaxis] & (columns <= columns[:, np.newaxis])  # [B, T, T]
    attends = padding_mask[:, np.newaxis] & (~is_target[:, np.newaxis] | earlier)
    states, *_ = bert(token_ids, segment_ids, padding_mask, attends)
    return bert.masked_lm_logits(states)


@pytest.mark.parametrize("copies", [pytest.param(1, marks=pytest.mark.full), 2])
def test_steps_are_the_whole_computation(model, copies, tmp_path):
    """Sources have different lengths and several sequences each, as in beam search."""
    targets = np.random.default_rng(1).integers(5, 60, [copies, len(SOURCES), 4], np.int32)
    state, memory = model.start_decoding(model.tokenize(SOURCES), 5)
    state = tf.nest.map_structure(lambda values: tf.repeat(values, copies, axis=0), state)
    ids = np.full(len(SOURCES) * copies, model.start_token_id, np.int32)
    received = []
    for position in range(5):
        logits, state, _ = model.next_token(tf.constant(ids), tf.constant(position), state, memory)
        received.append(logits.numpy().reshape(len(SOURCES), copies, -1))
        ids = targets[:, :, min(position, 3)].T.ravel()  # [copies, B] -> [B * copies]
    model.save_pretrained(tmp_path)
    exact, rough = NumpyBert(tmp_path), NumpyBert(tmp_path, np.float32)
    for copy in range(copies):
        tokens, starts = rows_of(model, targets[copy], [4] * len(SOURCES))
        exact_logits, rough_logits, whole = (
            np.take_along_axis(logits, (starts - 1 + np.arange(5))[..., np.newaxis], 1)
            for logits in (
                numpy_logits(exact, **tokens),
                numpy_logits(rough, **tokens),
                model(tokens).numpy(),
            )
        )
        steps = np.stack(received)[:, :, copy].swapaxes(0, 1)  # [5, B, V] -> [B, 5, V]
        bound = error_bound(exact_logits, rough_logits)
        np.testing.assert_allclose(steps, exact_logits, rtol=0, atol=bound)
        np.testing.assert_allclose(whole, exact_logits, rtol=0, atol=bound)


@pytest.mark.parametrize("side", ["left", "middle"])
def test_padding_of_the_sources_may_be_anywhere(model, ids, side):
    tokens = {name: values.numpy() for name, values in model.tokenize(SOURCES).items()}
    np.testing.assert_array_equal(model.generate(moved(tokens, side)[0], NEW), ids)


def test_every_token_is_the_most_probable_one(model, ids):
    """By the logits that the model has for the finished targets."""
    end = model.end_token_id
    lengths = [row.tolist().index(end) + 1 if end in row else NEW for row in ids]
    assert len(set(lengths)) > 1  # so that rows left the batch
    tokens, starts = rows_of(model, ids, lengths)
    best = model(tokens).numpy().argmax(axis=-1)
    for row, length in enumerate(lengths):
        first = starts[row, 0] - 1
        np.testing.assert_array_equal(best[row, first : first + length], ids[row, :length])
        assert not ids[row, length:].any()


@pytest.mark.full
def test_texts(model, ids):
    texts = [model.written(row[np.newaxis]).numpy()[0].decode() for row in ids]
    assert model.generate(SOURCES, NEW) == texts
    beams = model.generate(SOURCES, NEW, num_beams=3, num_return_sequences=2)
    assert all(len(texts) == 2 and texts[0] != texts[1] for texts in beams)


@pytest.mark.full
def test_on_padded_rows_and_under_xla(model, ids):
    other = BertPrefixLM.from_config(model.get_config())
    other.set_weights(model.get_weights())
    other.compile("sgd", jit_compile=True)
    tokens = {name: values[:2] for name, values in model.tokenize(SOURCES).items()}
    np.testing.assert_array_equal(other.generate(tokens, NEW), ids[:2])


@pytest.mark.full
def test_its_saved_model(model, tmp_path):
    own = {**model.get_config(), "generation_config": {"max_new_tokens": NEW, "num_beams": 2}}
    own = BertPrefixLM.from_config(own)
    own.set_weights(model.get_weights())
    signatures = tf.saved_model.load(own.export(tmp_path)).signatures
    served = signatures["serving_default"](text=tf.constant(SOURCES))["generated_text"]
    expected = model.generate(SOURCES, NEW, num_beams=2)
    assert [text.decode() for text in served.numpy()] == expected


def first_logits(model):
    """Those of the first words, by a step and by the computation of whole rows."""
    state, memory = model.start_decoding(model.tokenize(SOURCES), NEW)
    start = tf.fill([len(SOURCES)], 3)
    step, *_ = model.next_token(start, tf.constant(0), state, memory)
    tokens, starts = rows_of(model, np.full([len(SOURCES), 1], 5), [1] * len(SOURCES))
    whole = np.take_along_axis(model(tokens).numpy(), starts[..., np.newaxis] - 1, axis=1)
    assert step.dtype == tf.float32
    return step.numpy(), whole[:, 0], tf.nest.flatten((state, memory["blocks"]))


def test_in_bfloat16(model):
    other = BertPrefixLM(
        BertBackbone(model.backbone.config, dtype="mixed_bfloat16"),
        model.tokenizer,
        dtype="mixed_bfloat16",
    )
    other.set_weights(model.get_weights())
    step, whole, kept = first_logits(other)
    assert {values.dtype for values in kept} == {tf.bfloat16}
    np.testing.assert_allclose(step, whole, atol=0.05 * np.abs(whole).max())


@pytest.mark.skipif(ops.active_backend() != "native", reason="needs the native ops")
def test_prepacked(model, ids):
    other = BertPrefixLM.from_config(model.get_config())
    other.set_weights(model.get_weights())
    other.prepack_for_inference()
    words = other.backbone.embeddings.prepacked_words
    assert words.packed_dtype == "float32" and other.masked_lm_head.transform.kernel is None
    np.testing.assert_array_equal(other.generate(dict(model.tokenize(SOURCES)), NEW), ids)
    before, _, _ = first_logits(other)
    words.packed_words.assign(2.0 * words.packed_words)
    assert np.abs(first_logits(other)[0] - before).max() > 0.1  # the steps read it


def test_in_8_bit_integers(model):
    other = BertPrefixLM.from_config(model.get_config())
    other.set_weights(model.get_weights())
    other.quantize("int8")
    step, whole, _ = first_logits(other)
    np.testing.assert_allclose(step, whole, atol=1e-4)


def test_wrong_input(model, tiny_config):
    long = {"token_ids": np.full([1, 38], 5, np.int32)}
    with pytest.raises((UserError, tf.errors.InvalidArgumentError), match="at most 34 tokens"):
        model.generate(long, NEW)
    with pytest.raises(UserError, match="`tokenizer` must be given for `generate`"):
        BertPrefixLM(BertBackbone(tiny_config)).generate(
            {"token_ids": np.ones([1, 3], np.int32)}, NEW
        )
