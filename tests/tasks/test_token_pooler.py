"""Heads on tokens that each pass through the pooler first, as in ModernBERT."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import tasks
from bert_tf.config import BertConfig

# The tasks without what all others take: blocks of BERT's own kind, special tokens.
REFUSED = {"encoder_decoder", "prefix_lm", "late_interaction"}
OPTIONS = {
    "token_classification": {"labels": ["O", "B-X"]},
    "text_classification": {"num_classes": 2},
}


@pytest.mark.parametrize("name", [s.name for s in tasks.specs() if s.name not in REFUSED])
def test_the_pooler_is_trained_if_outputs_depend_on_it(name):
    """The model of questions left it out."""
    spec = next(one for one in tasks.specs() if one.name == name)
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = BertConfig.modern(**sizes, intermediate_size=48, pad_token_id=0)
    assert config.pooler_use == "tokens"
    model_class, options = getattr(bert_tf, spec.model), OPTIONS.get(name, {})
    model = model_class(bert_tf.BertBackbone(config), **options)
    ids = np.array([[2, 9, 3, 11, 12, 3]])
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0}
    if name == "multiple_choice":
        inputs = {key: values[:, np.newaxis] for key, values in inputs.items()}
    elif name in ("masked_lm", "pretraining"):
        inputs["masked_positions"] = np.array([[1, 2]])
    pooler = model.backbone.pooler.trainable_variables
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(model(inputs))
        total = tf.add_n([tf.reduce_sum(tf.cast(values, tf.float32) ** 2) for values in outputs])
    gradients = tape.gradient(total, [variable.value for variable in pooler])
    depends = any(one is not None and np.abs(one).max() > 0 for one in gradients)
    trained = set(map(id, model.trained_variables()))
    assert pooler and all((id(variable) in trained) == depends for variable in pooler)
