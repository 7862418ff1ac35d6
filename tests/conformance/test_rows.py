"""Every task: padding may be anywhere in a row, and a batch may have no rows."""

import tensorflow as tf

from bert_tf import ops
from bert_tf.ops.native import static_shapes
from tests.conformance.padding import at_tokens, moved
from tests.conformance.task import assert_same, make, shared
from tests.conformance.tasks import TASKS, tasks
from tests.ops.backends import BACKENDS


def answers(model, task, side):
    """The outputs for rows with padding on a side."""
    rows, columns = moved(task.features, side)
    return at_tokens(model(tf.nest.map_structure(tf.constant, rows)), task.features, columns)


@tasks(backends=BACKENDS)
def test_padding_may_be_anywhere(name, backend):
    task, model = TASKS[name], shared(TASKS[name])
    with ops.backend(backend):
        expected = answers(model, task, "right")
        assert_same(answers(model, task, "left"), expected)
        assert_same(answers(model, task, "middle"), expected)


@tasks(few=True)
def test_padding_may_be_anywhere_with_integers(name):
    task, model = TASKS[name], make(TASKS[name])
    model.quantize("int8")
    assert_same(answers(model, task, "left"), answers(model, task, "right"))


@tasks(few=True)
def test_padding_may_be_anywhere_under_xla(name):
    task, model = TASKS[name], shared(TASKS[name])
    expected = answers(model, task, "right")
    compiled = tf.function(model, jit_compile=True)
    with static_shapes():
        assert_same(answers(compiled, task, "left"), expected)
        assert_same(answers(compiled, task, "middle"), expected)


@tasks(backends=BACKENDS)
def test_a_batch_without_rows(name, backend):
    """It may be token dictionaries, also without columns, or strings."""
    task, model = TASKS[name], shared(TASKS[name])
    none = {key: values[:0] for key, values in task.features.items()}
    pairs = [(none, task.features)]
    pairs += [({key: values[..., :0] for key, values in none.items()}, task.features)]
    if "text" not in task.lacks:
        columns = task.question if isinstance(task.question, tuple) else (task.question,)
        texts = tuple(tf.constant(column)[:0] for column in columns)
        pairs += [(texts, task.question_features)]
    with ops.backend(backend):
        for rows, like in pairs:
            outputs, expected = (tf.nest.flatten(model(inputs)) for inputs in (rows, like))
            for values, usual in zip(outputs, expected, strict=True):
                assert values.shape[0] == 0 and values.shape.rank == usual.shape.rank
