"""The tasks, one folder each, and the registry of their specs.

A task is a package with a `TaskSpec` in its `__init__.py`: a folder here that `NAMES` lists, or a
package from anywhere that calls `register_task`. CONTRIBUTING.md shows how to write one.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from bert_tf.base.json_schema import Kind
from bert_tf.errors import UserError, require, user_error
from bert_tf.models.task_spec import MAX_LENGTH, Answers, TaskInput, TaskSpec

# The order is that in which the heads of a checkpoint are recognised.
NAMES = (
    "pretraining",
    "masked_lm",
    "next_sentence_prediction",
    "question_answering",
    "text_classification",
    "token_classification",
    "extractive_summarization",
    "multiple_choice",
    "sentence_embedding",
    "feature_extraction",
    "encoder_decoder",
    "prefix_lm",
    "replaced_token_detection",
    "cross_encoder",
    "late_interaction",
    "sparse_embedding",
)


_registered: list[TaskSpec] = []  # tasks of other packages
_kept: list[Any] = []  # the functions whose results depend on the specs


def kept_until_registration(function: Callable) -> Callable:
    """Returns a function that keeps what it makes of the specs until a task is registered."""
    kept = functools.cache(function)
    _kept.append(kept)
    return kept


def register_task(spec: TaskSpec) -> None:
    """Registers a task of another package for checkpoints, export, Beam and all programs.

    A package calls it in the `__init__.py` with the spec, so that importing the package is enough.
    A package that registers again replaces its spec.

    Args:
        spec: The task. Its `module` is the package.

    Raises:
        UserError: If there is no `module`, or another task has the same name or model, other heads
            under the same architecture, or an option or input of the same name and another kind.

    Example:
        >>> from bert_tf.models.task_spec import TaskSpec
        >>> spec = TaskSpec("age", "AgeRegressor", ("AgeRegressor",), module="my_tasks.age")
        >>> bert_tf.register_task(spec)
        >>> bert_tf.tasks.spec_of("AgeRegressor").model_module
        'my_tasks.age.model'
    """
    require(spec.module is not None, "must be the package of the task", UserError, module=None)
    before = list(_registered)
    _register([*(one for one in before if one.module != spec.module), spec])
    try:
        options(), inputs(), answers()
    except UserError:
        _register(before)
        raise


def _register(found):
    _registered[:] = found
    for function in _kept:
        function.cache_clear()


def registered_packages() -> list[str]:
    """Returns the packages of registered tasks, which another process must import to know them."""
    return [spec.module for spec in _registered]


@kept_until_registration
def specs() -> tuple[TaskSpec, ...]:
    """Returns the specs of all tasks.

    Example:
        >>> bert_tf.tasks.specs()[0].model
        'BertPretrainer'
    """
    ours = [importlib.import_module(f"bert_tf.tasks.{name}").SPEC for name in NAMES]
    found = (*ours, *_registered)
    names, models = [spec.name for spec in found], [spec.model for spec in found]
    are_own = all(len({*values}) == len(values) for values in (names, models))
    if names[: len(ours)] != list(NAMES) or not are_own:
        expected = "be unique, and `name` must be the name of the folder"
        raise user_error(
            "The `name` and the `model` of every SPEC", expected, f"name={names}, model={models}"
        )
    written: dict[str, list] = {}
    for spec in found:
        heads = list(spec.heads.values())
        if heads and written.setdefault(spec.architectures[0], heads) != heads:
            expected = "have the same heads"
            received = f"{spec.name}, architectures={spec.architectures}"
            raise user_error("SPECs with the same first architecture", expected, received)
    return found


def _merged(attribute: str, entry: Callable = lambda spec, value: value) -> dict[str, Any]:
    """Returns the entries of a dictionary of all specs, of which those of one name are equal."""
    found: dict[str, Any] = {}
    for spec in specs():
        for name, value in getattr(spec, attribute).items():
            if found.setdefault(name, entry(spec, value)) != entry(spec, value):
                raise UserError(
                    f"An entry of `{attribute}` must be the same in all SPECs. Received: {name} in "
                    f"the SPEC of {spec.name}, which differs from that of another SPEC"
                )
    return found


@kept_until_registration
def options() -> dict[str, Kind]:
    """Returns the types and ranges of the options of all tasks, as files store them.

    Other keys in a file are arguments of the user's own classes. They are not passed to
    constructors of this package.

    Example:
        >>> bert_tf.tasks.options()["doc_stride"].expected
        'a positive integer of at most 2147483647'
    """
    return {"max_length": MAX_LENGTH, **_merged("options")}


@kept_until_registration
def inputs() -> dict[str, TaskInput]:
    """Returns the inputs other than tokens that a token dictionary may have, of all tasks.

    Example:
        >>> bert_tf.tasks.inputs()["masked_positions"].dtype
        'int32'
    """
    return _merged("inputs")


@kept_until_registration
def answers() -> dict[str, tuple[TaskSpec, Answers]]:
    """Returns the task that answers a method of Beam's programs, and how, by its name.

    Example:
        >>> spec, asked = bert_tf.tasks.answers()["encode"]
        >>> spec.model, asked.texts
        ('BertSentenceEncoder', (1,))
    """
    return _merged("answers", lambda spec, asked: (spec, asked))


def spec_of(model: type | str) -> TaskSpec | None:
    """Returns the spec of a model's class, of a subclass or of a class name.

    Returns:
        None for a backbone and for a class that this package does not know.

    Example:
        >>> spec_of("BertSentenceEncoder").name
        'sentence_embedding'
        >>> spec_of(bert_tf.BertBackbone) is None
        True
    """
    by_name = _specs_by_model()
    if isinstance(model, str):
        return by_name.get(model)
    for base in model.__mro__:
        spec = by_name.get(base.__name__)
        if spec is not None and spec.model_module == base.__module__:
            return spec
    return None


_NONE = TaskSpec("", "BertBackbone", ("BertModel",))


def declared_spec(model: type) -> TaskSpec:
    """Returns the spec of a model's class; for a class without one, a spec without entries.

    Example:
        >>> declared_spec(bert_tf.models.task_model.TaskModel).heads
        {}
    """
    return spec_of(model) or _NONE


def preprocessor_spec(kind: type) -> TaskSpec:
    """Returns the spec that declares a preprocessor's class, or one without entries."""
    by_path = _specs_by_preprocessor()
    paths = (f"{base.__module__}.{base.__name__}" for base in kind.__mro__)
    return next((by_path[path] for path in paths if path in by_path), _NONE)


@kept_until_registration
def _specs_by_preprocessor():
    own = [spec for spec in specs() if spec.preprocessor not in (None, _NONE.preprocessor)]
    return {spec.path("preprocessor", spec.preprocessor): spec for spec in own}


@kept_until_registration
def _specs_by_model():
    return {spec.model: spec for spec in specs()}
