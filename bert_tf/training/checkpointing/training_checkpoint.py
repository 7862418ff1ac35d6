"""Saves the whole state of a run every n steps, so that it can be killed and resumed exactly.

`load_average` averages the weights of the last checkpoints: Vaswani et al. 2017 (arXiv 1706.03762),
section 6.1.
"""

import dataclasses
import logging
import os
import re
from collections.abc import Collection

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import hooks, keras_compat
from bert_tf.base.files import atomic_path, recover, remove_directory, remove_leftovers
from bert_tf.base.json_files import read_json, write_json
from bert_tf.base.json_schema import integer, number, object_of, text
from bert_tf.errors import CheckpointError, UserError, require, require_one_of, user_error
from bert_tf.training.callbacks.training_log import StepCallback
from bert_tf.training.checkpointing.checkpoint_files import (
    DamagedCheckpoint,
    checkpoint_path,
    checkpoint_steps,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from bert_tf.training.distribution.strategies import is_chief
from bert_tf.training.schedules import resume_run, run_of

BEST = "best.json"
_BEST = object_of({"step": integer(most=2**63 - 1), "monitor": text(), "value": number()})

_logger = logging.getLogger("bert_tf")


@dataclasses.dataclass(eq=False)
class TrainingCheckpoint(StepCallback):
    """Saves the state of a run every `save_every` steps and restores the newest checkpoint.

    The state consists of all variables of the model (weights, random states) and of the optimizer
    (slots, iterations, loss scale), of the run that a schedule is spread over, and of the step,
    which is also the position in the data. With a dataset that can start at any step, a resumed run
    equals an uninterrupted one.

    Args:
        directory: The directory of the checkpoints `ckpt-<step>`, which all machines must see: the
            first worker writes and all read.
        save_every: The number of steps between two checkpoints.
        keep: The number of newest checkpoints that are kept.
        monitor: The log, such as "val_loss", of which the best checkpoint is kept too. None keeps
            only the newest ones.
        mode: "min" or "max": which value of `monitor` is the best one.
        settings: Other properties of the run (files, batch size, seed) as JSON values. If they
            differ when a checkpoint is restored, a warning is logged.
        keep_scheduled: The number of newest checkpoints at multiples of `save_every` that are kept,
            for `bert_tf.training.load_average`; others, of interrupted runs, do not replace them.

    Attributes:
        step: The step of the last batch or of the restored checkpoint.
        best_step: The step of the best checkpoint, or None.

    Raises:
        UserError: If `save_every` or `keep` is less than 1, `keep_scheduled` is less than 0, or
            `mode` is unknown.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-4))
        >>> batch = (model.tokenize(texts), model.targets(labels))
        >>> batches = tf.data.Dataset.from_tensors(batch).repeat()
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints", save_every=1)
        >>> step = checkpoint.restore(model)  # 0 where there is none yet
        >>> model.fit(batches.skip(step), steps_per_epoch=2 - step, callbacks=[checkpoint])
        >>> checkpoint.newest()
        'checkpoints/ckpt-2'
    """

    directory: str | os.PathLike
    save_every: int = 1000
    keep: int = 5
    monitor: str | None = None
    mode: str = "min"
    settings: dict | None = None
    keep_scheduled: int = 0

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("save_every", 1), ("keep", 1), ("keep_scheduled", 0)):
            value = getattr(self, name)
            require(value >= least, f"must be at least {least}", UserError, **{name: value})
        require_one_of("mode", self.mode, ("min", "max"))
        self.directory = os.fspath(self.directory)
        self.settings = dict(self.settings or {})
        self.best_step = None
        self._best_value = None
        self._saved_step = None

    def restore(self, model: keras.Model) -> int:
        """Loads the newest checkpoint into `model`, which must be compiled.

        A damaged checkpoint is logged and renamed to `damaged-ckpt-<step>`, and the one before it
        is loaded.

        Returns:
            The step of the checkpoint. If there is none, 0 is returned and nothing is loaded.

        Raises:
            CheckpointError: If the checkpoint is of another network or optimizer, if all
                checkpoints are damaged, or if an interrupted replacement cannot be undone.
            UserError: If the model is not compiled with an optimizer.
        """
        recover(self.directory)
        state_variables(model)  # builds the optimizer
        damaged = []
        for step in reversed(checkpoint_steps(self.directory)):
            path = checkpoint_path(self.directory, step)
            try:
                tensors, state = read_checkpoint(path)
            except DamagedCheckpoint as error:
                _logger.warning("%s. Trying the checkpoint before it.", error)
                damaged.append(path)
                continue
            require_same_network(path, state["network"], network_of(model))
            _build_for_slots(model, tensors)
            assign(path, tensors, state_variables(model), model.distribute_strategy)
            model.untrained_heads = ()
            for key, saved, mine in _differences(state["settings"], self.settings):
                _logger.warning(
                    f"{path} was saved with {key}={saved!r}, now it is {mine!r}: the resumed run "
                    "differs from an uninterrupted one."
                )
            resume_run(model, state.get("run"))
            self.step = self._saved_step = step
            _logger.info("Resuming from %s.", path)
            break
        else:
            if damaged:
                raise CheckpointError(
                    f"{self.directory} must have a good checkpoint. Received: all are damaged "
                    f"({', '.join(map(os.path.basename, damaged))}). Remove them to start again."
                )
        if is_chief(model.distribute_strategy):
            for path in damaged:
                aside = os.path.join(self.directory, f"damaged-{os.path.basename(path)}")
                try:
                    os.replace(path, aside)
                except OSError as error:
                    _logger.warning("%s could not be renamed: %s", path, error.strerror)
            remove_leftovers(self.directory)
        self._read_best()
        return self.step

    def save(self) -> str:
        """Writes a checkpoint of this step and removes those that are no longer kept.

        Returns:
            The path of the checkpoint.

        Raises:
            CheckpointError: If it cannot be written or if a weight is not finite. Older checkpoints
                are then not changed.
        """
        path = checkpoint_path(self.directory, self.step)
        if self._saved_step == self.step:
            return path
        if is_chief(self.model.distribute_strategy):
            tensors = {name: np.asarray(v) for name, v in state_variables(self.model).items()}
            self._require_finite(tensors)
            state = {
                "step": self.step,
                "model": hooks.describe_model(self.model),
                "network": network_of(self.model),
                "settings": self.settings,
            }
            run = run_of(self.model)
            if run is not None:
                state["run"] = run
            write_checkpoint(self.directory, self.step, tensors, state)
            self._remove_old()
        self._saved_step = self.step
        return path

    def newest(self) -> str | None:
        """Returns the path of the newest checkpoint, or None."""
        return newest_checkpoint(self.directory)

    def scheduled_steps(self) -> list[int]:
        """Returns the steps of the checkpoints at multiples of `save_every`, sorted."""
        steps = checkpoint_steps(self.directory)
        return [step for step in steps if step % self.save_every == 0]

    def on_train_begin(self, logs=None):
        later = [step for step in checkpoint_steps(self.directory) if step > self.step]
        if later:
            raise CheckpointError(
                f"{self.directory} must not have checkpoints after this run's step {self.step}. "
                f"Received: checkpoints of steps {later}. Call `restore(model)` before `fit` to "
                "resume from them, or choose another directory."
            )

    def on_step_end(self, logs):
        if self.step % self.save_every == 0:
            self.save()
            self._consider(logs)

    def on_epoch_end(self, epoch, logs=None):
        if self.monitor and self.monitor.startswith("val_"):
            self._consider(logs or {})

    def on_train_end(self, logs=None):
        self.save()

    def _consider(self, logs):
        """Saves a checkpoint of this step as the best one if its metric is the best."""
        if self.monitor not in logs:
            return
        value, best = float(logs[self.monitor]), self._best_value
        is_best = best is None or (value < best if self.mode == "min" else value > best)
        if not is_best or not np.isfinite(value):
            return
        self.save()
        self.best_step, self._best_value = self.step, value
        if is_chief(self.model.distribute_strategy):
            best = {"step": self.step, "monitor": self.monitor, "value": value}
            with atomic_path(os.path.join(self.directory, BEST)) as path:
                write_json(path, best)
            self._remove_old()

    def _read_best(self):
        path = os.path.join(self.directory, BEST)
        if not os.path.exists(path):
            return
        try:
            best = read_json(path, _BEST)
        except CheckpointError as error:
            _logger.warning("%s. The best checkpoint is not known.", error)
            return
        # It does not count if it is for another metric, was removed, or is of a later step (the
        # run was resumed from an earlier one).
        known = checkpoint_steps(self.directory)
        if best["monitor"] == self.monitor and best["step"] in known and best["step"] <= self.step:
            self.best_step, self._best_value = best["step"], best["value"]

    def _remove_old(self):
        steps, scheduled = checkpoint_steps(self.directory), self.scheduled_steps()
        kept = {self.best_step, *scheduled[max(0, len(scheduled) - self.keep_scheduled) :]}
        for step in steps[: -self.keep]:
            if step not in kept:
                path = checkpoint_path(self.directory, step)
                try:
                    remove_directory(path)
                except OSError as error:  # not fatal: the newer checkpoint is written
                    _logger.warning("%s could not be removed: %s", path, error.strerror)

    def _require_finite(self, tensors):
        # Not the optimizer's: with float16, `gradient_norm` of a skipped step is infinite.
        for name, values in tensors.items():
            if name.startswith("model/") and not np.isfinite(values).all():
                raise CheckpointError(
                    f"Weights must be finite. Received at step {self.step}: {name} holds NaN or "
                    f"infinity. The last good checkpoint is {self.newest() or 'none'}. Resume from "
                    "it with a lower learning rate or other data."
                )


def state_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables of the model and of the optimizer by name, without metrics.

    Raises `UserError` if the model is not compiled with an optimizer.
    """
    if getattr(model, "optimizer", None) is None:
        received = "a model without one. Call `compile` before `restore`."
        raise user_error("`model`", "be compiled with an optimizer", received)
    if not model.optimizer.built:
        with model.distribute_strategy.scope():
            model.optimizer.build(_trained_variables(model))
    named = model_variables(model)
    roots = {variable.path.split("/")[0] for variable in _network_variables(model)}
    for variable in model.optimizer.variables:
        # The name of the optimizer is cut off. The name of a slot begins with that of its variable.
        name = variable.path.partition("/")[2]
        root = max((r for r in roots if name.startswith(f"{r}_")), key=len, default="")
        _add(named, f"optimizer/{_unnumbered(root)}{name.removeprefix(root)}", variable)
    return named


def _build_for_slots(model: keras.Model, names: Collection[str]) -> None:
    """Lets the optimizer have the slots of a checkpoint, also those of what is frozen now."""
    known = keras_compat.built_variables(model.optimizer)
    trained = set(map(id, known))

    def has_slot(variable):
        root, _, rest = variable.path.partition("/")
        prefix = f"optimizer/{_unnumbered(root)}_{rest.replace('/', '_')}_"
        return id(variable) not in trained and any(name.startswith(prefix) for name in names)

    with model.distribute_strategy.scope():
        keras_compat.build_for(
            model.optimizer, [*known, *filter(has_slot, _network_variables(model))]
        )


def model_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables of the model by name, without metrics."""
    metrics = {id(variable) for variable in model.metrics_variables}
    named = {}
    for variable in _network_variables(model):
        if id(variable) not in metrics:
            root, _, rest = variable.path.partition("/")
            _add(named, f"model/{_unnumbered(root)}/{rest}", variable)
    return named


def _network_variables(model):
    """Returns the variables of the model, and those of its objective."""
    both = [*model.variables, *_trained_variables(model)]
    return list({id(variable): variable for variable in both}.values())


def _trained_variables(model):
    return getattr(model, "trained_variables", lambda: model.trainable_variables)()


def _unnumbered(name: str) -> str:
    """Removes the number that Keras gives the models of a process, as in `bert_pretrainer_1`."""
    return re.sub(r"_\d+$", "", name)


def _add(named, name, variable):
    count = sum(known.partition("#")[0] == name for known in named)
    named[f"{name}#{count}" if count else name] = variable


def network_of(model: keras.Model) -> dict:
    """Returns what a checkpoint must match: configuration, objective, optimizer and dtype."""
    config = getattr(getattr(model, "backbone", model), "config", None)
    values = dict(config.to_dict()) if config is not None else {}
    values.pop("extra", None)
    objective = getattr(model, "objective", None)
    if objective is not None:  # a name or a `SentenceLoss`
        values["objective"] = objective if isinstance(objective, str) else objective.description()
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    values["optimizer"] = type(optimizer).__name__
    values["dtype"] = model.dtype_policy.name
    return values


def _differences(saved, mine):
    """Yields the keys of two dictionaries whose values differ, with both values."""
    for key in sorted({*saved, *mine}):
        if saved.get(key) != mine.get(key):
            yield key, saved.get(key), mine.get(key)


def require_same_network(path: str, saved: dict, mine: dict) -> None:
    """Raises `CheckpointError` if a checkpoint's `network_of` is not that of this run."""
    lines = [f"  {key}={old!r} instead of {new!r}" for key, old, new in _differences(saved, mine)]
    if lines:
        raise CheckpointError(
            f"{path} must be of this run's network. Received:\n" + "\n".join(lines) + "\nUse the "
            "configuration of the checkpoint, or another output directory."
        )


def assign(
    path: str,
    tensors: dict[str, np.ndarray],
    variables: dict[str, keras.Variable],
    strategy: tf.distribute.Strategy,
) -> None:
    """Assigns the tensors of a checkpoint to the variables of the same names.

    Raises `CheckpointError` if names or shapes differ.
    """
    problems = [f"  missing: {name}" for name in sorted(set(variables) - set(tensors))]
    problems += [f"  not in this model: {name}" for name in sorted(set(tensors) - set(variables))]
    for name in sorted(set(variables) & set(tensors)):
        expected, received = tuple(variables[name].shape), tensors[name].shape
        if expected != received:
            problems.append(f"  {name}: shape {received} instead of {expected}")
    if problems:
        raise CheckpointError(
            f"{path} must have the variables of this model. Received:\n" + "\n".join(problems)
        )
    with strategy.scope():
        for name, variable in variables.items():
            variable.assign(tensors[name])


def load_average(checkpoint: TrainingCheckpoint, model: keras.Model, count: int) -> list[int]:
    """Assigns to a model the mean of its weights in the last checkpoints of a run.

    Only the checkpoints at multiples of `save_every` count, so that a run that was interrupted
    gives the same mean. Weights in bfloat16 or float16 are averaged by their float32 copies, sums
    are float64. The optimizer's state stays as it is, and so do the checkpoints.

    Args:
        checkpoint: The run's `TrainingCheckpoint`, with `keep_scheduled` of at least `count`.
        model: The compiled model.
        count: The number of checkpoints.

    Returns:
        The steps of the checkpoints.

    Raises:
        CheckpointError: If there are fewer checkpoints, one is damaged, or they are of another
            network or optimizer.
        UserError: If the model is not compiled with an optimizer.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-4))
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("averaged", 1, keep_scheduled=2)
        >>> model.fit(texts, labels, batch_size=2, epochs=3, callbacks=[checkpoint])
        >>> steps = load_average(checkpoint, model, 2)
        >>> len(steps)
        2
    """
    steps = checkpoint.scheduled_steps()
    if len(steps) < count:
        raise CheckpointError(
            f"{checkpoint.directory} must have {count} checkpoints at multiples of "
            f"{checkpoint.save_every} steps for their mean. Received: {len(steps)} (of steps "
            f"{steps}). Average fewer, or save more often."
        )
    steps = steps[-count:]
    variables = model_variables(model)
    stored = _stored_names(model, variables)
    totals = {}
    for step in steps:
        path = checkpoint_path(checkpoint.directory, step)
        tensors, state = read_checkpoint(path)
        require_same_network(path, state["network"], network_of(model))
        tensors = {name: tensors[there] for name, there in stored.items() if there in tensors}
        for name, values in tensors.items():
            if keras.backend.is_float_dtype(variables[name].dtype):
                totals[name] = totals.get(name, 0.0) + values.astype(np.float64)
    means = {name: (total / count).astype(np.float32) for name, total in totals.items()}
    assign(path, {**tensors, **means}, variables, model.distribute_strategy)
    return steps


def _stored_names(model, variables):
    """Returns by the name of a weight that of its values in a checkpoint: of a copy, if any."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    copies = getattr(model.optimizer, "float32_copies", list)()
    copy_of = {id(variable): names[id(copy)] for variable, copy in copies}
    return {name: copy_of.get(id(variable), name) for name, variable in variables.items()}
