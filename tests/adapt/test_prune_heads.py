"""`prune_heads`: the numbers of zeroed heads, on every path, saved, opened and trained on."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer, ops
from bert_tf.adapt import resize_position_embeddings
from bert_tf.checkpoints import convert
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.layers import BertEncoderBlock
from bert_tf.serving import ConstantGraphModel, export
from bert_tf.training import AdamWeightDecay, freeze_layers
from tests.checkpoints import foreign

TEXTS = ["good film", "", "the bad good film", "a . b . c"]
LABELS = np.array([0, 1, 0, 1])
TOKENS = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0], [0, 2, 7, 0, 3]])}
HEADS = {0: [1, 3], 1: [0]}


def make_backbone(config, **options):
    keras.utils.set_random_seed(3)
    backbone = BertBackbone(config, **options)
    for variable in backbone.trainable_variables:  # biases too, and as large as trained ones
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    return backbone


@pytest.fixture
def backbone(tiny_config):
    return make_backbone(tiny_config)


@pytest.fixture
def classifier(backbone, tiny_vocabulary):
    model = BertTextClassifier(backbone, tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False))
    model.compile(AdamWeightDecay(1e-3))
    return model


def zero(backbone, pruned=HEADS):
    """Takes away what the heads contribute and leaves them where they are."""
    size = backbone.config.head_size
    for block, heads in pruned.items():
        dense = backbone.encoder.blocks[block].attention_output
        kernel = dense.kernel.numpy()
        for head in heads:
            kernel[head * size : (head + 1) * size] = 0
        dense.kernel.assign(kernel)
    return backbone


def output(backbone, **inputs):
    return tf.cast(backbone({**TOKENS, **inputs})["sequence_output"], tf.float32).numpy()


def head_mask(config, pruned=HEADS):
    mask = np.ones([config.num_hidden_layers, config.num_attention_heads], np.float32)
    for block, heads in pruned.items():
        mask[block, heads] = 0
    return tf.tile(mask[np.newaxis], [3, 1, 1])


@pytest.mark.parametrize(
    "kind, padding_free, window",
    [
        pytest.param(kind, padding_free, window, marks=() if few else pytest.mark.full)
        for kind in ("native", "reference")
        for padding_free in (True, False)
        for window in (None, 1)
        for few in [(kind == "native") == (padding_free == (window is None))]
    ],
)
def test_equals_the_model_with_zeroed_heads(tiny_config, kind, padding_free, window):
    if kind == "native" and ops.active_backend() != "native":
        pytest.skip("needs the native ops")
    config = dataclasses.replace(tiny_config, attention_window=window)
    with ops.backend(kind):
        backbone = make_backbone(config, padding_free=padding_free)
        untouched = output(backbone)
        masked = output(backbone, head_mask=head_mask(config))
        expected = output(zero(make_backbone(config, padding_free=padding_free)))
        backbone.prune_heads(HEADS)
        np.testing.assert_allclose(output(backbone), expected, atol=2e-6)
        np.testing.assert_allclose(masked, expected, atol=2e-6)
        assert np.abs(untouched - expected).max() > 0.05
        # A mask has columns for the pruned heads too, which say nothing any more.
        np.testing.assert_array_equal(
            output(backbone, head_mask=head_mask(config)), output(backbone)
        )


@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("padding_free", [True, False])
def test_mixed_precision(tiny_config, dtype, padding_free):
    options = {"dtype": dtype, "padding_free": padding_free}
    backbone = make_backbone(tiny_config, **options)
    expected = output(zero(make_backbone(tiny_config, **options)))
    backbone.prune_heads(HEADS)
    assert backbone(TOKENS)["sequence_output"].dtype == dtype.removeprefix("mixed_")
    np.testing.assert_allclose(output(backbone), expected, atol=0.05)
    masked = output(make_backbone(tiny_config, **options), head_mask=head_mask(tiny_config))
    np.testing.assert_allclose(masked, expected, atol=0.05)


def test_the_weights_are_gone(backbone):
    paths = [variable.path for variable in backbone.variables]
    before = backbone.count_params()
    assert backbone.prune_heads(HEADS) is None
    first, second = backbone.encoder.blocks
    assert first.attention.query_key_value.kernel.shape == (32, 3 * 2 * 8)
    assert first.attention.query_key_value.bias.shape == (3 * 2 * 8,)
    assert first.attention_output.kernel.shape == (2 * 8, 32)
    assert second.attention.query_key_value.kernel.shape == (32, 3 * 3 * 8)
    assert second.attention_output.kernel.shape == (3 * 8, 32)
    assert before - backbone.count_params() == 3 * (4 * 32 * 8 + 3 * 8)
    assert [variable.path for variable in backbone.variables] == paths
    assert backbone.config.pruned_heads == {0: (1, 3), 1: (0,)}
    attentions = backbone(TOKENS, output_attentions=True)["attentions"]
    assert [a.shape for a in attentions] == [(3, 2, 5, 5), (3, 3, 5, 5)]


def test_calls_add_up(tiny_config):
    once, twice = make_backbone(tiny_config), make_backbone(tiny_config)
    once.prune_heads({0: [0, 1, 3], 1: [2]})
    twice.prune_heads({0: [1]})
    twice.prune_heads({np.int64(0): {0, 1, 3}, "1": (2,)})  # 1 was pruned before
    assert twice.config == once.config
    np.testing.assert_array_equal(output(twice), output(once))
    twice.prune_heads({})
    np.testing.assert_array_equal(output(twice), output(once))


@pytest.mark.parametrize(
    "heads,words",
    [
        ({2: [0]}, r"blocks in \[0, 2\)"),
        ({0: [4]}, r"heads in \[0, 4\)"),
        ({0: [1, 1]}, "each once"),
        ({1: [0, 1, 2, 3]}, "leave at least one"),
        ([(0, 1)], "mapping"),
    ],
)
def test_bad_heads_leave_the_model_as_it_was(backbone, heads, words):
    before = output(backbone)
    with pytest.raises(UserError, match=words):
        backbone.prune_heads(heads)
    backbone.prune_heads({1: [0, 1]})
    after = output(backbone)
    with pytest.raises(UserError, match="leave at least one"):
        backbone.prune_heads({0: [0], 1: [2, 3]})  # with those of before all of block 1
    np.testing.assert_array_equal(output(backbone), after)
    assert backbone.config.pruned_heads == {1: (0, 1)} and np.abs(before - after).max() > 0


def test_bad_head_mask(backbone):
    with pytest.raises(UserError, match=r"`head_mask` must be \[B, 2, 4\].*\(2, 4\)"):
        output(backbone, head_mask=tf.ones([2, 4]))
    backbone.prune_heads(HEADS)
    with pytest.raises(UserError, match="pruned ones too"):
        output(backbone, head_mask=tf.ones([3, 2, 2]))


def test_only_a_plain_model_is_pruned(tiny_config, tiny_vocabulary):
    def make():
        tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
        return BertTextClassifier(make_backbone(tiny_config), tokenizer=tokenizer)

    model = make()
    model.enable_lora(rank=2)
    for prune in (model.prune_heads, model.backbone.prune_heads):
        with pytest.raises(UserError, match="no LoRA to be pruned.*merge_lora"):
            prune(HEADS)
    model.merge_lora()
    model.prune_heads(HEADS)
    model.quantize("int8")
    with pytest.raises(UserError, match="not be quantized to be pruned"):
        model.prune_heads(HEADS)
    if ops.active_backend() == "native":
        model = make()
        model.prepack_for_inference()
        with pytest.raises(UserError, match="not be prepacked to be pruned"):
            model.prune_heads(HEADS)


@pytest.mark.full
def test_training_goes_on(classifier, tmp_path):
    classifier.fit(TEXTS, LABELS, verbose=0)
    classifier.evaluate(TEXTS, LABELS, verbose=0)
    classifier.predict(TEXTS, verbose=0)
    zeroed = BertTextClassifier.from_config(classifier.get_config())
    for new, old in zip(zeroed.weights, classifier.weights, strict=True):
        new.assign(old)
    zero(zeroed.backbone)
    classifier.prune_heads(HEADS)
    expected = zeroed.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=2e-6)
    classifier.evaluate(TEXTS, LABELS, verbose=0)
    for train in (
        lambda: classifier.fit(TEXTS, LABELS, verbose=0),
        lambda: classifier.train_on_batch(classifier.tokenize(TEXTS), LABELS),
    ):
        with pytest.raises(UserError, match="Compile the model again"):
            train()
    classifier.save(tmp_path / "between.keras")  # without the optimizer's state
    np.testing.assert_allclose(
        keras.models.load_model(tmp_path / "between.keras").predict(TEXTS, verbose=0),
        expected,
        atol=2e-6,
    )
    classifier.compile(AdamWeightDecay(1e-3))
    classifier.fit(TEXTS, LABELS, verbose=0)
    classifier.save(tmp_path / "tuned.keras")  # with it
    again = keras.models.load_model(tmp_path / "tuned.keras")
    for one, other in zip(again.optimizer.variables, classifier.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.full
def test_trains_as_the_model_that_was_opened(tiny_config, tiny_vocabulary, tmp_path):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = BertTextClassifier(
        make_backbone(config), tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False)
    )
    model.prune_heads(HEADS)
    model.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    before = [variable.numpy() for variable in model.trainable_variables]
    for one in (model, opened):
        one.compile(AdamWeightDecay(1e-3, layer_decay=0.5))  # which goes by paths
        one.fit(TEXTS, LABELS, epochs=3, shuffle=False, verbose=0)
    for trained, other, values in zip(
        model.trainable_variables, opened.trainable_variables, before, strict=True
    ):
        np.testing.assert_allclose(trained, other, atol=1e-5)
        assert np.abs(trained - values).max() > 0


@pytest.mark.full
def test_recompute_and_dropout_draw_the_same(tiny_config, tiny_vocabulary):
    losses = []
    for gradient_checkpointing in (False, True):
        model = BertTextClassifier(
            make_backbone(tiny_config, gradient_checkpointing=gradient_checkpointing),
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
        )
        model.prune_heads(HEADS)
        keras.utils.set_random_seed(8)
        model.compile(AdamWeightDecay(1e-2))
        history = model.fit(TEXTS, LABELS, epochs=3, shuffle=False, verbose=0).history
        losses.append(history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.full
def test_what_was_frozen_stays_frozen(classifier):
    freeze_layers(classifier, 1)
    names = [variable.path for variable in classifier.trainable_variables]
    classifier.prune_heads(HEADS)
    assert [variable.path for variable in classifier.trainable_variables] == names
    kernel = classifier.backbone.encoder.blocks[0].attention.query_key_value.kernel.numpy()
    classifier.fit(TEXTS, LABELS, verbose=0)  # an optimizer that has not begun stays
    after = classifier.backbone.encoder.blocks[0].attention.query_key_value.kernel
    np.testing.assert_array_equal(after, kernel)


@pytest.mark.usefixtures("eager_steps")
def test_lora_int8_and_packed_kernels(classifier, tmp_path):
    classifier.prune_heads(HEADS)
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.enable_lora(rank=2, target_modules=["query_key_value", "attention_output"])
    classifier.compile(AdamWeightDecay(1e-3))
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=1e-5)
    classifier.fit(TEXTS, LABELS, verbose=0)
    classifier.save_lora_weights(tmp_path / "lora.safetensors")
    classifier.merge_lora()
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.save_pretrained(tmp_path / "float32")
    classifier.quantize("int8")
    integers = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(integers, expected, atol=0.1)
    classifier.save_pretrained(tmp_path / "int8", format="bert_tf")
    again = BertTextClassifier.from_pretrained(tmp_path / "int8")
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), integers)
    packed = BertTextClassifier.from_pretrained(tmp_path / "float32")
    if ops.active_backend() == "native":
        packed.prepack_for_inference()
    np.testing.assert_allclose(packed.predict(TEXTS, verbose=0), expected, atol=1e-5)


@pytest.mark.full
def test_constant_graph_xla_and_longer_table(classifier):
    classifier.prune_heads(HEADS)
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(ConstantGraphModel(classifier)(TEXTS), expected, atol=1e-5)
    longer = resize_position_embeddings(classifier, 80)
    np.testing.assert_allclose(longer.predict(TEXTS, verbose=0), expected, atol=1e-5)
    classifier.compile(jit_compile=True)
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=1e-5)


@pytest.mark.parametrize("portable", [pytest.param(True, marks=pytest.mark.full), False])
def test_saved_model(classifier, tmp_path, portable):
    if not portable and ops.active_backend() != "native":
        pytest.skip("needs the native ops")
    classifier.prune_heads(HEADS)
    expected = classifier.probabilities(classifier.predict(TEXTS, verbose=0))
    path = export(classifier, tmp_path, portable=portable)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    found = serve(text=tf.constant(TEXTS))["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "BertTextClassifier",
        "BertSentenceEncoder",
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in (
                "BertTokenClassifier",
                "BertQuestionAnswerer",
                "BertMultipleChoice",
                "BertMaskedLM",
                "BertPretrainer",
                "BertNextSentencePredictor",
            )
        ),
    ],
)
@pytest.mark.parametrize("format", ["huggingface", pytest.param("bert_tf", marks=pytest.mark.full)])
def test_every_task_is_saved_and_opened(name, format, backbone, tiny_vocabulary, tmp_path):
    task = getattr(bert_tf, name)
    options = (
        {}
        if name == "BertPretrainer"
        else {"tokenizer": BertTokenizer(tiny_vocabulary, lowercase=False)}
    )
    if name == "BertTokenClassifier":
        options["labels"] = ["O", "B-X", "I-X"]
    model = task(backbone, **options)
    model.prune_heads(HEADS)
    inputs = {**TOKENS, "masked_positions": tf.constant([[1], [1], [2]])}
    if name == "BertMultipleChoice":
        inputs = {"token_ids": TOKENS["token_ids"][tf.newaxis]}  # [B, choices, T]
    model.save_pretrained(tmp_path, format=format)
    again = task.from_pretrained(tmp_path)
    assert again.backbone.config.pruned_heads == {0: (1, 3), 1: (0,)}
    for one, other in zip(tf.nest.flatten(again(inputs)), tf.nest.flatten(model(inputs))):
        np.testing.assert_array_equal(one, other)


def test_backbone_in_every_format(backbone, tmp_path):
    backbone.prune_heads(HEADS)
    expected = output(backbone)
    for format in ("huggingface", "tf1", "bert_tf"):
        backbone.save_pretrained(tmp_path / format, format=format)
    backbone.save(tmp_path / "model.keras")
    weights = tmp_path / "huggingface" / "other.weights.h5"
    backbone.save_weights(weights)
    for place in ("huggingface", "tf1", "bert_tf", "model.keras", weights):
        opened = BertBackbone.from_pretrained(tmp_path / place)
        np.testing.assert_array_equal(output(opened), expected, err_msg=str(place))
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(output(again), expected)
    convert(tmp_path / "huggingface", tmp_path / "converted", format="bert_tf")
    np.testing.assert_array_equal(
        output(BertBackbone.from_pretrained(tmp_path / "converted")), expected
    )
    shorter = BertBackbone.from_pretrained(tmp_path / "huggingface", num_encoder_layers=1)
    assert shorter.config.pruned_heads == {0: (1, 3)}
    np.testing.assert_allclose(
        output(shorter), backbone(TOKENS, output_hidden_states=True)["hidden_states"][1], atol=1e-6
    )
    block = backbone.encoder.blocks[0]
    rebuilt = BertEncoderBlock.from_config(block.get_config())
    rebuilt.build()
    assert [v.shape for v in rebuilt.weights] == [v.shape for v in block.weights]


def test_tensors_are_those_of_transformers(tmp_path):
    """A file with rows and columns cut out by hand, compared with one where they are zeros."""
    tensors = foreign.random_tensors()  # three heads of 8
    cut, zeroed = dict(tensors), dict(tensors)
    kept = np.r_[0:8, 16:24]
    for role in ("query", "key", "value"):
        for leaf in ("weight", "bias"):
            name = f"encoder.layer.1.attention.self.{role}.{leaf}"
            cut[name] = tensors[name][kept]
    name = "encoder.layer.1.attention.output.dense.weight"
    cut[name] = np.ascontiguousarray(tensors[name][:, kept])
    zeroed[name] = tensors[name].copy()
    zeroed[name][:, 8:16] = 0
    foreign.write_huggingface(tmp_path / "cut", cut, pruned_heads={"1": [1]})
    foreign.write_huggingface(tmp_path / "zeroed", zeroed)
    foreign.write_huggingface(tmp_path / "whole", tensors)
    opened = BertBackbone.from_pretrained(tmp_path / "cut")
    expected = output(BertBackbone.from_pretrained(tmp_path / "zeroed"))
    np.testing.assert_allclose(output(opened), expected, atol=2e-6)
    whole = BertBackbone.from_pretrained(tmp_path / "whole")
    whole.prune_heads({1: [1]})
    whole.save_pretrained(tmp_path / "pruned")
    written = load_file(tmp_path / "pruned" / "model.safetensors")
    assert written.keys() == cut.keys()
    for name, values in cut.items():
        np.testing.assert_array_equal(written[name], values, err_msg=name)
    config = json.loads((tmp_path / "pruned" / "config.json").read_text())
    assert config["pruned_heads"] == {"1": [1]}


@pytest.mark.parametrize("format", ["huggingface", "tf1", "bert_tf"])
def test_files_that_do_not_fit(backbone, tmp_path, format):
    file = {"huggingface": "config.json", "tf1": "bert_config.json", "bert_tf": "bert_tf.json"}
    backbone.prune_heads(HEADS)
    backbone.save_pretrained(tmp_path, format=format)
    path = tmp_path / file[format]
    values = json.loads(path.read_text())
    inner = (
        values
        if format == "huggingface"
        else values["bert_tf_config" if format == "tf1" else "config"]
    )
    assert inner["pruned_heads"] == {"0": [1, 3], "1": [0]}
    for wrong, error, words in (
        ({"0": [1]}, CheckpointError, "expected shape .*24.* received .*16"),
        ({}, CheckpointError, "expected shape .*32.* received .*16"),
        ({"0": [0, 1, 2, 3]}, ConfigError, "leave at least one"),
        ({"7": [0]}, ConfigError, r"blocks in \[0, 2\)"),
    ):
        inner["pruned_heads"] = wrong
        path.write_text(json.dumps(values))
        with pytest.raises(error, match=words):
            BertBackbone.from_pretrained(tmp_path)


def test_damaged_tensor(backbone, tmp_path):
    backbone.prune_heads(HEADS)
    backbone.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "encoder.layer.0.attention.output.dense.weight"
    save_file({**tensors, name: tensors[name].T.copy()}, path)
    with pytest.raises(CheckpointError, match=rf"{name}: expected shape \[32, 16\]"):
        BertBackbone.from_pretrained(tmp_path)
