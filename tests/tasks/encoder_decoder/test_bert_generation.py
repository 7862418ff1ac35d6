"""Encoder-decoder models of BERT-generation: the network, its files, other models with it."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_tf import BertBackbone, BertConfig, BertEncoderDecoder, BertTextClassifier
from bert_tf.checkpoints.conversion import largest_difference
from bert_tf.errors import CheckpointError, ConfigError, UserError

GENERATION = "bert-generation"
IDS = np.array([[5, 6, 7]], np.int32)


@pytest.fixture(scope="module")
def bert(tiny_config):
    return dataclasses.replace(
        tiny_config, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )


@pytest.fixture(scope="module")
def generation(bert):
    return dataclasses.replace(bert, type_vocab_size=0)


def shifted(model):
    """The model with other weights than the initial ones, of which many are 0 or 1."""
    source = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + source.normal(0.0, 0.3, weight.shape))
    return model


@pytest.fixture(scope="module")
def model(generation):
    """One that no test changes, without a tokenizer."""
    keras.utils.set_random_seed(3)
    return shifted(BertEncoderDecoder(BertBackbone(generation), eos_token_id=3))


@pytest.fixture(scope="module")
def untied(bert, generation):
    """The encoder of BERT, a decoder of BERT-generation."""
    keras.utils.set_random_seed(4)
    options = {"decoder_config": generation, "tie_word_embeddings": False}
    return shifted(BertEncoderDecoder(BertBackbone(bert), **options))


@pytest.fixture(scope="module")
def of_bert_decoder(bert, generation):
    keras.utils.set_random_seed(5)
    return shifted(BertEncoderDecoder(BertBackbone(generation), decoder_config=bert))


@pytest.fixture(scope="module")
def directory(model, tmp_path_factory):
    """The files of `model`, without what only this package writes."""
    path = tmp_path_factory.mktemp("generation")
    model.save_pretrained(path)
    change_config(path, lambda config: config.pop("bert_tf"))
    return path


@pytest.fixture(scope="module")
def single_decoder(untied, tmp_path_factory):
    """What `BertGenerationDecoder.save_pretrained` of transformers writes of the decoder."""
    path = tmp_path_factory.mktemp("decoder")
    untied.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())["decoder"]
    (path / "config.json").write_text(json.dumps(config))
    tensors = load_file(path / "model.safetensors")
    decoder = {name: tensors[name] for name in tensors if name.startswith("decoder.")}
    decoder = {name.removeprefix("decoder."): values for name, values in decoder.items()}
    decoder["lm_head.bias"] = np.zeros_like(decoder["lm_head.bias"])  # not used
    save_file(decoder, path / "model.safetensors", metadata={"format": "pt"})
    return path


def change_config(path, change):
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))


def test_the_network(model):
    """Segment ids are not read, and the logits are products with the word embeddings."""
    tokens = {"token_ids": IDS, "decoder_token_ids": IDS}
    logits = model(tokens)
    np.testing.assert_array_equal(model({**tokens, "segment_ids": IDS}), logits)
    ones = np.ones_like(IDS, bool)
    memory, memory_mask = model.memory_of({"token_ids": IDS})
    vectors, _ = model.decoder(IDS, padding_mask=ones, memory=memory, memory_mask=memory_mask)
    words, bias = model.decoder.embeddings.word_embeddings, model.decoder.head.output_bias
    expected = vectors.numpy() @ words.numpy().T + bias.numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    both = len(model.backbone.embeddings.weights + model.backbone.encoder.weights)
    assert len(model.decoder.weights) == both + 8 + 1  # the cross-attention and the bias


@pytest.mark.parametrize(
    "name, format",
    [
        ("model", "huggingface"),
        ("model", "bert_tf"),
        ("untied", "huggingface"),
        ("untied", "keras"),
        ("of_bert_decoder", "huggingface"),
    ],
)
def test_written_and_opened(name, format, request, tmp_path):
    model = request.getfixturevalue(name)
    path = tmp_path / "model.keras" if format == "keras" else tmp_path
    model.save(path) if format == "keras" else model.save_pretrained(path, format=format)
    opened = BertEncoderDecoder.from_pretrained(path)
    assert opened.get_config()["tie_word_embeddings"] == model.tie_word_embeddings
    assert opened.eos_token_id == model.eos_token_id
    assert largest_difference(opened, model) == 0.0


def test_names_in_hugging_faces_files(model, untied, of_bert_decoder, tmp_path):
    types = {}
    for index, one in enumerate((model, untied, of_bert_decoder)):
        one.save_pretrained(tmp_path / str(index))
        config = json.loads((tmp_path / str(index) / "config.json").read_text())
        sides = (config["encoder"], config["decoder"])
        assert all((s["model_type"] == "bert") == ("type_vocab_size" in s) for s in sides)
        types[index] = [side["model_type"] for side in sides]
    assert types == {0: [GENERATION] * 2, 1: ["bert", GENERATION], 2: [GENERATION, "bert"]}
    tensors, of_untied = (load_file(tmp_path / name / "model.safetensors") for name in "01")
    heads = [name for name in of_untied if "lm_head" in name]
    assert {name.removeprefix("decoder.lm_head.") for name in heads} == {
        *("bias", "decoder.bias", "decoder.weight")
    }
    assert [name for name in tensors if "lm_head" in name] == ["decoder.lm_head.bias"]
    assert not any("cls." in name or "token_type" in name for name in tensors)


def test_defaults_of_its_configuration(tmp_path):
    """Those of `BertGenerationConfig`; a number of segments in the file means nothing."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": GENERATION, "type_vocab_size": 2, "hidden_size": 64}))
    config = BertConfig.from_json_file(path)
    expected = BertConfig.large(vocab_size=50358, type_vocab_size=0, hidden_size=64)
    expected_extra = {"bos_token_id": 2, "eos_token_id": 1}
    assert config == dataclasses.replace(expected, extra=expected_extra)
    assert config.to_huggingface()["model_type"] == config.model_type == GENERATION


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, (2, 3)),  # the file names the end of a target
        ({"decoder_start_token_id": 9, "eos_token_id": None}, (9, 1)),
        ({"eos_token_id": None, "decoder": {"bos_token_id": 7, "eos_token_id": 8}}, (7, 8)),
    ],
)
def test_special_tokens_of_the_decoder(directory, changes, expected, tmp_path):
    def change(config):
        config["decoder"].update(changes.get("decoder", {}))
        config.update({name: changes[name] for name in changes if name != "decoder"})

    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    change_config(tmp_path, change)
    opened = BertEncoderDecoder.from_pretrained(tmp_path)
    assert (opened.start_token_id, opened.end_token_id) == expected


@pytest.mark.parametrize(
    "part, change, message",
    [
        ("decoder", {"model_type": "bert"}, "missing: decoder.bert.embeddings.token_type"),
        ("encoder", {"model_type": "bert"}, "missing: encoder.embeddings.token_type"),
        ("encoder", {"model_type": "bert", "type_vocab_size": 0}, "`type_vocab_size` must be pos"),
        ("decoder", {"model_type": "roberta"}, "`model_type` must be 'bert' or 'bert-generation'"),
        ("decoder", {"is_decoder": False}, "`decoder.is_decoder` .* must be true"),
        ("decoder", {"tie_word_embeddings": False}, "missing: decoder.lm_head.decoder.weight"),
        ("decoder", {"eos_token_id": [1, "2"]}, r"`decoder.eos_token_id\[1\]` .* must be an int"),
        ("decoder", {"hidden_act": "mish"}, "`decoder.hidden_act` .* must be one of"),
        ("decoder", {"vocab_size": 65}, r"decoder.lm_head.bias: expected shape \[65\], rec"),
    ],
)
def test_files_that_do_not_fit(directory, part, change, message, tmp_path):
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    change_config(tmp_path, lambda config: config[part].update(change))
    with pytest.raises((ConfigError, CheckpointError), match=message):
        BertEncoderDecoder.from_pretrained(tmp_path)


def test_beginning_with_two_checkpoints(untied, single_decoder, generation, tmp_path):
    """The decoder's checkpoint has a cross-attention and an output, as it may be here."""
    BertBackbone(generation).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertGenerationEncoder"]
    begin = BertEncoderDecoder.from_encoder_decoder_pretrained
    whole = begin(tmp_path, single_decoder, tie_word_embeddings=False)
    assert whole.untrained_heads == () and whole.backbone.config.model_type == GENERATION
    for one, other in zip(whole.decoder.weights, untied.decoder.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    new = begin(single_decoder, tmp_path)
    assert new.untrained_heads == ("cross-attention", "output bias")
    words = untied.decoder.embeddings.word_embeddings
    np.testing.assert_array_equal(new.backbone.embeddings.word_embeddings, words)
    with pytest.raises(ConfigError, match="`is_decoder` must be False"):
        BertBackbone.from_pretrained(single_decoder)


def test_formats_without_such_a_network(model, generation, tmp_path):
    with pytest.raises(UserError, match="must be 'huggingface' or 'bert_tf' .*format='tf1'"):
        model.save_pretrained(tmp_path, format="tf1")
    classifier = BertTextClassifier(BertBackbone(generation), num_classes=2)
    for format in ("huggingface", "tf1"):
        with pytest.raises(UserError, match="must be 'bert_tf' for a BertTextClassifier"):
            classifier.save_pretrained(tmp_path, format=format)
    assert not list(tmp_path.iterdir())
    classifier.save_pretrained(tmp_path, format="bert_tf")
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert largest_difference(opened, classifier) == 0.0


@pytest.mark.peers
@pytest.mark.parametrize("decoder", ["generation", "untied generation", "bert"])
@pytest.mark.parametrize("encoder", ["encoder", "decoder", "bert"])
def test_transformers_begins_alike(encoder, decoder, tmp_path):
    """The decoders have a cross-attention, so that no weight is new."""
    import torch
    import transformers

    size = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    size.update(intermediate_size=48, max_position_embeddings=24)
    writes = {"is_decoder": True, "add_cross_attention": True}
    bert, generation = transformers.BertConfig, transformers.BertGenerationConfig
    encoders = {
        "encoder": (transformers.BertGenerationEncoder, generation(**size)),
        "decoder": (transformers.BertGenerationDecoder, generation(**size, is_decoder=True)),
        "bert": (transformers.BertModel, bert(**size)),
    }
    untied = generation(**size, **writes, tie_word_embeddings=False)
    decoders = {
        "generation": (transformers.BertGenerationDecoder, generation(**size, **writes)),
        "untied generation": (transformers.BertGenerationDecoder, untied),
        "bert": (transformers.BertLMHeadModel, bert(**size, **writes)),
    }
    torch.manual_seed(0)
    paths = [str(tmp_path / "encoder"), str(tmp_path / "decoder")]
    for path, (kind, config) in zip(paths, (encoders[encoder], decoders[decoder]), strict=True):
        side = kind(config)
        with torch.no_grad():
            for parameter in side.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        side.save_pretrained(path)
    theirs = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(*paths)
    is_tied = decoder != "untied generation"
    ours = BertEncoderDecoder.from_encoder_decoder_pretrained(*paths, tie_word_embeddings=is_tied)
    assert ours.untrained_heads == ()
    ours.save_pretrained(tmp_path / "ours")
    source = np.random.default_rng(1)
    ids, decoder_ids = source.integers(3, 50, (3, 9)), source.integers(3, 50, (3, 7))
    logits = ours({"token_ids": ids, "decoder_token_ids": decoder_ids})
    written = transformers.EncoderDecoderModel.from_pretrained(tmp_path / "ours")
    for one in (theirs, written):
        one = one.eval().double()
        with torch.no_grad():
            values = (torch.tensor(values) for values in (ids, decoder_ids))
            expected = one(**dict(zip(("input_ids", "decoder_input_ids"), values))).logits
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5)
