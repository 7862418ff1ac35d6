"""BertMultipleChoice: a score for each choice, from text and tokens; learning; files."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertMultipleChoice, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay, SparseCrossentropy, WarmupLinearDecay

PROMPTS = ["good film", "the bad", "a b c"]
CHOICES = [["good", "bad film"], ("the good bad film.", "a"), ["c", "x y z"]]


@pytest.fixture(scope="module")
def make_model(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )

    def make(**options):
        keras.utils.set_random_seed(5)
        return BertMultipleChoice(BertBackbone(config), tokenizer=tokenizer, **options)

    return make


def plain_scores(model):
    """Every pair alone: backbone, pooler, one dot product."""
    kernel, bias = model.classifier.kernel.numpy(), model.classifier.bias.numpy()
    scores = np.zeros([3, 2])
    for row, (prompt, choices) in enumerate(zip(PROMPTS, CHOICES)):
        for column, choice in enumerate(choices):
            tokens = model.tokenizer([prompt], [choice])
            pooled = model.backbone(tokens)["pooled_output"].numpy()
            scores[row, column] = (pooled @ kernel + bias)[0, 0]
    return scores


def test_every_kind_of_input_gives_the_score_of_the_pair(make_model):
    model = make_model()
    model.run_eagerly = True  # values are all that matters
    model.classifier.bias.assign([0.3])
    expected = plain_scores(model)
    tokens = model.tokenize(PROMPTS, CHOICES)
    assert tokens["token_ids"].shape[:2] == (3, 2)
    columns = tuple(model.preprocessor.read_columns((PROMPTS, CHOICES)))
    dataset = tf.data.Dataset.from_tensor_slices((columns,)).batch(2)
    for scores in (
        model(tokens),
        model((tf.constant(PROMPTS), tf.constant(columns[1]))),
        model.predict((PROMPTS, CHOICES), verbose=0),
        model.predict((PROMPTS, CHOICES), batch_size=2, verbose=0),
        model.predict(dataset, verbose=0),
    ):
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def planted(count, rng):
    """The right choice says the word of the prompt again."""
    words = np.array(list("abcde"))
    labels = rng.integers(0, 4, count)
    choices = np.array([rng.permutation(words)[:4] for _ in range(count)])
    prompts = choices[np.arange(count), labels]
    return (
        [f"the {word}" for word in prompts],
        [[f"film {word}" for word in row] for row in choices],
    ), labels


@pytest.mark.full
def test_learns_planted_data(make_model):
    rng = np.random.default_rng(0)
    model = make_model(dropout=0.0)
    schedule = WarmupLinearDecay(3e-3, 120, 40)
    model.compile(AdamWeightDecay(schedule), metrics=["accuracy"])
    history = model.fit(
        *planted(1920, rng), validation_data=planted(200, rng), batch_size=32, epochs=2, verbose=0
    ).history
    assert history["val_accuracy"][-1] > 0.95, history
    inputs, labels = planted(40, rng)
    loss = SparseCrossentropy(label_smoothing=0.1, focal_gamma=2.0)
    model.compile(loss=loss)
    expected = float(loss(labels, model.predict(inputs, verbose=0)))
    logs = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert logs["loss"] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(UserError, match="choices have no fixed class"):
        model.compile(loss=SparseCrossentropy(class_weights=[1.0, 2.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    "x,words",
    [
        (PROMPTS, "must be a tuple .prompts, choices."),
        ([("good", "a", "b"), ()], "must be a tuple .prompts, choices."),
        ((PROMPTS, PROMPTS), "must have a list of strings in row 0"),
        ((PROMPTS, CHOICES[:2]), "3 prompts, 2 lists"),
        ((PROMPTS, [["a", "b"], ["a"], ["a", "b"]]), "in row 1: 1, in row 0: 2"),
        ((PROMPTS, [["a"], ["a"], ["b"]]), "at least two choices"),
    ],
)
def test_wrong_inputs_are_refused(make_model, x, words):
    with pytest.raises(UserError, match=words):
        make_model().predict(x)


@pytest.mark.peers
def test_transformers_reads_and_writes_it(make_model, tmp_path):
    import torch
    import transformers

    model = make_model()
    model.save_pretrained(tmp_path / "ours")
    theirs = transformers.BertForMultipleChoice.from_pretrained(tmp_path / "ours").eval()
    tokens = model.tokenize(PROMPTS, CHOICES)
    with torch.no_grad():
        logits = theirs(
            input_ids=torch.tensor(tokens["token_ids"].numpy().astype(np.int64)),
            token_type_ids=torch.tensor(tokens["segment_ids"].numpy().astype(np.int64)),
            attention_mask=torch.tensor(tokens["padding_mask"].numpy().astype(np.int64)),
        ).logits.numpy()
    np.testing.assert_allclose(model(tokens), logits, atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    opened = BertMultipleChoice.from_pretrained(tmp_path / "theirs", tokenizer=model.tokenizer)
    np.testing.assert_allclose(opened(tokens), logits, atol=1e-5)
