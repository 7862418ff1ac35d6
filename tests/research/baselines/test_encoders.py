"""The encoders before BERT: shapes, padding, gradients, directions, files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.training.callbacks import TensorBoardHistograms
from research.baselines import (
    BaselineBackbone,
    BaselineConfig,
    BidirectionalLanguageModel,
    NeuralLanguageModel,
)

SIZES = {"vocab_size": 30, "hidden_size": 8, "hidden_dropout_prob": 0.0}
KINDS = {
    "word_vectors": {"num_hidden_layers": 0},
    "nnlm": {"num_hidden_layers": 1, "context_size": 3},
    "elmo": {"num_hidden_layers": 2, "intermediate_size": 12},
}
IDS = np.array([[5, 6, 7, 8, 9, 10], [11, 12, 13, 0, 0, 0]], np.int32)


def backbone_of(kind, **options):
    keras.utils.set_random_seed(1)
    config = BaselineConfig(**SIZES, kind=kind, initializer_range=0.5, **KINDS[kind])
    return BaselineBackbone(config, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_influence_wherever_it_is(kind):
    backbone = backbone_of(kind)
    outputs = backbone({"token_ids": IDS}, output_hidden_states=True)
    assert len(outputs["hidden_states"]) == 1 + KINDS[kind]["num_hidden_layers"]
    assert all(state.shape == (2, 6, 8) for state in outputs["hidden_states"])
    assert all(not state[1, 3:].numpy().any() for state in outputs["hidden_states"])
    batch = outputs["sequence_output"].numpy()
    alone = backbone({"token_ids": IDS[1:, :3]})["sequence_output"].numpy()
    np.testing.assert_allclose(batch[1, :3], alone[0], atol=1e-6)
    between = np.array([[0, 11, 0, 12, 13, 0]], np.int32)
    moved = backbone({"token_ids": between})["sequence_output"].numpy()
    np.testing.assert_allclose(moved[0, [1, 3, 4]], alone[0], atol=1e-6)


@pytest.mark.parametrize(
    "model_class,kind", [(NeuralLanguageModel, "nnlm"), (BidirectionalLanguageModel, "elmo")]
)
def test_the_next_word_is_that_after_padding(model_class, kind):
    model = model_class(backbone_of(kind))
    between = {"token_ids": tf.constant([[0, 11, 0, 12, 13, 0]])}
    alone = {"token_ids": tf.constant([[11, 12, 13]])}
    labels, expected = (model.labels_of(tokens).numpy() for tokens in (between, alone))
    np.testing.assert_array_equal(labels.reshape(-1, 6)[:, [1, 3, 4]], expected.reshape(-1, 3))
    assert (labels.reshape(-1, 6)[:, [0, 2, 5]] == -100).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_has_a_gradient(kind):
    backbone = backbone_of(kind)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(backbone({"token_ids": IDS})["sequence_output"] ** 2)
    variables = [*backbone.embeddings.trainable_weights, *backbone.encoder.trainable_weights]
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    assert all(np.abs(tf.convert_to_tensor(gradient)).max() > 0 for gradient in gradients)


def changed_columns(kind, changed):
    """The columns of each hidden state's halves that depend on the token in column `changed`."""
    backbone, other = backbone_of(kind), IDS[:1].copy()
    other[0, changed] = 20
    states = [
        backbone({"token_ids": ids})["sequence_output"].numpy()[0] for ids in (IDS[:1], other)
    ]
    differs = np.abs(states[0] - states[1]) > 1e-7
    return [np.flatnonzero(half.any(axis=1)).tolist() for half in np.split(differs, 2, axis=1)]


def test_what_a_vector_depends_on():
    assert changed_columns("word_vectors", 2) == [[2], [2]]
    assert changed_columns("nnlm", 2) == [[2, 3, 4], [2, 3, 4]]
    assert changed_columns("elmo", 2) == [[2, 3, 4, 5], [0, 1, 2]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fine_tuned_model_is_written_and_read(kind, tmp_path):
    model = bert_tf.BertTextClassifier(backbone_of(kind), labels=["bad", "good"], pooling="max")
    model.compile(bert_tf.training.AdamWeightDecay(1e-2), run_eagerly=True)
    model.fit({"token_ids": IDS}, np.array([0, 1]), verbose=0)
    expected = model.predict({"token_ids": IDS}, verbose=0)
    model.save_pretrained(tmp_path)
    again = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    again.run_eagerly = True
    assert again.labels == ["bad", "good"] and again.untrained_heads == ()
    np.testing.assert_array_equal(again.predict({"token_ids": IDS}, verbose=0), expected)
    words = bert_tf.BertTokenClassifier.from_pretrained(tmp_path, labels=["O", "B-X"])
    words.run_eagerly = True
    assert words.predict({"token_ids": IDS}, verbose=0).shape[-1] == 2
    with pytest.raises(UserError, match="`format` must be 'bert_tf'"):
        model.save_pretrained(tmp_path / "other", format="huggingface")
    path = tmp_path / "bert_tf.json"
    name = "intermediate_size" if kind == "elmo" else "vocab_size"
    path.write_text(path.read_text().replace(f'"{name}": ', f'"{name}": 9999'))
    with pytest.raises(CheckpointError, match="must fit the configuration"):
        bert_tf.BertTextClassifier.from_pretrained(tmp_path)


def test_keras_files(tmp_path):
    backbone = backbone_of("elmo")
    backbone.save(tmp_path / "encoder.keras")
    again = keras.models.load_model(tmp_path / "encoder.keras")
    outputs = [model({"token_ids": IDS})["sequence_output"] for model in (backbone, again)]
    np.testing.assert_array_equal(*outputs)


def test_a_file_names_a_backbone_that_is_registered(tmp_path):
    backbone_of("elmo").save_pretrained(tmp_path)
    again = bert_tf.BertBackbone.from_pretrained(tmp_path)
    assert type(again) is BaselineBackbone and again.config.kind == "elmo"
    path = tmp_path / "bert_tf.json"
    for name in ("bert_tf>BertEncoder", "theirs>Backbone"):
        path.write_text(path.read_text().replace("bert_tf>BaselineBackbone", name))
        with pytest.raises(CheckpointError, match="`backbone` in .* Import the module"):
            bert_tf.BertBackbone.from_pretrained(tmp_path)
        path.write_text(path.read_text().replace(name, "bert_tf>BaselineBackbone"))


@pytest.mark.full
def test_a_frozen_encoder_under_a_weighted_sum(tmp_path):
    model = bert_tf.BertTextClassifier(
        backbone_of("elmo"), num_classes=2, use_scalar_mix=True, pooling="max", dropout=0.0
    )
    bert_tf.training.freeze_layers(model, -1)
    frozen = [*model.backbone.embeddings.weights, *model.backbone.encoder.weights]
    before = [weight.numpy() for weight in frozen]
    model.compile(bert_tf.training.AdamWeightDecay(0.05, bias_correction=True))
    losses = model.fit({"token_ids": IDS}, np.array([0, 1]), epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    for weight, values in zip(frozen, before, strict=True):
        np.testing.assert_array_equal(weight, values)
    expected = model.predict({"token_ids": IDS}, verbose=0)
    model.save_pretrained(tmp_path)
    again = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    np.testing.assert_array_equal(again.scalar_mix.scalars, model.scalar_mix.scalars)
    np.testing.assert_array_equal(again.predict({"token_ids": IDS}, verbose=0), expected)


def test_the_default_layer_of_word_vectors():
    assert bert_tf.BertFeatureExtractor(backbone_of("word_vectors")).layer_indices == [-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hidden_layers": 2}, "`num_hidden_layers` must be 0 for kind='word_vectors'"),
        ({"kind": "nnlm", "num_hidden_layers": 1}, "`context_size` must be a number"),
        ({"context_size": 3}, "`context_size` must be None"),
        ({"kind": "elmo", "num_hidden_layers": 1, "hidden_size": 9}, "`hidden_size` must be even"),
        ({"causal": True}, "`causal` must be False for an encoder before BERT"),
        ({"num_attention_heads": 2}, "`num_attention_heads` must be 1"),
    ],
)
def test_wrong_sizes_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        BaselineConfig(**{**SIZES, **options})


def test_what_needs_the_encoder_of_bert_is_refused():
    with pytest.raises(UserError, match="`gradient_checkpointing` must be False"):
        backbone_of("word_vectors", gradient_checkpointing=True)
    backbone = backbone_of("nnlm")
    with pytest.raises(UserError, match="`output_attentions` must be left out"):
        backbone({"token_ids": IDS}, output_attentions=True)
    with pytest.raises(UserError, match="`sequence_ids` must be left out"):
        backbone({"token_ids": IDS, "sequence_ids": np.ones_like(IDS)})
    model = bert_tf.BertTextClassifier(backbone, num_classes=2)
    for change in (
        lambda: model.enable_lora(rank=2),
        lambda: model.quantize("int8"),
        lambda: model.prune_heads({0: [0]}),
        model.prepack_for_inference,
    ):
        with pytest.raises(UserError, match="must be a `BertBackbone` to be"):
            change()


def weights_of(layer):
    return [weight.numpy() for weight in layer.weights]


def softmax_loss(logits, ids):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return np.log(np.exp(logits).sum(axis=-1)) - np.take_along_axis(logits, ids[:, None], 1)[:, 0]


def loss_of(model):
    model.compile(bert_tf.training.AdamWeightDecay(1e-3))
    tokens = {"token_ids": tf.constant(IDS)}
    return model.evaluate(tokens, model.labels_of(tokens), verbose=0, return_dict=True)["loss"]


def test_neural_language_model_against_numpy():
    backbone = backbone_of("nnlm")
    model = NeuralLanguageModel(backbone)
    (table,), (kernel, bias) = weights_of(backbone.embeddings), weights_of(backbone.encoder)
    (output, output_bias), (direct,) = weights_of(model.output_layer), weights_of(model.direct)
    losses = []
    for row in ([5, 6, 7, 8, 9, 10], [11, 12, 13]):
        for place, following in enumerate(row[1:]):
            words = [table[row[place - k]] if k <= place else np.zeros(8) for k in range(3)]
            x = np.concatenate(words).astype(np.float64)
            logits = output_bias + x @ direct + np.tanh(x @ kernel + bias) @ output
            losses.append(softmax_loss(logits[None], np.array([following]))[0])
    assert loss_of(model) == pytest.approx(np.mean(losses), abs=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_lstm(inputs, kernel, recurrent, bias):
    """Hochreiter and Schmidhuber 1997 with forget gates; the order of the gates is i, f, c, o."""
    units = recurrent.shape[0]
    hidden, cell, outputs = np.zeros(units), np.zeros(units), []
    for x in inputs:
        i, f, c, o = np.split(x @ kernel + hidden @ recurrent + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        hidden = sigmoid(o) * np.tanh(cell)
        outputs.append(hidden)
    return np.array(outputs)


def test_bidirectional_language_model_against_numpy():
    backbone = backbone_of("elmo")
    model = BidirectionalLanguageModel(backbone)
    (table,), (output, output_bias) = (
        weights_of(backbone.embeddings),
        weights_of(model.output_layer),
    )
    losses = []
    for row in ([5, 6, 7, 8, 9, 10], [11, 12, 13]):
        for name, ids in (("forward", row), ("backward", row[::-1])):
            states = table[ids].astype(np.float64)
            for index, block in enumerate(backbone.encoder.blocks):
                hidden = numpy_lstm(states, *weights_of(getattr(block, name)))
                kernel, bias = weights_of(getattr(block, f"{name}_projection"))
                projected = hidden @ kernel + bias
                states = projected + states if index else projected
            losses += softmax_loss(states[:-1] @ output + output_bias, np.array(ids[1:])).tolist()
    assert loss_of(model) == pytest.approx(np.mean(losses), abs=1e-5)


def test_what_shows_attention_is_refused(tmp_path):
    tokenizer = bert_tf.BertTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", *map(str, range(24))]
    )
    options = {"num_classes": 2, "pooling": "mean", "tokenizer": tokenizer}
    model = bert_tf.BertTextClassifier(backbone_of("elmo"), **options)
    with pytest.raises(UserError, match="`output_attentions` must be left out"):
        bert_tf.inspection.inspect_text(model, "good")
    watch = TensorBoardHistograms(tmp_path, ["good"])
    watch.set_model(model)
    with pytest.raises(UserError, match="`output_attentions` must be left out"):
        watch.on_train_begin()
