"""How GPT is fine-tuned: the last token, the loss of the next words, pairs in both orders."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification.model import swapped_pairs
from bert_tf.text import SubwordTokenizer
from tests.conformance.padding import moved
from tests.conformance.task import CONFIG, PAIRS, TEXTS, encoded
from tests.text.subwords import bpe_definition

LABELS = np.array([0, 1, 1, 0, 1, 0], np.int32)


def model_of(**options):
    keras.utils.set_random_seed(3)
    backbone = bert_tf.BertBackbone(CONFIG, causal=True)
    return bert_tf.BertTextClassifier(
        backbone, num_classes=2, pooling="last", dropout=0.0, **options
    )


def test_the_last_token_is_read_and_sees_only_earlier_ones(tmp_path):
    model, tokens = model_of(), encoded(TEXTS)
    states = model.backbone(tokens)["sequence_output"].numpy()
    last = states[np.arange(len(states)), tokens["padding_mask"].sum(axis=1) - 1]
    kernel, bias = model.classifier.kernel.numpy(), model.classifier.bias.numpy()
    logits = model.predict(tokens, verbose=0)
    np.testing.assert_allclose(logits, last @ kernel + bias, atol=1e-5)
    first = {name: values[:, :1] for name, values in tokens.items()}
    alone = model.backbone(first)["sequence_output"].numpy()
    np.testing.assert_allclose(states[:, :1], alone, atol=1e-5)
    model.save_pretrained(tmp_path)
    again = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    assert again.pooling == "last" and again.backbone.causal
    np.testing.assert_allclose(again.predict(tokens, verbose=0), logits, atol=1e-6)


@pytest.mark.usefixtures("eager_steps")
def test_the_loss_of_the_next_words_against_numpy(tmp_path):
    model, tokens = model_of(lm_loss_weight=0.5), encoded(TEXTS)
    outputs = model.backbone(tokens, output_word_embeddings=True)
    states, words = outputs["sequence_output"].numpy(), outputs["word_embeddings"].numpy()
    means = []
    for ids, mask, rows in zip(tokens["token_ids"], tokens["padding_mask"], states):
        count = mask.sum()
        logits = model.language_model_head(tf.constant(rows[: count - 1]), words).numpy()
        logits = logits.astype(np.float64)
        chosen = logits[np.arange(count - 1), ids[1:count]]
        means.append(np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen))
    own = model.predict(tokens, verbose=0).astype(np.float64)
    classes = np.log(np.exp(own).sum(axis=1)) - own[np.arange(len(own)), LABELS]
    model.compile(bert_tf.training.AdamWeightDecay(0.0))
    evaluated = model.evaluate(tokens, LABELS, verbose=0, return_dict=True)["loss"]
    assert evaluated == pytest.approx(classes.mean(), abs=1e-5)  # without the words
    for parts in (1, 2):
        model.compile(bert_tf.training.AdamWeightDecay(0.0), gradient_accumulation_steps=parts)
        history = model.fit(tokens, LABELS, batch_size=6, shuffle=False, verbose=0).history
        expected = classes.mean() + 0.5 * np.mean(means)
        assert history["loss"][0] == pytest.approx(expected, abs=1e-4)
    model.save_pretrained(tmp_path)
    again = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    np.testing.assert_array_equal(
        again.language_model_head.output_bias, model.language_model_head.output_bias
    )
    assert again.untrained_heads == ()


def test_pairs_in_both_orders():
    ab, ba = encoded(TEXTS, PAIRS), encoded(PAIRS, TEXTS)
    swapped = swapped_pairs(ab, tf.constant(ab["padding_mask"]))
    for name, values in ba.items():
        np.testing.assert_array_equal(swapped[name], values)
    model = model_of(both_orders=True)
    np.testing.assert_allclose(
        model.predict(ab, verbose=0), model.predict(ba, verbose=0), atol=1e-5
    )
    single = model_of()
    vectors = single.pooled(ab) + single.pooled(ba)
    np.testing.assert_allclose(model.pooled(ab), vectors, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "middle"])
def test_padding_may_be_anywhere(side):
    """Also in the loss of the next words, and for pairs in both orders."""
    model = model_of(lm_loss_weight=0.5, both_orders=True)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    losses = []
    for tokens in (moved(encoded(TEXTS, PAIRS), side)[0], encoded(TEXTS, PAIRS)):
        losses.append(float(np.ravel(model.train_on_batch(tokens, LABELS))[0]))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_word_vectors_and_switched_off_heads_hold_in_both_orders():
    ab, ba = encoded(TEXTS, PAIRS), encoded(PAIRS, TEXTS)
    model = model_of(both_orders=True)
    table = model.backbone.embeddings.word_embeddings
    vectors, swapped = (2 * tf.gather(table, tokens["token_ids"]) for tokens in (ab, ba))
    mask = tf.constant([[[1.0, 0.0], [0.0, 1.0]]] * len(TEXTS))  # [B, L, N]
    given = model.pooled({**ab, "word_vectors": vectors, "head_mask": mask})
    single = model_of()
    expected = single.pooled({**ab, "word_vectors": vectors, "head_mask": mask})
    expected += single.pooled({**ba, "word_vectors": swapped, "head_mask": mask})
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_a_model_that_sees_the_next_words_has_no_such_loss():
    with pytest.raises(UserError, match="`lm_loss_weight` must be at least 0"):
        bert_tf.BertTextClassifier(bert_tf.BertBackbone(CONFIG), lm_loss_weight=0.5)


def test_pairs_in_both_orders_need_segment_ids():
    tokenizer = SubwordTokenizer(bpe_definition([]))  # RoBERTa's: all segment ids are 0
    config = dataclasses.replace(CONFIG, vocab_size=tokenizer.vocab_size, pad_token_id=1)
    with pytest.raises(UserError, match="`both_orders` must be False for .* Received: both_orders"):
        bert_tf.BertTextClassifier(
            bert_tf.BertBackbone(config), both_orders=True, tokenizer=tokenizer
        )
