"""BertEncoderDecoder: its loss, its beginning with two checkpoints, its files, wrong input."""

import dataclasses
import json
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertEncoderDecoder, BertMaskedLM, BertTokenizer
from bert_tf.adapt import set_sinusoidal_positions
from bert_tf.checkpoints import convert
from bert_tf.checkpoints.conversion import largest_difference
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.tasks.encoder_decoder.preprocessor import shifted
from bert_tf.training import SparseCrossentropy
from bert_tf.training.fit_data import text_batches

PAIRS = (["good film", "the bad film.", "a b c"], ["the good film", "bad", "c b a . a"])
IDS = np.array([[5]], np.int32)


@pytest.fixture(scope="module")
def one_block(tiny_config):
    return dataclasses.replace(
        tiny_config, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )


@pytest.fixture(scope="module")
def make_model(one_block, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)

    def make(**options):
        keras.utils.set_random_seed(3)
        model = BertEncoderDecoder(BertBackbone(one_block), **{"tokenizer": tokenizer, **options})
        source = np.random.default_rng(0)
        for weight in model.weights:
            weight.assign(weight + source.normal(0.0, 0.3, weight.shape))
        return model

    return make


@pytest.fixture(scope="module")
def model(make_model):
    """One that no test changes."""
    return make_model(max_target_length=6)


@pytest.fixture(scope="module")
def bert(one_block, tmp_path_factory):
    """The directory of a BERT with its masked-LM head."""
    keras.utils.set_random_seed(5)
    model = BertMaskedLM(BertBackbone(one_block))
    model.masked_lm_head.output_bias.assign(tf.range(64.0))
    directory = tmp_path_factory.mktemp("bert")
    model.save_pretrained(directory)
    return directory


def targets_of(model):
    """The targets' words and their ends `[B, T]`, and which are real: cut by hand to 6 tokens."""
    tokens = [model.tokenizer.pieces(text) for text in PAIRS[1]]
    tokens = [[*pieces[:4], "[SEP]"] for pieces in tokens]
    ids = np.full([len(tokens), max(map(len, tokens))], -100)
    for row, pieces in enumerate(tokens):
        ids[row, : len(pieces)] = [model.tokenizer.vocabulary.index(piece) for piece in pieces]
    return ids


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_loss_and_metrics_of_the_real_words(model, label_smoothing):
    """That of `torch.nn.CrossEntropyLoss(label_smoothing=…)` on the weighted words."""
    ids, weights = targets_of(model), np.array([1.0, 0.5, 2.0], np.float32)
    loss = SparseCrossentropy(label_smoothing) if label_smoothing else "auto"
    model.compile("sgd", loss=loss, run_eagerly=True)
    is_real = ids >= 0
    logits = np.float64(model.predict(PAIRS, verbose=0))
    assert logits.shape == (*ids.shape, 64) and not logits[~is_real].any()
    log_p = (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[is_real]  # [M, V]
    of_words = -log_p[np.arange(len(log_p)), ids[is_real]]
    smoothed = (1 - label_smoothing) * of_words - label_smoothing * log_p.mean(axis=-1)
    word_weights = np.broadcast_to(weights[:, np.newaxis], ids.shape)[is_real]
    logs = model.evaluate(PAIRS, sample_weight=weights, verbose=0, return_dict=True)
    hits = log_p.argmax(axis=-1) == ids[is_real]
    expected = {
        "loss": np.average(smoothed, weights=word_weights),
        "accuracy": np.average(hits, weights=word_weights),
        "perplexity": np.exp(np.average(of_words, weights=word_weights)),
    }
    assert logs == pytest.approx(expected, rel=1e-5)


def test_other_special_tokens(make_model):
    """The start of the decoder and the end of a target need not be [CLS] and [SEP]."""
    model = make_model(decoder_start_token_id=60, eos_token_id=61)
    columns = model.preprocessor.read(PAIRS)
    tokens, labels = next(iter(text_batches(model.preprocessor, columns)))
    ids, mask = tokens["decoder_token_ids"].numpy(), tokens["decoder_padding_mask"].numpy()
    assert (ids[:, 0] == 60).all()
    for row, known, words in zip(ids, mask, labels.numpy()):
        np.testing.assert_array_equal(row[known][1:], words[known][:-1])
        assert words[known][-1] == 61 and (words[~known] == -100).all()


def test_no_pairs(model):
    assert model.predict(([], []), verbose=0).shape == (0, 1, 64)


def test_target_after_its_start():
    targets = {"token_ids": tf.constant([[2, 7, 8, 3], [2, 9, 3, 0], [2, 3, 0, 0]])}
    targets["padding_mask"] = targets["token_ids"] > 0
    decoder = shifted(targets, start_token_id=5)
    np.testing.assert_array_equal(decoder["decoder_token_ids"], [[5, 7, 8], [5, 9, 0], [5, 0, 0]])
    mask = decoder["decoder_padding_mask"].numpy()
    np.testing.assert_array_equal(mask.sum(axis=1), [3, 2, 1])


def values_of(layer):
    return [weight.numpy() for weight in layer.weights]


@pytest.mark.parametrize("is_shared", [False, True])
def test_beginning_with_two_checkpoints(bert, is_shared, caplog):
    with caplog.at_level(logging.WARNING, "bert_tf"):
        model = BertEncoderDecoder.from_encoder_decoder_pretrained(
            bert, bert, share_encoder_decoder_weights=is_shared
        )
    assert "New are its cross-attention." in caplog.text
    assert model.untrained_heads == ("cross-attention",)
    bert = BertMaskedLM.from_pretrained(bert)
    backbone, decoder = model.backbone, model.decoder
    parts = [
        (backbone.embeddings, bert.backbone.embeddings),
        (backbone.encoder, bert.backbone.encoder),
        (decoder.embeddings, bert.backbone.embeddings),
        (decoder.blocks[0].block, bert.backbone.encoder.blocks[0]),
        (decoder.head, bert.masked_lm_head),
    ]
    for mine, theirs in parts:
        for one, other in zip(values_of(mine), values_of(theirs), strict=True):
            np.testing.assert_array_equal(one, other)
    layer_norm = decoder.blocks[0].cross_attention_layer_norm
    assert (layer_norm.gamma.numpy() == 1).all() and (layer_norm.beta.numpy() == 0).all()
    cross = {"cross_attention": 4, "cross_attention_output": 2, "cross_attention_layer_norm": 2}
    shared = 0 if is_shared else len(bert.backbone.embeddings.weights + backbone.encoder.weights)
    new = sum(cross.values()) + shared + len(decoder.head.weights)
    assert len(model.weights) == len(bert.backbone.weights) + new


def test_a_decoder_without_a_head(bert, one_block, tmp_path, caplog):
    BertBackbone(one_block).save_pretrained(tmp_path)
    model = BertEncoderDecoder.from_encoder_decoder_pretrained(
        bert, tmp_path, tie_word_embeddings=False
    )
    new = ("cross-attention", "masked-LM head", "output embeddings")
    assert model.untrained_heads == new and " and ".join(new) in caplog.text


def test_the_encoder_and_the_keys_of_its_file(model, tmp_path):
    """Its encoder is opened alone; keys that are not read are written back."""
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "num_beams": 4, "dtype": "float32"}))
    encoder = BertBackbone.from_pretrained(tmp_path)
    for one, other in zip(values_of(encoder), values_of(model.backbone), strict=True):
        np.testing.assert_array_equal(one, other)
    BertEncoderDecoder.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert json.loads(path.read_text())["num_beams"] == 4


def test_converted(model, tmp_path):
    """`tools/convert_checkpoint.py` recognizes the model and compares its outputs."""
    model.save_pretrained(tmp_path / "huggingface")
    conversion = convert(tmp_path / "huggingface", tmp_path / "own", "bert_tf")
    assert type(conversion.model) is BertEncoderDecoder
    opened = BertEncoderDecoder.from_pretrained(tmp_path / "own")
    assert largest_difference(opened, model) == 0.0


def test_sinusoidal_positions(make_model):
    model = make_model()
    set_sinusoidal_positions(model)
    position, column = 7, 10
    for part in (model.backbone, model.decoder):
        table = part.embeddings.position_embeddings
        assert table.numpy()[position, column] == pytest.approx(np.sin(7 / 10000 ** (10 / 32)))
        assert table.numpy()[position, column + 1] == pytest.approx(np.cos(7 / 10000 ** (10 / 32)))
        assert not any(variable is table for variable in model.trainable_variables)


def test_heads_of_shared_blocks_stay(make_model):
    with pytest.raises(UserError, match="`share_encoder_decoder_weights` must be False"):
        make_model(share_encoder_decoder_weights=True).prune_heads({0: [1]})


@pytest.mark.parametrize(
    "part, change, message",
    [
        ("decoder", {"is_decoder": False}, "`decoder.is_decoder` .* must be true"),
        ("decoder", {"add_cross_attention": None}, "`decoder.add_cross_attention`"),
        ("decoder", {"model_type": "gpt2"}, "config.json, decoder: `model_type` must be 'bert'"),
        ("decoder", {"num_hidden_layers": 10**6}, "`num_hidden_layers` must be at most"),
        ("decoder", {"vocab_size": 10**8}, "must fit the configuration"),
        ("encoder", {"hidden_size": "x"}, "`encoder.hidden_size`"),
    ],
)
def test_files_of_other_networks(model, tmp_path, part, change, message):
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config[part].update(change)
    path.write_text(json.dumps(config))
    with pytest.raises((ConfigError, CheckpointError), match=message):
        BertEncoderDecoder.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_target_length": 2}, r"`max_target_length` must be in \[3, 40\]"),
        ({"eos_token_id": 64}, r"`eos_token_id` must be in \[0, 64\)"),
        ({"decoder": {"hidden_size": 16}}, "`decoder_config.hidden_size` must be the encoder's"),
        ({"decoder": {"attention_window": 4}}, "must have full attention"),
        ({"decoder": {"vocab_size": 80}}, "as many entries as the decoder's word embeddings"),
        (
            {"decoder": {"hidden_act": "relu"}, "share_encoder_decoder_weights": True},
            "must be the encoder's with share.*hidden_act=relu and gelu",
        ),
        (
            {"decoder": {"causal": True}, "share_encoder_decoder_weights": True},
            "must be the encoder's with share.*causal=True and False",
        ),
    ],
)
def test_decoders_that_do_not_fit(make_model, one_block, options, message):
    options = dict(options)
    changes = options.pop("decoder", None)
    if changes is not None:
        options["decoder_config"] = dataclasses.replace(one_block, **changes)
    with pytest.raises(UserError, match=message):
        make_model(**options)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: model.fit(PAIRS, [1, 2, 3]), "`y` must be None with text"),
        (lambda model: model.fit(PAIRS[0]), "must have 2 texts"),
        (lambda model: model({"token_ids": IDS}), "must hold `decoder_token_ids`"),
        (
            lambda model: model({"token_ids": IDS, "decoder_token_ids": np.tile(IDS, [2, 1])}),
            "`decoder_token_ids` must have as many rows as `token_ids`.* 2, 1",
        ),
        (
            lambda model: model({"decoder_token_ids": IDS, "token_ids": IDS, "sequence_ids": IDS}),
            "must not hold `sequence_ids`",
        ),
        (lambda model: model.compile(metrics=["mse"]), "`metrics` must be left out"),
        (lambda model: model.compile(loss="mse"), "must be a bert_tf.training.SparseCrossentropy"),
    ],
)
def test_wrong_input(model, call, message):
    model.compile("sgd", run_eagerly=True)
    with pytest.raises(UserError, match=message):
        call(model)


@pytest.mark.peers
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("decoder_class", ["BertConfig", "BertGenerationConfig"])
@pytest.mark.parametrize("encoder_class", ["BertConfig", "BertGenerationConfig"])
def test_transformers_reads_and_writes_it(
    tiny_config, encoder_class, decoder_class, is_tied, tmp_path
):
    """Two layers and three, all weights at random; the loss is that of PyTorch, too."""
    import torch
    import transformers

    same = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")
    config = {name: getattr(tiny_config, name) for name in same} | {"max_position_embeddings": 24}
    encoder = getattr(transformers, encoder_class)(num_hidden_layers=2, **config)
    decoder = getattr(transformers, decoder_class)(
        **{**config, "vocab_size": 50, "hidden_act": "gelu_new"},
        num_hidden_layers=3,
        tie_word_embeddings=is_tied,
    )
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 2, 0
    torch.manual_seed(0)
    theirs = transformers.EncoderDecoderModel(config=config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path / "theirs")
    source, shape, decoder_shape = np.random.default_rng(1), (3, 9), (3, 7)
    tokens = {
        "token_ids": source.integers(1, 64, shape),
        "segment_ids": source.integers(0, 2, shape),
        "padding_mask": np.arange(9) < np.array([[9], [4], [6]]),
        "decoder_token_ids": source.integers(1, 50, decoder_shape),
        "decoder_padding_mask": np.arange(7) < np.array([[7], [2], [5]]),
    }
    labels = np.where(tokens["decoder_padding_mask"], source.integers(0, 50, decoder_shape), -100)
    names = ("input_ids", "token_type_ids", "attention_mask")
    names += ("decoder_input_ids", "decoder_attention_mask")

    def computed(directory):
        """Their logits in float64, zeros for padding, and the smoothed loss."""
        model = transformers.EncoderDecoderModel.from_pretrained(directory).eval().double()
        with torch.no_grad():
            values = (torch.tensor(values) for values in tokens.values())
            logits = model(**dict(zip(names, values, strict=True))).logits
        loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
        loss = loss(logits.reshape(-1, 50), torch.tensor(labels).reshape(-1))
        return np.where(labels[..., np.newaxis] < 0, 0, logits.numpy()), float(loss)

    logits, loss = computed(tmp_path / "theirs")
    model = BertEncoderDecoder.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(model(tokens), logits, atol=1e-5)
    model.compile("sgd", loss=SparseCrossentropy(label_smoothing=0.1))
    assert model.test_on_batch(tokens, labels, return_dict=True)["loss"] == pytest.approx(
        loss, rel=1e-5
    )
    model.save_pretrained(tmp_path / "ours")
    np.testing.assert_allclose(computed(tmp_path / "ours")[0], logits, atol=1e-12)
