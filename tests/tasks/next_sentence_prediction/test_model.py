"""BertNextSentencePredictor: the pre-trained head as a model of its own."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertNextSentencePredictor, BertPretrainer, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay

FIRSTS = ["good film", "the bad", "a b c d e f g"]
SECONDS = ["the good.", "film", "good"]


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary):
    return BertTokenizer(tiny_vocabulary, lowercase=False)


@pytest.fixture
def model(tiny_config, tokenizer):
    return BertNextSentencePredictor(BertBackbone(tiny_config), tokenizer=tokenizer)


def test_is_the_pretrainers_head(model, tiny_config, tmp_path):
    pretrainer = BertPretrainer(BertBackbone(tiny_config))
    pretrainer.save_pretrained(tmp_path)
    opened = BertNextSentencePredictor.from_pretrained(tmp_path, tokenizer=model.tokenizer)
    inputs = {**opened.tokenize(FIRSTS, SECONDS), "masked_positions": tf.ones([3, 1], tf.int32)}
    logits = pretrainer(inputs)["next_sentence_logits"].numpy().astype(np.float64)
    expected = 1 / (1 + np.exp(logits[:, 1] - logits[:, 0]))  # class 0 is "follows"
    np.testing.assert_allclose(
        opened.next_sentence_probability(FIRSTS, SECONDS), expected, atol=1e-6
    )


def test_learns_which_text_follows(model):
    model.compile(AdamWeightDecay(3e-3), metrics=["accuracy"])
    firsts, seconds = ["good film"] * 320, ["good", "bad"] * 160
    model.fit((firsts, seconds), np.array([0, 1] * 160), batch_size=8, epochs=3, verbose=0)
    follows, not_ = model.next_sentence_probability(firsts[:2], seconds[:2])
    assert follows > 0.9 > 0.1 > not_


def test_wrong_pairs_are_refused(model):
    with pytest.raises(UserError, match="may be empty. Received in row 1"):
        model.next_sentence_probability(FIRSTS, ["good", " ", "film"])
    with pytest.raises(UserError, match="same number of rows"):
        model.next_sentence_probability(FIRSTS, SECONDS[:2])


@pytest.mark.peers
def test_transformers_reads_and_writes_it(model, tmp_path):
    import torch
    import transformers

    model.save_pretrained(tmp_path / "ours")
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(tmp_path / "ours").eval()
    tokens = model.tokenize(FIRSTS, SECONDS)
    with torch.no_grad():
        logits = theirs(
            input_ids=torch.tensor(tokens["token_ids"].numpy().astype(np.int64)),
            token_type_ids=torch.tensor(tokens["segment_ids"].numpy().astype(np.int64)),
            attention_mask=torch.tensor(tokens["padding_mask"].numpy()),
        ).logits.numpy()
    np.testing.assert_allclose(model(tokens), logits, atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    opened = BertNextSentencePredictor.from_pretrained(
        tmp_path / "theirs", tokenizer=model.tokenizer
    )
    np.testing.assert_allclose(opened(tokens), logits, atol=1e-5)
