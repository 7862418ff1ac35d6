"""What this package needs of Keras and TensorFlow that has no public name.

Each part says what the public way would be. It was tried on Keras 3.15.1 with TensorFlow 2.21.0.
"""

import contextlib
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import get_loss
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from tensorflow.python.eager.record import could_possibly_record
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from bert_tf.errors import UserError

# Returns whether a graph is traced in a function with `jit_compile=True`. Public way: none.
is_traced_for_xla = GraphOrParentsInXlaContext

# Returns whether a `tf.GradientTape` or a `ForwardAccumulator` may be active. Public way: none.
may_be_differentiated = could_possibly_record


def _create_under_one_name(next_creator, **options):
    if not tf.executing_eagerly() or tf.distribute.has_strategy():
        return next_creator(**options)
    path = "/".join(filter(None, (tf.get_current_name_scope(), options["name"])))
    variable = next_creator(**{**options, "name": "variable/"})  # the slash leaves the scopes
    variable._handle_name = f"{path}:0"
    return variable


def quick_variables() -> contextlib.AbstractContextManager:
    """Creates the variables of the block faster. They keep their names. Public way: none.

    For each name of a variable, which contains that of the model, TensorFlow makes an operation and
    keeps it until the process ends. It therefore gets one name for all.
    """
    return tf.variable_creator_scope(_create_under_one_name)


class QuickLayer(keras.layers.Layer):
    """A Keras layer whose variables are created by `quick_variables`.

    The arguments of the constructors are attributes; all but layers are in the configuration.
    """

    def add_weight(self, *args, **kwargs):
        with quick_variables():
            return super().add_weight(*args, **kwargs)

    def get_config(self):
        kinds = itertools.takewhile(lambda kind: kind is not QuickLayer, type(self).__mro__)
        makers = [inspect.signature(kind.__init__) for kind in kinds if "__init__" in vars(kind)]
        names = {name for maker in makers for name in maker.parameters} - {"self", "kwargs"}
        # What a subclass keeps under another name, it adds itself.
        values = {name: getattr(self, name) for name in sorted(names) if hasattr(self, name)}
        own = {name: value for name, value in values.items() if not _holds_layers(value)}
        return {**super().get_config(), **own}


def _holds_layers(value):
    return any(isinstance(part, keras.layers.Layer) for part in tf.nest.flatten(value))


def quick_weights(model: keras.Model, with_trained: bool = False) -> list[keras.Variable]:
    """Returns the weights of a model in a fixed order, then those that are trained, if asked for.

    Public way: `weights`, which is slow: it looks through them once for each layer above them.
    """
    weights = []
    for layer in model._flatten_layers():
        weights += layer._trainable_variables
        weights += layer._non_trainable_variables
    return weights + model.trainable_weights if with_trained else weights


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Lets variables be added to a layer that is built. Public way: none."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


@contextlib.contextmanager
def shown_shapes(shapes: dict[keras.layers.Layer, tuple[int | None, ...]]) -> Iterator[None]:
    """Makes `summary` show these output shapes in the block, instead of "?".

    Keras derives a shape by `compute_output_shape` from the arguments of `build`; layers that have
    both keep it. Public way: none.
    """
    before = {layer: layer._build_shapes_dict for layer in shapes}
    default = keras.layers.Layer.compute_output_shape
    unknown = [
        layer
        for layer in shapes
        if not before[layer] or type(layer).compute_output_shape is default
    ]
    for layer in unknown:
        vars(layer).update(output_shape=shapes[layer], _build_shapes_dict={"input_shape": None})
    try:
        yield
    finally:
        for layer in unknown:
            vars(layer)["_build_shapes_dict"] = before[layer]
            del vars(layer)["output_shape"]


def remove_variable(layer: keras.layers.Layer, name: str) -> None:
    """Replaces a variable of a layer by None. Neither Keras nor TensorFlow saves it any longer.

    Public way: `delattr(layer, name)`, which also collects garbage, so it takes long for a model.
    """
    layer._untrack_variable(getattr(layer, name))
    layer._delete_tracking(name)
    setattr(layer, name, None)


def replace_variable(layer: keras.layers.Layer, name: str, values: dict[str, tf.Tensor]) -> None:
    """Replaces the attribute `name` of a built layer by variables that are not trained.

    `values` are the values of the new variables, by the attributes that get them.
    """
    remove_variable(layer, name)
    options = {"initializer": "zeros", "trainable": False, "autocast": False}
    with unlocked(layer):
        for new_name, value in values.items():
            variable = layer.add_weight(
                name=new_name, shape=value.shape, dtype=value.dtype.name, **options
            )
            variable.assign(value)
            setattr(layer, new_name, variable)


def move_variable(variable: keras.Variable, device: str) -> None:
    """Moves the value of a variable to another device.

    Public way: none; a variable stays where it was created. Functions that were traced before, and
    optimizers that were built before, still use the old place.
    """
    with tf.device(device):
        variable._initialize(tf.identity(variable._value))


def loss_object(loss: Any) -> keras.losses.Loss:
    """Returns the loss that Keras makes of what `compile` takes as one.

    Public way: `keras.losses.get`, which returns a function as it is, without a reduction.
    """
    return get_loss(loss, None, None)


def replace_losses(model: keras.Model, losses: Any) -> None:
    """Replaces the losses that a compiled model computes, before its first step.

    Public way: `compile`, which would also change `model.loss` and the saved configuration.
    """
    model._compile_loss._user_loss = losses


def learning_rate_schedule(optimizer: Any) -> Any:
    """Returns the schedule, or what else an optimizer was given as its learning rate.

    Public way: `optimizer.get_config`, which returns a copy.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a `LossScaleOptimizer`
    return getattr(optimizer, "_learning_rate", None)


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """Returns the metric `loss` of a compiled model. Public way: none."""
    return model._loss_tracker


def has_compiled_metrics(model: keras.Model) -> bool:
    """Returns whether `compile` was given metrics. Public way: none."""
    return model._compile_metrics is not None


def is_validation_in_fit(options: dict[str, Any]) -> bool:
    """Returns whether `fit`, with prepared data, calls `evaluate(**options)`. Public way: none."""
    return bool(options.get("_use_cached_eval_dataset"))


def steps_taken(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns the number of batches whose gradients an optimizer has applied.

    Public way: `int(optimizer.iterations)`, but not under a `tf.distribute` strategy.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a `LossScaleOptimizer`
    steps = int(tf.convert_to_tensor(optimizer.iterations))
    return steps * (optimizer.gradient_accumulation_steps or 1)


def built_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Returns the variables that an optimizer was built with. Public way: none."""
    return [*optimizer._trainable_variables]


def build_for(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> None:
    """Lets an optimizer update `variables`, also those that it was not built with.

    Public way: none, for an optimizer that is built.

    The state of the variables that it knows stays, as does its number of steps.

    Args:
        optimizer: The optimizer of a compiled model.
        variables: The variables that are trained now.

    Raises:
        UserError: If it averages the variables, and they are not those that it was built with.

    Example:
        >>> weight, bias = keras.Variable([1.0]), keras.Variable([0.0])
        >>> optimizer = keras.optimizers.Adam()
        >>> build_for(optimizer, [weight])
        >>> build_for(optimizer, [weight, bias])
        >>> optimizer.apply([tf.constant([1.0])], [bias])
    """
    if not optimizer.built:
        optimizer.build(variables)
        return
    known = optimizer._trainable_variables
    is_known = set(map(id, known))
    added = [variable for variable in variables if id(variable) not in is_known]
    owner = getattr(optimizer, "inner_optimizer", optimizer)
    if owner.use_ema and (added or len(variables) < len(known)):
        raise UserError(
            "The trained variables must stay the same with `use_ema=True`, or averages are mixed "
            f"up. Received: {len(variables)} variables, and {len(known)} when the optimizer was "
            "built. Compile the model again."
        )
    if added:
        _rebuild(optimizer, [*known, *added])


def _rebuild(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> None:
    """Builds a built optimizer again, for more variables. The state of those that it knows stays.

    Public way: a new optimizer, which has no state and begins its schedule again.

    Args:
        optimizer: The optimizer.
        variables: The variables that it was built with, in their order, and others after them.
    """
    inner = getattr(optimizer, "inner_optimizer", None)  # of a `LossScaleOptimizer`
    optimizers = [optimizer] if inner is None else [optimizer, inner]
    before = [_state_of_optimizer(each) for each in optimizers]
    for each, (slots, attributes) in zip(optimizers, before):
        for variable in (*slots, *attributes.values()):
            each._tracker.untrack(variable)
        each._trainable_variables_indices.clear()
        each.built = False
    optimizer.build(variables)
    for each, (old_slots, old_attributes) in zip(optimizers, before):
        slots, attributes = _state_of_optimizer(each)
        by_name = {}
        for slot in slots:
            by_name.setdefault(slot.name, []).append(slot)
        for slot in old_slots:  # those of the same name are in the order of `variables`
            by_name[slot.name].pop(0).assign(tf.convert_to_tensor(slot))
        for name, variable in old_attributes.items():
            attributes[name].assign(tf.convert_to_tensor(variable))


def _state_of_optimizer(optimizer):
    """Returns the variables that `build` makes: a list, and a dictionary of attributes."""
    kept = {id(optimizer._iterations), id(optimizer._learning_rate)}
    attributes = {
        name: value
        for name, value in vars(optimizer).items()
        if isinstance(value, keras.Variable) and id(value) not in kept
    }
    kept.update(map(id, attributes.values()))  # the names of some are not their own
    return [slot for slot in optimizer._variables if id(slot) not in kept], attributes


class DistributedAdapter(DataAdapter):
    """Gives `fit` and `evaluate` the batches of `distribute_datasets_from_function`.

    Public way: the dataset itself. Keras takes its number of elements for the number of steps,
    although a step takes one for each of a worker's replicas.

    Args:
        dataset: The `tf.distribute.DistributedDataset`.
        batches_per_step: The number of replicas of a worker.
    """

    batch_size = has_partial_batch = partial_batch_size = None

    def __init__(self, dataset: tf.distribute.DistributedDataset, batches_per_step: int):
        self._dataset = dataset
        self._batches_per_step = batches_per_step

    @property
    def element_spec(self) -> Any:
        """The specification of a batch, as that of a `tf.data.Dataset`."""
        return self._dataset.element_spec

    @property
    def num_batches(self) -> int | None:
        """The number of steps of an epoch; None if there is no end."""
        count = int(self._dataset.cardinality)
        return None if count < 0 else count // self._batches_per_step

    def get_tf_dataset(self) -> tf.distribute.DistributedDataset:
        """Returns the dataset."""
        return self._dataset


def weighted_by_class(
    dataset: tf.data.Dataset, class_weight: dict[int, float] | None
) -> tf.data.Dataset:
    """Returns a dataset with the sample weights that Keras makes of `class_weight`, if any.

    Public way: `fit(class_weight=...)`, for datasets that are not distributed.
    """
    return TFDatasetAdapter(dataset, class_weight).get_tf_dataset()


def build_under_strategy(model: keras.Model, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds a model and its optimizer: what `_maybe_symbolic_build` of a model should do.

    Public way: none. Keras's own method computes the mean of distributed batches, which fails for
    batches that are tuples under `MultiWorkerMirroredStrategy`.

    Args:
        model: A `StepModel`.
        iterator, data_batch: The arguments of the method.
    """
    if model._distribute_strategy is None:
        return
    strategy = model.distribute_strategy
    local = strategy.experimental_local_results
    if data_batch is None and iterator is not None:
        for _, _, batches in iterator:
            data_batch = tf.nest.map_structure(lambda value: local(value)[0], next(batches))
            break
    with strategy.scope():
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trained_variables())
        model._symbolic_build(data_batch=data_batch)


class JointUpdateOptimizer(keras.optimizers.Optimizer):
    """A Keras optimizer that updates all variables in one call, with gradients of all replicas.

    Public way: `update_step`, which gets one variable, so the norm of all gradients is unknown. For
    the other methods: none. `AdamWeightDecay` explains the attributes of how gradients are summed.
    """

    def add_variable(self, *args, **kwargs):
        with quick_variables():
            return super().add_variable(*args, **kwargs)

    def update_variables(self, gradients: list, variables: list, indices: list, rate) -> None:
        """Updates TensorFlow's variables by the sums of their gradients over the replicas.

        `indices` are those of the variables among those of `build`; `rate` is the learning rate.
        """
        raise NotImplementedError(f"{type(self).__name__} must have `update_variables`.")

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        indices = list(map(self._get_variable_index, trainable_variables))
        variables = [getattr(variable, "value", variable) for variable in trainable_variables]
        gradients = list(map(tf.convert_to_tensor, grads))
        context, size = tf.distribute.get_replica_context(), self.all_reduce_bytes_per_pack
        if context is not None and context.num_replicas_in_sync > 1:
            options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=size)
            sent = [tf.cast(each, self.all_reduce_dtype or each.dtype) for each in gradients]
            sums = context.all_reduce(tf.distribute.ReduceOp.SUM, sent, options)
            gradients = [tf.cast(total, each.dtype) for total, each in zip(sums, gradients)]
        self.update_variables(gradients, variables, indices, learning_rate)

    def merge_call(self, function, *arguments) -> None:
        """Calls `function(strategy, *arguments)` once for all replicas if they must be merged."""
        strategy = self._distribution_strategy
        tf.__internal__.distribute.interim.maybe_merge_call(function, strategy, *arguments)

    def placed_with(self, variable: keras.Variable) -> contextlib.AbstractContextManager:
        """Places new variables on the device of `variable`, under the optimizer's strategy."""
        return self._distribution_strategy.extended.colocate_vars_with(variable.value)

    def count_back(self, steps: tf.Tensor) -> None:
        """Subtracts from the number of steps, also where `iterations` is not a variable."""
        self._iterations.assign_sub(tf.cast(steps, self._iterations.dtype))


def constant_function(function: Any) -> Any:
    """Returns a concrete function with constants in place of its variables.

    Public way: `tf.compat.v1.graph_util.convert_variables_to_constants`, for sessions only.
    """
    return convert_variables_to_constants_v2(function, lower_control_flow=False)


def tflite_converter_error() -> type[Exception]:
    """Returns the class of the errors of `tf.lite.TFLiteConverter`. Public way: none."""
    from tensorflow.lite.python.convert import ConverterError  # takes long to import

    return ConverterError
