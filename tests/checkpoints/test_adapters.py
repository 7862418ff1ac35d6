"""jina-embeddings-v3 as published, with adapters for its tasks: low-rank matrices in the file."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf import BertBackbone, BertConfig
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.families.network_families import FAMILIES

TASKS, RANK, ALPHA = ["retrieval.query", "separation"], 2, 3
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
PUBLISHED = {
    **SIZES,
    "model_type": "xlm-roberta",
    "architectures": ["XLMRobertaModel"],
    "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.X"},
    "position_embedding_type": "rotary",
    "rotary_emb_base": 20000.0,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
    "lora_adaptations": TASKS,
    "lora_rank": RANK,
    "lora_alpha": ALPHA,
    "lora_dropout_p": 0.0,
    "load_trained_adapters": True,
}
LAYERS = {  # as written -> as published
    "layers.{}.self_attn.o_proj": "encoder.layers.{}.mixer.out_proj",
    "layers.{}.post_attention_layernorm": "encoder.layers.{}.norm1",
    "layers.{}.mlp.fc1": "encoder.layers.{}.mlp.fc1",
    "layers.{}.mlp.fc2": "encoder.layers.{}.mlp.fc2",
    "layers.{}.post_mlp_layernorm": "encoder.layers.{}.norm2",
}


def published_names(tensors):
    """The tensors of a written file under the names of the published one."""
    others = {name: values for name, values in tensors.items() if not name.startswith("layers.")}
    named = {name.replace("embeddings.LayerNorm", "emb_ln"): v for name, v in others.items()}
    for block in range(SIZES["num_hidden_layers"]):
        for leaf in ("weight", "bias"):
            parts = [tensors[f"layers.{block}.self_attn.{role}_proj.{leaf}"] for role in "qkv"]
            named[f"encoder.layers.{block}.mixer.Wqkv.{leaf}"] = np.concatenate(parts)
            for ours, theirs in LAYERS.items():
                name = f"{theirs.format(block)}.{leaf}"
                named[name] = tensors[f"{ours.format(block)}.{leaf}"]
    return {f"roberta.{name}": values for name, values in named.items()}


def with_adapters(tensors):
    """The tensors with adapters for all kernels and tables, and what they are for each task."""
    generator = np.random.default_rng(4)
    in_file, adapted = {}, {task: dict(tensors) for task in TASKS}
    for name, values in tensors.items():
        if values.ndim != 2:
            in_file[name] = values
            continue
        rows, columns = values.shape
        is_table = "embeddings" in name
        shapes = [(rows, RANK), (RANK, columns)] if is_table else [(RANK, columns), (rows, RANK)]
        first, second = (
            generator.normal(0, 0.3, (len(TASKS), *shape)).astype(np.float32) for shape in shapes
        )
        stem = name.removesuffix("weight") + "parametrizations.weight."
        in_file |= {f"{stem}0.lora_A": first, f"{stem}0.lora_B": second, f"{stem}original": values}
        for place, task in enumerate(TASKS):
            product = first[place] @ second[place] if is_table else second[place] @ first[place]
            adapted[task][name] = values + ALPHA / RANK * product
    return in_file, adapted


def write(folder, tensors, **changes):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**PUBLISHED, **changes}))
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A backbone, its published folder with adapters, and the tensors for each task."""
    folder = tmp_path_factory.mktemp("jina")
    family = FAMILIES["jina_embeddings_v3"]
    config = BertConfig(**{**family.defaults, **family.fixed, **SIZES})
    backbone = BertBackbone(config)
    generator = np.random.default_rng(5)
    for variable in backbone.weights:
        variable.assign(generator.normal(0.0, 0.3, variable.shape))
    backbone.save_pretrained(folder / "written")
    tensors = published_names(load_file(folder / "written/model.safetensors"))
    in_file, adapted = with_adapters(tensors)
    return backbone, write(folder / "published", in_file), in_file, adapted


def test_without_a_task_the_weights_are_those_of_the_file(files, tmp_path):
    backbone, folder, _, _ = files
    opened = BertBackbone.from_pretrained(folder)
    assert opened.config.to_dict() | {"extra": {}} == backbone.config.to_dict()
    for one, other in zip(opened.weights, backbone.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("task", TASKS)
def test_the_products_of_a_task_are_added(task, files, tmp_path):
    _, folder, _, adapted = files
    without = dict.fromkeys(("lora_adaptations", "lora_rank", "lora_alpha"))
    expected = BertBackbone.from_pretrained(write(tmp_path / "sums", adapted[task], **without))
    opened = BertBackbone.from_pretrained(folder, adapter=task)
    for one, other in zip(opened.weights, expected.weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)

    # What is written has the sums, and no adapters.
    opened.save_pretrained(tmp_path / "ours")
    config = json.loads((tmp_path / "ours/config.json").read_text())
    assert config["model_type"] == "jina_embeddings_v3"
    assert not [key for key in config if "lora" in key or key in ("auto_map", "rotary_emb_base")]
    again = BertBackbone.from_pretrained(tmp_path / "ours")
    for one, other in zip(again.weights, opened.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(UserError, match="`adapter` must be None: the checkpoint has no adapters"):
        BertBackbone.from_pretrained(tmp_path / "ours", adapter=task)


def test_a_task_model_takes_the_adapters(files):
    _, folder, _, _ = files
    plain, adapted = (
        bert_tf.BertTextClassifier.from_pretrained(folder, num_classes=2, **options)
        for options in ({}, {"adapter": "separation"})
    )
    one, other = (model.backbone.embeddings.word_embeddings.numpy() for model in (plain, adapted))
    assert np.abs(one - other).max() > 0.1


def test_a_task_without_adapters_is_refused(files):
    with pytest.raises(UserError, match=r"`adapter` must be one of \['retrieval.query', 'sep"):
        BertBackbone.from_pretrained(files[1], adapter="clustering")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"lora_rank": None}, "`lora_rank` in .* must be a positive integer"),
        ({"lora_alpha": "1"}, "`lora_alpha` in .* must be a finite number"),
        ({"lora_adaptations": "separation"}, "`lora_adaptations` in .* must be a list"),
    ],
)
def test_a_damaged_configuration_of_adapters(changes, message, files, tmp_path):
    with pytest.raises(ConfigError, match=message):
        BertBackbone.from_pretrained(write(tmp_path / "bad", files[2], **changes))


@pytest.mark.parametrize(
    "change",
    [
        lambda values: None,
        lambda values: values[:1],
        lambda values: values[:, :1],
        lambda values: values[..., :1],
        lambda values: values[0],
    ],
    ids=["missing", "tasks", "rows", "columns", "rank"],
)
@pytest.mark.parametrize("part", ["lora_A", "lora_B"])
def test_damaged_adapters(part, change, files, tmp_path):
    name = f"roberta.encoder.layers.1.mlp.fc1.parametrizations.weight.0.{part}"
    tensors = {**files[2], name: change(files[2][name])}
    tensors = {key: np.ascontiguousarray(v) for key, v in tensors.items() if v is not None}
    with pytest.raises(CheckpointError, match="mlp.fc1"):
        BertBackbone.from_pretrained(write(tmp_path / "bad", tensors), adapter="separation")
