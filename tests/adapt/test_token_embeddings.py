"""Every task with more, and with fewer, tokens than it was made with."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertMaskedLM, BertTextClassifier, BertTokenizer
from bert_tf.adapt import resize_token_embeddings
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay
from tests.conformance.task import CONFIG, VOCABULARY, assert_same, make, shared
from tests.conformance.tasks import TASKS, tasks

SIZE = len(VOCABULARY)


def without_new_tokens(outputs):
    """Outputs without the columns of the new tokens, where there is one for each token."""

    def old(values):
        return values[..., :SIZE] if values.shape[-1] == SIZE + 3 else values

    return tf.nest.map_structure(old, outputs)


@tasks()
def test_the_outputs_stay(name):
    task, model = TASKS[name], shared(TASKS[name])
    added, tokenizer = ["new one", "<x>", "[E1]"], model.tokenizer
    before = [weight.numpy() for weight in model.weights]
    if tokenizer is None:
        larger = resize_token_embeddings(model, SIZE + 3)
    else:
        larger = resize_token_embeddings(model, tokenizer.with_added_tokens(added))
        assert larger.tokenizer.vocabulary[SIZE:] == added and tokenizer.vocab_size == SIZE
    assert larger.backbone.config.vocab_size == SIZE + 3
    assert_same(without_new_tokens(larger(task.features)), model(task.features), 1e-6)
    changed = 0
    for new, old, same in zip(larger.weights, model.weights, before, strict=True):
        np.testing.assert_array_equal(old, same)
        values = new.numpy()
        if old.shape == new.shape:
            np.testing.assert_array_equal(values, same)
            continue
        changed += 1
        np.testing.assert_array_equal(values[:SIZE], same)
        mean = same.mean(axis=0) if same.ndim > 1 else 0.0
        mean = np.broadcast_to(mean, values[SIZE:].shape)
        np.testing.assert_allclose(values[SIZE:], mean, atol=1e-6)
    assert changed >= 1
    back = resize_token_embeddings(larger, tokenizer or SIZE)
    for weight, same in zip(back.weights, before, strict=True):
        np.testing.assert_array_equal(weight, same)


@pytest.mark.usefixtures("eager_steps")
def test_new_tokens_are_learned_and_saved(tmp_path):
    model = make(TASKS["text classification"])
    model.compile(AdamWeightDecay(1e-2))
    tokenizer = model.tokenizer.with_added_tokens(["unheard"])
    larger = resize_token_embeddings(model, tokenizer)
    texts, labels = ["unheard", "the"] * 4, [1, 0] * 4
    larger.compile(AdamWeightDecay(1e-1))
    before = larger.backbone.embeddings.word_embeddings.numpy()
    larger.fit(texts, labels, epochs=4, batch_size=4, verbose=0)
    after = larger.backbone.embeddings.word_embeddings.numpy()
    assert np.abs(after - before)[SIZE].max() > 1e-2
    larger.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert opened.tokenizer.get_config() == tokenizer.get_config()
    np.testing.assert_allclose(opened.predict(texts, verbose=0), larger.predict(texts, verbose=0))
    larger.save(tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(opened.predict(texts, verbose=0), larger.predict(texts, verbose=0))
    larger.export(tmp_path / "exported")
    serve = tf.saved_model.load(str(tmp_path / "exported" / "1")).signatures["serving_default"]
    outputs = serve(tf.constant(["unheard", "the"]))["logits"]
    np.testing.assert_allclose(outputs, larger.predict(["unheard", "the"], verbose=0), atol=1e-5)


def test_a_backbone():
    backbone = BertBackbone(CONFIG)
    larger, smaller = (resize_token_embeddings(backbone, size) for size in (SIZE + 5, SIZE - 5))
    tokens = {"token_ids": tf.constant([[2, 5, SIZE - 6, 3]])}
    expected = backbone(tokens)["sequence_output"]
    for other in (larger, smaller):
        np.testing.assert_array_equal(other(tokens)["sequence_output"], expected)
    assert smaller.embeddings.word_embeddings.shape[0] == SIZE - 5
    table = larger.embeddings.word_embeddings.numpy()
    np.testing.assert_array_equal(table[SIZE], table[SIZE + 4])


def test_a_head_with_a_table_of_its_own():
    config = dataclasses.replace(CONFIG, output_embedding_size=16)
    model = BertMaskedLM(BertBackbone(config))
    larger = resize_token_embeddings(model, SIZE + 1)
    head, other = larger.masked_lm_head, model.masked_lm_head
    np.testing.assert_array_equal(head.output_embeddings[:SIZE], other.output_embeddings)
    assert head.output_bias.shape == (SIZE + 1,)


def test_what_is_refused():
    task = TASKS["text classification"]
    model = make(task)
    for tokens, message in (
        (0, "positive number of tokens"),
        (2.5, "must be a tokenizer, or a positive number"),
        (True, "must be a tokenizer, or a positive number"),
        (SIZE + 1, "`tokens` must be a tokenizer for a model that has one"),
    ):
        with pytest.raises(UserError, match=message):
            resize_token_embeddings(model, tokens)
    with pytest.raises(UserError, match="must be a number for a backbone"):
        resize_token_embeddings(model.backbone, model.tokenizer)
    config = BertConfig(**{**CONFIG.to_dict(), "pad_token_id": 40})
    with pytest.raises(UserError, match="pad_token_id"):
        resize_token_embeddings(BertBackbone(config), 30)
    tokenizer = BertTokenizer([*VOCABULARY, "more"])
    model.enable_lora(rank=2)
    with pytest.raises(UserError, match="no LoRA to be given other word embeddings"):
        resize_token_embeddings(model, tokenizer)
    quantized = make(task)
    quantized.quantize("int8")
    with pytest.raises(UserError, match="not be quantized to be given other word embeddings"):
        resize_token_embeddings(quantized, tokenizer)
    prepacked = make(task)
    prepacked.prepack_for_inference()
    with pytest.raises(UserError, match="not be prepacked to be given other word embeddings"):
        resize_token_embeddings(prepacked, tokenizer)
