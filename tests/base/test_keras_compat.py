"""Quick layers and variables: what Keras knows of them is what it knows of its own."""

import keras
import tensorflow as tf

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


def tracked(base):
    """Returns what Keras and TensorFlow know of the attributes of a layer."""

    class Parts(base):
        def __init__(self):
            super().__init__()
            self.number, self.text, self.nothing = 1, "x", None
            self.inner = keras.layers.Dense(1)
            self.replaced = keras.layers.Dense(2)
            self.list = [keras.layers.Dense(3)]
            self.tuple = (keras.layers.Dense(4),)
            self.dictionary = {"a": keras.layers.Dense(5)}
            self.seeds = keras.random.SeedGenerator(3)
            self.metric = keras.metrics.Mean()
            self.weight = self.add_weight(shape=[2], name="weight")
            self.plain = tf.Variable([1.0])

    parts = Parts()
    parts.replaced = None
    parts.list.append(keras.layers.Dense(6))
    parts.trainable = False
    units = [layer.units for layer in parts._flatten_layers(include_self=False)]
    trainable = [parts.inner.trainable, parts.weight.trainable]
    shapes = [tuple(variable.shape) for variable in parts.variables]
    return units, trainable, shapes, {*parts._trackable_children()}


def test_attributes_are_tracked_as_in_a_layer_of_keras():
    units, trainable, *others = tracked(QuickLayer)
    assert units == [1, 2, 3, 4, 5, 6] and trainable == [False, False]
    assert tracked(keras.layers.Layer) == (units, trainable, *others)
