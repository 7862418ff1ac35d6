"""Every task: its SavedModel answers as the model does; what is not served is refused."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from tests.conformance.padding import moved
from tests.conformance.task import ROWS, assert_same, make
from tests.conformance.tasks import TASKS, tasks


def example(columns, row) -> bytes:
    """A row of columns of strings and numbers as a serialised `tf.train.Example`."""
    features = {}
    for name, values in columns.items():
        kind = "bytes_list" if values.dtype == tf.string else "float_list"
        value = {"value": np.ravel(values[row].numpy()).tolist()}
        features[name] = tf.train.Feature(**{kind: value})
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.mark.parametrize("portable", [True, pytest.param(False, marks=pytest.mark.full)])
@tasks("serving", few=True)
def test_served_answers(name, portable, tmp_path):
    """They take text, serialised examples and token dictionaries of any number of rows."""
    task, model = TASKS[name], make(TASKS[name])
    path = model.export(tmp_path, portable=portable, **task.exported)
    signatures = tf.saved_model.load(path).signatures
    columns = task.signature_inputs()
    expected = task.by_hand(model(task.question_features))
    assert_same(task.served(signatures["serving_default"](**columns)), expected, 1e-4)
    examples = tf.constant([example(columns, row) for row in range(ROWS)])
    assert_same(task.served(signatures["examples"](examples=examples)), expected, 1e-4)
    _, token_inputs = signatures["tokens"].structured_input_signature
    for side in ("right", "left"):
        rows, _ = moved(task.question_features, side)
        tokens = {name: tf.constant(rows[name]) for name in token_inputs}
        outputs = signatures["tokens"](**tokens)
        if "start_logits" in outputs:
            received = np.stack([outputs["start_logits"], outputs["end_logits"]], axis=1)
        else:
            received = outputs["vector" if "vector" in outputs else "logits"]
        np.testing.assert_allclose(received, model(tokens), rtol=1e-4, atol=1e-4)
    for lost in (slice(None), 0):  # all tokens, [CLS]
        mask = np.array(task.question_features["padding_mask"])
        mask.reshape(ROWS, -1, mask.shape[-1])[2, 0, lost] = False
        rows = {**task.question_features, "padding_mask": mask}
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"true at one token or.*\[2\]"):
            signatures["tokens"](**{name: tf.constant(rows[name]) for name in token_inputs})
    for signature in signatures.values():
        _, inputs = signature.structured_input_signature
        none = {name: tf.zeros([0] * spec.shape.rank, spec.dtype) for name, spec in inputs.items()}
        assert all(values.shape[0] == 0 for values in signature(**none).values())


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, task in TASKS.items()
        if "serving" in task.lacks and task.lacks["serving"].error
    ],
)
def test_not_served(name, tmp_path):
    with pytest.raises(UserError, match=TASKS[name].lacks["serving"].error):
        make(TASKS[name]).export(tmp_path)
    assert not list(tmp_path.iterdir())
