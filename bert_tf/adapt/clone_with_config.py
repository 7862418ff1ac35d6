"""A copy of a model with a backbone of another configuration."""

import keras

from bert_tf.config import BertConfig
from bert_tf.models.backbone import BertBackbone


def clone_with_config(model, config: BertConfig, **options):
    """Returns a new model of the same class and settings, not compiled, with random weights.

    Args:
        model: A `BertBackbone` or a model with one.
        config: The configuration of the new backbone, with the number of all its blocks.
        **options: Changes of the constructor's arguments, for a model with a backbone.
    """
    backbone = getattr(model, "backbone", model)
    settings = {"config": config.to_dict(), "num_encoder_layers": None}
    new = BertBackbone.from_config({**backbone.get_config(), **settings})
    new.pooler.is_missing = backbone.pooler.is_missing
    if model is backbone:
        return new
    head = {**model.get_config(), "backbone": keras.saving.serialize_keras_object(new)}
    copy = type(model).from_config({**head, **options})
    copy.untrained_heads = model.untrained_heads  # both callers copy the weights
    return copy
