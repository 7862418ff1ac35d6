"""DistillationModel: its loss term by term, the whole batch's step, what a student learns."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertConfig,
    BertSentenceEncoder,
    BertTextClassifier,
    BertTokenClassifier,
    BertTokenizer,
)
from bert_tf.adapt import DistillationModel, student_from_teacher
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay, EpochScores, GradualUnfreezing, SparseCrossentropy
from bert_tf.training.evaluation.probabilities import sigmoid, softmax
from tests.training.fit_arguments import fit_arguments
from tests.training.processes import start

TEXTS = ["good film", "bad film", "the good.", "the bad."] * 4
LABELS = np.array([1, 0, 1, 0] * 4)
ROWS, LENGTH = 6, 7
WEIGHTS = np.array([1.0, 0.5, 2.0, 1.0, 0.0, 1.5], np.float32)
ALL_TERMS = {"logits_weight": 0.7, "hidden_weight": 0.3, "attention_weight": 0.2}


@pytest.fixture(scope="module")
def config(tiny_config):
    """Without dropout, so that numbers can be compared."""
    return dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )


@pytest.fixture(scope="module")
def make(config, tiny_vocabulary):
    """A model of a class, a number of blocks and changes of the configuration, of one seed."""

    def make(kind=BertTextClassifier, layers=4, seed=1, backbone=None, **options):
        keras.utils.set_random_seed(seed)
        changed = dataclasses.replace(config, num_hidden_layers=layers, **(backbone or {}))
        dtype = options.get("dtype")
        if kind is BertTextClassifier and not {"num_classes", "labels"} & set(options):
            options["labels"] = ["bad", "good"]
        return kind(
            BertBackbone(changed, dtype=dtype),
            **{
                "tokenizer": BertTokenizer(tiny_vocabulary, lowercase=False),
                "max_length": 20,
                **options,
            },
        )

    return make


def token_batch(seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.array([7, 3, 5, 2, 6, 4])
    mask = np.arange(LENGTH) < lengths[:, None]
    ids = np.where(mask, rng.integers(5, 64, (ROWS, LENGTH)), 0)
    return {"token_ids": ids.astype(np.int32), "padding_mask": mask}


def weights_of(model):
    return [variable.numpy() for variable in model.trainable_variables]


def expected_terms(model, tokens, y, weights):
    """Every mean of the loss in float64, from what the two models give by themselves."""
    mask = tokens["padding_mask"].astype(np.float64)
    student, teacher = model.student, model.teacher
    ours, theirs = (
        each.backbone(tokens, output_hidden_states=True, output_attentions=True)
        for each in (student, teacher)
    )
    s, t = np.float64(student(tokens)), np.float64(teacher(tokens))
    temperature = model.temperature
    rows = np.arange(len(s))
    if student.problem_type == "single_label_classification":
        task = -np.log(softmax(s)[rows, y])
        p, q = softmax(t / temperature), softmax(s / temperature)
        logits = temperature**2 * np.sum(p * np.log(p / q), -1)
    elif student.problem_type == "multi_label_classification":
        task = -np.mean(y * np.log(sigmoid(s)) + (1 - y) * np.log(sigmoid(-s)), -1)
        p, q = sigmoid(t / temperature), s / temperature
        logits = -(temperature**2) * np.mean(
            p * np.log(sigmoid(q)) + (1 - p) * np.log(sigmoid(-q)), -1
        )
    else:
        task, logits = (s[:, 0] - y) ** 2, (s[:, 0] - t[:, 0]) ** 2
    hidden, attention = np.zeros(mask.shape), np.zeros(mask.shape)
    for a, b in model.layer_map.items():
        states, goal = (np.float64(o["hidden_states"][1 + i]) for o, i in ((ours, a), (theirs, b)))
        if model.hidden_projection is not None:
            states = states @ model.hidden_projection.kernel.numpy().astype(np.float64)
            states += model.hidden_projection.bias.numpy()
        hidden += np.mean((states - goal) ** 2, -1) / len(model.layer_map)
        q, p = (np.float64(o["attentions"][i]) for o, i in ((ours, a), (theirs, b)))
        if q.shape != p.shape:
            q, p = q.mean(1, keepdims=True), p.mean(1, keepdims=True)
        ratio = np.log(np.where(p > 0, p, 1.0) / np.where(p > 0, q, 1.0))
        attention += np.mean(np.sum(p * ratio, -1), 1) / len(model.layer_map)
    return {
        "task_loss": np.mean(task * weights),
        "logits_loss": np.mean(logits * weights),
        "hidden_loss": np.sum(hidden * mask * weights[:, None]) / mask.sum(),
        "attention_loss": np.sum(attention * mask * weights[:, None]) / mask.sum(),
    }


PROBLEMS = {
    "single": ({}, np.array([1, 0, 1, 1, 0, 0])),
    "multi": (
        {"labels": ["a", "b", "c"], "problem_type": "multi_label_classification"},
        np.random.default_rng(1).integers(0, 2, (ROWS, 3)).astype(np.float32),
    ),
    "regression": (
        {"num_classes": 1},
        np.random.default_rng(2).normal(size=ROWS).astype(np.float32),
    ),
}


@pytest.mark.parametrize(
    "problem",
    ["single", *(pytest.param(name, marks=pytest.mark.full) for name in ("multi", "regression"))],
)
@pytest.mark.parametrize(
    "backbone",
    [{}, {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40}],
    ids=["as wide", "narrower"],
)
def test_every_term_in_float64(make, problem, backbone):
    options, y = PROBLEMS[problem]
    model = DistillationModel(
        make(layers=2, seed=2, backbone=backbone, **options), make(**options), 3.0, **ALL_TERMS
    )
    model.compile("sgd")
    tokens = token_batch()
    logs = model.evaluate(
        tokens, y, sample_weight=WEIGHTS, batch_size=ROWS, verbose=0, return_dict=True
    )
    expected = expected_terms(model, tokens, y, WEIGHTS)
    for name, value in expected.items():
        np.testing.assert_allclose(logs[name], value, rtol=1e-4, err_msg=name)
    factors = {"task": 0.3, "logits": 0.7, "hidden": 0.3, "attention": 0.2}
    total = sum(factors[name.removesuffix("_loss")] * value for name, value in expected.items())
    np.testing.assert_allclose(logs["loss"], total, rtol=1e-4)


def trained(make, parts=1, padding=0, jit=False, terms=ALL_TERMS):
    """A student after three epochs on two batches, and its logs."""
    model = DistillationModel(
        make(layers=2, seed=2, backbone={"hidden_size": 24, "num_attention_heads": 3}, dropout=0.0),
        make(),
        **terms,
    )
    model.compile(
        AdamWeightDecay(1e-3),
        gradient_accumulation_steps=parts,
        jit_compile=jit,
        run_eagerly=parts == 1 and not jit,  # values are all that matters
    )
    tokens = {
        name: np.pad(values, [(0, 0), (0, padding)]) for name, values in token_batch().items()
    }
    y = np.array([1, 0, 1, 1, 0, 0])
    teacher = [weight.numpy() for weight in model.teacher.weights]
    history = model.fit(
        tokens, y, sample_weight=WEIGHTS, batch_size=4, epochs=3, shuffle=False, verbose=0
    ).history
    for before, after in zip(teacher, model.teacher.weights, strict=True):
        np.testing.assert_array_equal(before, after)
    return model, history


@pytest.fixture(scope="module")
def whole(make):
    return trained(make)


def assert_same(a, b, tolerance=1e-5):
    for name in a[1]:
        np.testing.assert_allclose(a[1][name], b[1][name], rtol=10 * tolerance, err_msg=name)
    for first, second in zip(weights_of(a[0]), weights_of(b[0]), strict=True):
        np.testing.assert_allclose(first, second, atol=10 * tolerance)


@pytest.mark.full
@pytest.mark.parametrize("parts", [2, 3])
def test_accumulation_is_the_large_batch(make, whole, parts):
    assert {"loss", "task_loss", "hidden_loss", "gradient_norm"} <= set(whole[1])
    assert_same(whole, trained(make, parts=parts))


def train_on(path, devices):
    """Trains on these devices, all in this process, and writes logs and weights to `path`."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.get_strategy()
    if len(devices) > 1:
        strategy = tf.distribute.MirroredStrategy(devices)
    models = []
    with strategy.scope():
        for seed, layers, width in ((1, 2, 24), (2, 4, 32)):
            keras.utils.set_random_seed(seed)
            config = BertConfig(
                vocab_size=64,
                hidden_size=width,
                num_hidden_layers=layers,
                num_attention_heads=4,
                intermediate_size=48,
                max_position_embeddings=LENGTH,
                initializer_range=0.1,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
            models.append(BertTextClassifier(BertBackbone(config)))
        model = DistillationModel(*models, **ALL_TERMS)
        model.compile(AdamWeightDecay(1e-3), metrics=["accuracy"])
    data = (token_batch(), np.array([1, 0, 1, 1, 0, 0]), WEIGHTS)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(4)
    history = model.fit(dataset, epochs=3, shuffle=False, verbose=0).history
    weights = {f"weight_{index}": weight for index, weight in enumerate(weights_of(model))}
    np.savez(path, **history, **weights)


@pytest.mark.full
def test_replicas_are_one_process(tmp_path):
    runs = {}
    for name, devices in (("one", ["CPU:0"]), ("mirrored", ["CPU:0", "CPU:1"])):
        process = start(
            train_on, tmp_path / f"{name}.log", path=str(tmp_path / f"{name}.npz"), devices=devices
        )
        assert process.wait() == 0, process.text()
        runs[name] = np.load(tmp_path / f"{name}.npz")
    assert {"task_loss", "hidden_loss", "attention_loss", "accuracy"} <= set(runs["one"])
    for name, values in runs["one"].items():
        np.testing.assert_allclose(runs["mirrored"][name], values, atol=1e-4, err_msg=name)


def test_padding_does_not_count(make, whole):
    assert_same(whole, trained(make, padding=9))


@pytest.mark.full
def test_padding_free_is_padded(make):
    terms = {"logits_weight": 0.7, "hidden_weight": 0.3}
    runs = [trained(make, terms=terms)]
    runs.append(trained(make, terms={**terms, "attention_weight": 1e-12}))  # asks for padding
    runs[1][1].pop("attention_loss")
    assert_same(*runs)


@pytest.mark.full
def test_xla_compiles_the_step(make):
    terms = {"logits_weight": 0.7, "hidden_weight": 0.3}
    assert_same(trained(make, terms=terms), trained(make, jit=True, terms=terms))


def test_the_teacher_is_out_of_sight(make, whole, tmp_path):
    model = whole[0]
    teacher = {id(weight) for weight in model.teacher.weights}
    assert not teacher & {id(weight) for weight in model.weights}
    # Of its own the model has the projection alone, and the student has none of it.
    own = {weight.path for weight in model.weights} - {w.path for w in model.student.weights}
    assert own == {"hidden_projection/kernel", "hidden_projection/bias"}
    model.student.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert opened.labels == model.teacher.labels
    np.testing.assert_allclose(
        opened.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0), atol=1e-5
    )
    with pytest.raises(UserError, match="save_pretrained"):
        model.save(tmp_path / "distillation.keras")


@pytest.fixture(scope="module")
def taught(make):
    """A teacher that has learnt the planted rule."""
    teacher = make()
    teacher.compile(AdamWeightDecay(2e-3))
    teacher.fit(tokens_of_texts(teacher), LABELS, batch_size=8, epochs=12, shuffle=False, verbose=0)
    assert (teacher.predict(TEXTS, verbose=0).argmax(1) == LABELS).all()
    return teacher


def tokens_of_texts(model):
    """What fits on `TEXTS` take; tokenized once, as every epoch on text starts a pipeline anew."""
    return {name: values.numpy() for name, values in model.tokenize(TEXTS).items()}


def distance(student, teacher):
    given, wanted = (softmax(model.predict(TEXTS, verbose=0)) for model in (student, teacher))
    return np.abs(given - wanted).max()


@pytest.mark.full  # tests/tools/test_distill.py has a student learn
@pytest.mark.parametrize("origin", ["blocks", "narrower"])
def test_a_student_learns_without_labels(make, taught, origin):
    if origin == "blocks":
        student = student_from_teacher(taught, num_hidden_layers=2)
    else:
        student = make(layers=2, seed=3, backbone={"hidden_size": 24, "num_attention_heads": 3})
        assert distance(student, taught) > 0.1  # some of its blocks may know as much as the teacher
    model = DistillationModel(
        student, taught, logits_weight=1.0, hidden_weight=0.1, attention_weight=0.1
    )
    model.compile(AdamWeightDecay(2e-3))
    tokens = tokens_of_texts(student)
    history = model.fit(tokens, batch_size=8, epochs=25, shuffle=False, verbose=0).history
    assert "task_loss" not in history
    assert history["logits_loss"][-1] < 0.1 * history["logits_loss"][0]
    assert history["hidden_loss"][-1] < history["hidden_loss"][0]
    assert distance(student, taught) < 0.1
    assert (student.predict(TEXTS, verbose=0).argmax(1) == LABELS).all()


@pytest.mark.full
def test_labels_by_name_validation_and_callbacks(taught):
    student = student_from_teacher(taught, num_hidden_layers=2)
    model = DistillationModel(student, taught)
    model.compile(
        AdamWeightDecay(3e-3), SparseCrossentropy(label_smoothing=0.1), metrics=["accuracy"]
    )
    names = ["bad", "good"] * 8
    history = model.fit(
        TEXTS,
        [("bad", "good")[label] for label in LABELS],
        validation_data=(TEXTS, names),
        batch_size=8,
        epochs=2,
        verbose=0,
        callbacks=[EpochScores(TEXTS, LABELS), GradualUnfreezing()],
    ).history
    assert {"accuracy", "val_task_loss", "val_loss", "val_f1"} <= set(history)
    assert "accuracy" in student.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_learns(make, taught, policy):
    student = make(layers=2, seed=3, dtype=policy)
    model = DistillationModel(student, taught, **ALL_TERMS)
    model.compile(AdamWeightDecay(2e-3))
    assert model.optimizer.dynamic_loss_scale == (policy == "mixed_float16")
    tokens = tokens_of_texts(student)
    history = model.fit(tokens, LABELS, batch_size=8, epochs=20, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]


@pytest.mark.full
def test_a_quantized_teacher(make, taught, tmp_path):
    taught.save_pretrained(tmp_path)
    teacher = BertTextClassifier.from_pretrained(tmp_path, quantization="int8")
    model = DistillationModel(make(layers=2, seed=3), teacher, logits_weight=1.0)
    model.compile(AdamWeightDecay(2e-3))
    history = model.fit(tokens_of_texts(teacher), batch_size=8, epochs=5, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


WORDS = [["good", "film"], ["the", "bad", "film"], ["abc"], ["a", "good", "abc", "."]] * 3
TAGS = [["X", "O"], ["O", "X", "O"], ["O"], ["O", "X", "O", "O"]] * 3


@pytest.mark.full
def test_token_classifiers(make):
    teacher = make(BertTokenClassifier, labels=["O", "X"])
    teacher.compile(AdamWeightDecay(3e-3))
    teacher.fit(WORDS, TAGS, batch_size=4, epochs=15, verbose=0)
    assert teacher.predict_tags(WORDS) == TAGS
    student = make(BertTokenClassifier, labels=["O", "X"], layers=1, seed=4)
    labelled = DistillationModel(student, teacher, hidden_weight=0.1)
    labelled.compile(AdamWeightDecay(3e-3))
    logs = labelled.evaluate(WORDS, TAGS, batch_size=20, verbose=0, return_dict=True)
    windows = fit_arguments(teacher, WORDS, TAGS, batch_size=20, shuffle=False)["x"]
    tokens, y, *_ = next(iter(windows))
    places = np.asarray(y) >= 0
    s, t = (np.float64(model(tokens))[places] / 2.0 for model in (labelled.student, teacher))
    p, q = softmax(t), softmax(s)
    np.testing.assert_allclose(
        logs["logits_loss"], 4.0 * np.mean(np.sum(p * np.log(p / q), -1)), rtol=1e-3
    )
    hits = np.asarray(y)[places] == s.argmax(-1)
    np.testing.assert_allclose(logs["accuracy"], hits.mean(), rtol=1e-6)

    unlabelled = DistillationModel(labelled.student, teacher, logits_weight=1.0)
    unlabelled.compile(AdamWeightDecay(3e-3))
    history = unlabelled.fit(WORDS, batch_size=4, epochs=20, verbose=0).history
    assert "accuracy" not in history
    assert unlabelled.student.predict_tags(WORDS) == TAGS


@pytest.mark.full
def test_sentence_encoders(make):
    teacher = make(BertSentenceEncoder)
    student = student_from_teacher(teacher, 2)
    model = DistillationModel(student, teacher, logits_weight=1.0)
    model.compile(AdamWeightDecay(2e-3))
    wanted = teacher.encode(TEXTS)
    expected = np.mean((student.encode(TEXTS) - wanted) ** 2)
    np.testing.assert_allclose(
        model.evaluate(TEXTS, verbose=0, return_dict=True)["logits_loss"], expected, rtol=1e-4
    )
    model.fit(tokens_of_texts(student), batch_size=8, epochs=20, verbose=0)
    assert np.mean((student.encode(TEXTS) - wanted) ** 2) < 0.3 * expected
    with pytest.raises(UserError, match="a single text or pair in each row"):
        model.fit((TEXTS, TEXTS), batch_size=8, verbose=0)
    with pytest.raises(UserError, match="`logits_weight` must be 1"):
        DistillationModel(student, teacher)


@pytest.mark.full
def test_pairs_of_texts(make):
    model = DistillationModel(make(layers=2, seed=2), make(), hidden_weight=0.5)
    model.compile(AdamWeightDecay(1e-3))
    losses = model.fit((TEXTS, TEXTS[::-1]), LABELS, batch_size=8, epochs=2, verbose=0).history
    assert losses["loss"][-1] < losses["loss"][0]


@pytest.mark.parametrize(
    "student, words",
    [
        ({"kind": BertTokenClassifier, "labels": ["bad", "good"]}, "of one class among"),
        ({"labels": ["good", "bad"]}, "`labels` must be the teacher's"),
        ({"labels": ["bad", "fair", "good"]}, "Received: .'bad', 'fair', 'good'."),
        ({"num_classes": 1}, "`problem_type`"),
        ({"max_length": 60, "backbone": {"max_position_embeddings": 80}}, "takes 40 tokens"),
        ({"layers": 6}, r"in \[1, 4\]"),
    ],
)
def test_pairs_that_do_not_fit(make, student, words):
    with pytest.raises(UserError, match=words):
        DistillationModel(make(**student), make(), hidden_weight=1.0)


def test_other_vocabularies(make, tiny_vocabulary):
    teacher = make()
    changed = [*tiny_vocabulary[:6], "worse", *tiny_vocabulary[7:]]
    for tokenizer, words in (
        (BertTokenizer(changed, lowercase=False), "first other one at id 6"),
        (BertTokenizer(tiny_vocabulary), "lowercase=False"),
    ):
        with pytest.raises(UserError, match=words):
            DistillationModel(make(tokenizer=tokenizer), teacher)
    larger = make(tokenizer=None, backbone={"vocab_size": 70})
    with pytest.raises(UserError, match="Received: 70 entries"):
        DistillationModel(larger, teacher)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"logits_weight": 1.5}, "logits_weight=1.5"),
        ({"hidden_weight": -1.0}, "hidden_weight=-1.0"),
        ({"hidden_weight": 1.0, "layer_map": {0: 4}}, r"layer_map=\{0: 4\}"),
        ({"hidden_weight": 1.0, "layer_map": {}}, r"layer_map=\{\}"),
    ],
)
def test_wrong_arguments(make, options, words):
    with pytest.raises(UserError, match=words):
        DistillationModel(make(layers=2), make(), **options)


def test_wrong_use(make):
    teacher, student = make(), make(layers=2)
    with pytest.raises(UserError, match="a backbone of its own"):
        DistillationModel(teacher, teacher)
    with pytest.raises(UserError, match="`use_crf` must be False"):
        models = [make(BertTokenClassifier, labels=["O", "X"], use_crf=True) for _ in range(2)]
        DistillationModel(*models)
    model = DistillationModel(student, teacher)
    model.compile("sgd")
    with pytest.raises(UserError, match="`y` must be labels"):
        model.fit(TEXTS, verbose=0)
    model = DistillationModel(student, teacher, logits_weight=1.0)
    with pytest.raises(UserError, match="where labels have no weight"):
        model.compile("sgd", "mse")
    model.compile("sgd", metrics=["accuracy"])
    with pytest.raises(UserError, match="`metrics` must be None"):
        model.fit(TEXTS, verbose=0)
    quantized = make(layers=2)
    quantized.quantize("int8")
    with pytest.raises(UserError, match="to be trained"):
        DistillationModel(quantized, teacher)


@pytest.mark.full
def test_another_student_than_was_traced(make):
    student = make(layers=1)
    model = DistillationModel(student, make(layers=2, seed=2), logits_weight=0.5)
    model.compile(AdamWeightDecay(1e-3))
    model.evaluate(TEXTS, LABELS, verbose=0)
    student.prune_heads({0: [1]})
    found = model.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)
    fresh = DistillationModel(student, model.teacher, logits_weight=0.5)
    fresh.compile(AdamWeightDecay(1e-3))
    expected = fresh.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    fresh.fit(TEXTS, LABELS, verbose=0)
    student.prune_heads({0: [0]})
    with pytest.raises(UserError, match="Compile the distillation again"):
        fresh.fit(TEXTS, LABELS, verbose=0)
    fresh.compile(AdamWeightDecay(1e-3))
    before = student.backbone.encoder.blocks[0].attention_output.kernel.numpy()
    fresh.fit(TEXTS, LABELS, verbose=0)
    assert np.any(student.backbone.encoder.blocks[0].attention_output.kernel.numpy() != before)


def test_lora_in_the_student(make):
    from bert_tf.training import freeze_layers

    student = make(layers=2)
    student.enable_lora(rank=2)
    model = DistillationModel(student, make(layers=2, seed=2))
    with pytest.raises(UserError, match="LoRA"):
        freeze_layers(model, 1)


@pytest.mark.full
def test_a_token_classifier_without_labels_takes_validation_data_without(make):
    options = {"labels": ["O", "B"], "tokenizer": make().tokenizer}
    student = make(BertTokenClassifier, layers=1, **options)
    teacher = make(BertTokenClassifier, layers=2, seed=2, **options)
    model = DistillationModel(student, teacher, logits_weight=1.0)
    model.compile(AdamWeightDecay(1e-3))
    words = [["good", "film"], ["the", "bad", "film"]]
    history = model.fit(words, validation_data=(words,), verbose=0)
    assert np.isfinite(history.history["val_loss"]).all()
    with pytest.raises(UserError, match="weighted_metrics"):
        model.compile(AdamWeightDecay(1e-3), weighted_metrics=["accuracy"])


def test_validation_does_not_forget_the_step(make):
    """Blocks open less often than there are epochs, and the student is validated after each."""
    model = DistillationModel(make(layers=1, seed=2), make(layers=1))
    model.compile(AdamWeightDecay(1e-3), run_eagerly=True)
    data = model.student.tokenize(TEXTS[:4]), np.array(LABELS[:4])
    history = model.fit(
        *data,
        validation_data=data,
        epochs=3,
        verbose=0,
        callbacks=[GradualUnfreezing(epochs_per_block=2)],
    ).history
    assert len(history["val_loss"]) == 3
    with pytest.raises(UserError, match="student.export"):
        model.export("never")
