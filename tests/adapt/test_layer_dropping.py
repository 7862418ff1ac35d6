"""A student made of its teacher's blocks."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenClassifier, BertTokenizer
from bert_tf.adapt import student_from_teacher
from bert_tf.adapt.layer_dropping import spread_layers
from bert_tf.errors import UserError

TOKENS = {"token_ids": np.array([[2, 5, 7, 3], [2, 6, 3, 0]], np.int32)}


@pytest.fixture(scope="module")
def teacher(tiny_config, tiny_vocabulary):
    keras.utils.set_random_seed(1)
    return BertTextClassifier(
        BertBackbone(dataclasses.replace(tiny_config, num_hidden_layers=6)),
        labels=["bad", "good"],
        pooling="mean",
        tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
        max_length=20,
    )


def test_even_distances():
    assert [spread_layers(count, 12) for count in (1, 4, 6)] == [
        [11],
        [2, 5, 8, 11],
        [1, 3, 5, 7, 9, 11],
    ]
    assert spread_layers(5, 7) == [0, 1, 3, 4, 6]
    assert spread_layers(7, 7) == list(range(7))


@pytest.mark.usefixtures("eager_steps")
def test_all_blocks_are_the_teacher(teacher):
    student = student_from_teacher(teacher, layers=range(6))
    expected = teacher.predict(["good film", "bad"], verbose=0)
    np.testing.assert_array_equal(student.predict(["good film", "bad"], verbose=0), expected)
    assert student.labels == teacher.labels and student.pooling == "mean"
    assert student.max_length == 20
    for weight in student.weights:
        weight.assign(weight + 1.0)
    np.testing.assert_array_equal(teacher.predict(["good film", "bad"], verbose=0), expected)


def test_chosen_blocks_are_the_teachers(teacher, tmp_path):
    student = student_from_teacher(teacher, num_hidden_layers=3)
    kept = [teacher.backbone.encoder.blocks[index] for index in (1, 3, 5)]
    for new, old in zip(student.backbone.encoder.blocks, kept, strict=True):
        for ours, theirs in zip(new.weights, old.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert student.backbone.config.num_hidden_layers == 3
    student.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    np.testing.assert_allclose(opened(TOKENS), student(TOKENS), atol=1e-6)


def test_blocks_keep_their_pruned_heads(tiny_config):
    teacher = BertBackbone(dataclasses.replace(tiny_config, num_hidden_layers=4))
    teacher.prune_heads({0: [2], 1: [0, 3], 3: [1]})
    student = student_from_teacher(teacher, layers=[1, 2, 3])
    assert student.config.pruned_heads == {0: (0, 3), 2: (1,)}
    for copy, block in zip(student.encoder.blocks, teacher.encoder.blocks[1:]):
        for ours, theirs in zip(copy.weights, block.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_other_models_and_the_backbone_alone(tiny_config):
    teacher = BertTokenClassifier(BertBackbone(tiny_config), labels=["O", "X"], use_crf=True)
    teacher.crf.transitions.assign(teacher.crf.transitions + 1.0)
    student = student_from_teacher(teacher, layers=[0, 1])
    np.testing.assert_array_equal(student(TOKENS), teacher(TOKENS))
    np.testing.assert_array_equal(student.crf.transitions, teacher.crf.transitions)
    first = student_from_teacher(teacher.backbone, layers=[0])
    hidden = teacher.backbone(TOKENS, output_hidden_states=True)["hidden_states"]
    np.testing.assert_allclose(first(TOKENS)["sequence_output"], hidden[1], atol=1e-6)


@pytest.mark.parametrize(
    "options, words",
    [
        ({}, "one of `num_hidden_layers` and `layers`"),
        ({"num_hidden_layers": 2, "layers": [0]}, "one of"),
        ({"num_hidden_layers": 7}, r"in \[1, 6\]"),
        ({"num_hidden_layers": 0}, "Received: 0"),
        ({"layers": []}, "in ascending order"),
        ({"layers": [0, 6]}, r"layers=\[0, 6\]"),
        ({"layers": [3, 1]}, r"layers=\[3, 1\]"),
    ],
)
def test_wrong_choices(teacher, options, words):
    with pytest.raises(UserError, match=words):
        student_from_teacher(teacher, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"conv_kernel_size": 3},
        {"norm_first": True, "first_block_norm": False},
        {"attention_window": 2, "global_attn_every_n_layers": 2},
    ],
)
def test_a_teacher_whose_blocks_differ(tiny_config, changes):
    teacher = BertBackbone(dataclasses.replace(tiny_config, **changes))
    with pytest.raises(UserError, match="must be None, True and 0: each block is made for its pl"):
        student_from_teacher(teacher, 1)


def test_a_teacher_without_plain_kernels(tiny_config):
    model = BertTextClassifier(BertBackbone(tiny_config))
    model.enable_lora(2)
    with pytest.raises(UserError, match="merge_lora"):
        student_from_teacher(model, 1)
    model.merge_lora()
    model.quantize("int8")
    with pytest.raises(UserError, match="int8"):
        student_from_teacher(model, 1)
