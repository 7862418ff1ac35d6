"""BertPrefixLM: which token sees which, its rows and labels, its files, wrong input."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertMaskedLM, BertPrefixLM, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training.fit_data import text_batches
from tests.numpy_bert import NumpyBert

PAIRS = (["good film", "the bad film.", "a b c d e f"], ["the good film", "bad", "c b a . a b c"])
IDS = np.array([[0, 1]], np.int32)
# Rows of the source (s), the target (t) and padding, which may be anywhere.
ROWS = ["sssttt", "st....", "s.stt.", ".sst.t"]
KINDS = np.array([list(row) for row in ROWS])
IN_SOURCE, IN_TARGET = KINDS == "s", KINDS == "t"
REAL = IN_SOURCE | IN_TARGET


@pytest.fixture(scope="module")
def make_model(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)

    def make(config=tiny_config, **options):
        keras.utils.set_random_seed(3)
        config = dataclasses.replace(
            config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
        model = BertPrefixLM(BertBackbone(config), tokenizer, **options)
        source = np.random.default_rng(0)
        for weight in model.weights:
            weight.assign(weight + source.normal(0.0, 0.3, weight.shape))
        return model

    return make


@pytest.fixture(scope="module")
def model(make_model):
    """One that no test changes."""
    return make_model(max_length=7, max_target_length=6)


@pytest.fixture(scope="module")
def directory(model, tmp_path_factory):
    """The model in Hugging Face's format."""
    directory = tmp_path_factory.mktemp("prefix_lm")
    model.save_pretrained(directory)
    return directory


@pytest.fixture
def computes_on(model, monkeypatch):
    """Chooses whether the model computes on real tokens only."""
    return lambda packed: monkeypatch.setattr(model.backbone, "padding_free", packed)


def random_tokens():
    source = np.random.default_rng(1)
    return {
        "token_ids": source.integers(5, 60, KINDS.shape),
        "segment_ids": IN_TARGET.astype(np.int32),
        "padding_mask": REAL,
    }


def attends():
    """Which key `[B, T, T]` a query attends to, pair by pair."""
    pairs = np.zeros([len(ROWS), KINDS.shape[1], KINDS.shape[1]], bool)
    for row, query, key in np.ndindex(pairs.shape):
        of_query, of_key = KINDS[row, query], KINDS[row, key]
        pairs[row, query, key] = (of_query, of_key) in (("s", "s"), ("t", "s")) or (
            (of_query, of_key) == ("t", "t") and key <= query
        )
    return pairs


@pytest.mark.parametrize("packed", [True, False])
def test_a_float64_reference(model, computes_on, directory, packed):
    computes_on(packed)
    tokens = random_tokens()
    bert = NumpyBert(directory)
    states, *_ = bert(**tokens, attends=attends())
    expected = bert.masked_lm_logits(states)
    is_last = REAL & (np.cumsum(IN_SOURCE, axis=1) == IN_SOURCE.sum(axis=1, keepdims=True))
    expected[~is_last] = 0.0  # the logits are those after the end of the source
    np.testing.assert_allclose(model(tokens), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
def test_what_a_token_depends_on(model, computes_on, packed):
    computes_on(packed)
    tokens = random_tokens()

    def states(token_ids):
        inputs = {**tokens, "token_ids": token_ids}
        outputs = model.backbone(inputs, causal=True, attended_mask=IN_SOURCE)
        return outputs["sequence_output"].numpy()

    before = states(tokens["token_ids"])
    places = np.zeros_like(REAL)
    places[0, 4] = places[1, 1] = places[2, 3] = places[3, 3] = True  # of targets
    after = states(np.where(places, 60, tokens["token_ids"]))
    changed = np.abs(after - before).max(axis=-1) > 1e-4
    np.testing.assert_array_equal(changed, IN_TARGET & (np.cumsum(places, axis=1) > 0))
    places = np.arange(KINDS.shape[1]) == np.argmax(IN_SOURCE, axis=1)[:, np.newaxis]
    changed = np.abs(states(np.where(places, 60, tokens["token_ids"])) - before).max(axis=-1)
    np.testing.assert_array_equal(changed > 1e-4, REAL)


def test_gradients_of_packed_and_of_padded_rows(model, computes_on):
    tokens = random_tokens()
    factors = np.random.default_rng(2).normal(size=[*KINDS.shape, 64]).astype(np.float32)
    variables = [v.value for v in model.trainable_variables if "pooler" not in v.path]
    gradients = []
    for packed in (True, False):
        computes_on(packed)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tokens) * factors)
        gradients.append(tape.gradient(loss, variables))
    for one, other in zip(*gradients, strict=True):
        one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
        np.testing.assert_allclose(one, other, atol=1e-5 * (1 + np.abs(other).max()))


def test_rows_and_labels_of_texts(model):
    """Sources and targets are cut separately; the labels are the next words of the targets."""
    vocabulary = model.tokenizer.vocabulary
    rows = [
        "[CLS] good film [SEP]|the good film [SEP]",
        "[CLS] the bad film . [SEP]|bad [SEP]",
        "[CLS] a b c d e [SEP]|c b a . [SEP]",
    ]
    (tokens, labels) = next(iter(text_batches(model.preprocessor, model.preprocessor.read(PAIRS))))
    in_graph = model.preprocessor.tokens_of(tuple(map(tf.constant, PAIRS)))
    for name, values in tokens.items():
        np.testing.assert_array_equal(in_graph[name], values)
    for number, row in enumerate(rows):
        source, target = (part.split() for part in row.split("|"))
        mask = tokens["padding_mask"][number].numpy()
        ids = tokens["token_ids"][number].numpy()[mask]
        assert [vocabulary[token] for token in ids] == source + target
        segments = tokens["segment_ids"][number].numpy()[mask]
        assert segments.tolist() == [0] * len(source) + [1] * len(target)
        expected = [-100] * (len(source) - 1) + [vocabulary.index(word) for word in target]
        expected += [-100] * (labels.shape[1] - len(expected))
        assert labels[number].numpy().tolist() == expected


def test_no_pairs(model):
    model.run_eagerly = True
    assert model.predict(([], []), verbose=0).shape == (0, 3, 64)


@pytest.mark.parametrize(
    "lengths, expected", [((None, None), (21, 20)), ((30, None), (30, 11)), ((None, 11), (30, 11))]
)
def test_what_lengths_leave(make_model, lengths, expected):
    """Of 40 positions; source and target share a [SEP]."""
    model = make_model(max_length=lengths[0], max_target_length=lengths[1])
    assert (model.max_sequence_length, model.longest_target) == expected


def test_checkpoints_of_other_models(make_model, model, directory, tmp_path):
    """A masked-LM checkpoint is all that it needs, and it is one for a masked LM."""
    BertMaskedLM.from_pretrained(directory).save_pretrained(tmp_path / "masked_lm")
    opened = BertPrefixLM.from_pretrained(tmp_path / "masked_lm")
    assert opened.untrained_heads == () and opened.max_sequence_length == 21
    tokens = random_tokens()
    np.testing.assert_array_equal(opened(tokens), model(tokens))
    model.backbone.save_pretrained(tmp_path / "encoder")
    assert BertPrefixLM.from_pretrained(tmp_path / "encoder").untrained_heads == ("masked lm",)


@pytest.mark.parametrize(
    "options, changes, message",
    [
        ({"max_length": 30, "max_target_length": 12}, {}, "together at most 41 .* max_length=30"),
        ({"max_length": 40}, {}, "must be at least 3 and together"),
        ({}, {"attention_window": 4}, "must have full attention .* attention_window=4"),
        ({}, {"type_vocab_size": 1}, "two segments.* type_vocab_size=1"),
    ],
)
def test_models_that_cannot_be(make_model, tiny_config, options, changes, message):
    with pytest.raises(UserError, match=message):
        make_model(dataclasses.replace(tiny_config, **changes), **options)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: model.fit(PAIRS, [1, 2, 3]), "`y` must be None with text"),
        (lambda model: model({"token_ids": IDS}), "must hold `segment_ids`"),
        (
            lambda model: model(dict.fromkeys(("token_ids", "segment_ids", "sequence_ids"), IDS)),
            "must not hold `sequence_ids`",
        ),
        (
            lambda model: BertBackbone(model.backbone.config, attention_window=2)(
                {"token_ids": IDS}, causal=True, attended_mask=IDS > 0
            ),
            "`attention_window` must be None",
        ),
    ],
)
def test_wrong_input(model, call, message):
    model.compile("sgd", run_eagerly=True)
    with pytest.raises(UserError, match=message):
        call(model)


@pytest.mark.peers
def test_transformers_with_the_same_mask(model, directory):
    """Hugging Face's `BertForMaskedLM` opens the files; it takes masks `[B, 1, T, T]`."""
    import torch
    import transformers

    theirs = transformers.BertForMaskedLM.from_pretrained(directory).eval()
    tokens = random_tokens()
    with torch.no_grad():
        logits = theirs(
            input_ids=torch.tensor(tokens["token_ids"]),
            token_type_ids=torch.tensor(tokens["segment_ids"]).long(),
            attention_mask=torch.tensor(attends()[:, np.newaxis]),
        ).logits.numpy()
    received = model(tokens).numpy()
    is_written = np.abs(received).max(axis=-1) > 0
    assert is_written.sum() == IN_TARGET.sum() + len(ROWS)
    np.testing.assert_allclose(received[is_written], logits[is_written], atol=1e-4)
