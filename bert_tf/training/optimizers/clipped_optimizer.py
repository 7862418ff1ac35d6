"""What the optimizers of BERT share: the clip by the global norm and what goes with it."""

import re

import keras
import tensorflow as tf

from bert_tf.errors import UserError

# Leaf names of the variables that are not decayed: LayerNorm's and every bias.
NOT_DECAYED = ("gamma", "beta", "bias")

# Keras's own and TensorFlow's before it.
INITIAL_LOSS_SCALE = 2.0**15
LOSS_SCALE_GROWTH_STEPS = 2000

LOW_PRECISION = ("bfloat16", "float16")


class ClippedOptimizer(keras.optimizers.Optimizer):
    """Base of the optimizers: clips by the global norm, keeps it, scales losses.

    The gradients of all variables are scaled so that their joint norm is at most `clip_norm`. Under
    a `tf.distribute` strategy that happens after the sum over the replicas (Keras's own
    `global_clipnorm` clips on each replica before it). `gradient_norm` holds the norm before the
    clip.

    Subclasses write `update_step(gradient, variable, learning_rate, gradient_scale)`: the scale is
    that of the clip, a scalar or None, so that no scaled copy of the gradient is needed.

    Slots are float32 for weights in bfloat16 and float16 too. Such a weight has a float32 copy as
    well, which the update is applied to and the weight is rounded from: of the weight itself an
    update below half a unit in the last place (for a weight of 1 in bfloat16 0.004) would be lost
    in every step. A weight that is assigned from outside counts as it is.

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: Decoupled weight decay.
        clip_norm: Largest global norm of the gradients; None does not clip.
        exclude_from_weight_decay_names: Leaf names of variables that are not decayed.
        layer_decay: The learning rate of a block is that of the next one times this; the embeddings
            count as a block below the first, heads and pooler as one above the last. None for one
            rate.
        dynamic_loss_scale: Whether to scale the loss, as float16 needs it. A step whose gradients
            overflow is left out and halves the scale; 2,000 good steps double it. `compile` sets
            it for models of the policy `mixed_float16`.
        learning_rate_multipliers: Factors of the learning rate by a part of a variable's path, such
            as {"crf": 100.0} for the layer of that name.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float,
        clip_norm: float | None,
        exclude_from_weight_decay_names: tuple[str, ...],
        layer_decay: float | None,
        dynamic_loss_scale: bool,
        name: str,
        learning_rate_multipliers: dict[str, float] | None = None,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if layer_decay is not None and not 0.0 < layer_decay <= 1.0:
            raise UserError(
                f"`layer_decay` must be in (0, 1] or None. Received: layer_decay={layer_decay!r}"
            )
        self.weight_decay_rate = weight_decay_rate
        self.clip_norm = clip_norm
        self.exclude_from_weight_decay_names = tuple(exclude_from_weight_decay_names)
        self.layer_decay = layer_decay
        self.dynamic_loss_scale = dynamic_loss_scale
        self.learning_rate_multipliers = dict(learning_rate_multipliers or {})

    def use_loss_scale(self) -> None:
        """Turns the loss scale on, before the first step."""
        if self.built and not self.dynamic_loss_scale:
            raise UserError(
                "The loss scale must be turned on before the first step. Received: an optimizer "
                "that has taken steps. Make a new one with dynamic_loss_scale=True."
            )
        self.dynamic_loss_scale = True

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._is_decayed = [
            variable.path.split("/")[-1] not in self.exclude_from_weight_decay_names
            for variable in variables
        ]
        self._multipliers = layer_multipliers(
            [variable.path for variable in variables], self.layer_decay
        )
        for index, variable in enumerate(variables):
            for part, factor in self.learning_rate_multipliers.items():
                if part in variable.path.split("/"):
                    self._multipliers[index] *= factor
        self.gradient_norm = self._scalar("gradient_norm", 0.0, "float32")
        if self.dynamic_loss_scale:
            self.loss_scale = self._scalar("loss_scale", INITIAL_LOSS_SCALE, "float32")
            self._good_steps = self._scalar("good_steps", 0, "int64")

        self._copies = {
            index: self.add_variable_from_reference(variable, name="float32_copy")
            for index, variable in enumerate(variables)
            if variable.dtype in LOW_PRECISION
        }
        for index, copy in self._copies.items():  # `update_step` looks it up as the variable
            self._trainable_variables_indices[self._var_key(copy)] = index

    def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
        if keras.backend.standardize_dtype(reference_variable.dtype) not in LOW_PRECISION:
            return super().add_variable_from_reference(reference_variable, name, initializer)
        # As Keras does, but for the dtype.
        path = reference_variable.path.replace("/", "_")
        with self._distribution_strategy.extended.colocate_vars_with(reference_variable.value):
            return self.add_variable(
                reference_variable.shape, initializer, dtype="float32", name=f"{path}_{name}"
            )

    def _scalar(self, name, value, dtype):
        return self.add_variable(
            shape=(),
            initializer=keras.initializers.Constant(value),
            dtype=dtype,
            aggregation="only_first_replica",
            name=name,
        )

    def scale_loss(self, loss):
        if not self.dynamic_loss_scale:
            return loss
        return loss * tf.cast(tf.convert_to_tensor(self.loss_scale), loss.dtype)

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        if not self.dynamic_loss_scale:
            return
        finite = tf.math.is_finite(tf.convert_to_tensor(self.gradient_norm))
        # A step that was left out does not count, neither for the schedule.
        self._iterations.assign_sub(tf.cast(~finite, self._iterations.dtype))
        good = tf.where(finite, tf.convert_to_tensor(self._good_steps) + 1, 0)
        grows = good >= LOSS_SCALE_GROWTH_STEPS
        scale = tf.convert_to_tensor(self.loss_scale)
        lowered = tf.maximum(scale * 0.5, 1.0)
        self.loss_scale.assign(tf.where(finite, tf.where(grows, scale * 2.0, scale), lowered))
        self._good_steps.assign(tf.where(grows, tf.zeros_like(good), good))

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # Keras calls this with the gradients of one replica: after their sum over the replicas is
        # the one place where the gradients of the whole batch are there together.
        variables = [getattr(variable, "value", variable) for variable in trainable_variables]
        dense = [tf.convert_to_tensor(gradient) for gradient in grads]
        reduced = self._all_reduce_sum_gradients(zip(dense, variables))
        gradients = [gradient for gradient, _ in reduced]
        norm = tf.linalg.global_norm([tf.cast(g, tf.float32) for g in gradients])
        scale = None  # of the gradients
        if self.dynamic_loss_scale:
            scale = 1.0 / tf.convert_to_tensor(self.loss_scale)
            norm *= scale
        self.gradient_norm.assign(norm)
        if self.clip_norm is not None:
            clip = self.clip_norm / tf.maximum(norm, self.clip_norm)
            scale = clip if scale is None else scale * clip
        tf.__internal__.distribute.interim.maybe_merge_call(
            self._update_all,
            self._distribution_strategy,
            gradients,
            variables,
            tf.cast(learning_rate, tf.float32),
            scale,
            tf.math.is_finite(norm),
        )

    def _update_all(self, strategy, gradients, variables, learning_rate, scale, finite):
        def update():
            for gradient, variable in zip(gradients, variables):
                strategy.extended.update(
                    variable, self._update, args=(gradient, learning_rate, scale), group=False
                )

        if self.dynamic_loss_scale:
            finite = strategy.experimental_local_results(finite)[0]  # the same on all
            tf.cond(finite, update, lambda: None)
        else:
            update()

    def _update(self, variable, gradient, learning_rate, scale):
        index = self._get_variable_index(variable)
        multiplier = self._multipliers[index]
        if multiplier != 1.0:
            learning_rate = learning_rate * multiplier
        if index not in self._copies:
            self.update_step(tf.cast(gradient, variable.dtype), variable, learning_rate, scale)
            return
        copy = self._copies[index].value
        # Where the weight is not the copy's rounding it was assigned since: loaded, or initialized.
        is_current = tf.equal(tf.cast(copy, variable.dtype), variable)
        copy.assign(tf.where(is_current, copy, tf.cast(variable, tf.float32)))
        self.update_step(tf.cast(gradient, tf.float32), copy, learning_rate, scale)
        variable.assign(tf.cast(copy, variable.dtype))

    def is_decayed(self, variable) -> bool:
        """Whether the weight decay touches a variable."""
        return self._is_decayed[self._get_variable_index(variable)]

    def get_config(self):
        config = super().get_config()
        # Fixed by this class, not arguments of it.
        for name in ("weight_decay", "clipnorm", "global_clipnorm", "clipvalue"):
            config.pop(name, None)
        return {
            **config,
            "weight_decay_rate": self.weight_decay_rate,
            "clip_norm": self.clip_norm,
            "exclude_from_weight_decay_names": self.exclude_from_weight_decay_names,
            "layer_decay": self.layer_decay,
            "dynamic_loss_scale": self.dynamic_loss_scale,
            "learning_rate_multipliers": self.learning_rate_multipliers,
        }


def layer_multipliers(paths: list[str], layer_decay: float | None) -> list[float]:
    """What the learning rate of each variable is multiplied with, by the depth its path tells.

    Args:
        paths: Keras paths, such as "bert_backbone/encoder/layer_3/intermediate/kernel".
        layer_decay: As in `ClippedOptimizer`.
    """
    blocks = [re.search(r"(?:^|/)layer_(\d+)/", path) for path in paths]
    top = max((int(block[1]) for block in blocks if block), default=-1) + 2

    def depth(path, block):
        if block:
            return int(block[1]) + 1
        return 0 if "embeddings" in path.split("/") else top

    if layer_decay is None:
        return [1.0] * len(paths)
    return [layer_decay ** (top - depth(path, block)) for path, block in zip(paths, blocks)]
