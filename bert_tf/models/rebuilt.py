"""A copy of a model with a backbone of another configuration."""

import keras

from bert_tf.config import BertConfig
from bert_tf.models.backbone import BertBackbone


def rebuilt(model, config: BertConfig, **options):
    """Returns a model of the same class and settings, not compiled, its weights at random.

    Args:
        model: A `BertBackbone` or a model around one; the new one shares nothing with it.
        config: The configuration of the new backbone, with the number of all its blocks.
        **options: Other values of the constructor's arguments, for a model around a backbone.
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
