"""BertConfig: both JSON dialects, refusals, round trips."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.errors import ConfigError
from bert_tf.layers.encoder import biases_by_distance

GOOGLE = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def write(path, values):
    path.write_text(json.dumps(values))
    return path


def test_google_gelu_is_tanh_and_huggingface_gelu_is_erf(tmp_path):
    google = BertConfig.from_json_file(write(tmp_path / "bert_config.json", GOOGLE))
    assert google.hidden_act == "gelu_new"
    huggingface = BertConfig.from_json_file(
        write(tmp_path / "config.json", {**GOOGLE, "model_type": "bert"})
    )
    assert huggingface.hidden_act == "gelu"


def test_what_a_file_of_google_may_lack(tmp_path):
    path = write(tmp_path / "bert_config.json", {"vocab_size": 30})
    google = BertConfig.from_json_file(path)
    assert (google.hidden_act, google.type_vocab_size) == ("gelu_new", 16)
    kept = BertConfig.from_json_file(path, defaults=BertConfig(hidden_act="relu"))
    assert (kept.hidden_act, kept.type_vocab_size, kept.vocab_size) == ("relu", 2, 30)
    values = {"vocab_size": 30, "hidden_act": "relu", "bert_tf_exact_gelu": True}
    assert BertConfig.from_json_file(write(path, values)).hidden_act == "relu"


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_both_dialects_round_trip(tmp_path, activation):
    config = BertConfig(hidden_act=activation, hidden_size=96)
    for name, values in (
        ("config.json", config.to_huggingface()),
        ("bert_config.json", config.to_tf1()),
    ):
        opened = BertConfig.from_json_file(write(tmp_path / name, values))
        for field in ("hidden_act", "hidden_size", "vocab_size", "layer_norm_eps"):
            assert getattr(opened, field) == getattr(config, field)
    assert BertConfig(**config.to_dict()) == config


def test_keys_without_influence_are_kept(tmp_path):
    others = {"use_cache": True, "chunk_size_feed_forward": 64}
    path = write(tmp_path / "config.json", {**GOOGLE, "model_type": "bert", **others})
    assert BertConfig.from_json_file(path).to_huggingface().items() >= others.items()


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"model_type": "xlnet"}, "xlnet"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"type_vocab_size": 0}, "`type_vocab_size` must be positive"),
        ({"hidden_act": "mish"}, "mish"),
        ({"num_attention_heads": 3}, "multiple"),
        ({"hidden_size": "128"}, "positive integer"),
        ({"hidden_dropout_prob": 1.5}, r"\[0, 1\)"),
        ({"pad_token_id": 40000}, "pad_token_id"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(tmp_path, changes, words):
    values = {"model_type": "bert", **GOOGLE, **changes}
    with pytest.raises(ConfigError, match=words):
        BertConfig.from_json_file(write(tmp_path / "config.json", values))


@pytest.mark.parametrize(
    "model_type, values, expected",
    [
        ("distilbert", {"activation": "gelu", "hidden_act": "relu"}, {"hidden_act": "gelu"}),
        ("distilbert", {"hidden_act": "relu"}, {"hidden_act": "gelu"}),
        ("distilbert", {"dropout": 0.3, "hidden_dropout_prob": 0.5}, {"hidden_dropout_prob": 0.3}),
        ("distilbert", {"dim": 96, "hidden_size": 48}, {"hidden_size": 48}),  # `attribute_map`
        ("distilbert", {"seq_classif_dropout": None}, {"classifier_dropout": 0.2}),
        ("albert", {"classifier_dropout": 0.4}, {"classifier_dropout": 0.1}),
        ("electra", {"embedding_size": None}, {"embedding_size": 128}),
        ("mpnet", {"relative_attention_num_buckets": None}, {"relative_attention_num_buckets": 32}),
    ],
)
def test_names_and_defaults_of_a_family(tmp_path, model_type, values, expected):
    path = write(tmp_path / "config.json", {"model_type": model_type, **values})
    config = BertConfig.from_json_file(path)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    "model_type, values, words",
    [
        ("distilbert", {"dim": "768"}, "`dim` must be a positive integer.*dim='768'"),
        ("distilbert", {"dim": None}, "`dim` must be a positive integer.*dim=None"),
        ("distilbert", {"activation": "mish"}, "`activation` must be one of"),
        ("albert", {"classifier_dropout_prob": 2}, "`classifier_dropout_prob` must be in"),
        ("roberta", {"max_position_embeddings": 2}, "must be at least 3.*embeddings=2"),
    ],
)
def test_errors_name_the_keys_of_the_file(tmp_path, model_type, values, words):
    path = write(tmp_path / "config.json", {"model_type": model_type, **values})
    with pytest.raises(ConfigError, match=words):
        BertConfig.from_json_file(path)


@pytest.mark.parametrize("model_type", ["roberta", "distilbert", "mpnet", "albert", "electra"])
def test_a_configuration_of_a_part_is_that_of_the_checkpoint_family(tmp_path, model_type):
    pad_token_id = 1 if model_type == "mpnet" else 3
    values = {"model_type": model_type, "pad_token_id": pad_token_id, "embedding_size": 64}
    checkpoint = BertConfig.from_json_file(write(tmp_path / "config.json", values))
    part = checkpoint.to_huggingface()
    for name in ("model_type", "pad_token_id", "embedding_size", "layer_norm_eps"):
        part.pop(name, None)
    path = write(tmp_path / "network.json", part)  # without keys that only Hugging Face writes
    assert BertConfig.from_json_file(path, checkpoint) == checkpoint


def test_the_most_buckets_of_distances():
    sizes = {"hidden_size": 32, "num_attention_heads": 4}
    BertConfig(relative_attention_num_buckets=511, **sizes)
    distances = biases_by_distance(tf.ones([511, 4]))
    assert np.isfinite(distances).all() and distances.shape == [4, 257]
    with pytest.raises(ConfigError, match="`relative_attention_num_buckets` must be .*511"):
        BertConfig(relative_attention_num_buckets=512, **sizes)


def test_pruned_heads_round_trip(tmp_path):
    config = BertConfig(num_hidden_layers=3, pruned_heads={2: [5, 0], "0": (3,), 1: []})
    assert config.pruned_heads == {0: (3,), 2: (0, 5)}
    assert config.kept_heads(2) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert config.kept_heads(1) == list(range(12)) and config.head_size == 64
    assert hash(config) == hash(BertConfig(num_hidden_layers=3)) and config != BertConfig.base()
    values = json.loads(json.dumps(config.to_dict()))
    assert values["pruned_heads"] == {"0": [3], "2": [0, 5]}
    assert BertConfig(**values) == config
    for name, values in (
        ("config.json", config.to_huggingface()),
        ("bert_config.json", config.to_tf1()),
    ):
        opened = BertConfig.from_json_file(write(tmp_path / name, values))
        assert opened.pruned_heads == config.pruned_heads
    assert config.to_huggingface()["pruned_heads"] == {"0": [3], "2": [0, 5]}
    plain = BertConfig()
    assert "pruned_heads" not in {**plain.to_huggingface(), **plain.to_tf1()}
    for nothing in ({}, None):
        path = write(tmp_path / "config.json", {**GOOGLE, "pruned_heads": nothing})
        assert BertConfig.from_json_file(path).pruned_heads == {}


@pytest.mark.parametrize(
    "pruned_heads,words",
    [
        ([1], "mapping"),
        ({"2": [0]}, r"blocks in \[0, 2\)"),
        ({"-1": [0]}, r"blocks in \[0, 2\)"),
        ({"9" * 5000: [0]}, r"blocks in \[0, 2\)"),
        ({"one": [0]}, r"blocks in \[0, 2\)"),
        ({"0": [2]}, r"heads in \[0, 2\).*pruned_heads\[0\]=\[2\]"),
        ({"0": [True]}, r"heads in \[0, 2\)"),
        ({"0": [[1]]}, r"heads in \[0, 2\)"),
        ({"0": 1}, r"heads in \[0, 2\)"),
        ({"1": [1, 1]}, "each once"),
        ({"1": [1, 0]}, "leave at least one"),
    ],
)
def test_pruned_heads_out_of_range(tmp_path, pruned_heads, words):
    path = write(tmp_path / "config.json", {**GOOGLE, "pruned_heads": pruned_heads})
    with pytest.raises(ConfigError, match=f"pruned_heads.*{words}"):
        BertConfig.from_json_file(path)
    with pytest.raises(ConfigError, match="each once"):
        BertConfig(pruned_heads={0: [1], "0": [2]})


def test_files_that_are_no_config(tmp_path):
    with pytest.raises(ConfigError, match="absent.json must be a BERT configuration"):
        BertConfig.from_json_file(tmp_path / "absent.json")
    (tmp_path / "cut.json").write_text('{"vocab_size": 3')
    with pytest.raises(ConfigError, match="cut.json must be a valid JSON file"):
        BertConfig.from_json_file(tmp_path / "cut.json")
    with pytest.raises(TypeError):
        BertConfig(hiden_size=3)


def test_a_file_of_google_takes_other_switches_under_our_key(tmp_path):
    own = {"norm_first": True, "position_embedding_type": "rotary"}
    (tmp_path / "bert_config.json").write_text(json.dumps({"vocab_size": 9, "bert_tf_config": own}))
    config = BertConfig.from_json_file(tmp_path / "bert_config.json")
    assert config.norm_first and config.position_embedding_type == "rotary"
    (tmp_path / "bert_config.json").write_text(
        json.dumps({"vocab_size": 9, "bert_tf_config": {"norm_first": 1}})
    )
    with pytest.raises(ConfigError, match="`bert_tf_config.norm_first` .* must be true or false"):
        BertConfig.from_json_file(tmp_path / "bert_config.json")


@pytest.mark.parametrize("head_size, changes", [(3, {}), (4, {"num_key_value_heads": 3})])
def test_heads_that_do_not_fit(head_size, changes):
    sizes = {"hidden_size": 4 * head_size, "num_attention_heads": 4, **changes}
    with pytest.raises(ConfigError, match="must (give heads an even size|divide)"):
        BertConfig(position_embedding_type="rotary", **sizes)


def test_named_sizes():
    assert BertConfig.base().head_size == 64
    assert BertConfig.large().num_hidden_layers == 24
    assert BertConfig.modern(num_hidden_layers=4).global_attn_every_n_layers == 3
    assert hash(BertConfig.base()) == hash(BertConfig.base())
