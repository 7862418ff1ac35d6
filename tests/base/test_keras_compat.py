"""Quick variables: TensorFlow makes one operation for all, and they keep their names."""

import tensorflow as tf

import bert_tf
from bert_tf import BertBackbone, BertConfig
from bert_tf.base.keras_compat import QuickLayer


def test_tensorflow_makes_one_operation_for_the_variables_of_all_models():
    names = []

    def watch(next_creator, **options):
        names.append(options["name"])
        return next_creator(**options)

    config = BertConfig(*(40, 16, 1, 2, 24), max_position_embeddings=8)
    with tf.variable_creator_scope(watch):
        models = [BertBackbone(config) for _ in range(2)]
    variables = [variable for model in models for variable in model.variables]
    assert len(names) == len(variables) > 40 and len(set(names)) == 1
    assert [v.value.name for v in variables] == [f"{v.path}:0" for v in variables]


def test_a_strategy_gives_its_own_names():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        layer = QuickLayer(name="layer")
        weight = layer.add_weight(name="weight", shape=[2], initializer="zeros")
    (value,) = strategy.experimental_local_results(weight.value)
    assert value.name == "layer/weight:0"


def test_a_subclass_may_keep_its_arguments_under_other_names():
    class Scaled(bert_tf.layers.Dense):
        def __init__(self, units, scale, **kwargs):
            super().__init__(units, **kwargs)
            self._scale = scale

        def get_config(self):
            return {**super().get_config(), "scale": self._scale}

    config = Scaled(3, scale=2.0).get_config()
    assert (config["units"], config["scale"], config["initializer_range"]) == (3, 2.0, 0.02)
    assert Scaled.from_config(config).get_config() == config
