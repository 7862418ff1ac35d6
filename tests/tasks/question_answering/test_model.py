"""BertQuestionAnswerer: learning planted answers, raw text in, offsets out, files in and out."""

import json
import random
import struct

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertQuestionAnswerer, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.inputs.token_rows import batches_of_numbers
from bert_tf.training import AdamWeightDecay, SparseCrossentropy

WINDOWS = {"max_length": 24, "doc_stride": 8, "max_query_length": 4}


def planted(seed, count, longest=40):
    """Contexts of letters; the answer runs from "good" to "bad"; a quarter has none."""
    source = random.Random(seed)
    questions, contexts, answers = [], [], []
    for number in range(count):
        words = [source.choice("kqxyz") for _ in range(source.randint(4, longest))]
        answer = None
        if number % 4:
            inside = " ".join(source.choice("KQXYZ") for _ in range(source.randint(0, 3)))
            answer = f"Good {inside} bad" if inside else "Good  bad"
            words.insert(source.randrange(len(words)), answer)
        context = " ".join(words)
        questions.append("the film")
        contexts.append(context)
        answers.append(None if answer is None else (answer, context.index(answer)))
    return questions, contexts, answers


@pytest.fixture(scope="module")
def make_model(tiny_config, tiny_vocabulary):
    def make(**options):
        keras.utils.set_random_seed(5)
        model = BertQuestionAnswerer(
            BertBackbone(tiny_config, **options.pop("backbone", {})),
            tokenizer=BertTokenizer(tiny_vocabulary),
            **{**WINDOWS, "allow_no_answer": True, **options},
        )
        model.run_eagerly = True  # until a test compiles it: tracing takes longer than a few texts
        return model

    return make


@pytest.fixture(scope="module")
def trained(make_model):
    model = make_model()
    model.compile(AdamWeightDecay(4e-3), metrics=["accuracy"])
    questions, contexts, answers = planted(1, 400)
    history = model.fit(
        (questions, contexts), answers, validation_split=0.2, batch_size=32, epochs=4, verbose=0
    ).history
    assert history["val_accuracy"][-1] > 0.9
    return model


def test_learns_planted_answers_across_windows(trained):
    questions, contexts, answers = planted(2, 200)
    found = trained.answer(questions, contexts)
    right = [
        (answer.text, answer.start) == (gold or ("", 0)) for answer, gold in zip(found, answers)
    ]
    assert np.mean(right) > 0.95
    assert all(c[a.start : a.end] == a.text for a, c in zip(found, contexts))
    scores = np.array([answer.score for answer in found])
    assert scores.min() > 0.2 and scores.max() <= 1.0, scores
    outputs = trained.predict((questions, contexts), verbose=0)
    splits = outputs["row_splits"]
    assert len(splits) == 201 and splits[-1] == len(outputs["logits"]) > 200


def test_batches_do_not_matter(trained):
    questions, contexts, _ = planted(3, 12)
    expected = trained.answer(questions, contexts)
    for options in ({"batch_size": 1}, {"batch_size": 5}, {"token_budget": 30}):
        for mine, other in zip(trained.answer(questions, contexts, **options), expected):
            assert mine[:3] == other[:3] and mine.score == pytest.approx(other.score, abs=1e-4)
    assert trained.answer(questions[1], contexts[1])[:3] == expected[1][:3]
    assert trained.answer([], []) == []
    assert trained.answer(np.array(questions), tf.constant(contexts)) == expected


@pytest.fixture(scope="module")
def pointer(make_model):
    """Its answers go from the first "good" to the first "bad", by weights that are set by hand.

    Each state is the vector of the word alone, and all vectors have the same norm. So no other
    word has a larger product with the vector of "good" than "good".
    """
    model = make_model()
    backbone = model.backbone
    for block in backbone.encoder.blocks:
        for layer in (block.attention_output, block.output_dense):
            layer.kernel.assign(tf.zeros_like(layer.kernel))
    for table in (backbone.embeddings.position_embeddings, backbone.embeddings.segment_embeddings):
        table.assign(tf.zeros_like(table))
    words = np.array([[model.tokenizer.token_to_id(word) for word in ("good", "bad")]])
    states = backbone({"token_ids": words})["sequence_output"][0]  # [2, H]
    model.span_classifier.kernel.assign(tf.transpose(states))
    return model


def test_offsets_are_characters_of_the_original(pointer):
    context = "k\u00c9\u0301 \U0001f600\u6211  GOOD\u00a0 X\u00e9 bad. q"
    answer = pointer.answer("the film", context)
    assert answer.text == context[answer.start : answer.end] == "GOOD\u00a0 X\u00e9 bad"


def test_empty_texts_have_no_answer(trained, make_model):
    assert trained.answer("the film", "")[:3] == ("", 0, 0)
    assert trained.answer("", " \n")[:3] == ("", 0, 0)
    assert make_model(allow_no_answer=False).answer("the film", "")[:3] == ("", 0, 0)


def test_threshold_and_version_1_always_answer(make_model):
    questions, contexts, _ = planted(4, 8)
    model = make_model()
    for model.allow_no_answer, threshold, answered in (
        (False, 0.0, True),
        (False, -1e9, True),
        (True, 1e9, True),
        (True, -1e9, False),
    ):
        model.null_score_diff_threshold = threshold
        answers = model.answer(questions, contexts)
        assert all(bool(answer.text) == answered for answer in answers)


def test_loss_is_the_mean_of_both_cross_entropies_and_padding_does_not_matter(make_model):
    model = make_model()
    model.compile(AdamWeightDecay(1e-3), run_eagerly=True)
    tokens = {
        "token_ids": np.array([[2, 9, 3, 11, 12, 3, 0, 0], [2, 9, 10, 3, 11, 13, 14, 3]]),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]),
        "padding_mask": np.array([[True] * 6 + [False] * 2, [True] * 8]),
    }
    labels = np.array([[3, 4], [0, 0]])
    logits = model.predict(tokens, verbose=0)
    assert logits.shape == (2, 2, 8)
    chances = np.exp(logits - logits.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(chances, labels[..., None], -1)).mean()
    assert model.evaluate(tokens, labels, verbose=0) == pytest.approx(expected, rel=1e-5)
    model.compile(loss=SparseCrossentropy(label_smoothing=0.3), run_eagerly=True)
    shares = 0.7 * np.eye(8)[labels] + 0.3 * tokens["padding_mask"][:, None] / [[[6]], [[8]]]
    smoothed = -(shares * np.log(np.where(chances > 0, chances, 1))).sum(-1).mean()
    assert model.evaluate(tokens, labels, verbose=0) == pytest.approx(smoothed, rel=1e-5)
    with pytest.raises(UserError, match="labels are positions"):
        model.compile(loss=SparseCrossentropy(class_weights=[1.0, 2.0]))
    alone = {name: values[:1, :6] for name, values in tokens.items()}
    np.testing.assert_allclose(model.predict(alone, verbose=0), logits[:1, :, :6], atol=1e-5)
    assert chances[0, :, 6:].max() == 0.0


def training_windows(model, questions, contexts, answers, weights=None):
    preprocessor = model.preprocessor
    columns = preprocessor.read((questions, contexts))
    return preprocessor.training_rows(columns, preprocessor.targets(answers, columns), weights)[0]


def test_answers_not_in_the_context_are_logged_and_not_trained(make_model, caplog):
    model = make_model()
    model.compile(AdamWeightDecay(1e-3))
    questions, contexts, answers = planted(5, 8)
    answers[1], answers[2], answers[3] = ("bad film", 0), ("Good", 10_000), (b"\xff", 0)
    with caplog.at_level("WARNING", "bert_tf"):
        kept = training_windows(model, questions, contexts, answers)
    assert "3 of 8 questions are left out of training" in caplog.text
    assert "'bad film' must be at character 0" in caplog.text
    good = [n for n in range(8) if n not in (1, 2, 3)]
    columns = [[column[n] for n in good] for column in (questions, contexts, answers)]
    assert len(kept) == len(training_windows(model, *columns))


def test_sample_weights_are_of_questions(make_model):
    model = make_model()
    model.compile()
    questions, contexts, answers = planted(6, 8)
    weights = np.arange(8.0)
    batches = training_windows(model, questions, contexts, answers, weights)
    numbers = tf.data.Dataset.range(len(batches)).batch(len(batches))
    ((tokens, targets, of_windows),) = batches_of_numbers(batches, batches.labels, numbers)
    logits = model(tokens)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)  # [B, 2]
    expected = tf.reduce_mean(losses * of_windows[:, tf.newaxis])
    loss = model.compute_loss(tokens, targets, logits, of_windows)
    assert float(loss) == pytest.approx(float(expected))
    windows = [
        len(training_windows(model, *row))
        for row in zip(
            *([[value] for value in column] for column in (questions, contexts, answers))
        )
    ]
    np.testing.assert_array_equal(of_windows, np.repeat(weights, windows))


@pytest.mark.parametrize("format", ["huggingface", "tf1", "bert_tf"])
def test_saved_directory_needs_nothing_else(trained, tmp_path, format):
    trained.save_pretrained(tmp_path, format=format)
    opened = BertQuestionAnswerer.from_pretrained(tmp_path)
    questions, contexts, _ = planted(8, 12)
    assert opened.answer(questions, contexts) == trained.answer(questions, contexts)
    saved, mine = opened.get_config(), trained.get_config()
    for name in set(saved) - {"name", "backbone", "tokenizer"}:
        assert saved[name] == mine[name]
    kernel = trained.span_classifier.kernel.numpy()
    if format == "tf1":
        reader = tf.train.load_checkpoint(str(tmp_path / "bert_model.ckpt"))
        np.testing.assert_array_equal(reader.get_tensor("cls/squad/output_weights"), kernel.T)
        assert reader.get_tensor("cls/squad/output_bias").shape == (2,)
    if format == "huggingface":
        content = (tmp_path / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        assert header["qa_outputs.weight"]["shape"] == [2, 32]
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["architectures"] == ["BertForQuestionAnswering"]


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda m: m.fit((["x"], ["x"])), "`y` must be the answers"),
        (lambda m: m.fit((["x"], ["x"]), ["good"]), "row 0: 'good'"),
        (lambda m: m.fit((["x"], ["x"]), [("good", "4")]), "row 0"),
        (lambda m: m.fit(["x"], [None]), r"A pair \(questions, contexts\)"),
        (lambda m: m.predict(["x"]), r"A pair \(questions, contexts\)"),
        (lambda m: m.fit((["x"], ["x"]), [None, None]), "1 questions, 2 answers"),
        (lambda m: m.answer(["x"], ["x", "y"]), "same number of rows"),
        (lambda m: m.answer(["x"], [None]), "missing values.*row 0 of 1"),
    ],
)
def test_wrong_inputs_are_refused(trained, call, words):
    with pytest.raises(UserError, match=words):
        call(trained)


def test_wrong_options_are_refused(make_model):
    for options in ({"n_best_size": 0}, {"max_answer_length": 0}, {"doc_stride": 0}):
        with pytest.raises(UserError, match=next(iter(options))):
            make_model(**options)
    with pytest.raises(UserError, match="max_query_length=30"):
        make_model(max_query_length=30)
    assert make_model(max_query_length=None).max_query_length == 12


@pytest.mark.full
def test_learns_which_answer_the_question_asks_for(tiny_vocabulary):
    """The question is a letter; the answer is that letter's word in the context."""
    letters = "abcdefghij"

    def cases(seed, count):
        source = random.Random(seed)
        for _ in range(count):
            words = [f"{x}{source.choice('kqxyz')}" for x in source.sample(letters, 8)]
            word, context = source.choice(words), " ".join(words)
            yield word[0], context, (word, context.index(word))

    config = BertConfig(
        vocab_size=64,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=40,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    keras.utils.set_random_seed(5)
    model = BertQuestionAnswerer(
        BertBackbone(config), tokenizer=BertTokenizer(tiny_vocabulary), **WINDOWS
    )
    model.compile(AdamWeightDecay(2e-3, bias_correction=True))
    questions, contexts, answers = zip(*cases(1, 6000))
    model.fit((list(questions), list(contexts)), list(answers), epochs=12, verbose=0)
    questions, contexts, answers = zip(*cases(2, 300))
    found = model.answer(list(questions), list(contexts))
    assert np.mean([answer[:2] == gold for answer, gold in zip(found, answers)]) > 0.95


@pytest.mark.peers
def test_hugging_face_gives_the_same_logits(trained, tmp_path):
    try:
        import torch
        from transformers import BertForQuestionAnswering
    except ImportError:
        pytest.skip("needs transformers and PyTorch")
    trained.save_pretrained(tmp_path / "ours")
    theirs = BertForQuestionAnswering.from_pretrained(tmp_path / "ours").eval()
    tokens = trained.tokenize(["the film", "x"], ["k good x bad", "q"])
    outputs = theirs(
        input_ids=torch.tensor(tokens["token_ids"].numpy()).long(),
        token_type_ids=torch.tensor(tokens["segment_ids"].numpy()).long(),
        attention_mask=torch.tensor(tokens["padding_mask"].numpy()).long(),
    )
    logits = trained(tokens).numpy()
    real = tokens["padding_mask"].numpy()
    for row, values in enumerate((outputs.start_logits, outputs.end_logits)):
        np.testing.assert_allclose(logits[:, row][real], values.detach().numpy()[real], atol=1e-4)
    theirs.save_pretrained(tmp_path / "theirs")
    opened = BertQuestionAnswerer.from_pretrained(
        tmp_path / "theirs", tokenizer=trained.tokenizer, **WINDOWS
    )
    np.testing.assert_allclose(opened(tokens).numpy(), logits, atol=1e-5)
