"""Every format opens by looking, with the right numbers, heads included."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertConfig,
    BertMaskedLM,
    BertPretrainer,
    BertSentenceEncoder,
    BertTextClassifier,
    BertTokenizer,
)
from bert_tf.checkpoints import hub, load_task_model, save_model
from bert_tf.checkpoints.conversion import build_recognised, servable_class
from bert_tf.checkpoints.opening import format_of, open_pretrained
from bert_tf.checkpoints.weight_names import all_weights
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.text import SubwordTokenizer, load_tokenizer
from tests.checkpoints import foreign
from tests.checkpoints.module_folders import move_encoder
from tests.numpy_bert import NumpyBert


def write(format, directory, tensors, **changes):
    """A checkpoint of one format; returns what `from_pretrained` is given."""
    if format == "safetensors":
        foreign.write_huggingface(directory, foreign.with_prefix(tensors), **changes)
    elif format == "sharded safetensors":
        write_shards(directory, foreign.with_prefix(tensors), **changes)
    elif format == "torch":
        foreign.write_config(directory, **changes)
        foreign.write_torch(directory / "pytorch_model.bin", foreign.with_prefix(tensors))
    elif format == "legacy torch":
        foreign.write_config(directory, **changes)
        foreign.write_legacy_torch(directory / "pytorch_model.bin", tensors)
    elif format == "tf h5":
        foreign.write_tf_h5(directory, tensors, **changes)
    elif format == "tf safetensors":
        foreign.write_config(directory, **changes)
        variables = foreign.tf_variables(tensors)
        foreign.write_tf_file(directory / "model.safetensors", variables)
    elif format.startswith("sharded tf "):
        foreign.write_tf_shards(directory, tensors, format.split()[-1], **changes)
    elif format == "tf1":
        foreign.write_tf1(directory, tensors, **changes)
    elif format == "tf models":
        prefix = foreign.write_tf_models(directory / "ckpt-1", tensors)
        if changes:  # a file with the configuration is no part of the format
            foreign.write_google_config(directory, **changes)
        return prefix
    elif format == "keras_hub":
        foreign.write_keras_hub(directory, tensors=tensors)
    elif format == "own":
        foreign.write_huggingface(directory / "first", foreign.with_prefix(tensors), **changes)
        save_model(build_and_load(directory / "first"), directory / "own", "bert_tf")
        return directory / "own"
    elif format == "keras":
        foreign.write_huggingface(directory, foreign.with_prefix(tensors), **changes)
        BertBackbone.from_pretrained(directory).save(directory / "model.keras")
        return directory / "model.keras"
    elif format == "weights.h5":
        foreign.write_huggingface(directory, tensors, **changes)
        BertBackbone.from_pretrained(directory).save_weights(directory / "model.weights.h5")
        (directory / "model.safetensors").unlink()
        return directory / "model.weights.h5"
    return directory


def build_and_load(path):
    from bert_tf.checkpoints.assignment import assign_weights
    from bert_tf.checkpoints.loading import weights_of

    pretrained = open_pretrained(path)
    model = build_recognised(pretrained)
    assign_weights(pretrained.source, weights_of(model, pretrained))
    return model


def write_shards(directory, tensors, **changes):
    from safetensors.numpy import save_file

    foreign.write_config(directory, **changes)
    names = sorted(tensors)
    shards = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, directory / file)
    index = {name: file for file, part in shards.items() for name in part}
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )


def reference_weights(tensors, directory):
    """Our variables, by name, loaded from the plainest of all files."""
    foreign.write_huggingface(directory, tensors)
    return values_of(BertBackbone.from_pretrained(directory))


def values_of(model):
    return {weight.name: np.asarray(weight.variable.numpy()) for weight in all_weights(model)}


def assert_same_values(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


FORMATS = (
    "safetensors",
    "sharded safetensors",
    "torch",
    "legacy torch",
    "tf h5",
    "tf safetensors",
    "sharded tf h5",
    "sharded tf safetensors",
    "tf1",
    "tf models",
    "own",
    "keras",
    "weights.h5",
    "keras_hub",
)


@pytest.mark.parametrize("format", FORMATS)
def test_opens_bit_for_bit(format, tmp_path):
    tensors = foreign.random_tensors()
    path = write(format, tmp_path / "checkpoint", tensors)
    opened = BertBackbone.from_pretrained(path)
    assert_same_values(values_of(opened), reference_weights(tensors, tmp_path / "plain"))
    assert opened.config.num_attention_heads == 3


@pytest.mark.parametrize(
    "format", ["safetensors", "torch", "tf h5", "sharded tf h5", "tf1", "tf models", "own"]
)
def test_heads(format, tmp_path):
    heads = ("masked_lm", "next_sentence")
    tensors = foreign.random_tensors(heads=heads)
    changes = {} if format == "tf1" else {"architectures": ["BertForPreTraining"]}
    path = write(format, tmp_path, tensors, **changes)
    model = load_task_model(BertPretrainer, path)
    np.testing.assert_array_equal(model.masked_lm_head.output_bias, tensors["cls.predictions.bias"])
    np.testing.assert_array_equal(
        model.masked_lm_head.transform.kernel, tensors["cls.predictions.transform.dense.weight"].T
    )
    if format != "tf models":  # its pre-training models have another next-sentence head
        np.testing.assert_array_equal(
            model.next_sentence.kernel, tensors["cls.seq_relationship.weight"].T
        )
        assert type(build_recognised(open_pretrained(path))) is BertPretrainer


@pytest.mark.parametrize("format", ["safetensors", "tf h5", "tf1", "own"])
def test_classifier(format, tmp_path):
    tensors = foreign.random_tensors(heads=["classifier"])
    changes = {} if format == "tf1" else {"architectures": ["BertForSequenceClassification"]}
    model = BertTextClassifier.from_pretrained(write(format, tmp_path, tensors, **changes))
    assert model.num_classes == 3  # found by looking: no id2label in these files
    np.testing.assert_array_equal(model.classifier.kernel, tensors["classifier.weight"].T)
    inputs = foreign.token_inputs([7, 5], 7)
    exact = NumpyBert(
        *write_plain(tmp_path / "plain", tensors),
        activation=("gelu_new" if format == "tf1" else "gelu"),
    )
    pooled = exact(**inputs)[1]
    expected = pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    np.testing.assert_allclose(model(inputs), expected, atol=1e-5)


def write_plain(directory, tensors):
    foreign.write_huggingface(directory, tensors)
    return (directory,)


def test_token_classifier_is_not_taken_for_a_text_classifier(tmp_path, caplog):
    tensors = foreign.with_prefix(foreign.random_tensors(heads=["classifier"]))
    foreign.write_huggingface(tmp_path, tensors, architectures=["BertForTokenClassification"])
    with caplog.at_level("WARNING", logger="bert_tf"):
        model = BertTextClassifier.from_pretrained(tmp_path)
    assert "BertForTokenClassification" in caplog.text
    assert model.num_classes == 2  # the default, not the three tags of the file


@pytest.mark.parametrize("task", [None, "classifier", "masked_lm"])
def test_keras_hub_preset(task, tmp_path):
    theirs = foreign.write_keras_hub(tmp_path, task)
    assert format_of(tmp_path) == "keras_hub"
    inputs = foreign.token_inputs([9, 6], 9)
    backbone = getattr(theirs, "backbone", theirs)
    expected = backbone({**inputs, "padding_mask": inputs["padding_mask"].astype(np.int32)})
    ours = BertBackbone.from_pretrained(tmp_path)
    assert ours.config.hidden_act == "gelu_new"
    real = inputs["padding_mask"][..., None]
    np.testing.assert_allclose(
        ours(inputs)["sequence_output"], expected["sequence_output"] * real, atol=2e-5
    )
    if task == "classifier":
        model = BertTextClassifier.from_pretrained(tmp_path)
        logits = theirs({**inputs, "padding_mask": inputs["padding_mask"].astype(np.int32)})
        np.testing.assert_allclose(model(inputs), logits, atol=2e-5)
    if task == "masked_lm":
        model = load_task_model(BertPretrainer, tmp_path)
        kernel = theirs.masked_lm_head._intermediate_dense.kernel
        np.testing.assert_array_equal(model.masked_lm_head.transform.kernel, kernel)


def test_keras_hub_embedder(tmp_path):
    import keras_hub

    theirs = foreign.write_keras_hub(tmp_path / "preset")
    embedder = keras_hub.models.BertTextEmbedder(theirs, pooling_mode="max", normalize=True)
    embedder.save_to_preset(str(tmp_path / "embedder"))
    assert servable_class(tmp_path / "embedder") is BertSentenceEncoder
    ours = BertSentenceEncoder.from_pretrained(tmp_path / "embedder")
    assert (ours.pooling, ours.normalize) == ("max", True)
    inputs = foreign.token_inputs([9, 6], 9)
    expected = embedder({**inputs, "padding_mask": inputs["padding_mask"].astype(np.int32)})
    np.testing.assert_allclose(ours(inputs), expected, atol=1e-5)


def test_a_shard_is_missing(tmp_path):
    foreign.write_tf_shards(tmp_path, foreign.random_tensors(), "h5")
    (tmp_path / "tf_model-00002-of-00002.h5").unlink()
    with pytest.raises(CheckpointError, match="tf_model-00002-of-00002.h5, which is missing"):
        BertBackbone.from_pretrained(tmp_path)


def test_bare_keras_hub_weights_and_archives(tmp_path):
    theirs = foreign.write_keras_hub(tmp_path / "preset", "classifier")
    theirs.save_weights(tmp_path / "all.weights.h5")
    theirs.backbone.save_weights(tmp_path / "backbone.weights.h5")
    theirs.save(tmp_path / "all.keras")
    expected = values_of(BertTextClassifier.from_pretrained(tmp_path / "preset"))
    for name in ("all.weights.h5", "all.keras"):
        opened = BertTextClassifier.from_pretrained(tmp_path / name)
        assert_same_values(values_of(opened), expected)
    backbone = BertBackbone.from_pretrained(tmp_path / "backbone.weights.h5")
    assert backbone.config.num_attention_heads == 3
    np.testing.assert_array_equal(backbone.pooler.dense.kernel, expected["pooler.dense.kernel"])


def test_classifier_archive_with_tokenizer(tiny_config, tiny_vocabulary, tmp_path):
    from bert_tf import BertTokenizer

    model = BertTextClassifier(
        BertBackbone(tiny_config),
        labels=["no", "yes"],
        pooling="mean",
        tokenizer=BertTokenizer(tiny_vocabulary),
    )
    model.save(tmp_path / "model.keras")
    opened = BertTextClassifier.from_pretrained(tmp_path / "model.keras")
    assert (opened.labels, opened.pooling) == (["no", "yes"], "mean")
    text = tf.constant(["good film"])
    np.testing.assert_array_equal(opened(text), model(text))


@pytest.mark.parametrize("root", ["encoder", "model"])
def test_object_checkpoint_with_config_beside_it(root, tmp_path):
    tensors = foreign.random_tensors()
    foreign.write_tf_models(tmp_path / "bert_model.ckpt-1", tensors, root=root)
    google = {
        key: value
        for key, value in foreign.HF_CONFIG.items()
        if key not in ("model_type", "architectures", "layer_norm_eps")
    }
    (tmp_path / "bert_config.json").write_text(json.dumps({**google, "hidden_act": "relu"}))
    backbone = BertBackbone.from_pretrained(tmp_path)
    assert backbone.config.hidden_act == "relu"
    np.testing.assert_array_equal(backbone.pooler.dense.kernel, tensors["pooler.dense.weight"].T)


@pytest.mark.parametrize("has_masked_lm", [True, False])
def test_saved_model_of_tf_hub(has_masked_lm, tmp_path):
    tensors = foreign.random_tensors(heads=["masked_lm"] if has_masked_lm else [])
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film"]
    pieces += [f"[unused{number}]" for number in range(foreign.HF_CONFIG["vocab_size"] - 7)]
    directory = foreign.write_tf_hub(tmp_path / "hub", tensors, pieces)
    backbone = BertBackbone.from_pretrained(directory)
    assert backbone.config.hidden_act == "gelu_new"  # as in tensorflow/models
    assert backbone.config.num_attention_heads == foreign.HF_CONFIG["num_attention_heads"]
    np.testing.assert_array_equal(backbone.pooler.dense.kernel, tensors["pooler.dense.weight"].T)
    model = BertMaskedLM.from_pretrained(directory)
    if has_masked_lm:
        bias = tensors["cls.predictions.bias"]
        np.testing.assert_array_equal(model.masked_lm_head.output_bias, bias)
    assert model.tokenize(["GOOD film"])["token_ids"].numpy().tolist() == [[2, 5, 6, 3]]
    assert BertTokenizer.from_pretrained(directory).vocab_size == len(pieces)


def test_other_saved_models_are_no_checkpoints(tmp_path):
    module = tf.Module()
    module.weight = tf.Variable([1.0])
    tf.saved_model.save(module, str(tmp_path / "other"))
    with pytest.raises(CheckpointError, match="as a SavedModel of TF Hub does.*weight"):
        BertBackbone.from_pretrained(tmp_path / "other")


def test_bfloat16_and_float16_files(tmp_path):
    import ml_dtypes
    from safetensors.numpy import save_file

    tensors = foreign.random_tensors()
    for name, dtype in (("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)):
        foreign.write_config(tmp_path / name, torch_dtype=name)
        halves = {key: values.astype(dtype) for key, values in tensors.items()}
        save_file(halves, tmp_path / name / "model.safetensors")
        expected = {key: values.astype(np.float32) for key, values in halves.items()}
        assert_same_values(
            values_of(BertBackbone.from_pretrained(tmp_path / name)),
            reference_weights(expected, tmp_path / f"{name} plain"),
        )
    foreign.write_config(tmp_path / "torch")
    halves = {key: values.astype(np.float16) for key, values in tensors.items()}
    foreign.write_torch(tmp_path / "torch" / "pytorch_model.bin", halves)
    opened = BertBackbone.from_pretrained(tmp_path / "torch")
    np.testing.assert_array_equal(
        opened.pooler.dense.bias, halves["pooler.dense.bias"].astype(np.float32)
    )


def test_missing_pooler_and_extra_tensors(tmp_path, caplog):
    tensors = foreign.random_tensors()
    for name in ("pooler.dense.weight", "pooler.dense.bias"):
        del tensors[name]
    tensors["embeddings.position_ids"] = np.arange(512)[None]
    foreign.write_huggingface(tmp_path, tensors)
    with caplog.at_level("INFO", logger="bert_tf"):
        BertBackbone.from_pretrained(tmp_path)
    assert "has no pooler" in caplog.text and "not used: embeddings.position_ids" in caplog.text


def test_untied_head_is_refused(tmp_path):
    tensors = foreign.with_prefix(foreign.random_tensors(heads=["masked_lm", "next_sentence"]))
    words = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.weight"] = words.copy()
    foreign.write_huggingface(tmp_path, tensors, tie_word_embeddings=False)
    load_task_model(BertPretrainer, tmp_path)
    tensors["cls.predictions.decoder.weight"] = words + 1
    foreign.write_huggingface(tmp_path, tensors, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match="shares the word embeddings"):
        load_task_model(BertPretrainer, tmp_path)


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"model_type": "jina_embeddings_v3"}, "jina_embeddings_v3"),
        ({"model_type": None, "architectures": ["RobertaModel"]}, "RobertaModel"),
        ({"embedding_size": 8}, "embedding_size"),
        ({"pruned_heads": {"0": [3]}}, "pruned_heads"),
        ({"hidden_act": ["gelu"]}, "hidden_act"),
    ],
)
def test_other_networks_are_refused_by_name(changes, words, tmp_path):
    foreign.write_huggingface(tmp_path, foreign.random_tensors(), **changes)
    with pytest.raises(ConfigError, match=words):
        BertBackbone.from_pretrained(tmp_path)


def test_oversized_configuration_is_refused_before_it_is_built(tmp_path):
    foreign.write_huggingface(tmp_path, foreign.random_tensors(), vocab_size=10**9)
    with pytest.raises(CheckpointError, match="must fit the configuration"):
        BertBackbone.from_pretrained(tmp_path)


def test_newest_step_of_a_directory(tmp_path):
    for step, seed in ((900, 1), (1000, 2)):
        foreign.write_tf1(tmp_path, foreign.random_tensors(seed=seed))
        for file in tmp_path.glob("bert_model.ckpt.*"):
            file.rename(tmp_path / file.name.replace("bert_model.ckpt", f"model.ckpt-{step}"))
    assert open_pretrained(tmp_path).source.path.endswith("model.ckpt-1000")


@pytest.mark.peers
def test_hub_name(tmp_path, monkeypatch):
    """The cache's own layout, offline."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs huggingface_hub")
    cache = tmp_path / "cache" / "models--org--small"
    snapshot = cache / "snapshots" / ("0" * 40)
    foreign.write_huggingface(snapshot, foreign.random_tensors())
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    assert BertBackbone.from_pretrained("org/small").config.vocab_size == 50
    # A name from before the hub had organisations.
    cache.rename(tmp_path / "cache" / "models--google-bert--bert-base-uncased")
    assert BertBackbone.from_pretrained("bert-base-uncased").config.vocab_size == 50
    with pytest.raises(CheckpointError, match="hf download org/absent"):
        BertBackbone.from_pretrained("org/absent")


@pytest.mark.peers
def test_tokenizers_open_what_models_open(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs huggingface_hub")
    cache = tmp_path / "cache" / "models--google-bert--bert-base-uncased"
    snapshot = cache / "snapshots" / ("0" * 40)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    BertTokenizer(pieces).save_pretrained(snapshot)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    readers = BertTokenizer.from_pretrained, load_tokenizer
    for read in readers:
        assert read("bert-base-uncased").vocabulary == pieces
    for read in (*readers, SubwordTokenizer.from_pretrained):
        with pytest.raises(CheckpointError, match="hf download org/absent"):
            read("org/absent")
        with pytest.raises(CheckpointError, match="`path` must exist.*Received: path='absent'"):
            read("absent")
    # The prefix of a TF1 checkpoint, and the output directory of a tool.
    BertTokenizer(pieces).save_pretrained("out/model")
    foreign.write_huggingface(tmp_path / "out" / "model", foreign.random_tensors())
    assert load_tokenizer("out").vocabulary == pieces
    assert load_tokenizer("out/model/model.safetensors").vocabulary == pieces


@pytest.mark.parametrize("directory", ["encoder", "out"])
def test_the_tokenizer_is_in_the_folder_that_modules_json_names(
    directory, tmp_path, tiny_config, tiny_vocabulary
):
    model_dir = tmp_path / directory / ("model" if directory == "out" else "")  # "out" of a tool
    tokenizer = BertTokenizer(tiny_vocabulary)
    encoder = BertSentenceEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)
    encoder.save_pretrained(model_dir)
    move_encoder(model_dir)
    others = BertTokenizer([*tiny_vocabulary[:-2], *tiny_vocabulary[:-3:-1]])
    for has_root in (False, True):
        if has_root:  # files that nothing names
            others.save_pretrained(tmp_path / "others")
            for path in (tmp_path / "others").iterdir():
                path.rename(model_dir / path.name)
        for read in (BertTokenizer.from_pretrained, load_tokenizer):
            assert read(tmp_path / directory).vocabulary == tiny_vocabulary


@pytest.mark.parametrize(
    "weights", ["model.safetensors", "pytorch_model.bin", "bert_tf.safetensors"]
)
def test_what_is_downloaded(weights, tmp_path, monkeypatch):
    library = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    needed = {weights, "bert_tf.json", "config.json", "artifact.metadata", "added_tokens.json"}
    needed |= {"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"}
    needed |= {"1_Pooling/config.json", "1_SpladePooling/config.json", "2_Dense/config.json"}
    needed |= {"2_Dense/pytorch_model.bin", "2_MultiVectorMask/config.json"}
    needed |= {"0_Transformer/vocab.txt", "0_Transformer/tokenizer.json"}
    needed |= {"3_LayerNorm/config.json", "3_LayerNorm/model.safetensors"}
    others = {"README.md", "onnx/model.onnx", "openvino/config.json", "rust_model.ot"}

    def download(name, allow_patterns):
        """As the hub does, but that all files are there already."""
        names = library.utils.filter_repo_objects(needed | others, allow_patterns=allow_patterns)
        for file in map(tmp_path.joinpath, names):
            file.parent.mkdir(exist_ok=True)
            file.touch()
        return tmp_path

    monkeypatch.setattr(library, "snapshot_download", download)
    hub.fetch("org/name")
    found = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert found == needed


def test_nothing_useful_there(tmp_path):
    (tmp_path / "readme.txt").write_text("nothing")
    with pytest.raises(CheckpointError, match="readme.txt"):
        BertBackbone.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="must be a checkpoint"):
        BertBackbone.from_pretrained(tmp_path / "readme.txt")
    foreign.write_huggingface(tmp_path, foreign.random_tensors())
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match="config.json"):
        BertBackbone.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="vocabulary|token"):
        foreign.write_config(tmp_path)
        BertTextClassifier.from_pretrained(tmp_path).predict(["text"], verbose=0)


def test_configuration_keeps_its_meaning_in_tf1(tmp_path):
    config = BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_attention_heads=3,
        intermediate_size=40,
        num_hidden_layers=1,
        layer_norm_eps=1e-7,
        classifier_dropout=0.3,
        hidden_act="silu",
        extra={"id2label": {"0": "a", "1": "b"}, "problem_type": "multi_label_classification"},
    )
    BertBackbone(config).save_pretrained(tmp_path, format="tf1")
    opened = BertBackbone.from_pretrained(tmp_path).config
    assert dataclasses.replace(opened, extra={}) == dataclasses.replace(config, extra={})
    assert opened.extra["problem_type"] == "multi_label_classification"
    assert "layer_norm_eps" not in json.loads((tmp_path / "bert_config.json").read_text())


@pytest.mark.parametrize("format", ["safetensors", "torch", "legacy torch", "tf h5"])
def test_training_in_place_after_loading_leaves_the_file_alone(format, tmp_path):
    path = write(format, tmp_path / "checkpoint", foreign.random_tensors())
    before = {file: file.read_bytes() for file in path.iterdir()}
    backbone = BertBackbone.from_pretrained(path)
    expected = values_of(backbone)
    for variable in backbone.trainable_variables:
        variable.value.assign_add(tf.ones(variable.shape))
    for name, values in values_of(backbone).items():
        np.testing.assert_array_equal(values, expected[name] + 1)
    assert before == {file: file.read_bytes() for file in path.iterdir()}
