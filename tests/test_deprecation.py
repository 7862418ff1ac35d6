"""Old names of methods and arguments work for one more release, with a `DeprecationWarning`."""

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, serving
from bert_tf.layers import BertEncoder
from bert_tf.models.training_model import TrainingModel
from bert_tf.ops import native


@pytest.fixture
def classifier(tiny_config):
    return BertTextClassifier(BertBackbone(tiny_config))


def test_layers_of_lora(classifier):
    with pytest.warns(DeprecationWarning, match=r"`enable_lora\(target_modules=…\)`"):
        classifier.enable_lora(2, layers=["intermediate"])
    assert classifier.lora["layers"] == ["intermediate"]
    opened = BertTextClassifier.from_config(classifier.get_config())  # as files hold it
    assert opened.lora == classifier.lora
    with pytest.raises(TypeError, match="intermediate"):
        classifier.enable_lora(2, intermediate=True)


def test_saving_uses_no_old_name(classifier, tmp_path, recwarn):
    classifier.save(tmp_path / "model.keras")
    assert not [w for w in recwarn if "old name" in str(w.message)]


def test_recompute(tiny_config):
    with pytest.warns(DeprecationWarning, match=r"`BertBackbone\(gradient_checkpointing=…\)`"):
        backbone = BertBackbone(tiny_config, recompute=True)
    assert backbone.gradient_checkpointing and backbone.encoder.gradient_checkpointing
    config = backbone.get_config()
    config["recompute"] = config.pop("gradient_checkpointing")  # a file of an older version
    assert BertBackbone.from_config(config).gradient_checkpointing
    with pytest.warns(DeprecationWarning, match="`gradient_checkpointing`"):
        assert backbone.recompute
    config = backbone.encoder.get_config()
    config["recompute"] = config.pop("gradient_checkpointing")
    assert BertEncoder.from_config(config).gradient_checkpointing


def test_freeze_for_inference(classifier):
    if not native.use_native():
        pytest.skip("needs the native ops")
    for model in (classifier, classifier.backbone):
        with pytest.warns(DeprecationWarning, match="`prepack_for_inference`"):
            model.freeze_for_inference()
    with pytest.warns(DeprecationWarning, match="`is_prepacked`"):
        assert classifier.backbone.is_frozen


def test_frozen_model():
    with pytest.warns(DeprecationWarning, match="ConstantGraphModel"):
        assert serving.FrozenModel is serving.ConstantGraphModel


def test_a_loss_under_its_old_names():
    with pytest.warns(DeprecationWarning, match="`(loss_denominators|partial_loss)`") as warned:

        class Model(TrainingModel):
            def __init__(self):
                super().__init__()
                self.weight = self.add_weight(shape=[], initializer="ones")
                self.built = True

            def call(self, x):
                return x * self.weight

            def loss_weights(self, x, y, sample_weight):
                return {"rows": np.float32(2.0)}

            def loss_share(self, x, y, y_pred, sample_weight, training, totals):
                return keras.ops.sum(y_pred) / totals["rows"]

    assert len(warned) == 2
    with pytest.warns(DeprecationWarning, match="`partial_loss`"):

        class Doubled(Model):
            def loss_share(self, *args):
                return 2.0 * super().loss_share(*args)

    doubled = Doubled()
    doubled.compile("sgd")
    assert doubled.evaluate(np.array([[3.0], [5.0]]), verbose=0) == 8.0
    model = Model()
    model.compile("sgd")
    assert model.evaluate(np.array([[3.0], [5.0]]), verbose=0) == 4.0
