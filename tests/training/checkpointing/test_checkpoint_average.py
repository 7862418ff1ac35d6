"""The mean of the last checkpoints, of a tiny pre-training run."""

import shutil

import numpy as np
import pytest

from bert_tf import BertBackbone, BertPretrainer
from bert_tf.errors import CheckpointError, UserError
from bert_tf.training import AdamWeightDecay, TrainingCheckpoint, fit_steps, load_average
from bert_tf.training.checkpointing.checkpoint_files import checkpoint_steps, read_checkpoint
from bert_tf.training.checkpointing.training_checkpoint import model_variables
from tests.training import tiny_run


def trained(directory, *ends, make=tiny_run.compiled, **options):
    """Trains to each of the steps `ends` with a new model and a new `TrainingCheckpoint`."""
    for end in ends:
        model = make()
        checkpoint = TrainingCheckpoint(directory, **{"save_every": 2, "keep": 1, **options})
        step = checkpoint.restore(model)
        fit_steps(model, tiny_run.batches, end, step, callbacks=[checkpoint])
    return model, checkpoint


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The directory, model and checkpoint of a run to step 7 that was stopped at step 3."""
    directory = tmp_path_factory.mktemp("interrupted")
    return directory, *trained(directory, 3, 7, keep_scheduled=2)


def values_of(model):
    return {name: variable.numpy() for name, variable in model_variables(model).items()}


def test_the_mean_is_that_of_the_scheduled_checkpoints(interrupted):
    directory, model, checkpoint = interrupted
    assert checkpoint_steps(directory) == [4, 6, 7]  # 2 and 3 made room
    iterations = int(model.optimizer.iterations)
    assert load_average(checkpoint, model, 2) == [4, 6]
    tensors = [read_checkpoint(directory / f"ckpt-{step}")[0] for step in (4, 6)]
    for name, received in values_of(model).items():
        parts = np.stack([tensor[name] for tensor in tensors])
        if parts.dtype == np.float32:
            expected = parts.astype(np.float64).mean(axis=0).astype(np.float32)
        else:
            expected = parts[-1]  # random states
        np.testing.assert_array_equal(received, expected, err_msg=name)
    assert int(model.optimizer.iterations) == iterations
    assert checkpoint_steps(directory) == [4, 6, 7]


def test_an_interrupted_run_has_the_mean_of_an_uninterrupted_one(interrupted, tmp_path):
    _, interrupted_model, interrupted_checkpoint = interrupted
    model, checkpoint = trained(tmp_path, 7, keep_scheduled=2)
    load_average(checkpoint, model, 2)
    load_average(interrupted_checkpoint, interrupted_model, 2)
    received, expected = values_of(interrupted_model), values_of(model)
    for name in expected:
        np.testing.assert_array_equal(received[name], expected[name], err_msg=name)


def test_low_precision_weights_are_averaged_by_their_copies(tmp_path):
    def in_bfloat16():
        model = BertPretrainer(BertBackbone(tiny_run.config(), dtype="bfloat16"), dtype="bfloat16")
        model.compile(AdamWeightDecay(1e-2))
        return model

    model, checkpoint = trained(tmp_path, 4, make=in_bfloat16, keep_scheduled=2)
    load_average(checkpoint, model, 2)
    copies = [read_checkpoint(tmp_path / f"ckpt-{step}")[0] for step in (2, 4)]
    names = [name for name in copies[0] if "float32_copy" in name and "word_embeddings" in name]
    assert len(names) == 1
    mean = np.mean([tensors[names[0]].astype(np.float64) for tensors in copies], axis=0)
    variable = model.backbone.embeddings.word_embeddings
    expected = mean.astype(np.float32).astype(variable.numpy().dtype)
    np.testing.assert_array_equal(variable.numpy(), expected)


def test_too_few_checkpoints(interrupted, tmp_path):
    _, model, checkpoint = interrupted
    with pytest.raises(CheckpointError, match=r"must have 3 checkpoints.*Received: 2 \(of steps"):
        load_average(checkpoint, model, 3)


def test_a_damaged_checkpoint_is_no_part_of_a_mean(interrupted, tmp_path):
    directory, model, _ = interrupted
    shutil.copytree(directory, tmp_path / "copy")
    (tmp_path / "copy" / "ckpt-6" / "manifest.json").unlink()
    checkpoint = TrainingCheckpoint(tmp_path / "copy", save_every=2, keep_scheduled=2)
    with pytest.raises(CheckpointError, match=r"ckpt-6/manifest\.json"):
        load_average(checkpoint, model, 2)


def test_a_negative_number_to_keep(tmp_path):
    with pytest.raises(UserError, match="`keep_scheduled` must be at least 0"):
        TrainingCheckpoint(tmp_path, keep_scheduled=-1)
