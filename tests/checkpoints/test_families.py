"""The networks that are BERT's but for a few switches: against `transformers` and NumPy in float64.

`make test` has no `transformers`: there NumPy is the reference, and the names in files are those
that TENSORS lists.
"""

import functools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf import BertBackbone, BertConfig
from bert_tf.checkpoints import family_names
from bert_tf.checkpoints.opening import open_pretrained
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.families.network_families import FAMILIES
from bert_tf.layers.masked_lm_head import MaskedLMHead
from tests.numpy_bert import ACTIVATIONS, NumpyBert

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
}
OWN_SIZES = {
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "xlm-roberta": {"type_vocab_size": 1, "max_position_embeddings": 42},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "mpnet": {"max_position_embeddings": 42},
    "xlm-roberta-xl": {"type_vocab_size": 1, "max_position_embeddings": 42},
    "roberta-prelayernorm": {"max_position_embeddings": 42},
    "gte": {"type_vocab_size": 0, "pad_token_id": 0},
    "eurobert": {
        "num_key_value_heads": 2,
        "classifier_pooling": "late",
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "mask_token_id": 3,
    },
    "modernbert": {
        "local_attention": 4,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    },
}
OWN_SIZES["rembert"] = {"input_embedding_size": 16, "output_embedding_size": 24}
OWN_SIZES["roformer"] = {"embedding_size": 32}
OWN_SIZES["ernie"] = {"use_task_id": True}
OWN_SIZES["deberta"] = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "max_relative_positions": 4,
    "position_biased_input": False,
}
OWN_SIZES["deberta-v2"] = {
    **OWN_SIZES["deberta"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "max_relative_positions": -1,
    "position_buckets": 6,
    "conv_kernel_size": 3,
    "conv_act": "gelu",
}
# What a `BertConfig` needs for the same networks apart from `fixed`.
OWN_FIELDS = {
    "rembert": {"embedding_size": 16, "output_embedding_size": 24},
    "ernie": {"task_type_vocab_size": 3},
    "deberta": {"max_relative_positions": 4, "type_vocab_size": 0, "pooler_act": "gelu"},
    "deberta-v2": {
        "position_buckets": 6,
        "conv_kernel_size": 3,
        "type_vocab_size": 0,
        "pooler_act": "gelu",
    },
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "mpnet": {"relative_attention_num_buckets": 32},
    "gte": {"type_vocab_size": 0},
    "new": {"rope_theta": 500.0, "rope_scaling_factor": 4.0},
    "nomic_bert": {"rope_theta": 1000.0},
    "eurobert": {
        "num_key_value_heads": 2,
        "output_embedding_size": 32,
        **dict.fromkeys(("attention_bias", "mlp_bias"), False),
    },
    "modernbert": {
        "attention_window": 2,
        "global_attn_every_n_layers": 2,
        "pooler_act": "gelu",
        "rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
    },
}
WITHOUT_SEGMENTS = ("distilbert", "mpnet", "gte", "eurobert", "modernbert", "deberta", "deberta-v2")
WITHOUT_POOLER = ("nomic_bert", "gte", "eurobert", "modernbert")  # in the class without a head
# Classes that `transformers` or this package has not for a family.
MISSING = {
    **dict.fromkeys(("deberta", "roformer", "jina_embeddings_v3"), ("ForMultipleChoice",)),
    **dict.fromkeys(
        ("gte", "nomic_bert", "eurobert"), ("ForQuestionAnswering", "ForMultipleChoice")
    ),
}
# Not those that test_static_embeddings.py and test_big_bird.py have.
WITH_OWN_TESTS = ("bert", "bert-generation", "model2vec", "big_bird")
NAMES = [name for name in FAMILIES if name not in WITH_OWN_TESTS]
TASKS = {
    "ForSequenceClassification": bert_tf.BertTextClassifier,
    "ForTokenClassification": bert_tf.BertTokenClassifier,
    "ForQuestionAnswering": bert_tf.BertQuestionAnswerer,
    "ForMultipleChoice": bert_tf.BertMultipleChoice,
    "ForMaskedLM": bert_tf.BertMaskedLM,
}
TWO_CLASSES = ("ForQuestionAnswering", "ForPreTraining")
# Families that together have all switches.
UNLIKE = ("albert", "mpnet", "deberta", "deberta-v2", "eurobert", "modernbert")
each_family = pytest.mark.parametrize("name", NAMES)
WITH_OWN_CODE = ("new", "jina_bert", "mosaic_bert")  # in their repositories
OF_TRANSFORMERS = [name for name in NAMES if name not in WITH_OWN_CODE]
each_of_transformers = pytest.mark.parametrize("name", OF_TRANSFORMERS)


def their_model(name, ending, **changes):
    """A model of `transformers` in float64; every weight is random, also biases and scales."""
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    prefix = FAMILIES[name].class_prefix
    sizes = {**SIZES, **OWN_SIZES.get(name, {}), **changes}
    if name in WITHOUT_SEGMENTS and name != "gte":
        del sizes["type_vocab_size"]
    if name in ("distilbert", "modernbert", "eurobert"):
        sizes = {FAMILIES[name].keys.get(key, key): value for key, value in sizes.items()}
    config = getattr(transformers, f"{prefix}Config")(
        **sizes, num_labels=2 if ending in TWO_CLASSES else 3
    )
    torch.manual_seed(7)
    model = getattr(transformers, prefix + ending)(config).eval()
    with torch.no_grad():
        for parameter in filter(lambda one: one.requires_grad, model.parameters()):
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
        model.tie_weights()
    return model.double()


def random_model(name, model_class=bert_tf.BertTextClassifier, **changes):
    """One of ours; every weight is random."""
    sizes = {**SIZES, **FAMILIES[name].fixed, "model_type": name, "classifier_dropout": 0.1}
    sizes.update(OWN_FIELDS.get(name, {}))
    if FAMILIES[name].counts_padding_id:
        sizes.update(pad_token_id=1, position_offset=2)
    backbone = BertBackbone(BertConfig(**{**sizes, **changes}))
    model = backbone if model_class is BertBackbone else model_class(backbone, num_classes=3)
    generator = np.random.default_rng(5)
    for variable in model.weights:
        variable.assign(generator.normal(0.0, 0.3, variable.shape))
    return model


@pytest.fixture(scope="module")
def classifier_of():
    """Returns the classifier of `random_model` for a family, made once: tests change nothing."""
    return functools.cache(random_model)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Returns the folder of a backbone for a family, written once: tests change a copy."""

    @functools.cache
    def folder_of(name):
        folder = tmp_path_factory.mktemp(name)
        random_model(name, BertBackbone).save_pretrained(folder)
        return folder

    return folder_of


def batch_of(name, rows=3, choices=None):
    """Ids, segments and mask; the first row has padding on the right."""
    generator = np.random.default_rng(3)
    shape = (rows, 11) if choices is None else (rows, choices, 11)
    pad = 1 if FAMILIES[name].counts_padding_id else 0
    ids = generator.integers(5, SIZES["vocab_size"], shape)
    mask = np.ones(shape, bool)
    mask[0, ..., 7:] = False
    ids[~mask] = pad
    segments = generator.integers(0, 2, shape) * mask
    segments *= name not in (*WITHOUT_SEGMENTS, "roberta", "xlm-roberta", "xlm-roberta-xl")
    return ids, segments, mask


def theirs(model, name, ids, segments, mask):
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    inputs = {"input_ids": ids, "attention_mask": mask.astype(int), "token_type_ids": segments}
    if name in WITHOUT_SEGMENTS:
        del inputs["token_type_ids"]
    with torch.no_grad():
        return model(**{key: torch.tensor(value) for key, value in inputs.items()})


def ours(model, ids, segments, mask, **options):
    tokens = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    return model({key: tf.convert_to_tensor(value) for key, value in tokens.items()}, **options)


def write(model, directory):
    model.float().save_pretrained(directory)
    model.double()


@each_of_transformers
def test_hidden_states(name, tmp_path):
    network = their_model(name, "Model")
    write(network, tmp_path)
    backbone = BertBackbone.from_pretrained(tmp_path)
    batch = batch_of(name)
    expected = theirs(network, name, *batch).last_hidden_state.numpy()
    mask = batch[2][..., np.newaxis]
    for padding_free in (True, False):
        backbone.padding_free = padding_free
        received = ours(backbone, *batch)["sequence_output"].numpy()
        np.testing.assert_allclose(received * mask, expected * mask, rtol=1e-5, atol=1e-5)
    compiled = tf.function(
        lambda *values: ours(backbone, *values)["sequence_output"], jit_compile=True
    )
    np.testing.assert_allclose(compiled(*batch) * mask, expected * mask, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name, ending",
    [(n, end) for n in OF_TRANSFORMERS for end in TASKS if end not in MISSING.get(n, ())],
)
def test_heads(name, ending, tmp_path):
    """Opened, written in the same form, and opened again by `transformers`."""
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    network = their_model(name, ending)
    write(network, tmp_path / "theirs")
    model = TASKS[ending].from_pretrained(tmp_path / "theirs")
    assert not model.untrained_heads
    batch = batch_of(name, choices=2 if ending == "ForMultipleChoice" else None)
    result = theirs(network, name, *batch)
    if ending == "ForQuestionAnswering":
        expected = np.stack([result.start_logits, result.end_logits], axis=1)
        real = np.broadcast_to(batch[2][:, np.newaxis], expected.shape)
    else:
        expected = result.logits.numpy()
        real = np.ones(expected.shape, bool)
        if ending in ("ForTokenClassification", "ForMaskedLM"):
            real = np.broadcast_to(batch[2][..., np.newaxis], expected.shape)
    received = ours(model, *batch).numpy()
    np.testing.assert_allclose(received[real], expected[real], rtol=1e-5, atol=1e-5)

    model.save_pretrained(tmp_path / "ours")
    their_class = getattr(transformers, FAMILIES[name].class_prefix + ending)
    _assert_read_back(their_class, tmp_path / "ours", network)
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    before = json.loads((tmp_path / "theirs" / "config.json").read_text())
    sizes = {*SIZES, *FAMILIES[name].keys.values(), "embedding_size", "pad_token_id"}
    sizes &= set(before)
    assert {key: config[key] for key in sizes} == {key: before[key] for key in sizes}


@pytest.mark.parametrize("hidden_act", ["gelu_new", "relu"])
@pytest.mark.parametrize(
    "name",
    [n for n in OF_TRANSFORMERS if "ForMaskedLM" not in MISSING.get(n, ()) and n != "roformer"],
)
def test_the_activation_of_the_masked_lm_head(name, hidden_act, tmp_path):
    network = their_model(name, "ForMaskedLM", hidden_act=hidden_act)
    write(network, tmp_path)
    batch = batch_of(name)
    expected = theirs(network, name, *batch).logits.numpy()
    received = ours(bert_tf.BertMaskedLM.from_pretrained(tmp_path), *batch).numpy()
    np.testing.assert_allclose(received[batch[2]], expected[batch[2]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"conv_kernel_size": 0, "share_att_key": False},
        {"conv_kernel_size": 5, "conv_act": "tanh", "norm_rel_ebd": "none", "position_buckets": -1},
    ],
)
def test_other_switches_of_deberta_v2(changes, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    network = their_model("deberta-v2", "ForTokenClassification", **changes)
    write(network, tmp_path / "theirs")
    batch = batch_of("deberta-v2")
    expected = theirs(network, "deberta-v2", *batch).logits.numpy()
    model = bert_tf.BertTokenClassifier.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(ours(model, *batch)[batch[2]], expected[batch[2]], atol=1e-5)
    model.save_pretrained(tmp_path / "ours")
    _assert_read_back(transformers.DebertaV2ForTokenClassification, tmp_path / "ours", network)


@pytest.mark.parametrize("name", ["deberta", "deberta-v2"])
def test_the_masked_lm_head_without_legacy(name, tmp_path):
    network = their_model(name, "ForMaskedLM", legacy=False)
    write(network, tmp_path / "theirs")
    batch = batch_of(name)
    expected = theirs(network, name, *batch).logits.numpy()
    model = bert_tf.BertMaskedLM.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(ours(model, *batch)[batch[2]], expected[batch[2]], atol=1e-5)
    model.save_pretrained(tmp_path / "ours")
    again = type(network).from_pretrained(tmp_path / "ours").double()
    received = theirs(again, name, *batch).logits.numpy()
    np.testing.assert_allclose(received[batch[2]], expected[batch[2]], atol=1e-5)


def test_heads_of_deberta_v3_as_published(tmp_path):
    """Its files have the heads of its pre-training by other names than `transformers`."""
    generator, tensors = np.random.default_rng(8), {}
    random_model("deberta-v2", BertBackbone).save_pretrained(tmp_path)
    for name, values in load_file(tmp_path / "model.safetensors").items():
        tensors[f"deberta.{name}"] = values
    for head, last in (("lm_predictions.lm_head", "bias"), ("mask_predictions", "classifier.bias")):
        sizes = {"dense.weight": (32, 32), last: (60 if last == "bias" else 1,)}
        sizes |= dict.fromkeys(("dense.bias", "LayerNorm.weight", "LayerNorm.bias"), (32,))
        sizes |= {"classifier.weight": (1, 32)} if last != "bias" else {}
        for name, shape in sizes.items():
            values = generator.normal(0.0, 0.3, shape).astype(np.float32)
            tensors[f"{head}.{name}"] = values
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    words = bert_tf.BertMaskedLM.from_pretrained(tmp_path)
    detector = bert_tf.BertReplacedTokenDetector.from_pretrained(tmp_path)
    assert not words.untrained_heads and not detector.untrained_heads
    batch = batch_of("deberta-v2")
    reference = Reference(words.backbone.config, open_pretrained(tmp_path).source)
    x, mask = reference(*batch)[0], batch[2]
    np.testing.assert_allclose(
        ours(words, *batch)[mask], reference.masked_lm_logits(x)[mask], atol=1e-5
    )
    head = "discriminator_predictions"
    x = reference.layer_norm(x + x[:, :1], f"{head}.LayerNorm")
    x = reference.activation(reference.dense(x, f"{head}.dense"))
    logits = reference.dense(x, f"{head}.dense_prediction")[..., 0]
    np.testing.assert_allclose(ours(detector, *batch)[mask], logits[mask], atol=1e-5)
    detector.save_pretrained(tmp_path / "own", format="bert_tf")
    again = bert_tf.BertReplacedTokenDetector.from_pretrained(tmp_path / "own")
    np.testing.assert_array_equal(ours(again, *batch), ours(detector, *batch))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "eurobert"])  # it has no activation
def test_some_masked_lm_heads_always_compute_gelu(name):
    rows = tf.random.stateless_normal([5, 32], [1, 2])
    words = tf.random.stateless_normal([60, 32], [3, 4])
    logits = []
    for hidden_act in ("gelu", "relu"):
        own = {**FAMILIES[name].fixed, "model_type": name, "hidden_act": hidden_act}
        config = BertConfig(**{**SIZES, **own})
        head = MaskedLMHead(config)
        head.build()
        head.transform.kernel.assign(tf.eye(32))
        logits.append(head(rows, word_embeddings=words).numpy())
    is_equal = np.array_equal(*logits)
    follow = ("distilbert", "albert", "megatron-bert", "ernie", "nomic_bert", "jina_bert")
    follow = (*follow, "deberta", "deberta-v2", "rembert", "new", "roformer", "mosaic_bert")
    assert is_equal == (name not in follow)


def test_the_discriminator_of_electra(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    network = their_model("electra", "ForPreTraining")
    write(network, tmp_path / "theirs")
    model = bert_tf.BertReplacedTokenDetector.from_pretrained(tmp_path / "theirs")
    batch = batch_of("electra")
    expected = theirs(network, "electra", *batch).logits.numpy()
    received = ours(model, *batch).numpy()
    np.testing.assert_allclose(received[batch[2]], expected[batch[2]], rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path / "ours")
    _assert_read_back(transformers.ElectraForPreTraining, tmp_path / "ours", network)


def test_the_order_of_sentences_of_albert(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    network = their_model("albert", "ForPreTraining")
    write(network, tmp_path / "theirs")
    model = bert_tf.BertPretrainer.from_pretrained(tmp_path / "theirs", objective="mlm_sop")
    ids, segments, mask = batch_of("albert")
    expected = theirs(network, "albert", ids, segments, mask)
    tokens = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    tokens = {key: tf.convert_to_tensor(value) for key, value in tokens.items()}
    places = np.tile(np.arange(7, dtype=np.int32), [3, 1])
    received = model({**tokens, "masked_positions": tf.constant(places)})
    for name, logits in (
        ("masked_logits", expected.prediction_logits[:, :7]),
        ("next_sentence_logits", expected.sop_logits),
    ):
        np.testing.assert_allclose(received[name], logits, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path / "ours")
    _assert_read_back(transformers.AlbertForPreTraining, tmp_path / "ours", network)


def _assert_read_back(their_class, directory, network):
    """`transformers` reads the weights of `network` from what we have written."""
    again, report = their_class.from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    weights = network.float().state_dict()
    for key, values in again.state_dict().items():
        np.testing.assert_array_equal(values.numpy(), weights[key].numpy(), key)
    config = json.loads((directory / "config.json").read_text())
    assert config["architectures"] == [their_class.__name__]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in UNLIKE else pytest.mark.full) for n in NAMES]
)
def test_every_form_of_the_model(name, classifier_of, tmp_path):
    """8-bit integers, LoRA, `.keras`, our own format, an export: the same network."""
    classifier_of(name).save_pretrained(tmp_path / "theirs")
    batch = batch_of(name)
    tokens = dict(zip(("token_ids", "segment_ids", "padding_mask"), map(tf.constant, batch)))
    model = bert_tf.BertTextClassifier.from_pretrained(tmp_path / "theirs")
    expected = model(tokens).numpy()
    model.save(tmp_path / "model.keras")
    model.save_pretrained(tmp_path / "own", format="bert_tf")
    for path in (tmp_path / "model.keras", tmp_path / "own"):
        opened = bert_tf.BertTextClassifier.from_pretrained(path)
        assert opened.backbone.config == model.backbone.config
        np.testing.assert_allclose(opened(tokens), expected, atol=1e-6)
    for dtype in ("mixed_bfloat16", "mixed_float16"):
        opened = bert_tf.BertTextClassifier.from_pretrained(tmp_path / "theirs", dtype=dtype)
        error = np.abs(opened(tokens).numpy().astype(np.float32) - expected).max()
        assert 0 < error < 0.1 * np.abs(expected).max()
    model.enable_lora(2)
    np.testing.assert_allclose(model(tokens), expected, atol=1e-5)
    model.merge_lora()
    model.quantize("int8")
    assert 0 < np.abs(model(tokens).numpy() - expected).max() < 0.2 * np.abs(expected).max()


# Weights by BERT's names; their gradients also say that shared ones are added up.
WITH_GRADIENTS = {
    "embeddings.word_embeddings.weight": lambda model: model.backbone.embeddings.word_embeddings,
    "embeddings.position_embeddings.weight": lambda model: (
        model.backbone.embeddings.position_embeddings
    ),
    "encoder.layer.0.output.dense.weight": lambda model: (
        model.backbone.encoder.blocks[0].output_dense.kernel
    ),
    "pooler.dense.weight": lambda model: model.backbone.pooler.dense.kernel,
    "encoder.relative_attention_bias.weight": lambda model: model.backbone.encoder.distance_bias,
}


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@each_of_transformers
def test_gradients(name, tmp_path):
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    network = their_model(name, "ForSequenceClassification", **NO_DROPOUT)
    write(network, tmp_path)
    ids, segments, mask = batch_of(name)
    labels = [0, 2, 1]
    inputs = {"input_ids": ids, "attention_mask": mask.astype(int), "token_type_ids": segments}
    if name in WITHOUT_SEGMENTS:
        del inputs["token_type_ids"]
    inputs = {key: torch.tensor(value) for key, value in inputs.items()}
    network(**inputs, labels=torch.tensor(labels)).loss.backward()
    named = {key: values.grad for key, values in network.named_parameters()}
    named = {key: values for key, values in named.items() if values is not None}

    class Gradients:
        path, format = "", "huggingface"
        shapes = {key: tuple(values.shape) for key, values in named.items()}

        def read(self, key):
            return named[key].numpy()

    architecture = FAMILIES[name].class_prefix + "ForSequenceClassification"
    model = bert_tf.BertTextClassifier.from_pretrained(tmp_path, dropout=0.0)
    expected = family_names.by_bert_names(Gradients(), model.backbone.config, architecture)
    weights = {key: of(model) for key, of in WITH_GRADIENTS.items() if key in expected.shapes}
    has_positions = model.backbone.config.position_embedding_type == "absolute"
    has_names_in_memory = name not in ("nomic_bert", "gte")  # files have other ones
    assert len(weights) == 2 + has_names_in_memory + has_positions + (name == "mpnet")
    for padding_free in (True, False):
        model.backbone.padding_free = padding_free
        with tf.GradientTape() as tape:
            logits = ours(model, ids, segments, mask, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        found = tape.gradient(loss, [variable.value for variable in weights.values()])
        for key, received in zip(weights, found):
            received = tf.convert_to_tensor(received).numpy()
            received = received.T if "dense" in key else received
            wanted = expected.read(key)
            error = np.abs(received - wanted).max() / np.abs(wanted).max()
            assert error < 1e-4, (key, error)


@pytest.mark.parametrize("name", ["deberta", "deberta-v2"])
def test_gradients_of_all_weights_of_deberta(name, tmp_path):
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    network = their_model(name, "ForTokenClassification", **NO_DROPOUT)
    write(network, tmp_path)
    batch = batch_of(name)
    ids, mask = torch.tensor(batch[0]), torch.tensor(batch[2])
    logits = network(input_ids=ids, attention_mask=mask.int()).logits
    torch.cos(logits[mask]).sum().backward()
    model = bert_tf.BertTokenClassifier.from_pretrained(tmp_path, dropout=0.0)
    named = {key: values.grad.float().numpy() for key, values in network.named_parameters()}
    save_file(named, tmp_path / "model.safetensors", {"format": "pt"})
    expected = bert_tf.BertTokenClassifier.from_pretrained(tmp_path)
    expected = {variable.path.split("/", 1)[1]: variable for variable in expected.weights}
    variables = [v for v in model.trainable_variables if "pooler" not in v.path]
    for padding_free in (True, False):
        model.backbone.padding_free = padding_free
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cos(ours(model, *batch, training=True)[batch[2]]))
        for variable, found in zip(variables, tape.gradient(loss, [v.value for v in variables])):
            wanted = expected[variable.path.split("/", 1)[1]]
            error = np.abs(tf.convert_to_tensor(found) - wanted).max() / np.abs(wanted).max()
            assert error < 1e-4, (variable.path, error)


@each_family
def test_pruning(name, tmp_path):
    model = random_model(name)
    if model.backbone.config.num_key_value_heads:
        with pytest.raises(ConfigError, match="`num_key_value_heads` must .* without `pruned_hea"):
            model.prune_heads({0: [1]})
        return
    batch = batch_of(name)
    tokens = dict(zip(("token_ids", "segment_ids", "padding_mask"), map(tf.constant, batch)))
    heads = np.ones((3, SIZES["num_hidden_layers"], 4), np.float32)
    heads[:, slice(None) if model.backbone.config.shared_blocks else 0, 1] = 0.0
    expected = model({**tokens, "head_mask": tf.constant(heads)}).numpy()
    model.prune_heads({0: [1]})
    np.testing.assert_allclose(model(tokens), expected, rtol=1e-4, atol=1e-4)


def test_left_padding_does_not_move_positions_of_roberta(tmp_path):
    network = their_model("roberta", "Model")
    write(network, tmp_path)
    ids, segments, mask = batch_of("roberta", rows=1)
    ids, mask = ids[:, ::-1].copy(), mask[:, ::-1].copy()  # padding comes first
    expected = theirs(network, "roberta", ids, segments, mask).last_hidden_state.numpy()
    received = ours(BertBackbone.from_pretrained(tmp_path), ids, segments, mask)
    received = received["sequence_output"].numpy()
    np.testing.assert_allclose(received[mask], expected[mask], rtol=1e-5, atol=1e-5)


def test_buckets_of_distances():
    pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = np.arange(-600, 601)
    expected = MPNetEncoder.relative_position_bucket(torch.tensor(-distances)).numpy()
    np.testing.assert_array_equal([distance_bucket(d) for d in distances], expected)


def test_distances_beyond_the_last_bucket(tmp_path):
    backbone = random_model("mpnet", BertBackbone, max_position_embeddings=300)
    backbone.save_pretrained(tmp_path)
    generator = np.random.default_rng(4)
    ids = generator.integers(5, SIZES["vocab_size"], [2, 290])
    mask = np.arange(290) < [[290], [150]]
    batch = (ids, np.zeros_like(ids), mask)
    states, _ = Reference(backbone.config, open_pretrained(tmp_path).source)(*batch)
    for padding_free in (True, False):
        backbone.padding_free = padding_free
        received = ours(backbone, *batch)["sequence_output"]
        np.testing.assert_allclose(received, states * mask[..., np.newaxis], atol=2e-5)


def test_recomputed_blocks_have_the_gradient_of_the_distance_bias():
    gradients = []
    for recomputes in (False, True):
        backbone = random_model("mpnet", BertBackbone, **NO_DROPOUT)
        backbone.encoder.gradient_checkpointing = recomputes
        with tf.GradientTape() as tape:
            output = ours(backbone, *batch_of("mpnet"), training=True)["sequence_output"]
            loss = tf.reduce_sum(output * tf.cos(tf.range(32, dtype=tf.float32)))
        biases = backbone.encoder.distance_bias
        gradients.append(tf.convert_to_tensor(tape.gradient(loss, biases.value)).numpy())
    assert np.abs(gradients[0]).max() > 0.1
    np.testing.assert_allclose(*gradients, atol=1e-5)


class Reference(NumpyBert):
    """The NumPy network with the switches, by BERT's names of the layers."""

    def __init__(self, config, source):
        self.network, self.dtype = config, np.float64
        self.activation = ACTIVATIONS[config.hidden_act]
        self.config = config.to_dict() | {"layer_norm_eps": config.layer_norm_eps}
        self.tensors = {name: source.read(name).astype(np.float64) for name in source.shapes}

    def __call__(self, ids, segments, mask):
        network = self.network
        rows = np.maximum(np.cumsum(mask, axis=1) - 1, 0) + network.position_offset
        if not network.position_offset:
            rows = np.arange(ids.shape[1])
        x = self.tensors["embeddings.word_embeddings.weight"][ids]
        if network.position_embedding_type == "absolute":
            x = x + self.tensors["embeddings.position_embeddings.weight"][rows]
        if network.type_vocab_size:
            x = x + self.tensors["embeddings.token_type_embeddings.weight"][segments]
        if network.task_type_vocab_size:
            x = x + self.tensors["embeddings.task_type_embeddings.weight"][0]
        if network.embedding_norm:
            x = self.layer_norm(x, "embeddings.LayerNorm")
        if network.embedding_size:
            x = self.dense(x, "embeddings_project")
        bias = self.score_bias(ids.shape[1])
        distances = np.abs(np.subtract.outer(*[np.arange(ids.shape[1])] * 2))
        for index in range(network.num_hidden_layers):
            every, window = network.global_attn_every_n_layers, network.attention_window
            attends, self.base = mask[:, np.newaxis], network.rope_theta
            if window is not None and index % every:
                attends = attends & (distances <= window)
                self.base = network.local_rope_theta
            block = f"encoder.layer.{0 if network.shared_blocks else index}"
            if network.norm_first:
                x = self.pre_norm_block(x, attends, block, index)
            else:
                before, (x, _) = x, self.block(x, attends, block, bias)
            if index == 0 and network.conv_kernel_size:
                x = self.convolved(before * mask[..., np.newaxis], x)
        if network.norm_first:
            x = self.layer_norm(x, "encoder.final_norm")
        return x, self.pooled(x)

    def pooled(self, x):
        if "pooler.dense.weight" not in self.tensors:
            return None
        pooled = ACTIVATIONS[self.network.pooler_act](self.dense(x[:, 0], "pooler.dense"))
        return self.layer_norm(pooled, "pooler.layer_norm") if self.network.pooler_norm else pooled

    def convolved(self, x, residual):
        """The convolution of DeBERTa-v2; x `[B, T, H]` is zero where there is no token."""
        kernel = self.tensors["encoder.conv.conv.weight"]  # [H, H, k]
        size, length = kernel.shape[2], x.shape[1]
        x = np.pad(x, [(0, 0), (size // 2, size // 2), (0, 0)])
        parts = [x[:, d : d + length] @ kernel[:, :, d].T for d in range(size)]
        sums = sum(parts) + self.tensors["encoder.conv.conv.bias"]
        return self.layer_norm(
            residual + ACTIVATIONS[self.network.conv_act](sums), "encoder.conv.LayerNorm"
        )

    def pre_norm_block(self, x, attends, name, index):
        """A block whose norms come first; that of the first attention may be missing."""
        has_norm = index > 0 or self.network.first_block_norm
        normal = self.layer_norm(x, f"{name}.attention.output.LayerNorm") if has_norm else x
        x = x + self.attended(normal, attends, name, 0.0)[0]
        return x + self.fed_forward(self.layer_norm(x, f"{name}.output.LayerNorm"), name)

    def attended(self, x, attends, name, score_bias):
        if self.network.position_embedding_type == "disentangled":
            score_bias = self.scores_of_distances(x, name)
        return super().attended(x, attends, name, score_bias)

    def scores_of_distances(self, x, name):
        """What the vectors of distances add to the scores of two tokens: `[B, N, T, T]`."""
        vectors = self.tensors["encoder.rel_embeddings.weight"]
        if self.network.norm_rel_ebd == "layer_norm":
            vectors = self.layer_norm(vectors, "encoder.LayerNorm")
        names = [f"{name}.attention.self.{role}" for role in ("query", "key")]
        if not self.network.share_att_key:
            names = [f"{name}.attention.self.pos_{role}_proj" for role in ("query", "key")]
        sizes = len(vectors), self.network.num_attention_heads, -1
        of_query, of_key = (
            (self.dense(vectors, one) / 3**0.25).reshape(sizes).transpose(1, 0, 2) for one in names
        )  # [N, S, D]
        query, key, _ = self.heads(x, name)  # [B, N, T, D]
        length, half, buckets = x.shape[1], len(vectors) // 2, self.network.position_buckets
        distances = np.subtract.outer(np.arange(length), np.arange(length))
        if buckets > 0:
            distances = np.vectorize(lambda one: distance_kind(one, buckets, 40))(distances)
        kinds = distances + half
        kinds = np.clip(kinds, 0, len(vectors) - 1)
        by_query = np.einsum("bntd,ntsd->bnts", query, of_key[:, kinds])
        by_key = np.einsum("bnsd,ntsd->bnts", key, of_query[:, kinds])
        return (by_query + by_key) / np.sqrt(query.shape[-1])

    def heads(self, x, name):
        """Query, key and value, turned and repeated for the heads of a group."""
        network, (batch, length, _) = self.network, x.shape
        groups = network.num_key_value_heads or network.num_attention_heads
        for role in ("query", "key", "value"):
            layer = f"{name}.attention.self.{role}"
            part = self.dense(x, layer)
            if role != "key":  # DeBERTa's vectors q_bias and v_bias
                part = part + self.tensors.get(layer.replace(role, f"{role[0]}_bias"), 0)
            part = part.reshape(batch, length, -1, network.head_size).transpose(0, 2, 1, 3)
            if role != "value" and network.position_embedding_type == "rotary":
                part = turned(part, self.base, network.rope_scaling_factor)
            if role != "value" and network.position_embedding_type == "disentangled":
                part = part / 3**0.25
            repeats = 1 if role == "query" else network.num_attention_heads // groups
            yield np.repeat(part, repeats, axis=1)

    def fed_forward(self, x, name):
        if not self.network.gated_mlp:
            return super().fed_forward(x, name)
        gate = self.activation(self.dense(x, f"{name}.intermediate.gate"))
        wide = gate * self.dense(x, f"{name}.intermediate.up")
        return self.dense(wide, f"{name}.output.dense")

    def layer_norm(self, x, name):
        if self.network.rms_norm:
            mean = (x**2).mean(axis=-1, keepdims=True)
            x = x / np.sqrt(mean + self.config["layer_norm_eps"])
            return x * self.tensors[f"{name}.weight"]
        return super().layer_norm(x, name)

    def score_bias(self, length):
        """What is added to the scores for the distance of query and key: `[N, T, T]`."""
        if self.network.position_embedding_type == "alibi":
            slopes = 2.0 ** -np.arange(2, 10, 2)  # of 4 heads
            places = np.arange(length)
            return -slopes[:, None, None] * np.abs(places[:, None] - places)
        if not self.network.relative_attention_num_buckets:
            return 0.0
        buckets = [[distance_bucket(i - j) for j in range(length)] for i in range(length)]
        return np.moveaxis(self.tensors["encoder.relative_attention_bias.weight"][buckets], 2, 0)


def distance_kind(distance, buckets, largest):
    """DeBERTa's kind of a distance: one each up to half of the buckets, then logarithmic ones."""
    half, size = buckets // 2, abs(distance)
    if size <= half:
        return distance
    share = np.log(size / half) / np.log((largest - 1) / half)
    return int(np.sign(distance) * (half + np.ceil(share * (half - 1) - 1e-9)))


def turned(heads, base, factor):
    """Queries or keys `[B, N, T, D]`, each pair of columns turned by the angle of its place."""
    pairs = heads[..., : heads.shape[-1] // 2] + 1j * heads[..., heads.shape[-1] // 2 :]
    places, columns = (np.arange(size)[..., np.newaxis] for size in pairs.shape[2:])
    angles = places * (factor * base) ** (-columns[:, 0] / len(columns))
    angles /= factor ** (1 / len(columns))
    pairs = pairs * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def distance_bucket(distance):
    """The bucket of MPNet: 8 for one distance each, and 8 up to a distance of 128, twice."""
    size, later = abs(distance), 16 * (distance < 0)
    if size < 8:
        return later + size
    return later + min(15, int(8 + 8 * np.log(size / 8) / np.log(128 / 8) + 1e-9))


# Tensors whose names or shapes are the family's own, in a file of a text classifier.
TENSORS = {
    "roberta": {
        "roberta.embeddings.position_embeddings.weight": (42, 32),
        "roberta.encoder.layer.2.attention.self.query.weight": (32, 32),
        "classifier.dense.weight": (32, 32),
        "classifier.out_proj.bias": (3,),
    },
    "distilbert": {
        "distilbert.transformer.layer.2.attention.out_lin.weight": (32, 32),
        "distilbert.transformer.layer.0.ffn.lin1.weight": (48, 32),
        "pre_classifier.weight": (32, 32),
        "classifier.bias": (3,),
    },
    "electra": {
        "electra.embeddings.word_embeddings.weight": (60, 16),
        "electra.embeddings_project.weight": (32, 16),
        "classifier.dense.weight": (32, 32),
        "classifier.out_proj.bias": (3,),
    },
    "mpnet": {
        "mpnet.embeddings.position_embeddings.weight": (42, 32),
        "mpnet.encoder.layer.2.attention.attn.q.weight": (32, 32),
        "mpnet.encoder.layer.0.attention.attn.o.bias": (32,),
        "mpnet.encoder.layer.0.attention.LayerNorm.weight": (32,),
        "mpnet.encoder.relative_attention_bias.weight": (32, 4),
        "classifier.dense.weight": (32, 32),
        "classifier.out_proj.bias": (3,),
    },
    "albert": {
        "albert.encoder.embedding_hidden_mapping_in.weight": (32, 16),
        "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight": (48, 32),
        "albert.pooler.weight": (32, 32),
        "classifier.bias": (3,),
    },
}
TENSORS["xlm-roberta"] = TENSORS["camembert"] = TENSORS["roberta"]
TENSORS |= {
    "roberta-prelayernorm": {
        "roberta_prelayernorm.LayerNorm.weight": (32,),
        "roberta_prelayernorm.encoder.layer.0.intermediate.LayerNorm.bias": (32,),
        "classifier.out_proj.bias": (3,),
    },
    "xlm-roberta-xl": {
        "roberta.encoder.LayerNorm.weight": (32,),
        "roberta.encoder.layer.0.attention.self_attn_layer_norm.weight": (32,),
        "roberta.encoder.layer.2.LayerNorm.bias": (32,),
    },
    "megatron-bert": {
        "bert.encoder.ln.weight": (32,),
        "bert.encoder.layer.0.attention.ln.bias": (32,),
        "bert.encoder.layer.2.ln.weight": (32,),
        "classifier.weight": (3, 32),
    },
    "ernie": {
        "ernie.embeddings.task_type_embeddings.weight": (3, 32),
        "ernie.pooler.dense.bias": (32,),
    },
    "rembert": {
        "rembert.embeddings.word_embeddings.weight": (60, 16),
        "rembert.encoder.embedding_hidden_mapping_in.weight": (32, 16),
        "classifier.bias": (3,),
    },
    "deberta": {
        "deberta.encoder.rel_embeddings.weight": (8, 32),
        "deberta.encoder.layer.0.attention.self.in_proj.weight": (96, 32),
        "deberta.encoder.layer.2.attention.self.v_bias": (32,),
        "deberta.encoder.layer.1.attention.self.pos_proj.weight": (32, 32),
        "deberta.encoder.layer.1.attention.self.pos_q_proj.bias": (32,),
        "pooler.dense.weight": (32, 32),
    },
    "deberta-v2": {
        "deberta.encoder.rel_embeddings.weight": (12, 32),
        "deberta.encoder.LayerNorm.bias": (32,),
        "deberta.encoder.conv.conv.weight": (32, 32, 3),
        "deberta.encoder.conv.LayerNorm.bias": (32,),
        "deberta.encoder.layer.2.attention.self.query_proj.bias": (32,),
        "pooler.dense.weight": (32, 32),
        "classifier.weight": (3, 32),
    },
    "nomic_bert": {
        "nomic_bert.emb_ln.bias": (32,),
        "nomic_bert.encoder.layers.0.attn.Wqkv.weight": (96, 32),
        "nomic_bert.encoder.layers.2.mlp.fc12.weight": (48, 32),
        "nomic_bert.encoder.layers.2.norm2.weight": (32,),
    },
    "gte": {
        "gte.encoder.layer.0.attention.qkv_proj.bias": (96,),
        "gte.encoder.layer.2.mlp.up_gate_proj.weight": (96, 32),
        "gte.encoder.layer.2.mlp.down_proj.bias": (32,),
        "gte.pooler.dense.weight": (32, 32),
    },
    "roformer": {
        "roformer.encoder.embed_positions.weight": (40, 8),
        "roformer.encoder.layer.2.attention.self.query.weight": (32, 32),
        "classifier.dense.weight": (32, 32),
    },
    "jina_bert": {
        "bert.encoder.layer.0.attention.self.query.bias": (32,),
        "bert.encoder.layer.2.mlp.gated_layers.weight": (96, 32),
        "bert.encoder.layer.2.mlp.wo.bias": (32,),
        "bert.encoder.layer.0.mlp.layernorm.weight": (32,),
        "classifier.weight": (3, 32),
    },
    "mosaic_bert": {
        "bert.encoder.layer.0.attention.self.Wqkv.bias": (96,),
        "bert.encoder.layer.2.mlp.gated_layers.weight": (96, 32),
        "bert.pooler.dense.weight": (32, 32),
    },
    "new": {
        "new.encoder.layer.0.attention.qkv_proj.bias": (96,),
        "new.encoder.layer.2.mlp.up_gate_proj.weight": (96, 32),
        "classifier.weight": (3, 32),
    },
    "jina_embeddings_v3": {
        "roberta.layers.0.self_attn.k_proj.bias": (32,),
        "roberta.layers.2.post_mlp_layernorm.bias": (32,),
        "roberta.embeddings.LayerNorm.weight": (32,),
        "classifier.out_proj.bias": (3,),
    },
    "eurobert": {
        "model.embed_tokens.weight": (60, 32),
        "model.layers.0.self_attn.k_proj.weight": (16, 32),
        "model.layers.2.mlp.gate_proj.weight": (48, 32),
        "model.norm.weight": (32,),
        "dense.bias": (32,),
        "classifier.bias": (3,),
    },
    "modernbert": {
        "model.embeddings.tok_embeddings.weight": (60, 32),
        "model.layers.0.attn.Wqkv.weight": (96, 32),
        "model.layers.2.mlp.Wi.weight": (96, 32),
        "model.layers.2.attn_norm.weight": (32,),
        "model.final_norm.weight": (32,),
        "head.norm.weight": (32,),
    },
}


@each_family
def test_written_and_read_without_transformers(name, classifier_of, tmp_path):
    model = classifier_of(name)
    model.save_pretrained(tmp_path)
    written = {
        key: values.shape for key, values in load_file(tmp_path / "model.safetensors").items()
    }
    assert written.items() >= TENSORS[name].items()

    opened = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    assert opened.backbone.config.to_dict() | {"extra": {}} == model.backbone.config.to_dict()
    for one, other in zip(opened.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    batch = batch_of(name)
    states, pooled = Reference(opened.backbone.config, open_pretrained(tmp_path).source)(*batch)
    mask = batch[2][..., np.newaxis]
    for padding_free in (True, False):
        opened.backbone.padding_free = padding_free
        received = ours(opened.backbone, *batch)
        np.testing.assert_allclose(received["sequence_output"], states * mask, atol=1e-5)
        np.testing.assert_allclose(received["pooled_output"], pooled, atol=1e-5)


@pytest.mark.parametrize(
    "name, model_class, architecture, tensors",
    [
        (
            "electra",
            bert_tf.BertReplacedTokenDetector,
            "ElectraForPreTraining",
            {
                "discriminator_predictions.dense.weight": (32, 32),
                "discriminator_predictions.dense_prediction.weight": (1, 32),
                "electra.embeddings_project.bias": (32,),
            },
        ),
        (
            "albert",
            bert_tf.BertPretrainer,
            "AlbertForPreTraining",
            {"sop_classifier.classifier.weight": (2, 32), "predictions.dense.weight": (16, 32)},
        ),
    ],
    ids=["electra", "albert"],
)
def test_heads_of_pretraining(name, model_class, architecture, tensors, folder_of, tmp_path):
    model = model_class.from_pretrained(folder_of(name))
    model.save_pretrained(tmp_path / "ours")
    written = {
        key: values.shape for key, values in load_file(tmp_path / "ours/model.safetensors").items()
    }
    assert written.items() >= tensors.items()
    config = json.loads((tmp_path / "ours/config.json").read_text())
    assert config["architectures"] == [architecture]
    opened = model_class.from_pretrained(tmp_path / "ours")
    assert not opened.untrained_heads
    for one, other in zip(opened.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["modernbert-decoder", "xlnet"])
def test_other_networks_are_refused_by_name(name, folder_of, tmp_path):
    shutil.copytree(folder_of("roberta"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": name}))
    with pytest.raises(ConfigError, match=f"must be one of albert, .*docs/checkpoints.md.*{name}"):
        BertBackbone.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("albert", {"num_hidden_groups": 2}),
        ("albert", {"inner_group_num": 2}),
        ("mpnet", {"relative_attention_num_buckets": 64}),
        ("electra", {"summary_activation": "tanh"}),
        ("roberta", {"position_embedding_type": "relative_key"}),
        ("roberta", {"pad_token_id": 60}),
        ("roberta", {"max_position_embeddings": 2}),
        ("distilbert", {"dim": "32"}),
        ("distilbert", {"n_layers": 10**6}),
        ("distilbert", {"layer_norm_eps": 1e-5}),
        ("mpnet", {"pad_token_id": 2}),
        ("modernbert", {"global_rope_theta": -1, "rope_parameters": None}),
        ("modernbert", {"local_attention": True}),
        ("modernbert", {"rope_scaling": {"type": "ntk", "factor": 2.0}}),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}),
        ("modernbert", {"rope_parameters": [1]}),
        ("modernbert", {"layer_types": ["sliding_attention", "full_attention"]}),
        ("modernbert", {"decoder_bias": False}),
        ("nomic_bert", {"head_dim": 16}),
        ("nomic_bert", {"n_layer": 4}),
        ("nomic_bert", {"rotary_scaling_factor": 2}),
        ("nomic_bert", {"activation_function": "geglu"}),
        ("gte", {"rope_scaling": {"type": "ntk", "factor": 2.0}}),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 0.5}}),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}}),
        ("new", {"rope_scaling": {"type": "yarn", "factor": 2.0}}),
        ("new", {"layer_norm_type": "rms_norm"}),
        ("eurobert", {"num_key_value_heads": 3}),
        ("rembert", {"tie_word_embeddings": True}),
        ("jina_bert", {"feed_forward_type": "original"}),
        ("jina_bert", {"feed_forward_type": "reglu"}),
        ("jina_bert", {"alibi_scaling": 2}),
        ("jina_bert", {"position_embedding_type": "absolute"}),
        *(
            (name, changes)
            for name in ("deberta", "deberta-v2")
            for changes in (
                {"pos_att_type": ["c2p"]},
                {"relative_attention": False},
                {"relative_attention": None},
                {"position_biased_input": True},
            )
        ),
        ("deberta", {"talking_head": True}),
        ("deberta", {"max_relative_positions": 10**9}),
        ("deberta-v2", {"position_buckets": 10**9}),
        ("deberta-v2", {"conv_kernel_size": 10**9 + 1}),
        ("deberta-v2", {"conv_kernel_size": 2}),
        ("deberta-v2", {"conv_groups": 2}),
        ("deberta-v2", {"norm_rel_ebd": "rms_norm"}),
        ("deberta-v2", {"share_att_key": False}),
    ],
)
def test_bad_configurations(name, changes, folder_of, tmp_path):
    shutil.copytree(folder_of(name), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises((ConfigError, CheckpointError)):
        BertBackbone.from_pretrained(tmp_path)


def test_few_blocks_keep_the_period_of_their_windows():
    """Two blocks fit several periods. Another one was read than written, so saving was refused."""
    values = {"model_type": "modernbert", "num_hidden_layers": 2}
    for _ in range(2):
        config = BertConfig.from_huggingface(values, "config.json", "modernbert")
        assert config.global_attn_every_n_layers == 3
        values = config.to_huggingface()


def test_nomic_bert_with_the_keys_of_its_published_files(folder_of, tmp_path):
    shutil.copytree(folder_of("nomic_bert"), tmp_path, dirs_exist_ok=True)
    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 48, "n_positions": 40}
    switches = {"activation_function": "swiglu", "prenorm": False, "rotary_emb_interleaved": False}
    values = {"model_type": "nomic_bert", "vocab_size": 60, "rotary_emb_base": 1000.0}
    (tmp_path / "config.json").write_text(json.dumps({**values, **sizes, **switches}))
    opened, expected = (
        BertBackbone.from_pretrained(tmp_path),
        random_model("nomic_bert", BertBackbone),
    )
    for one, other in zip(opened.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert opened.config.hidden_size == 32 and opened.config.rope_theta == 1000.0


def test_roformer_with_other_positions_is_refused(folder_of, tmp_path):
    shutil.copytree(folder_of("roformer"), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["encoder.embed_positions.weight"] += 0.1
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="must hold the sines and cosines of positions"):
        BertBackbone.from_pretrained(tmp_path)


@pytest.mark.usefixtures("fake_jieba")
def test_roformer_reads_chinese_words(folder_of, tmp_path):
    """Its files name no tokenizer but by `model_type`."""
    shutil.copytree(folder_of("roformer"), tmp_path, dirs_exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今", "今天", "天", "好"]
    pieces += [f"[unused{number}]" for number in range(SIZES["vocab_size"] - len(pieces))]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), "utf-8")
    model = bert_tf.BertSentenceEncoder.from_pretrained(tmp_path)
    assert model.tokenizer.tokenize(["今天好"]).to_list() == [[6, 8]]
    ids = {"token_ids": np.array([[2, 6, 8, 3]])}
    np.testing.assert_allclose(model.encode(["今天好"]), model.predict(ids), rtol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    opened = bert_tf.BertSentenceEncoder.from_pretrained(tmp_path / "saved")
    assert opened.tokenizer.get_config() == model.tokenizer.get_config()
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text("utf-8"))
    assert config["tokenizer_class"] == "RoFormerTokenizer"


def test_missing_tensors_are_named_as_in_the_file(folder_of, tmp_path):
    shutil.copytree(folder_of("distilbert"), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["transformer.layer.1.ffn.lin1.bias"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing: transformer.layer.1.ffn.lin1.bias"):
        BertBackbone.from_pretrained(tmp_path)


def test_what_has_no_name_is_written_in_our_own_format_only(folder_of, tmp_path):
    model = bert_tf.BertNextSentencePredictor.from_pretrained(folder_of("roberta"))
    for format in ("huggingface", "tf1"):
        with pytest.raises(UserError, match="`format` must be 'bert_tf'"):
            model.save_pretrained(tmp_path / "ours", format=format)
    model.save_pretrained(tmp_path / "ours", format="bert_tf")
    opened = bert_tf.BertNextSentencePredictor.from_pretrained(tmp_path / "ours")
    assert opened.backbone.config.position_offset == 2


@pytest.mark.parametrize("name", ["roberta", "electra"])
def test_the_dense_layer_of_a_classifier_is_not_the_pooler_of_old_files(
    name, classifier_of, tmp_path
):
    model = classifier_of(name)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for leaf in ("weight", "bias"):
        unused = np.zeros_like(tensors[f"classifier.dense.{leaf}"])
        tensors[f"{name}.pooler.dense.{leaf}"] = unused
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    batch = batch_of(name)
    opened = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    np.testing.assert_array_equal(ours(opened, *batch), ours(model, *batch))


@pytest.mark.parametrize(
    "name, changes",
    [
        ("distilbert", {"layer_norm_eps": 1e-5}),
        ("mpnet", {"pad_token_id": 2, "position_offset": 3}),
    ],
    ids=["distilbert", "mpnet"],
)
def test_what_transformers_has_fixed_is_not_written_otherwise(name, changes, tmp_path):
    with pytest.raises(UserError, match=f"`{next(iter(changes))}` must be 1.*Received"):
        random_model(name, BertBackbone, **changes).save_pretrained(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "bert", "embedding_size": 16},
        {"model_type": "roberta", "position_offset": 0},
        {"model_type": "roberta", "position_offset": 2, "pooler_act": "relu"},
        {"model_type": "roberta", "position_offset": 2, "shared_blocks": True},
        {"model_type": "roberta", "position_offset": 2, "embedding_size": 16},
        {"model_type": "bert", "relative_attention_num_buckets": 32},
    ],
    ids=str,
)
def test_switches_that_the_family_has_not(changes, tmp_path):
    backbone = BertBackbone(BertConfig(**{**SIZES, "pad_token_id": 1, **changes}))
    for format in ("huggingface", "tf1"):
        with pytest.raises(UserError, match="`format` must be 'bert_tf'"):
            backbone.save_pretrained(tmp_path, format=format)
    assert not list(tmp_path.iterdir())
    backbone.save_pretrained(tmp_path, format="bert_tf")
    assert BertBackbone.from_pretrained(tmp_path).config == backbone.config


def test_no_part_of_an_encoder_decoder(folder_of):
    folder = folder_of("roberta")
    with pytest.raises(UserError, match="encoder must be a BERT.*model_type='roberta'"):
        bert_tf.BertEncoderDecoder.from_encoder_decoder_pretrained(folder, folder)


def test_mpnet_is_no_prefix_language_model():
    ids, segments, mask = batch_of("mpnet")
    segments[:, 5:] = 1
    with pytest.raises(UserError, match="`relative_attention_num_buckets` must be None.*Received"):
        model = random_model("mpnet", BertBackbone)
        ours(model, ids, segments, mask, causal=True, attended_mask=segments == 0)


def test_names_come_back():
    for name, architecture in ((n, a) for n in NAMES for a in TASKS):
        architecture = FAMILIES[name].class_prefix + architecture
        names = [
            *(f"bert.encoder.layer.0.attention.self.{n}.weight" for n in ("query", "key", "value")),
            "bert.embeddings.LayerNorm.bias",
        ]
        tensors = {n: np.zeros((32, 32)) for n in names}
        config = BertConfig(**{**SIZES, **FAMILIES[name].fixed, "model_type": name})
        theirs = family_names.names_of(tensors, config, architecture)
        theirs = {key: value for key, value in theirs.items() if "embed_positions" not in key}

        class Source:
            path, format = "file", "huggingface"
            shapes = {key: value.shape for key, value in theirs.items()}

        read = family_names.by_bert_names(Source(), config, architecture)
        assert sorted(read.shapes) == sorted(n.removeprefix("bert.") for n in names)


@pytest.mark.parametrize("name", ["distilbert", "albert"])
def test_the_dropout_of_a_head_is_written_as_a_number(name, tmp_path):
    """transformers refuses null; without the key it would take another default."""
    model = random_model(name, classifier_dropout=None, hidden_dropout_prob=0.3)
    model.backbone.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written[FAMILIES[name].keys["classifier_dropout"]] == 0.3


@each_family
def test_the_dropout_of_a_classifier_is_written_under_the_key_of_the_family(
    name, classifier_of, tmp_path
):
    backbone = classifier_of(name).backbone
    model = bert_tf.BertTextClassifier(backbone, num_classes=3, dropout=0.25)
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    key = FAMILIES[name].keys.get("classifier_dropout", "classifier_dropout")
    assert {k: v for k, v in written.items() if k == key or ("classif" in k and "drop" in k)} == {
        key: 0.25
    }
