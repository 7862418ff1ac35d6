"""Training of BertSentenceEncoder: every objective learns, and steps are those of the batch."""

import dataclasses
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer
from bert_tf.errors import CheckpointError, DataError, UserError
from bert_tf.training import (
    AdamWeightDecay,
    BatchHardTripletLoss,
    CachedMultipleNegativesRankingLoss,
    ClassificationLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    TrainingCheckpoint,
)
from bert_tf.training.fit_data import text_batches
from tests.training.fit_arguments import fit_arguments

# The planted likeness: texts of one half of the alphabet belong together.
_random = np.random.default_rng(3)


def _texts(halves):
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz")).reshape(2, 13)
    return [" ".join(_random.choice(letters[half], 4)) for half in halves]


HALVES = _random.integers(0, 2, [2, 96])
FIRSTS, SECONDS = _texts(HALVES[0]), _texts(HALVES[1])
SAME = (HALVES[0] == HALVES[1]).astype(np.int32)
DATA = {
    "classification": ((FIRSTS, SECONDS), SAME),
    "cosine": ((FIRSTS, SECONDS), SAME.astype(np.float32)),
    "ranking": ((FIRSTS, _texts(HALVES[0]), _texts(1 - HALVES[0])), None),
    "triplet": ((FIRSTS, _texts(HALVES[0]), _texts(1 - HALVES[0])), None),
}


@pytest.fixture
def make_encoder(tiny_config, tiny_vocabulary):
    def make(**options):
        keras.utils.set_random_seed(5)
        return BertSentenceEncoder(
            BertBackbone(tiny_config, num_encoder_layers=1),
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
            **options,
        )

    return make


def spearman(encoder, pairs=(FIRSTS, SECONDS), gold=SAME):
    from scipy.stats import spearmanr

    u, v = (encoder.encode(texts) for texts in pairs)
    cosines = np.sum(u * v, 1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    return spearmanr(cosines, gold)[0]


@pytest.mark.parametrize(
    "objective",
    [
        "classification",
        "ranking",
        pytest.param("cosine", marks=pytest.mark.full),
        pytest.param("triplet", marks=pytest.mark.full),
    ],
)
def test_training_raises_spearman(make_encoder, objective):
    encoder = make_encoder()
    halves = np.random.default_rng(8).integers(0, 2, [2, 80])
    unseen = _texts(halves[0]), _texts(halves[1])
    gold = halves[0] == halves[1]
    before = spearman(encoder, unseen, gold)
    encoder.compile(AdamWeightDecay(1e-3), objective=objective)
    texts, labels = DATA[objective]
    history = encoder.fit(texts, labels, batch_size=16, epochs=8, verbose=0).history
    # Two groups of ties: a perfect ranking has 0.866.
    assert spearman(encoder, unseen, gold) > max(0.75, before + 0.2)
    assert ("accuracy" in history) == (objective != "cosine")
    logs = encoder.evaluate(texts, labels, verbose=0, return_dict=True)
    assert logs.keys() == {"loss"} | ({"accuracy"} & history.keys())


def test_the_head_is_trained_but_not_saved(make_encoder, tmp_path):
    encoder = make_encoder()
    encoder.compile(AdamWeightDecay(1e-3), objective="classification")
    kernel = encoder.objective.variables[0]
    before = kernel.numpy()
    encoder.fit((FIRSTS, SECONDS), SAME, verbose=0)
    assert np.abs(kernel.numpy() - before).max() > 1e-4
    assert all(weight is not kernel for weight in encoder.weights)
    encoder.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_allclose(again.encode(FIRSTS), encoder.encode(FIRSTS), atol=1e-6)


def test_every_kind_of_input_gives_the_same(make_encoder):
    encoder = make_encoder(normalize=True)
    expected = np.stack([encoder.encode(FIRSTS), encoder.encode(SECONDS)], axis=1)
    pair = (tf.constant(FIRSTS), tf.constant(SECONDS))
    np.testing.assert_allclose(encoder(pair), expected, atol=1e-5)
    np.testing.assert_allclose(encoder(encoder.tokens_of(pair)), expected, atol=1e-5)
    encoder.compile(AdamWeightDecay(1e-3), objective="cosine", run_eagerly=True)
    labels = SAME.astype(np.float32)
    losses = [
        encoder.evaluate((FIRSTS, SECONDS), labels, verbose=0),
        encoder.evaluate(
            tf.data.Dataset.from_tensor_slices(((FIRSTS, SECONDS), labels)).batch(32), verbose=0
        ),
    ]
    cosines = np.sum(expected[:, 0] * expected[:, 1], axis=1)
    np.testing.assert_allclose(losses, np.mean((cosines - labels) ** 2), rtol=1e-4)


def test_bad_input(make_encoder):
    encoder = make_encoder()
    encoder.compile(AdamWeightDecay(1e-3), objective="ranking", run_eagerly=True)
    for data in (((FIRSTS, SECONDS), SAME), (FIRSTS, None), ((FIRSTS, SECONDS[1:]), None)):
        with pytest.raises(UserError, match="Received"):
            encoder.fit(*data, verbose=0)
    encoder.fit((FIRSTS[:8], SECONDS[:8]), verbose=0)  # right at last
    encoder.fit((FIRSTS[:8], SECONDS[:8], FIRSTS[8:16]), verbose=0)  # and with hard negatives
    with pytest.raises(UserError, match="each list by itself"):
        encoder.predict((FIRSTS, SECONDS))
    with pytest.raises(UserError, match="objective"):
        encoder.compile(objective="pairs")
    with pytest.raises(UserError, match="own loss and metric"):
        encoder.compile(objective="cosine", loss="mse")


@pytest.mark.parametrize("objective", ["classification", "ranking"])
def test_validation_after_every_epoch(make_encoder, objective):
    encoder = make_encoder()
    encoder.compile(AdamWeightDecay(1e-3), objective=objective, run_eagerly=True)
    texts, labels = DATA[objective]
    texts, options = tuple(part[:8] for part in texts), {"validation_split": 0.5}
    if labels is not None:
        labels = labels[:8]
        options = {"validation_data": (texts, labels)}
    history = encoder.fit(texts, labels, epochs=2, verbose=0, **options).history
    assert len(history["loss"]) == 2 and history["val_loss"][0] != history["val_loss"][1]


def test_whitening_needs_a_new_objective(make_encoder):
    encoder = make_encoder()
    encoder.compile(AdamWeightDecay(1e-3), objective="classification", run_eagerly=True)
    data = encoder.tokens_of((tf.constant(FIRSTS[:8]), tf.constant(SECONDS[:8]))), SAME[:8]
    encoder.fit(*data, verbose=0)
    encoder.fit_whitening(FIRSTS + SECONDS, size=4)
    with pytest.raises(UserError, match="Received: size 4.*call `compile` again"):
        encoder.fit(*data, verbose=0)
    encoder.compile(AdamWeightDecay(1e-3), objective="classification", run_eagerly=True)
    encoder.fit(*data, verbose=0)


def test_a_checkpoint_holds_the_objective(make_encoder, tmp_path):
    encoders = [make_encoder() for _ in range(2)]
    data = encoders[0].tokens_of((tf.constant(FIRSTS[:8]), tf.constant(SECONDS[:8]))), SAME[:8]
    for encoder in encoders:
        objective = ClassificationLoss(2)
        encoder.compile(AdamWeightDecay(1e-2), objective=objective, run_eagerly=True)
        checkpoint = TrainingCheckpoint(tmp_path, save_every=1)
        if checkpoint.restore(encoder) == 0:
            encoder.fit(*data, verbose=0, callbacks=[checkpoint])
    before, after = (encoder.objective.classifier.get_weights() for encoder in encoders)
    for ours, theirs in zip(before, after):
        np.testing.assert_array_equal(ours, theirs)
    encoders[1].compile(AdamWeightDecay(1e-2), objective=ClassificationLoss(3))
    with pytest.raises(CheckpointError, match="num_classes=3"):
        TrainingCheckpoint(tmp_path).restore(encoders[1])


def test_batches_have_no_duplicates(make_encoder):
    encoder = make_encoder()
    loss = MultipleNegativesRankingLoss(no_duplicates=True)
    encoder.compile(AdamWeightDecay(1e-3), objective=loss)
    texts = (list("abcdefgh") * 2, list("ijklmnopqrstuvwx"))
    preprocessor = encoder.preprocessor
    batches = text_batches(
        preprocessor, preprocessor.read(texts), batch_size=8, shuffle=True, training=True
    )
    firsts = [tokens["token_ids"][:, 0].numpy() for (tokens,) in batches]  # [B, T]
    assert [len(np.unique(rows, axis=0)) for rows in firsts] == [8, 8]
    with pytest.raises(UserError, match="no duplicates"):
        encoder.fit(texts, token_budget=64, verbose=0)
    encoder.fit(texts, batch_size=8, verbose=0)


def test_batches_by_label(make_encoder, caplog):
    encoder = make_encoder()
    loss = MatryoshkaLoss(BatchHardTripletLoss("cosine", texts_per_label=3), [16, 8])
    encoder.compile(AdamWeightDecay(1e-3), objective=loss)
    labels = np.array([7] * 12 + [3] * 4 + [1] * 5)
    with caplog.at_level("INFO", "bert_tf"):
        fit_arguments(encoder, list("abcdefghijklmnopqrstu"), labels, batch_size=7)
    # A batch of 6 texts is made; for a second one, only texts of one label are left.
    assert "71.4 % of the examples (15 of 21) are left out of an epoch by `texts" in caplog.text
    preprocessor = encoder.preprocessor
    texts = preprocessor.read(list("abcdefghijklmnopqrstu"))
    batches = text_batches(preprocessor, texts, labels, None, 9, shuffle=True, training=True)
    ((_, found),) = batches.as_numpy_iterator()
    assert np.unique(found, return_counts=True)[1].tolist() == [3, 3, 3]
    in_order = text_batches(preprocessor, texts, labels, None, 9, shuffle=False)
    assert np.concatenate([y for _, y in in_order]).tolist() == labels.tolist()
    with pytest.raises(UserError, match="`texts_per_label` must be None if steps divide a batch"):
        encoder.compile("sgd", objective=loss, gradient_accumulation_steps=2)
    with pytest.raises(UserError, match="`texts_per_label` must be an integer of at least 2"):
        BatchHardTripletLoss(texts_per_label=1)


QUESTIONS = [f"{a} {b} {c}" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
LEFT_OUT = {
    # The answers to the questions, a batch size, and what the log says.
    "none": (QUESTIONS[:9], 8, "", ""),
    "few": (["good"] * 3 + QUESTIONS[:17], 10, "INFO", r"5\.0 % of the examples \(1 of 20\)"),
    "most": (QUESTIONS[:8] * 50, 64, "WARNING", r"86\.0 % of the examples \(344 of 400\)"),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_examples_that_are_left_out_are_logged(make_encoder, caplog, case):
    encoder = make_encoder()
    answers, batch_size, level, message = LEFT_OUT[case]
    encoder.compile("sgd", objective=MultipleNegativesRankingLoss(no_duplicates=True))
    texts = QUESTIONS[-len(answers) :], answers
    with caplog.at_level("INFO", "bert_tf"):
        fit_arguments(encoder, texts, batch_size=batch_size)
    assert "".join(record.levelname for record in caplog.records) == level
    assert re.search(message, caplog.text)


def test_batches_of_one_row_are_an_error(make_encoder):
    """A text that is compared with its partner alone has a loss of 0 and an accuracy of 1."""
    encoder = make_encoder()
    encoder.compile("sgd", objective=MultipleNegativesRankingLoss(no_duplicates=True))
    firsts, seconds, others = ["good"] * 10, QUESTIONS[:10], QUESTIONS[10:20]
    with pytest.raises(UserError, match="Received: 2 of 2 batches with one row"):
        encoder.fit((firsts, seconds), batch_size=5, verbose=0)
    # A hard negative is another text to compare with.
    fit_arguments(encoder, (firsts, seconds, others), batch_size=5)


NEGATIVES = [FIRSTS[8:16], SECONDS[8:16], FIRSTS[16:24]]


@pytest.mark.parametrize("wrap", [None, CachedMultipleNegativesRankingLoss])
def test_negatives_as_columns_and_as_lists(make_encoder, wrap):
    """Both are the same examples; a sequence of texts for each example may be an array."""
    found = []
    objective = "ranking" if wrap is None else wrap(mini_batch_size=3)
    rows = list(zip(*NEGATIVES))
    for negatives in (NEGATIVES, [list(map(list, rows))], [list(map(np.array, rows))]):
        encoder = make_encoder()
        encoder.compile("sgd", objective=objective, run_eagerly=True)
        texts = (FIRSTS[:8], SECONDS[:8], *negatives)
        history = encoder.fit(texts, batch_size=8, shuffle=False, verbose=0).history
        for examples in (texts, list(zip(*texts))):  # columns, and one tuple for each example
            logs = encoder.evaluate(examples, verbose=0, return_dict=True)
            found.append((history["loss"], logs["loss"]))
    assert len(set(map(str, found))) == 1
    vectors = tf.stack([encoder.encode(texts) for texts in (FIRSTS[:8], SECONDS[:8], *NEGATIVES)])
    loss = MultipleNegativesRankingLoss()
    expected = loss.losses(None, loss.outputs(tf.transpose(vectors, [1, 0, 2])))
    np.testing.assert_allclose(found[0][1], np.mean(expected), rtol=1e-4)
    short = [list(row) for row in rows]
    short[5].pop()
    with pytest.raises(DataError, match=r"as many texts in every row.*2 texts in row 5"):
        encoder.fit((FIRSTS[:8], SECONDS[:8], short), verbose=0)


@pytest.mark.parametrize(
    "objective, labels",
    [
        pytest.param("angle", SAME[:8], marks=pytest.mark.full),  # pairs of pairs, as cosent
        ("batch_hard_triplet", HALVES[0, :8]),
        # "mean of layers" of tests/models/replicas.py has this loss.
        pytest.param("contrastive", SAME[:8], marks=pytest.mark.full),
        ("cosent", SAME[:8]),
        pytest.param("online_contrastive", SAME[:8], marks=pytest.mark.full),
    ],
)
def test_a_step_in_two_parts(tiny_config, tiny_vocabulary, objective, labels):
    """Its loss is the mean of those of the parts, and every objective learns."""
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    backbone = BertBackbone(dataclasses.replace(tiny_config, num_hidden_layers=1, **rates))
    encoder = BertSentenceEncoder(backbone, tokenizer=BertTokenizer(tiny_vocabulary))
    texts = FIRSTS[:8] if objective == "batch_hard_triplet" else (FIRSTS[:8], SECONDS[:8])
    encoder.compile(AdamWeightDecay(1e-3), objective=objective, gradient_accumulation_steps=2)
    columns = [texts] if isinstance(texts, list) else texts
    vectors = np.stack([encoder.encode(column) for column in columns], axis=1)  # [8, K, D]
    expected = []
    for part in (slice(0, 4), slice(4, 8)):
        outputs = encoder.objective.outputs(tf.constant(vectors[part]))
        losses = encoder.objective.losses(tf.constant(labels[part]), outputs)
        expected.append(np.mean(losses))
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    history = encoder.fit(texts, labels, epochs=8, **options).history
    np.testing.assert_allclose(history["loss"][0], np.mean(expected), rtol=1e-4)
    assert history["loss"][-1] < history["loss"][0]
    assert ("accuracy" in history) == (objective == "batch_hard_triplet")


@pytest.mark.parametrize(
    "make_loss",
    [
        lambda: ClassificationLoss(2, hidden_size=8, dropout=0.5),
        # The last two draw as this one does.
        pytest.param(lambda: MultipleNegativesRankingLoss(num_negatives=3), marks=pytest.mark.full),
        pytest.param(
            lambda: MultipleNegativesRankingLoss(in_batch_negatives=False), marks=pytest.mark.full
        ),
        lambda: CachedMultipleNegativesRankingLoss(mini_batch_size=3, num_negatives=3),
        lambda: MatryoshkaLoss(MultipleNegativesRankingLoss(num_negatives=3), [32, 8]),
    ],
    ids=["hidden layer", "sampled", "own negatives", "cached", "of several sizes"],
)
def test_what_is_random_follows_from_the_step(make_encoder, make_loss, tmp_path, request):
    """A resumed run ends with the weights of an uninterrupted one."""
    if not isinstance(make_loss(), CachedMultipleNegativesRankingLoss):  # one of them is traced
        request.getfixturevalue("eager_steps")
    weights, labels = [], None
    for steps in ((2, 2), (4,)):
        for count in steps:
            encoder, loss = make_encoder(), make_loss()
            texts = DATA["ranking"][0]
            if loss.needs_labels:
                texts, labels = DATA["classification"]
            x = encoder.tokens_of(tuple(tf.constant(column[:8]) for column in texts))
            encoder.compile(AdamWeightDecay(1e-3), objective=loss)
            checkpoint = TrainingCheckpoint(tmp_path / str(len(steps)), save_every=1)
            checkpoint.restore(encoder)
            checkpoint.set_model(encoder)
            y = None if labels is None else labels[:8]
            for _ in range(count):
                encoder.train_on_batch(x, y)
            checkpoint.step = 2
            checkpoint.save()
        weights.append([*encoder.get_weights(), *(v.numpy() for v in loss.variables)])
    for mine, theirs in zip(*weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    found = [encoder.evaluate(x, y, verbose=0, return_dict=True)["loss"] for _ in range(2)]
    assert found[0] == found[1]  # nothing is random in it
