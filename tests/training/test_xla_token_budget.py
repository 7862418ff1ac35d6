"""`fit` under XLA with a token budget: how many programs, and what is refused.

That all tasks compute the same as without XLA is tested in tests/conformance/test_training.py.
"""

import pytest

from bert_tf.errors import UserError
from bert_tf.ops import native
from bert_tf.training.losses import CachedMultipleNegativesRankingLoss
from tests.conformance.task import ONE_BLOCK, make
from tests.conformance.tasks import TASKS
from tests.ops.backends import BACKENDS
from tests.training.fit_arguments import fit_arguments

pytestmark = pytest.mark.skipif(
    BACKENDS == ("reference",) or not native.compiles_under_xla(),
    reason="needs a TensorFlow with the headers of XLA, and the native ops",
)
TEXTS = ["a good film", "bad", "a film", "a bad film", "good", "the good"]
LABELS = [1, 0, 1, 0, 1, 0]


def model_of(name, **options):
    model = make(TASKS[name], config=ONE_BLOCK)
    model.compile("sgd", jit_compile=True, **options)
    return model


def test_one_program_for_all_epochs(monkeypatch):
    model, traced = model_of("text classification"), []
    step = model.train_step

    def counted(data):
        traced.append(data[0]["token_ids"].shape[0])
        assert data[0]["packed_places"].shape[0] <= 16
        return step(data)

    monkeypatch.setattr(model, "train_step", counted)
    history = model.fit(TEXTS, LABELS, token_budget=16, epochs=2, verbose=0)
    assert len(traced) == 1 and len(history.epoch) == 2
    model.fit(TEXTS, LABELS, token_budget=16, verbose=0)
    assert len(traced) == 1


def test_two_programs_if_batches_cannot_have_the_same_number_of_texts():
    model = model_of("text classification")
    data = fit_arguments(model, TEXTS[:5], LABELS[:5], token_budget=16)["x"]
    shapes = [{name: tuple(values.shape) for name, values in x.items()} for x, *_ in data]
    assert [shape["token_ids"] for shape in sorted(shapes, key=str)] == [(2, 20), (3, 20)]
    assert {shape["packed_places"] for shape in shapes} == {(16,)}


def test_a_text_that_is_longer_than_the_budget_is_refused():
    with pytest.raises(UserError, match="`token_budget` must be at least 5 with `jit_compile"):
        model_of("text classification").fit(TEXTS, LABELS, token_budget=4, verbose=0)


@pytest.mark.parametrize(
    "name, options, received",
    [
        ("text classification", {"gradient_accumulation_steps": 2}, "accumulation_steps=2"),
        (
            "sentence encoding",
            {"objective": CachedMultipleNegativesRankingLoss(mini_batch_size=2)},
            "mini_batch_size=2",
        ),
    ],
)
def test_a_step_that_divides_its_batch_is_refused(name, options, received):
    task = TASKS[name]
    with pytest.raises(UserError, match=f"`token_budget` must be None with .*{received}"):
        model_of(name, **options).fit(task.text, task.labels, token_budget=40, verbose=0)
