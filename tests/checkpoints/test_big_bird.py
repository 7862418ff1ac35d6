"""BigBird's directories against numbers of `transformers`, which `make test` does not have.

They are those of transformers 5.24 in float64, where the file of `folder` is in `directory`:

    ids = torch.tensor(np.random.RandomState(1).randint(5, 60, [2, 60]))
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BigBirdModel.from_pretrained(directory, **rates).double().train()
    for layer, blocks in zip(model.encoder.layer, RANDOM_BLOCKS):
        rows = np.array(blocks)[:, np.newaxis]
        chosen = lambda rows=rows, **_: [rows] * 4  # the same ones for each head
        layer.attention.self._bigbird_block_rand_mask_with_head = chosen
    print(model(ids).last_hidden_state[1, [0, 30, 59], :3])
    print(model.eval()(ids[:, :26]).last_hidden_state[1, [0, 25], :3])

Without the change in `chosen`, `transformers` draws blocks for each head in training, and takes
the first block for all of them in evaluation.
"""

import json
import zlib

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf import BertBackbone, BertConfig
from bert_tf.errors import ConfigError, UserError
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.encoder import blocks_of_layers

CONFIG = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=80,
    hidden_act="gelu_new",
    model_type="big_bird",
    num_random_blocks=1,
    attention_block_size=4,
)
# The random blocks of blocks 1 to 13 in each layer.
RANDOM_BLOCKS = (
    (8, 12, 7, 1, 12, 11, 12, 3, 4, 8, 2, 2, 1),
    (3, 13, 5, 8, 1, 13, 1, 13, 12, 3, 1, 4, 11),
)
LONG = [
    [0.21391114, -0.28254658, -0.42038329],
    [0.21485118, -0.27904007, -0.42468165],
    [0.2147092, -0.28152241, -0.42481867],
]
SHORT = [[0.21536179, -0.28353846, -0.41860403], [0.21597145, -0.28164805, -0.4261235]]
IDS = np.random.RandomState(1).randint(5, 60, [2, 60])


@pytest.fixture
def folder(tmp_path):
    """A directory whose weights are drawn from their names."""
    BertBackbone(CONFIG).save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    shapes = {name: values.shape for name, values in load_file(path).items()}
    draws = {name: np.random.RandomState(zlib.crc32(name.encode())) for name in shapes}
    tensors = {name: draws[name].normal(0, 0.3, shapes[name]) for name in shapes}
    save_file({n: x.astype(np.float32) for n, x in tensors.items()}, path, {"format": "pt"})
    return path.parent


def test_the_random_blocks():
    layout = TokenLayout.padded(tf.ones([1, 60], tf.bool))
    for blocks, expected in zip(blocks_of_layers(CONFIG, layout), RANDOM_BLOCKS, strict=True):
        for block in range(1, 14):
            known = {0, 14, block - 1, block, block + 1, expected[block - 1]}
            assert {*np.flatnonzero(blocks[0, block])} == known


@pytest.mark.parametrize("padding_free", [True, False])
def test_hidden_states(folder, padding_free):
    backbone = BertBackbone.from_pretrained(folder, padding_free=padding_free)
    assert backbone.config.to_dict() | {"extra": {}} == CONFIG.to_dict()
    for ids, places, expected in ((IDS, [0, 30, 59], LONG), (IDS[:, :26], [0, 25], SHORT)):
        states = backbone({"token_ids": tf.constant(ids)})["sequence_output"].numpy()
        np.testing.assert_allclose(states[1, places, :3], expected, atol=1e-6)


def test_full_attention(folder):
    path = folder / "config.json"
    sparse = BertBackbone.from_pretrained(folder)({"token_ids": IDS})["sequence_output"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention_type": "original_full"}))
    backbone = BertBackbone.from_pretrained(folder)
    assert backbone.config.num_random_blocks is None
    full = backbone({"token_ids": IDS})["sequence_output"]
    assert np.abs(full - sparse).max() > 1e-3
    backbone.save_pretrained(folder.parent / "ours")
    written = json.loads((folder.parent / "ours" / "config.json").read_text())
    assert written["attention_type"] == "original_full" and written["block_size"] == 4


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"attention_type": "sparse"}, "`attention_type` must be original_full or block_sparse"),
        ({"use_bias": False}, "`use_bias` must be True"),
        ({"rescale_embeddings": True}, "`rescale_embeddings` must be False"),
        ({"block_size": 0}, "`block_size` must be"),
        ({"num_random_blocks": "3"}, "`num_random_blocks` in .* must be"),
        ({"max_position_embeddings": 5000}, "at least `max_position_embeddings` / 1024"),
        ({"is_decoder": True}, "`is_decoder` must be False"),
    ],
)
def test_other_networks_are_refused(folder, changes, words):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ConfigError, match=words):
        BertBackbone.from_pretrained(folder)


@pytest.mark.parametrize(
    "model_class, architecture, tensor",
    [
        (bert_tf.BertMaskedLM, "BigBirdForMaskedLM", "cls.predictions.transform.dense.weight"),
        (bert_tf.BertTokenClassifier, "BigBirdForTokenClassification", "classifier.weight"),
        (bert_tf.BertMultipleChoice, "BigBirdForMultipleChoice", "bert.pooler.weight"),
        (bert_tf.BertPretrainer, "BigBirdForPreTraining", "cls.seq_relationship.weight"),
    ],
)
def test_heads(folder, model_class, architecture, tensor):
    options = {"num_classes": 3} if model_class is bert_tf.BertTokenClassifier else {}
    model = model_class.from_pretrained(folder, **options)
    model.save_pretrained(folder.parent / "ours")
    assert tensor in load_file(folder.parent / "ours" / "model.safetensors")
    config = json.loads((folder.parent / "ours" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    opened = model_class.from_pretrained(folder.parent / "ours")
    assert not opened.untrained_heads
    for one, other in zip(opened.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("model_class", [bert_tf.BertTextClassifier, bert_tf.BertQuestionAnswerer])
def test_other_heads_are_written_in_our_own_format_only(folder, model_class):
    """Those of `transformers` have one more layer, with the activation of the blocks."""
    options = {"num_classes": 3} if model_class is bert_tf.BertTextClassifier else {}
    model = model_class.from_pretrained(folder, **options)
    with pytest.raises(UserError, match="`format` must be 'bert_tf'"):
        model.save_pretrained(folder.parent / "ours", format="huggingface")
    model.save_pretrained(folder.parent / "ours", format="bert_tf")
    opened = model_class.from_pretrained(folder.parent / "ours")
    for one, other in zip(opened.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
