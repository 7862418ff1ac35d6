"""Options that are set after a model was built: with traced steps, in subclasses, of `compile`."""

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from tests.conformance.task import CLASSES, CONFIG, TEXTS, assert_same, make, tokenizer
from tests.conformance.tasks import TASKS


def test_steps_are_traced_again():
    """What a traced step of `predict` has read is read again after it was set."""
    task = TASKS["sparse encoding"]
    model = make(task)
    before = model.predict(TEXTS, verbose=0)
    model.pooling = "sum"
    expected = make(task, pooling="sum")
    expected.set_weights(model.get_weights())
    expected.run_eagerly = True
    after = model.predict(TEXTS, verbose=0)
    assert_same(after, expected.predict(TEXTS, verbose=0))
    assert np.abs(after - before).max() > 1e-3
    predictor = model.predictor
    model.predict(TEXTS[:1], verbose=0)
    assert model.predictor is predictor
    model.backbone.padding_free = False
    model.predict(TEXTS, verbose=0)
    assert model.predictor is not predictor


def test_text_is_cut_at_the_length_that_is_set():
    model = make(TASKS["text classification"])
    texts = ["good " * 20, "bad film"]
    before = model.predict(texts, verbose=0)
    model.preprocessor.max_length = 4
    short = model.predict(["good good", "bad film"], verbose=0)
    assert_same(model.predict(texts, verbose=0), short)
    assert np.abs(short[0] - before[0]).max() > 1e-3
    assert model.get_config()["max_length"] == 4


def test_names_that_are_set():
    model = make(TASKS["text classification"], labels=["bad", "good"])
    answer = model.classify(TEXTS[0]).label
    model.preprocessor.labels = ["worse", "better"]
    assert model.classify(TEXTS[0]).label == {"bad": "worse", "good": "better"}[answer]
    for labels in (["a"], ["a", "b", "c"], ["a", "a"], "ab", {"a", "b"}):
        with pytest.raises(UserError, match="`labels` must be"):
            model.labels = labels
    assert model.labels == ["worse", "better"]


def test_arguments_of_compile_are_not_set():
    """A step that is already traced, or a loss that is already cut up, would not see them."""
    model = make(TASKS["text classification"])
    with pytest.raises(UserError, match="`gradient_accumulation_steps` must be an argument"):
        model.gradient_accumulation_steps = 2
    model.compile("sgd", gradient_accumulation_steps=2)
    assert model.gradient_accumulation_steps == 2
    with pytest.raises(UserError, match="`objective` must be an argument"):
        make(TASKS["sentence encoding"]).objective = "ranking"
    with pytest.raises(UserError, match="`in_batch_negatives` must be an argument"):
        make(TASKS["late interaction"]).in_batch_negatives = False


@pytest.mark.parametrize("name", ["adam_weight_decay", "keras"])
def test_settings_of_an_optimizer_are_traced_again(name):
    make_optimizer = {"keras": keras.optimizers.AdamW}.get(name, bert_tf.training.AdamWeightDecay)
    model = make(TASKS["text classification"])
    model.compile(make_optimizer(1e-3))
    for setting, value in {"beta_1": 0.5, "epsilon": 1e-3, "weight_decay": 0.5}.items():
        model.make_train_function()
        function = model.train_function
        model.make_train_function()
        assert model.train_function is function
        setattr(model.optimizer, setting, value)
        model.make_train_function()
        assert model.train_function is not function


@pytest.mark.parametrize("name", ["text classification", "sentence encoding"])
def test_settings_of_a_loss_are_traced_again(name):
    model = make(TASKS[name])
    if name == "sentence encoding":
        loss = bert_tf.training.MultipleNegativesRankingLoss(scale=20.0)
        model.compile("sgd", objective=bert_tf.training.MatryoshkaLoss(loss, dims=[8, 4]))
        setting = (loss, "scale", 10.0)
    else:
        loss = bert_tf.training.SparseCrossentropy(label_smoothing=0.1)
        model.compile("sgd", loss=loss)
        setting = (loss, "class_weights", [1.0, 2.0])
    model.make_train_function()
    function = model.train_function
    model.make_train_function()
    assert model.train_function is function
    setattr(*setting)
    model.make_train_function()
    assert model.train_function is not function


def test_settings_of_an_optimizer_that_has_begun():
    optimizer = bert_tf.training.AdamWeightDecay(1e-3, layer_decay=0.9)
    optimizer.layer_decay = 0.8
    optimizer.build([keras.Variable(np.ones(2, np.float32))])
    for name in ("layer_decay", "exclude_from_weight_decay_names", "learning_rate_multipliers"):
        with pytest.raises(UserError, match=f"`{name}` must be given to the constructor"):
            setattr(optimizer, name, None)
    optimizer.learning_rate = 1e-4
    assert optimizer.get_config()["layer_decay"] == 0.8


def test_backbone():
    backbone = bert_tf.BertBackbone(CONFIG)
    for name in ("config", "causal", "gradient_checkpointing", "attention_window", "quantization"):
        with pytest.raises(UserError, match=f"`{name}` must be an argument"):
            setattr(backbone, name, getattr(backbone, name))
    with pytest.raises(UserError, match="padding_free"):
        backbone.padding_free = "always"
    assert backbone.padding_free == "auto"


def test_subclass_with_attributes_of_its_own():
    class Weighted(bert_tf.BertTextClassifier):
        def __init__(self, backbone, factor=1.0, **kwargs):
            super().__init__(backbone, **kwargs)
            self.factor = factor

        def call(self, inputs, training=False):
            return self.factor * super().call(inputs, training)

    model = Weighted(bert_tf.BertBackbone(CONFIG), 2.0, tokenizer=tokenizer(), num_classes=2)
    before = model.predict(TEXTS, verbose=0)
    model.factor = 3.0
    assert_same(model.predict(TEXTS, verbose=0), before * 1.5)
    model.compile("sgd")
    model.fit(TEXTS, CLASSES, verbose=0)
