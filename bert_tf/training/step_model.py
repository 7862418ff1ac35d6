"""The training loop's core: one optimizer step on a batch, the same however the batch is cut up.

A loss is a sum of means: weighted sums over examples (or tokens), divided by the sums of weights.
Those of replicas and micro-batches add up if they are divided by the sums for the whole batch,
which are computed first. For Keras's losses see `training/losses/partial_loss.py`.
"""

import contextlib
import inspect
import types
from typing import Any

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import hooks, keras_compat
from bert_tf.errors import UserError, user_error
from bert_tf.inputs.token_inputs import num_rows
from bert_tf.layers.pipeline import PipelineRun
from bert_tf.ops import native
from bert_tf.ops.native import needs_static_shapes, static_shapes
from bert_tf.training.batch_parts import BatchParts, accumulated_gradients
from bert_tf.training.losses.partial_loss import BatchShare, partial_losses
from bert_tf.training.model_options import fixed_names, option_names, set_option
from bert_tf.training.pipelined_step import pipelined_gradients, seeds_of
from bert_tf.training.traced_steps import Traces, traced_settings


class StepModel(keras.Model):
    """A `keras.Model` whose optimizer step is that of the whole batch.

    - `compile(..., gradient_accumulation_steps=k)`: the step works through its batch in k parts and
      applies the gradient once; memory is that of a part, the numbers are those of the batch.
    - Losses are divided by the sums of weights over all replicas and parts; those with
      `reduction="sum"` are added.
    - A step works under `MultiWorkerMirroredStrategy` too; its logs are those of all replicas.
    - `jit_compile=True` compiles the whole step with static shapes, with the native ops where their
      lowerings are built.
    - After `bert_tf.training.pipeline_stages` the parts pass through the stages of a pipeline.
    - With an optimizer of `bert_tf.training` the logs contain `gradient_norm`, before clipping;
      under `mixed_float16` it scales the loss and skips steps that overflow.

    A step is traced again if weights or settings are others than before, each step by itself:
    validation inside `fit` must not drop the step of `fit`. A constructor argument may be set
    later, or is refused by name (`model_options`). A subclass with a loss of its own overrides
    `loss_denominators` and `partial_loss`.

    Attributes:
        spec: The `TaskSpec`, without entries for a model that has none.
        uses_pooler: Whether the outputs depend on the pooler of the backbone; else that is not
            trained.
    """

    _option_changes = 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.spec = hooks.declared_spec(type(self))
        self.uses_pooler = self.spec.uses_pooler
        self._fixed_options = fixed_names(type(self))
        self._options = option_names(type(self)) | self._fixed_options
        # Keras does not look into such an object for layers. `wrapped` are models that this trains.
        self._known = types.SimpleNamespace(wrapped=())
        self._gradients_of = None  # or a method that computes them in another way
        self._gradient_accumulation_steps = 1
        self.pipeline_placement = None  # or a `PipelinePlacement`
        self._objective = None  # what else than `loss` a step computes with, such as `SentenceLoss`
        self._compile_options = {}  # what `compile` takes in addition to Keras's arguments
        self._batch_share = None  # or a `BatchShare`, if batches are divided
        self._gradient_norm = keras.metrics.Mean(name="gradient_norm")
        self._traces = Traces()
        self.predictor = None

    def __setattr__(self, name, value):
        if name in vars(self).get("_options", ()):
            set_option(self, name, value, super().__setattr__)
        else:
            super().__setattr__(name, value)

    def replace_option(self, name: str, value: Any) -> None:
        """Sets an option after the model was changed to fit it."""
        super().__setattr__(name, value)

    def check_options(self) -> None:
        """Raises `UserError` if the values of options are out of range or do not fit together.

        It may also bring a value into its form, such as an array of labels. A constructor calls it
        when all of its options are set; so does every later change of one.
        """

    @property
    def gradient_accumulation_steps(self) -> int:
        """The argument of `compile`."""
        return self._gradient_accumulation_steps

    def compile(self, optimizer="rmsprop", *args, gradient_accumulation_steps: int = 1, **kwargs):
        """Compiles as Keras does, with one more argument.

        Args:
            optimizer: See Keras.
            *args: See Keras.
            gradient_accumulation_steps: The number of parts of a replica's batch, of equal size (to
                one row).
            **kwargs: See Keras. `jit_compile="auto"` is False where the native ops are used,
                which do without the padding that XLA needs.

        Raises:
            UserError: If `gradient_accumulation_steps` is out of range, if `jit_compile` is True
                with several replicas or pipeline stages, or if a batch is cut up (several parts or
                replicas) and it is unknown how the loss adds up.
        """
        if not isinstance(gradient_accumulation_steps, int) or gradient_accumulation_steps < 1:
            expected = "be an integer of at least 1"
            received = f"{gradient_accumulation_steps=}"
            raise user_error("`gradient_accumulation_steps`", expected, received)
        self._gradient_accumulation_steps = gradient_accumulation_steps
        self._compile_options = {"gradient_accumulation_steps": gradient_accumulation_steps}
        optimizer = keras.optimizers.get(optimizer)
        if self.dtype_policy.name == "mixed_float16" and hasattr(optimizer, "use_loss_scale"):
            optimizer.use_loss_scale()
            kwargs["auto_scale_loss"] = False
        super().compile(optimizer, *args, **kwargs)
        signature = inspect.signature(keras.Model.compile)
        arguments = signature.bind(self, optimizer, *args, **kwargs).arguments
        jit_compile = arguments.get("jit_compile", "auto")
        self._split_loss(arguments.get("loss"))
        is_pipelined = self.pipeline_placement is not None
        if jit_compile == "auto" and (native.use_native() or is_pipelined):
            self.jit_compile = False  # Keras takes XLA on a GPU
        if jit_compile is True and is_pipelined:
            raise UserError(
                "`jit_compile` must be False for a model with pipeline stages: XLA compiles a step "
                "for one device. Received: jit_compile=True with the devices "
                f"{self.pipeline_placement.devices}. Leave `jit_compile` out."
            )
        strategy = self.distribute_strategy
        replicas = strategy.num_replicas_in_sync
        mirrored = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
        if self.jit_compile and isinstance(strategy, mirrored) and replicas > 1:
            raise UserError(
                "`jit_compile` must be False with several replicas: XLA cannot compile a step that "
                f"they take together. Received: {type(strategy).__name__} with {replicas} "
                "replicas. Leave `jit_compile` out, or train without the strategy."
            )

    def _split_loss(self, loss):
        """Lets Keras's losses return the part of a batch, if batches are divided."""
        replicas = self.distribute_strategy.num_replicas_in_sync
        is_split = self.gradient_accumulation_steps > 1 or replicas > 1
        self._batch_share = BatchShare() if is_split else None
        if is_split:
            self._require_own_shares()
            if loss is not None:
                keras_compat.replace_losses(self, partial_losses(loss, self._batch_share))

    def _require_own_shares(self):
        """Raises `UserError` for a class that overrides `compute_loss` and not `partial_loss`."""
        classes = type(self).__mro__
        names = ("compute_loss", "partial_loss")
        owner, partial_owner = (next(c for c in classes if n in vars(c)) for n in names)
        known = owner.__module__.split(".")[0] in ("keras", "bert_tf")
        if not known and classes.index(owner) < classes.index(partial_owner):
            raise UserError(
                "`partial_loss` and `loss_denominators` must be overridden where a model has a "
                "loss of its own and a batch is cut up (gradient accumulation, replicas): they say "
                f"how the loss adds up. Received: {owner.__name__}.compute_loss alone"
            )

    def get_compile_config(self):
        config = super().get_compile_config()
        has_own = config and self._compile_options is not None
        return {**config, **self._compile_options} if has_own else None

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and hasattr(self.optimizer, "build"):
            self.optimizer.build(self.trained_variables())  # before its state is loaded

    # What a subclass says about its loss.
    def forward(self, x, y, training):
        """Returns what `partial_loss` takes as `y_pred`: the model's outputs."""
        return self(x, training=training)

    def loss_denominators(self, x, y, sample_weight) -> dict[str, tf.Tensor]:
        """Returns what each mean in the loss is divided by: scalars float32 for these examples."""
        weights = {"rows": tf.cast(num_rows(x), tf.float32)}
        if sample_weight is not None and not tf.nest.is_nested(sample_weight):
            weights["weights"] = tf.reduce_sum(tf.cast(sample_weight, tf.float32))
        return weights

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals) -> tf.Tensor:
        """Returns the part of the loss that these examples make; the parts of a batch add up.

        `y_pred` is the result of `forward`; `totals` are the `loss_denominators` of the whole
        batch, over all replicas.
        """
        if self._batch_share is None:  # the loss is a mean over the rows
            rows = tf.cast(num_rows(x), tf.float32)
            loss = self.compute_loss(x, y, y_pred, sample_weight, training=training)
            loss *= tf.cast(tf.math.divide_no_nan(rows, totals["rows"]), loss.dtype)
        else:
            parts = self.loss_denominators(x, y, sample_weight)
            shares = {name: tf.math.divide_no_nan(parts[name], totals[name]) for name in parts}
            rows, replicas = parts["rows"], tf.distribute.get_strategy().num_replicas_in_sync
            with self._batch_share.of(shares, replicas):  # Keras divides means by their number
                loss = self.compute_loss(x, y, y_pred, sample_weight, training=training)
            for other in self.losses:  # of layers; Keras adds each by the number of replicas
                loss += other * tf.cast(shares["rows"] - 1.0 / replicas, other.dtype)
        if loss.shape == [0]:  # Keras does not reduce the losses of no rows
            loss = tf.reduce_sum(loss)
        # At the end of the data a replica may have no rows, and their mean is NaN.
        return tf.where(rows > 0, loss, tf.zeros_like(loss))

    def invalidate_traces(self, step: str) -> None:
        """Drops the traced function of a step unless weights and settings are the last call's."""
        if self._traces.have_changed(self, step, traced_settings(self, step)):
            setattr(self, f"{step}_function", None)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        keras_compat.build_under_strategy(self, iterator, data_batch)

    def trained_variables(self) -> list[keras.Variable]:
        """Returns the variables that a step changes, also those of an objective."""
        variables = self.trainable_variables
        if not self.uses_pooler:
            unused = {id(variable) for variable in self.backbone.pooler.trainable_variables}
            variables = [variable for variable in variables if id(variable) not in unused]
        return [*variables, *getattr(self._objective, "variables", ())]

    def optimizer_has_begun(self) -> bool:
        """Returns whether the optimizer has variables for the weights that the model has now."""
        return self.compiled and self.optimizer is not None and self.optimizer.built

    def require_trainable(self) -> None:
        """Raises `UserError` if the backbone is prepacked or quantized."""
        backbone = getattr(self, "backbone", None)
        if backbone is not None and (backbone.is_prepacked or backbone.quantization is not None):
            backbone.require_kernels("trained")

    def train_step(self, data):
        self.require_trainable()
        with self._tracing():
            data = keras.utils.unpack_x_y_sample_weight(data)
            variables = self.trained_variables()
            if not self.optimizer.built:
                self.optimizer.build(variables)
            totals = _sum_over_replicas(self.loss_denominators(*data))
            if self.pipeline_placement is not None:
                loss, gradients = self._pipelined(data, totals, variables)
            elif self._gradient_accumulation_steps == 1:
                loss, gradients = self._gradients(*data, totals, variables)
            else:
                parts = self._parts(data)
                loss, gradients = accumulated_gradients(
                    parts, lambda part: self._gradients(*part, totals, variables), variables
                )
            self.optimizer.apply_gradients(zip(map(_dense, gradients), variables))
            return self._logs(loss, data[0], getattr(self.optimizer, "gradient_norm", None))

    def test_step(self, data):
        with self._tracing():
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
            totals = _sum_over_replicas(self.loss_denominators(x, y, sample_weight))
            y_pred = self.forward(x, y, training=False)
            loss = self.partial_loss(x, y, y_pred, sample_weight, False, totals)
            self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
            return self._logs(loss, x)

    def predict_step(self, data):
        with self._tracing():
            return super().predict_step(data)

    def _tracing(self):
        """Traces what goes to XLA with static shapes, and with ops that XLA can compile.

        What a model with pipeline stages computes is traced on their devices.
        """
        scopes = contextlib.ExitStack()
        if self.pipeline_placement is not None:
            scopes.enter_context(PipelineRun(self.pipeline_placement))
        if self.jit_compile or needs_static_shapes():
            scopes.enter_context(static_shapes())
            if not native.compiles_under_xla():
                scopes.enter_context(ops.backend("reference"))
        return scopes

    def _gradients(self, x, y, sample_weight, totals, variables):
        if self._gradients_of is not None:
            return self._gradients_of(x, y, sample_weight, totals, variables)
        with tf.GradientTape() as tape:
            loss, scaled = self._part_losses(x, y, sample_weight, totals)
        return loss, tape.gradient(scaled, variables)

    def _part_losses(self, x, y, sample_weight, totals):
        """Returns the loss and what is differentiated; updates the metrics."""
        y_pred = self.forward(x, y, training=True)
        loss = self.partial_loss(x, y, y_pred, sample_weight, True, totals)
        self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return loss, self.optimizer.scale_loss(loss)

    def _pipelined(self, data, totals, variables):
        """Does what accumulation does, with the parts in several stages at the same time."""
        parts = BatchParts(data, self.gradient_accumulation_steps)
        # How many parts have rows may depend on the batch; how many are traced cannot.
        count = max(parts.count, 1) if parts.is_static else self.gradient_accumulation_steps
        with seeds_of(parts.count, count, self):
            return pipelined_gradients(
                self.pipeline_placement,
                count,
                lambda index: self._part_losses(*parts[index], totals),
                variables,
            )

    def _parts(self, data):
        """Returns the parts of a batch that are computed one after the other."""
        parts = BatchParts(data, self.gradient_accumulation_steps)
        is_uneven = parts.is_static and parts.num_rows % self.gradient_accumulation_steps
        if is_uneven and self.jit_compile:
            raise UserError(
                "XLA compiles parts of one size: the batch of a replica must be a multiple of "
                f"`gradient_accumulation_steps`. Received: {parts.num_rows} rows, "
                f"gradient_accumulation_steps={self.gradient_accumulation_steps}"
            )
        return parts

    def _logs(self, loss, x, norm=None):
        """Updates the metrics `loss` and, with a norm, `gradient_norm`; returns all metrics."""
        rows = tf.cast(num_rows(x), tf.float32)
        keras_compat.loss_tracker(self).update_state(_sum_over_replicas(loss), sample_weight=rows)
        if norm is not None:
            # Steps that the loss scaling leaves out have none.
            norm = tf.convert_to_tensor(norm)
            known = tf.math.is_finite(norm) | (not self.optimizer.dynamic_loss_scale)
            weight = tf.cast(known, tf.float32)
            self._gradient_norm.update_state(tf.where(known, norm, 0.0), sample_weight=weight)
        logs = self.get_metrics_result()
        if norm is None:
            logs.pop("gradient_norm", None)
        return logs

    def make_train_function(self, force=False):
        if self.optimizer is None:
            raise UserError(
                "The model must have an optimizer for its weights. Received: none, because pruning "
                "heads dropped it. Call `compile` again before training."
            )
        self.require_trainable()
        if not self.run_eagerly:  # else a step reads weights and settings anew
            self.invalidate_traces("train")
        if self.built:
            # Not while tracing: after a trace that fails, variables made in it have no values.
            with self.distribute_strategy.scope():
                keras_compat.build_for(self.optimizer, self.trained_variables())
        if self.train_function is None or force:
            self.train_function = self._step_function(self.train_step)
        return self.train_function

    def make_predict_function(self, force=False):
        self.invalidate_traces("predict")
        return super().make_predict_function(force)

    def make_test_function(self, force=False):
        if not self.run_eagerly:
            self.invalidate_traces("test")
        if self.test_function is None or force:
            self.test_function = self._step_function(self.test_step)
        return self.test_function

    def _step_function(self, step):
        """Returns a function of an iterator: the logs after `steps_per_execution` batches."""
        # Keras's own fails for scalars under `MultiWorkerMirroredStrategy`.
        strategy = self.distribute_strategy

        @tf.autograph.experimental.do_not_convert
        def one_step(data):
            logs = strategy.run(step, args=(data,))
            return logs if strategy.num_replicas_in_sync == 1 else self._of_all_replicas(logs)

        traced_step = self._traced_step(one_step)

        def run(iterator):
            spec = getattr(iterator, "element_spec", None)
            logs = None
            for _ in range(self.steps_per_execution):
                data = next(iterator, None)
                if data is None:
                    break
                data = tf.nest.map_structure(_without_mark, data)
                # `run_eagerly` may be set after this function was made.
                logs = one_step(data) if self.run_eagerly else traced_step(data, spec)
            if logs is None:
                raise StopIteration
            return logs

        return run

    def _traced_step(self, function):
        """Returns `function` of data and their dataset's `element_spec`, one trace for each."""
        traces = {}
        by_dataset = tf.function(function)
        jit = self.jit_compile
        by_batch = tf.function(function, reduce_retracing=not jit, jit_compile=jit or None)

        def call(data, spec):
            # XLA needs the shapes of each batch. A concrete function is never run eagerly.
            if spec is None or jit or tf.config.functions_run_eagerly():
                return by_batch(data)
            key = repr(spec)
            if key not in traces:
                spec = tf.nest.map_structure(_without_mark, spec)
                traces[key] = by_dataset.get_concrete_function(spec)
            return traces[key](data)

        return call

    def _of_all_replicas(self, logs):
        """Returns the metrics over all replicas, read outside of them: no mean of means."""
        together = self.get_metrics_result()
        return {
            name: together[name]
            if name in together
            else self.distribute_strategy.reduce("MEAN", value, axis=None)
            for name, value in logs.items()
        }


def _without_mark(value):
    """Returns a tensor or its specification, or None for what Keras marks as missing."""
    return None if isinstance(value, (tf.experimental.Optional, tf.OptionalSpec)) else value


def _dense(gradient):
    """Returns a gradient as a tensor; a layer of the user's may have a `tf.IndexedSlices`.

    It can have a row several times, and Keras's optimizers square and clip these parts, not their
    sum.
    """
    return None if gradient is None else tf.convert_to_tensor(gradient)


def _sum_over_replicas(values):
    context, add = tf.distribute.get_replica_context(), tf.distribute.ReduceOp.SUM
    if context is None or context.num_replicas_in_sync == 1:
        return values
    return tf.nest.map_structure(lambda value: context.all_reduce(add, value), values)
