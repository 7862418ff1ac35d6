"""The craft of fine-tuning with every task model: frozen, opened from the top, LoRA, smoothed."""

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf import BertBackbone, BertTokenizer
from bert_tf.training import (
    AdamWeightDecay,
    GradualUnfreezing,
    SparseCrossentropy,
    freeze_layers,
    reinitialize_top_layers,
)

pytestmark = pytest.mark.full
TEXTS, PAIRS = ["good film", "bad film", "the good.", "a b c"], ["the", "bad", "film", "good"]
WORDS = [["good", "film"], ["bad"], ["the", "good", "."], ["a", "b", "c"]]
TAGS = [["B-X", "I-X"], ["O"], ["O", "B-X", "O"], ["O", "O", "O"]]
CONTEXTS, ANSWERS = ["the good film"] * 4, [("good", 4), ("film", 9), ("the", 0), ("good", 4)]
SMOOTHED = SparseCrossentropy(label_smoothing=0.1, focal_gamma=1.0)

# Name -> the class, its options, what `fit` takes, how it is compiled.
TASKS = {
    "classifier": ("BertTextClassifier", {}, (TEXTS, [0, 1, 1, 0]), {"loss": SMOOTHED}),
    "pairs": ("BertTextClassifier", {}, ((TEXTS, PAIRS), [0, 1, 1, 0]), {"loss": SMOOTHED}),
    "tagger": (
        "BertTokenClassifier",
        {"labels": ["O", "B-X", "I-X"]},
        (WORDS, TAGS),
        {"loss": SMOOTHED},
    ),
    "crf": (
        "BertTokenClassifier",
        {"labels": ["O", "B-X", "I-X"], "use_crf": True},
        (WORDS, TAGS),
        {},
    ),
    "answers": (
        "BertQuestionAnswerer",
        {"max_length": 16, "max_query_length": 6, "doc_stride": 4},
        ((TEXTS, CONTEXTS), ANSWERS),
        {"loss": SMOOTHED},
    ),
    "choices": (
        "BertMultipleChoice",
        {},
        ((TEXTS, [PAIRS[:2]] * 4), [0, 1, 1, 0]),
        {"loss": SMOOTHED},
    ),
    "masked": ("BertMaskedLM", {}, (TEXTS * 8, None), {"loss": SMOOTHED}),
    "next": ("BertNextSentencePredictor", {}, ((TEXTS, PAIRS), [0, 1, 1, 0]), {"loss": SMOOTHED}),
    "encoder": (
        "BertSentenceEncoder",
        {},
        ((TEXTS, PAIRS), [0, 1, 1, 0]),
        {"objective": "classification"},
    ),
}


@pytest.fixture(params=TASKS)
def task(request, tiny_config, tiny_vocabulary):
    name, options, data, compiled = TASKS[request.param]
    if (
        name
        in (
            "BertTextClassifier",
            "BertMultipleChoice",
            "BertNextSentencePredictor",
            "BertSentenceEncoder",
        )
        and data[1] is not None
    ):
        data = data[0], np.array(data[1])
    keras.utils.set_random_seed(5)
    model = getattr(bert_tf, name)(
        BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary), **options
    )
    return model, data, compiled


def backbone_of(model):
    """The blocks and the embeddings, as one array each."""
    backbone = model.backbone
    return {
        name: np.concatenate([values.reshape(-1) for values in layer.get_weights()])
        for name, layer in (
            ("embeddings", backbone.embeddings),
            *((f"block {n}", block) for n, block in enumerate(backbone.encoder.blocks)),
        )
    }


def changed(before, after):
    return {name for name in before if not np.array_equal(before[name], after[name])}


def fit(model, data, **options):
    return model.fit(*data, batch_size=4, verbose=0, **options)


def test_frozen_and_opened_from_the_top(task):
    model, data, compiled = task
    before = backbone_of(model)
    reinitialize_top_layers(model, 1, seed=3)
    drawn = backbone_of(model)
    assert changed(before, drawn) == {"block 1"}
    freeze_layers(model, 2)
    model.compile(AdamWeightDecay(1e-3), **compiled)
    fit(model, data)
    assert changed(drawn, backbone_of(model)) == set()
    freeze_layers(model, 0, embeddings=False)
    model.compile(AdamWeightDecay(1e-3, layer_decay=0.9), gradient_accumulation_steps=2, **compiled)
    fit(model, data, epochs=2, callbacks=[GradualUnfreezing()])
    assert changed(drawn, backbone_of(model)) == {"block 1"}


def test_lora_trains_is_saved_alone_and_merged(task, tmp_path):
    model, data, compiled = task
    model.enable_lora(2, layers=("query_key_value", "output_dense"))
    model.compile(AdamWeightDecay(1e-2), **compiled)
    embeddings = backbone_of(model)["embeddings"]
    history = fit(model, data, epochs=2).history
    assert np.isfinite(history["loss"]).all()
    np.testing.assert_array_equal(backbone_of(model)["embeddings"], embeddings)
    tokens = model.backbone({"token_ids": np.array([[2, 6, 7, 3]])})["sequence_output"].numpy()
    model.save_lora_weights(tmp_path / "lora.safetensors")
    model.merge_lora()
    merged = model.backbone({"token_ids": np.array([[2, 6, 7, 3]])})["sequence_output"].numpy()
    np.testing.assert_allclose(merged, tokens, atol=1e-5)
    model.save_pretrained(tmp_path / "model")
    again = type(model).from_pretrained(tmp_path / "model")
    opened = again.backbone({"token_ids": np.array([[2, 6, 7, 3]])})["sequence_output"].numpy()
    np.testing.assert_allclose(opened, merged, atol=1e-6)
