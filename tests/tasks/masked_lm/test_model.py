"""BertMaskedLM: filling masks, scoring sentences, learning from raw text, files."""

import contextlib
import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertMaskedLM, BertPretrainer, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.ops.native import static_shapes
from bert_tf.tasks.masked_lm.masked_word_model import cross_entropy
from bert_tf.training import AdamWeightDecay, SparseCrossentropy
from bert_tf.training.fit_data import text_batches

MASK = 4  # the id of [MASK] in the tiny vocabulary
TEXTS = ["good film", "the bad film.", "a b c good", "bad"]


@pytest.fixture(scope="module")
def make_model(tiny_config, tiny_vocabulary):
    one_block = dataclasses.replace(tiny_config, num_hidden_layers=1)
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False, split_special_tokens=False)

    def make(**options):
        keras.utils.set_random_seed(3)
        options = {"tokenizer": tokenizer, **options}
        model = BertMaskedLM(BertBackbone(one_block), **options)
        bias = np.random.default_rng(0).normal(size=64)
        model.masked_lm_head.output_bias.assign(bias.astype(np.float32))
        return model

    return make


@pytest.fixture(scope="module")
def model(make_model):
    """One that no test changes."""
    return make_model()


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def plain_scores(model, text):
    """Each token's log-probability, by a loop over single rows and the logits of all tokens."""
    ids = model.tokenizer([text])["token_ids"].numpy()
    scores = []
    for place in range(1, ids.shape[1] - 1):
        hidden = ids.copy()
        hidden[0, place] = MASK
        logits = model({"token_ids": tf.constant(hidden)}).numpy()[0, place]
        scores.append(log_softmax(logits)[ids[0, place]])
    return np.array(scores)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_under_xla_the_words_are_padded_inside_of_the_head_only(tiny_config, dtype):
    config = dataclasses.replace(tiny_config, vocab_size=70)
    head = MaskedLMHead(config, has_transform=False, dtype=f"mixed_{dtype}")
    head.build()
    random = np.random.default_rng(0)
    head.output_bias.assign(random.normal(size=70))
    shapes = [(3, 32), (70, 32), (3, 70)]
    rows, words, d_logits = (tf.constant(random.normal(size=s), dtype) for s in shapes)

    @tf.function(jit_compile=True)
    def run():
        with static_shapes(), tf.GradientTape() as tape:
            tape.watch([rows, words])
            logits = head(rows, word_embeddings=words)
            padded = head(rows, word_embeddings=words, keeps_padding=True)
        tf.debugging.assert_equal(padded[:, :70], logits)
        assert padded.shape == [3, 128]
        variables = [rows, words, head.output_bias]
        factors = tf.cast(d_logits, tf.float32)
        return logits, *tape.gradient(logits, variables, output_gradients=factors)

    text = run.experimental_get_compiler_ir()(stage="hlo")
    assert f"{'bf16' if dtype == 'bfloat16' else 'f16'}[3,128]" in text
    rows64, words64, d64 = (tf.cast(x, tf.float64).numpy() for x in (rows, words, d_logits))
    bias = head.output_bias.numpy()
    expected = [rows64 @ words64.T + bias, d64 @ words64, d64.T @ rows64, d64.sum(axis=0)]
    for found, numbers in zip(run(), expected, strict=True):
        assert found.shape == numbers.shape
        scale = np.abs(numbers).max()
        np.testing.assert_allclose(tf.cast(found, tf.float64), numbers, atol=scale * 2.0**-7)


@pytest.mark.parametrize("is_static", [False, True])
def test_cross_entropy_and_the_most_probable_word(is_static):
    random = np.random.default_rng(0)
    numbers = random.normal(size=(6, 9)) * [[1.0], [50.0], [1e-3], [1e4], [0.0], [3.0]]
    numbers[5] = numbers[5].round()  # some are equal
    numbers[5, 2] = -np.inf
    ids = np.array([3, 8, 0, 1, 4, 7])
    weights = random.normal(size=6)
    logits = tf.constant(numbers, tf.float32)

    @tf.function(jit_compile=is_static)
    def run():
        with static_shapes() if is_static else contextlib.nullcontext(), tf.GradientTape() as tape:
            tape.watch(logits)
            losses, best = cross_entropy(tf.constant(ids, tf.int32), logits)
        return losses, best, tape.gradient(losses, logits, tf.constant(weights, tf.float32))

    losses, best, gradient = run()
    log_p = log_softmax(logits.numpy() - logits.numpy().max(axis=1, keepdims=True))
    assert best.numpy().tolist() == logits.numpy().argmax(axis=1).tolist()
    np.testing.assert_allclose(losses, -log_p[np.arange(6), ids], rtol=1e-6, atol=1e-6)
    expected = (np.exp(log_p) - np.eye(9)[ids]) * weights[:, np.newaxis]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_under_xla_the_loss_of_what_is_no_word_or_no_number_is_nan():
    logits = tf.constant([[1.0, 2.0], [1.0, 2.0], [np.nan, 2.0], [np.inf, 2.0], [1.0, 2.0]])
    with static_shapes():
        losses, _ = cross_entropy(tf.constant([-1, 2, 1, 1, 1]), logits)
        assert np.isnan(losses).tolist() == [True, True, True, True, False]
        losses, best = cross_entropy(tf.zeros([0], tf.int32), logits[:0])
        assert losses.shape == best.shape == [0]


@pytest.mark.parametrize("token_budget", [None, 12])
def test_scores_against_a_plain_loop(model, token_budget):
    expected = [plain_scores(model, text) for text in TEXTS]
    tokens = model.score(TEXTS, reduction="none", token_budget=token_budget)
    for found, scores in zip(tokens, expected, strict=True):
        np.testing.assert_allclose(found, scores, atol=1e-5)
    np.testing.assert_allclose(model.score(TEXTS), [s.sum() for s in expected], atol=1e-5)
    np.testing.assert_allclose(
        model.score(TEXTS, reduction="mean"), [s.mean() for s in expected], atol=1e-5
    )
    np.testing.assert_allclose(model.score(TEXTS[0]), expected[0].sum(), atol=1e-5)


def test_fills_every_mask(make_model, tiny_vocabulary):
    # Its tokenizer splits special tokens, as the original does; `fill_mask` does not.
    model = make_model(tokenizer=BertTokenizer(tiny_vocabulary))
    texts = ["the [MASK] film", "[MASK]", "[MASK] a b c[MASK]."]
    filled = model.fill_mask(texts, top_k=3, token_budget=16)
    outputs = model.predict(texts, verbose=0)
    assert outputs["row_splits"].tolist() == [0, 1, 2, 4] and outputs["logits"].shape == (4, 64)
    assert [len(masks) for masks in filled] == [1, 1, 2]
    ids = {piece: index for index, piece in enumerate(tiny_vocabulary)}
    rows = (["the", "[MASK]", "film"], ["[MASK]"], ["[MASK]", "a", "b", "c", "[MASK]", "."])
    for pieces, masks in zip(rows, filled, strict=True):
        row = np.array([[2, *(ids[piece] for piece in pieces), 3]])
        logits = model({"token_ids": tf.constant(row)}).numpy()[0, row[0] == MASK]
        for values, candidates in zip(np.exp(log_softmax(logits)), masks, strict=True):
            best = np.argsort(-values)[:3]
            assert [c.piece for c in candidates] == [tiny_vocabulary[i] for i in best]
            np.testing.assert_allclose([c.probability for c in candidates], values[best], atol=1e-5)
    assert len(model.fill_mask((["the [MASK]"], ["bad film"]))[0][0]) == 5


def test_only_masked_positions_reach_the_vocabulary(model, monkeypatch):
    rows = []
    head = model.masked_lm_head.call

    def counting(x, **options):
        rows.append(len(x))
        return head(x, **options)

    monkeypatch.setattr(model.masked_lm_head, "call", counting)
    tokens = model.tokenize(TEXTS)
    every = model(tokens)
    places = {**tokens, "masked_positions": tf.constant([[1, 0], [3, 1], [2, 0], [1, 0]])}
    weights = tf.constant([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    picked = model.forward(places, {"masked_weights": weights}, training=False)
    assert rows == [np.prod(every.shape[:2]), 4]
    expected = [every[0, 1], every[1, 3], every[1, 1], every[2, 2]]
    np.testing.assert_allclose(picked, expected, atol=1e-5)
    np.testing.assert_allclose(model(places)[1], [every[1, 3], every[1, 1]], atol=1e-5)


def test_learns_a_domain_from_raw_text(make_model):
    model = make_model()
    texts = ["the good film", "the bad film"] * 600
    held_out = texts[:300]
    model.compile(AdamWeightDecay(3e-3))
    history = model.fit(texts, batch_size=16, validation_data=held_out, verbose=0).history
    after = model.evaluate(held_out, batch_size=100, verbose=0, return_dict=True)
    # Two of the three words are certain, of the third two choices remain. Guessing is log(64) = 4.
    assert after["masked_lm_loss"] < 0.6
    assert history["val_loss"][-1] == pytest.approx(after["loss"], rel=1e-4)
    assert after["perplexity"] == pytest.approx(np.exp(after["masked_lm_loss"]), rel=1e-4)
    assert model.fill_mask("the good [MASK]")[0][0].piece == "film"
    assert model.score("the good film") > model.score("film good the") + 3


def test_loss_is_the_pretrainers(make_model, tiny_config):
    model = make_model()
    pretrainer = BertPretrainer(model.backbone, objective="mlm")
    pretrainer.masked_lm_head.set_weights(model.masked_lm_head.get_weights())
    for either in (model, pretrainer):
        either.compile(AdamWeightDecay(1e-3), run_eagerly=True)
    preprocessor = model.preprocessor
    batches = text_batches(preprocessor, preprocessor.read(TEXTS * 4), batch_size=16)
    features, labels = next(iter(batches))
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(8)
    ours = model.evaluate(data, verbose=0, return_dict=True)
    theirs = pretrainer.evaluate(data, verbose=0, return_dict=True)
    for name in ("loss", "masked_lm_loss", "masked_lm_accuracy"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-5)
    # Smoothing changes the loss of both alike, and not what is measured.
    for either in (model, pretrainer):
        loss = SparseCrossentropy(label_smoothing=0.2)
        either.compile(AdamWeightDecay(1e-3), loss, run_eagerly=True)
    smoothed = model.evaluate(data, verbose=0, return_dict=True)
    theirs = pretrainer.evaluate(data, verbose=0, return_dict=True)
    assert smoothed["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    assert abs(smoothed["loss"] - ours["loss"]) > 0.001
    assert smoothed["masked_lm_loss"] == pytest.approx(ours["masked_lm_loss"], rel=1e-5)
    with pytest.raises(UserError, match="SparseCrossentropy"):
        model.compile(loss="mse")


def test_opens_a_pretrainer(model, tiny_config, tmp_path):
    pretrainer = BertPretrainer(BertBackbone(tiny_config))
    pretrainer.save_pretrained(tmp_path)
    opened = BertMaskedLM.from_pretrained(tmp_path, tokenizer=model.tokenizer)
    np.testing.assert_array_equal(
        opened.masked_lm_head.transform.kernel, pretrainer.masked_lm_head.transform.kernel
    )


def test_prepacked_gives_the_same(make_model):
    model = make_model()
    expected = model.score(TEXTS)
    from bert_tf import ops

    if ops.active_backend() == "native":
        model.prepack_for_inference()
    np.testing.assert_allclose(model.score(TEXTS), expected, atol=1e-4)


@pytest.mark.parametrize(
    "call,words",
    [
        (
            lambda m: m.fill_mask(["a [MASK]", "no mask"]),
            r"Every text must have a \[MASK\]. Received in row 1",
        ),
        (
            lambda m: m.fill_mask("good " * 50 + "[MASK]"),
            "must be in the 40 tokens .*Received: 'good good",
        ),
        (lambda m: m.fill_mask("[MASK]", top_k=65), r"\[1, 64\]. Received: top_k=65"),
        (lambda m: m.score(["good", " "]), "row 1: 0 tokens"),
        (lambda m: m.score(["good " * 39]), "must have 1 to 38 tokens.*row 0: 39 tokens"),
        (lambda m: m.score(TEXTS, reduction="max"), "reduction"),
        (lambda m: m.fit(TEXTS, [0, 1, 0, 1]), "masked tokens are the labels"),
        (lambda m: m.predict(tf.data.Dataset.from_tensors(TEXTS)), "a dataset of text"),
    ],
)
def test_wrong_inputs_are_refused(model, call, words):
    with pytest.raises(UserError, match=words):
        call(model)


def test_without_a_mask_token_it_says_so(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, mask_token=None)
    model = BertMaskedLM(BertBackbone(tiny_config), tokenizer=tokenizer)
    with pytest.raises(UserError, match="`mask_token` of the tokenizer must be"):
        model.score("good")


@pytest.mark.peers
def test_transformers_gives_the_same_scores_both_ways(make_model, tmp_path):
    import torch
    import transformers

    model = make_model()
    model.save_pretrained(tmp_path / "ours")
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    expected = []
    for text in TEXTS:
        ids = model.tokenizer([text])["token_ids"].numpy().astype(np.int64)
        score = 0.0
        for place in range(1, ids.shape[1] - 1):
            hidden = ids.copy()
            hidden[0, place] = MASK
            with torch.no_grad():
                logits = theirs(input_ids=torch.tensor(hidden)).logits[0, place].numpy()
            score += log_softmax(logits)[ids[0, place]]
        expected.append(score)
    np.testing.assert_allclose(model.score(TEXTS), expected, atol=1e-4)
    theirs.save_pretrained(tmp_path / "theirs")
    opened = BertMaskedLM.from_pretrained(tmp_path / "theirs", tokenizer=model.tokenizer)
    np.testing.assert_allclose(opened.score(TEXTS), expected, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("objective", [None, "mlm_nsp", "ltr"])
def test_rows_have_weights(make_model, objective, parts):
    """A weight is a factor of the weights of a row's words, 0 leaves the row out."""
    model = make_model()
    if objective is not None:
        model = BertPretrainer(model.backbone, objective=objective)
    rng = np.random.default_rng(0)
    tokens = {
        "token_ids": rng.integers(5, 64, (4, 9)).astype(np.int32),
        "masked_positions": np.tile([1, 3, 5], (4, 1)).astype(np.int32),
    }
    labels = {
        "masked_ids": rng.integers(5, 64, (4, 3)).astype(np.int32),
        "masked_weights": np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], np.float32),
        "next_sentence_labels": np.array([0, 1, 1, 0], np.int32),
    }
    model.compile("sgd", run_eagerly=True, gradient_accumulation_steps=parts)

    def losses(rows, weights):
        x, y = ({k: v[rows] for k, v in each.items()} for each in (tokens, labels))
        return model.test_on_batch(x, y, sample_weight=weights, return_dict=True)

    some = losses([0, 2], None)
    for name, value in losses([0, 1, 2, 3], np.array([2.0, 0.0, 2.0, 0.0])).items():
        if name != "padding_share":
            assert value == pytest.approx(some[name], rel=1e-4), name
    if objective is None:
        each = np.array([losses([row], None)["loss"] for row in range(4)])
        counts, weights = labels["masked_weights"].sum(1), np.array([1.0, 3.0, 0.5, 2.0])
        expected = (each * counts * weights).sum() / (counts * weights).sum()
        assert losses([0, 1, 2, 3], weights)["loss"] == pytest.approx(expected, rel=1e-4)
