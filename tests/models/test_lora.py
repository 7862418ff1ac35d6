"""LoRA: only the additions and the head train; saved alone, merged, kept by a .keras file."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import CheckpointError, UserError
from bert_tf.training import AdamWeightDecay

TEXTS = ["good film", "bad film", "the good.", "the bad."] * 4
LABELS = np.array([1, 0, 1, 0] * 4)
ALL = ("query_key_value", "attention_output", "intermediate", "output_dense")


@pytest.fixture
def make(tiny_config, tiny_vocabulary):
    def make(**options):
        keras.utils.set_random_seed(5)
        return BertTextClassifier(
            BertBackbone(tiny_config, num_encoder_layers=1, **options),
            labels=["bad", "good"],
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
        )

    return make


def trained(model, epochs=12, **options):
    model.enable_lora(4, **options)
    model.compile(AdamWeightDecay(1e-2))
    model.fit(TEXTS, LABELS, batch_size=8, epochs=epochs, verbose=0)
    return model


def predictions(model):
    return model.predict(TEXTS, verbose=0)


def test_only_additions_and_head_train(make):
    model = make()
    before = predictions(model)
    base = {id(v): v.numpy() for v in model.backbone.variables if "float" in str(v.dtype)}
    model.enable_lora(4)
    np.testing.assert_allclose(predictions(model), before, atol=1e-6)  # B starts at zero
    names = sorted(variable.name for variable in model.trainable_variables)
    assert names == ["bias", "kernel", "lora_kernel_a", "lora_kernel_b"]
    model.compile(AdamWeightDecay(1e-2))
    model.fit(TEXTS, LABELS, batch_size=8, epochs=12, verbose=0)
    for variable in model.backbone.variables:
        if id(variable) in base:
            np.testing.assert_array_equal(variable, base[id(variable)])
    assert (predictions(model).argmax(1) == LABELS).mean() > 0.95


def test_merged_outputs_are_equal(make, tmp_path):
    model = trained(make(gradient_checkpointing=True), epochs=2, alpha=8.0, target_modules=ALL)
    before = predictions(model)
    with pytest.raises(UserError, match="merge_lora"):
        model.save_pretrained(tmp_path)
    model.merge_lora()
    assert not any(variable.name.startswith("lora") for variable in model.variables)
    np.testing.assert_allclose(predictions(model), before, atol=1e-5)
    model.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    np.testing.assert_allclose(predictions(opened), before, atol=1e-5)


def test_saved_alone(make, tmp_path):
    model = trained(make(), epochs=2, alpha=2.0, target_modules=("query_key_value", "output_dense"))
    path = tmp_path / "lora.safetensors"
    model.save_lora_weights(path)
    assert path.stat().st_size < 20_000
    other = make()  # the same base, another head
    other.classifier.kernel.assign(other.classifier.kernel + 1.0)
    other.load_lora_weights(path)
    np.testing.assert_allclose(predictions(other), predictions(model), atol=1e-6)
    other.load_lora_weights(path)  # again, into what is enabled
    other.merge_lora()
    other.enable_lora(2)
    with pytest.raises(UserError, match="no LoRA weights, or the same"):
        other.load_lora_weights(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="complete safetensors"):
        make().load_lora_weights(path)


@pytest.mark.parametrize("value,dtype", [(np.nan, np.float32), (np.inf, np.float64), (1, np.int32)])
def test_files_that_hold_no_weights(value, dtype, make, tmp_path):
    model, path = make(), tmp_path / "lora.safetensors"
    model.enable_lora(2)
    model.save_lora_weights(path)
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name] = np.full(tensors[name].shape, value, dtype)
    save_file(tensors, path)
    before = [variable.numpy() for variable in model.variables]
    with pytest.raises(CheckpointError, match=f"`{name}` in .* must hold"):
        model.load_lora_weights(path)
    for old, variable in zip(before, model.variables):
        np.testing.assert_array_equal(old, variable)


@pytest.mark.full
def test_keras_file_goes_on_where_it_was(make, tmp_path):
    model = trained(make(), epochs=1)
    model.save(tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(predictions(opened), predictions(model))
    assert len(opened.trainable_variables) == len(model.trainable_variables)
    opened.fit(TEXTS, LABELS, batch_size=8, verbose=0)
    assert int(opened.optimizer.iterations) == 4
    model.save_weights(tmp_path / "x.weights.h5")
    with pytest.raises(ValueError, match="could not be loaded"):  # never silently without LoRA
        make().load_weights(tmp_path / "x.weights.h5")


def test_wrong_uses_are_refused(make):
    model = make()
    with pytest.raises(UserError, match="modules=.'classifier'"):
        model.enable_lora(4, target_modules=["classifier"])
    with pytest.raises(UserError, match="rank=0"):
        model.enable_lora(0)
    with pytest.raises(UserError, match="enable_lora"):
        model.save_lora_weights("nowhere")
    trained(model, epochs=1)
    with pytest.raises(UserError, match="no LoRA yet"):
        model.enable_lora(4)
    with pytest.raises(UserError, match="no LoRA to be prepacked"):
        model.prepack_for_inference()
    model.merge_lora()
    with pytest.raises(UserError, match="before the first step"):
        model.enable_lora(4)
