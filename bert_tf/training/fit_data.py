"""What the user gives `fit`, `evaluate` and `predict` becomes what Keras takes: batches of tokens.

A model with a `preprocessor` has its texts read by it; all else goes to Keras as it came.
"""

import contextlib
import functools
import random
import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.keras_compat import DistributedAdapter
from bert_tf.errors import DataError, UserError, require, user_error
from bert_tf.inputs.balanced_rows import ReplicaShare
from bert_tf.inputs.batches import DEFAULT_BATCH_SIZE, EpochBatches, TextEpochs
from bert_tf.inputs.columns import TextColumns, holds_text, is_container, refuse_labels_in
from bert_tf.inputs.labels import UNKNOWN_LABELS, row_weights
from bert_tf.inputs.streams import with_graph_targets, yields_text
from bert_tf.inputs.token_inputs import OUT_OF_RANGE, PACKED_PLACES
from bert_tf.inputs.token_rows import TokenRows, parallel_map
from bert_tf.layers.attention.token_layout import packed_places
from bert_tf.ops import native
from bert_tf.text.code_points import MALFORMED_TEXT
from bert_tf.training.distribution.distributed_batches import replica_batches
from bert_tf.training.distribution.strategies import largest_of_workers, worker_addresses

ALL_ROWS = 1 << 31  # a batch size with which all rows of `train_on_batch` are one batch
DATA = ("x", "y", "sample_weight")
SEEDS = 2**31
_DATA_ERRORS = re.compile(f"({UNKNOWN_LABELS}|{MALFORMED_TEXT}|{OUT_OF_RANGE})[^\n]*")
_BATCHES = (tf.data.Dataset, DistributedAdapter)  # what has an `element_spec`


def fit_data(model: Any, given: dict[str, Any], token_budget: int | None) -> dict[str, Any]:
    """Returns all arguments of Keras's `fit`, with batches of tokens in place of texts.

    `given` are all arguments of `TaskModel.fit`, which documents the errors; `class_weight` is what
    `model.class_weights` returned.
    """
    x, y, weights = map(given.get, DATA)
    x, y = _read(model, x, y)
    held_out, split, batch_size = None, given["validation_split"], given["batch_size"]
    if given["validation_data"] is not None and model.preprocessor is not None:
        held_out = _read_validation(model, given["validation_data"])
    elif split and isinstance(x, TextColumns):
        (x, y, weights), held_out = _split_off(x, y, weights, split)
        given = given | {"validation_split": 0.0}
    if held_out is not None:
        rows = given["validation_batch_size"] or batch_size
        data = prepared_data(model, *held_out, rows)
        parts = tuple(data[name] for name in DATA)
        given = given | {"validation_data": parts[0] if data["y"] is None else parts}
    class_weight = given["class_weight"]
    if class_weight is not None:
        class_weight = model.balanced_class_weight(class_weight, y)
    options = {"shuffle": given["shuffle"], "training": True, "token_budget": token_budget}
    if isinstance(x, TextColumns):
        goes_on = given["steps_per_epoch"] is not None
        seed = _new_seed(model.distribute_strategy)
        options["epochs"] = TextEpochs(seed, given["initial_epoch"], goes_on)
        given = given | {"callbacks": with_callback(given["callbacks"], options["epochs"])}
    data = prepared_data(model, x, y, weights, batch_size, class_weight=class_weight, **options)
    _require_labels(model, data["x"], data["y"])
    shuffle = given["shuffle"] and not isinstance(data["x"], _BATCHES)
    return {**given, **data, "shuffle": shuffle}


def evaluation_data(
    model: Any, x: Any, y: Any, sample_weight: Any, batch_size: int | None, training: bool = False
) -> dict[str, Any]:
    """Returns `x`, `y`, `sample_weight`, `batch_size` as Keras's `evaluate` takes them.

    The errors are those of `TaskModel.evaluate`. With `training`, the data are to be trained on.
    """
    x, y = _read(model, x, y)
    epochs = TextEpochs(_new_seed(model.distribute_strategy)) if training else None
    data = prepared_data(model, x, y, sample_weight, batch_size, training=training, epochs=epochs)
    del data["class_weight"]
    _require_labels(model, data["x"], data["y"])
    return data


def one_batch(model: Any, x: Any, y: Any, sample_weight: Any, training: bool) -> dict[str, Any]:
    """Returns `x`, `y`, `sample_weight` of a single batch, with a token dictionary for texts.

    The arguments and errors are those of `evaluation_data`, and a `UserError` if texts do not make
    one batch.
    """
    data = evaluation_data(model, x, y, sample_weight, ALL_ROWS, training)
    del data["batch_size"]
    if not isinstance(data["x"], _BATCHES):
        return data
    batches = []
    if isinstance(data["x"], tf.data.Dataset):
        with as_data_errors():
            batches = list(data["x"].take(2))
    if len(batches) != 1:
        received = f"a {type(x).__name__} that makes several. Call `fit` or `evaluate`."
        raise user_error("`x`", "be one batch: its rows together, on one replica", received)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batches[0])
    return {"x": x, "y": tf.nest.map_structure(np.asarray, y), "sample_weight": sample_weight}


def prepared_data(
    model: Any,
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None,
    *,
    class_weight: dict[int, float] | None = None,
    training: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Returns data that are read as arguments for Keras: texts become batches of tokens.

    `x` and `y` are what `Preprocessor.read` and `read_labels` returned; the others are arguments of
    Keras's `fit` and of `text_batches`. Raises `UserError` if `token_budget` or labels do not fit
    the data.
    """
    token_budget = options.get("token_budget")
    if token_budget is not None:
        require_texts(x, "token_budget", token_budget)
        if batch_size is not None:
            received = f"{batch_size=}, {token_budget=}"
            raise user_error("At most one of `batch_size` and `token_budget`", "be given", received)
        _require_whole_batches(model, token_budget)
    data = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
    preprocessor, strategy = model.preprocessor, model.distribute_strategy
    if isinstance(x, TextColumns):
        make_batches = functools.partial(
            text_batches, preprocessor, **data, training=training, **options
        )
        data = dict.fromkeys(data)
        if strategy.num_replicas_in_sync > 1:
            parts = model.gradient_accumulation_steps if training else 1
            data["x"] = replica_batches(strategy, make_batches, parts, class_weight)
            class_weight = None  # it is in the batches
        else:
            data["x"] = make_batches()
    elif yields_text(x):
        for name in ("y", "sample_weight"):
            rule = "must be None for a dataset, which has its own"
            require(data[name] is None, rule, UserError, **{name: type(data[name]).__name__})
        preprocessor.require_tokenizer()
        data["x"], data["batch_size"] = preprocessor.batches(x, training), None
    elif preprocessor is not None and isinstance(x, tf.data.Dataset):
        data["x"] = with_graph_targets(preprocessor, x)
    elif is_container(sample_weight):
        data["sample_weight"] = row_weights(sample_weight)
    return {**data, "class_weight": class_weight}


def text_batches(
    preprocessor: Any,
    x: TextColumns,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: bool = False,
    training: bool = False,
    token_budget: int | None = None,
    epochs: TextEpochs | None = None,
    share: ReplicaShare | None = None,
) -> tf.data.Dataset:
    """Returns batches `(tokens, labels, weights)` of texts in memory.

    Args:
        preprocessor: The `Preprocessor` of the task.
        x, y: What its `read` and `targets` returned.
        sample_weight: The weight of each example, or None.
        batch_size: The number of rows of a batch; None for 32.
        shuffle, training: Whether each epoch has a different order; whether batches are trained on.
        token_budget: In place of `batch_size`, the maximum number of tokens of a batch.
        epochs: The epochs of the texts; None for the first one of seed 0.
        share: The part of each batch that this worker computes, in a batch for each of its
            replicas; None for whole batches.

    Raises:
        UserError: If there is no text, or not one label and weight for each, or batches cannot
            have `token_budget` tokens.
    """
    preprocessor.require_tokenizer()
    epochs = epochs or TextEpochs()
    rows, labels = preprocessor.training_rows(x, y, sample_weight)
    options = batch_size, token_budget, epochs.seed, shuffle, training
    batches = epoch_batches(preprocessor, x, rows, *options, y)
    if batches.may_lack_rows:
        batches.report_left_out(epochs.epoch)
    numbers = epochs.batches(batches)
    if share is not None:
        lengths = rows.sizes(padded=False).reshape(len(rows), -1).sum(axis=1)  # [n, K] -> [n]
        numbers = share.of(numbers, lengths)
    dataset = preprocessor.batches(rows, training, labels, numbers, epochs.seed)
    if batches.even and packs_tokens(preprocessor):
        dataset = _with_packed_places(dataset, batches.most_tokens)
    return dataset


def epoch_batches(
    preprocessor: Any,
    x: TextColumns,
    rows: TokenRows,
    batch_size: int | None = None,
    token_budget: int | None = None,
    seed: int = 0,
    shuffle: bool = True,
    training: bool = True,
    y: Any = None,
) -> EpochBatches:
    """Returns which of the `rows`, made of the texts `x`, each batch has.

    The other arguments are those of `text_batches`. Raises `UserError` if batches cannot have
    `token_budget` tokens or several texts per label.
    """
    groups = labels = rows_per_label = None
    if training and y is not None and preprocessor.texts_per_label is not None:
        labels, rows_per_label = np.asarray(y).reshape(-1), preprocessor.texts_per_label
    if training and preprocessor.no_duplicates:  # a number for each text, equal for equal texts
        texts = np.stack(x, axis=1)  # [n, K]
        groups = np.unique(texts, return_inverse=True)[1].reshape(texts.shape)
    length = None if token_budget is None else preprocessor.static_length
    padded = token_budget is not None and not packs_tokens(preprocessor)
    if token_budget is None:
        sizes, batch_size = np.ones(len(rows)), batch_size or DEFAULT_BATCH_SIZE
    elif padded and length is not None:
        one = rows.batch(np.zeros([1], np.int64), length)
        size = sum(values.size for name, values in one.items() if name.endswith("padding_mask"))
        sizes = np.full(len(rows), size)
    else:
        sizes = rows.sizes(padded)
    orders = {"seed": seed, "shuffle": shuffle, "groups": groups}
    orders |= {"labels": labels, "rows_per_label": rows_per_label}
    is_even = length is not None
    return EpochBatches(sizes, batch_size, token_budget, padded, is_even, **orders)


def packs_tokens(preprocessor: Any) -> bool:
    """Returns whether a token budget counts real tokens only."""
    if preprocessor.static_length is None:
        return preprocessor.packs_tokens()
    has_places = preprocessor.packs_under_xla and native.compiles_under_xla()
    with native.static_shapes():  # a step for XLA, in which other ops may be native
        return has_places and preprocessor.packs_tokens()


def _with_packed_places(dataset, size):
    """Adds the `packed_places` of `size` rows to the features of each batch."""

    def add(features, *labels):
        places = packed_places(features["padding_mask"], size)
        return ({**features, PACKED_PLACES: places}, *labels)

    return parallel_map(dataset, add)


@contextlib.contextmanager
def as_data_errors():
    """Raises a `DataError` for what a graph says about malformed text, unknown labels or ids."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _DATA_ERRORS.search(error.message)
        if found is None:
            raise
        raise DataError(found[0]) from error


def require_texts(x: Any, name: str, value: Any) -> None:
    """Raises `UserError` if an argument has a value that is for a list of texts only."""
    rule = "must be None for anything but a list of texts"
    fits = value is None or isinstance(x, TextColumns)
    require(fits, rule, UserError, **{name: value}, x=type(x).__name__)


def with_callback(callbacks: Any, callback: keras.callbacks.Callback) -> Any:
    """Returns the `callbacks` of `fit` with another one after them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(callback)
        return callbacks
    if not isinstance(callbacks, (list, tuple)):
        callbacks = [] if callbacks is None else [callbacks]
    return [*callbacks, callback]


def _new_seed(strategy):
    """Returns a seed that is the same on all workers, which must all call this.

    It comes from Python's generator, which `keras.utils.set_random_seed` sets, as Keras's own do.
    """
    seed = random.randrange(SEEDS)
    is_alone = strategy.cluster_resolver is None or not worker_addresses(strategy)
    return seed if is_alone else largest_of_workers(strategy, seed)


def _require_labels(model, x, y):
    """Raises `UserError` if the loss of a model of texts needs labels and there are none."""
    if isinstance(x, _BATCHES):
        has_labels = isinstance(x.element_spec, tuple) and len(x.element_spec) > 1
    else:
        has_labels = y is not None or not isinstance(x, dict)
    is_needed = model.loss is not None or model.spec.labels.are_required
    if is_needed and not has_labels and model.preprocessor is not None:
        received = "y=None. Pass `fit(x, y)`, or a dataset of tuples (x, y)."
        raise user_error("`y`", "be labels, a row for every example", received)


def _require_whole_batches(model, token_budget):
    """Raises `UserError` if XLA would compile steps of parts of batches with a token budget."""
    given = {
        "gradient_accumulation_steps": model.gradient_accumulation_steps,
        "mini_batch_size": getattr(model._objective, "mini_batch_size", None),
        "replicas": model.distribute_strategy.num_replicas_in_sync,
    }
    is_whole = [*given.values()] == [1, None, 1]
    rule = "must be None with `jit_compile=True` if a step divides a batch, which has one size"
    fits = not model.jit_compile or is_whole
    require(fits, rule, UserError, token_budget=token_budget, **given)


def _read(model, x, y):
    """Returns inputs and labels as the model's preprocessor reads them, if it has one."""
    preprocessor = model.preprocessor
    if preprocessor is not None and not isinstance(x, DistributedAdapter):
        refuse_labels_in(x, y)
        x = preprocessor.read(x)
    return x, model.read_labels(y, x)


def _read_validation(model, data):
    """Returns inputs, labels and weights of `validation_data`, which are read."""
    preprocessor = model.preprocessor
    if is_container(data) and not isinstance(data, tuple):
        has_parts = isinstance(data, list) and data and is_container(data[0])
        is_one = not has_parts or preprocessor.is_example(data[0])
        data = (data,) if is_one else tuple(data)
    # Without labels a tuple of two columns is pairs, and not Keras's (x, y).
    if preprocessor.spec.labels.are_in_texts and isinstance(data, tuple) and len(data) == 2:
        data = (data,) if all(map(holds_text, data)) else data
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return *_read(model, x, y), sample_weight


def _split_off(columns, y, sample_weight, share):
    """Does Keras's `validation_split`: splits off the last rows, before any shuffling."""
    count = columns.num_rows
    kept = int(count * (1 - share))
    rule = "must leave rows on both sides"
    require(0 < kept < count, rule, UserError, validation_split=share, rows=count)
    if sample_weight is not None:
        sample_weight = row_weights(sample_weight, count)

    def rows(part):
        labels = (None if values is None else values[part] for values in (y, sample_weight))
        return columns.select(part), *labels

    return rows(slice(None, kept)), rows(slice(kept, None))
