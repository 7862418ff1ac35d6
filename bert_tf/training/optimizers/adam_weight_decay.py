"""The optimizer that BERT was trained with, and LAMB; clipping, layer-wise rates, loss scaling."""

import re

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require, user_error
from bert_tf.ops.adam_weight_decay import (
    AdamUpdate,
    adam_weight_decay_all,
    global_norm,
    scaled_rate,
)

# The last parts of the paths of variables without weight decay: those of LayerNorm and all biases.
NOT_DECAYED = ("gamma", "beta", "bias")

# The arguments in addition to those of Keras.
OPTIMIZER_ARGUMENTS = (
    "weight_decay_rate", "clip_norm", "exclude_from_weight_decay_names", "layer_decay",
    "dynamic_loss_scale", "learning_rate_multipliers", "beta_1", "beta_2", "epsilon",
    "bias_correction", "l2_regularization", "all_reduce_dtype", "all_reduce_bytes_per_pack",
)  # fmt: skip

# Options that are read only when the optimizer is built.
_BUILT_WITH = (
    "exclude_from_weight_decay_names", "layer_decay", "dynamic_loss_scale",
    "learning_rate_multipliers",
)  # fmt: skip

# The values are those of `keras.optimizers.LossScaleOptimizer`.
INITIAL_LOSS_SCALE = 2.0**15
LOSS_SCALE_GROWTH_STEPS = 2000

LOW_PRECISION = ("bfloat16", "float16")


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras_compat.JointUpdateOptimizer):
    """Adam with decoupled weight decay and clipping by the global norm, as in the original.

    With m and v the running means of the gradient g and of g²:

        variable -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * variable)

    The gradients of all variables are scaled so that their global norm is at most `clip_norm`.
    Under a `tf.distribute` strategy, they are first summed over the replicas (the
    `global_clipnorm` of Keras clips on each replica before the sum). `gradient_norm` is the norm
    before clipping.

    Slots are float32 for weights in bfloat16 and float16 too. Such a weight also has a float32
    copy, to which updates are applied, and is the rounded copy: updates below half a unit in the
    last place of the weight would otherwise be lost. A value assigned to the weight is copied
    before the next update.

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: The decoupled weight decay; 0.01 in the original.
        beta_1, beta_2: The decay rates of m and of v.
        epsilon: Added to sqrt(v); 1e-6 in the original.
        clip_norm: The largest global norm of the gradients, summed over all replicas. None does
            not clip.
        bias_correction: Whether to correct the bias of m and v in the first steps. The original
            does not; the correction helps on small data sets (arXiv 2006.05987).
        exclude_from_weight_decay_names: The last parts of the paths of variables without decay.
        layer_decay: The learning rate of a block is that of the block above it times this factor.
            The embeddings count as a block below the first, heads and pooler as one above the
            last. None means the same rate for all.
        dynamic_loss_scale: Whether to scale the loss, which float16 needs. A step with infinite
            gradients is skipped and halves the scale; 2,000 good steps in a row double it.
            `compile` turns this on for models with the policy `mixed_float16`.
        name: The name of the optimizer.
        learning_rate_multipliers: Factors of the learning rate by a part of a variable's path, such
            as {"crf": 100.0} for the layer with that name.
        l2_regularization: λ of a term λ/2 · Σ w² of the loss over the weights that have decay. Its
            gradient λ · w is added before clipping, so unlike decoupled decay it passes through m
            and v. The loss in the logs does not contain the term.
        all_reduce_dtype: The dtype in which replicas send each other their gradients and add them:
            "bfloat16" or "float32". With bfloat16, half as many bytes of float32 gradients are
            sent, and the sums are rounded. None means the dtype of each gradient.
        all_reduce_bytes_per_pack: Gradients are sent together until they have more bytes. 0 leaves
            it to TensorFlow, which sends all together.
        **kwargs: Other arguments of `keras.optimizers.Optimizer`.

    Raises:
        UserError: If `layer_decay` is not in (0, 1], `l2_regularization` is negative,
            `all_reduce_dtype` is another dtype, or `all_reduce_bytes_per_pack` is not an integer of
            at least 0.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> schedule = bert_tf.training.WarmupLinearDecay(5e-5, 1000, num_warmup_steps=100)
        >>> model.compile(optimizer=bert_tf.training.AdamWeightDecay(schedule))

    Reference: google-research/bert optimization.py, `AdamWeightDecayOptimizer`.
    """

    slot_names = ("adam_m", "adam_v")

    def __init__(
        self,
        learning_rate=5e-5,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = False,
        exclude_from_weight_decay_names: tuple[str, ...] = NOT_DECAYED,
        layer_decay: float | None = None,
        dynamic_loss_scale: bool = False,
        name: str = "adam_weight_decay",
        learning_rate_multipliers: dict[str, float] | None = None,
        l2_regularization: float = 0.0,
        all_reduce_dtype: str | None = None,
        all_reduce_bytes_per_pack: int = 0,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if not l2_regularization >= 0:
            raise user_error("`l2_regularization`", "be at least 0", f"{l2_regularization=}")
        rule = "must be in (0, 1] or None"
        is_valid = layer_decay is None or 0.0 < layer_decay <= 1.0
        require(is_valid, rule, UserError, layer_decay=layer_decay)
        rule = 'must be "bfloat16", "float32" or None'
        is_valid = all_reduce_dtype in ("bfloat16", "float32", None)
        require(is_valid, rule, UserError, all_reduce_dtype=all_reduce_dtype)
        size = all_reduce_bytes_per_pack
        rule, is_valid = "must be an integer of at least 0", isinstance(size, int) and size >= 0
        require(is_valid, rule, UserError, all_reduce_bytes_per_pack=size)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.clip_norm = clip_norm
        self.bias_correction = bias_correction
        self.exclude_from_weight_decay_names = tuple(exclude_from_weight_decay_names)
        self.layer_decay = layer_decay
        self.dynamic_loss_scale = dynamic_loss_scale
        self.learning_rate_multipliers = dict(learning_rate_multipliers or {})
        self.l2_regularization = l2_regularization
        self.all_reduce_dtype = all_reduce_dtype
        self.all_reduce_bytes_per_pack = all_reduce_bytes_per_pack

    def use_loss_scale(self) -> None:
        """Turns loss scaling on. It must be called before the first step.

        Raises:
            UserError: If the optimizer has already made a step without loss scaling.
        """
        if self.built and not self.dynamic_loss_scale:
            raise UserError(
                "`dynamic_loss_scale` must be turned on before the first step. Received: an "
                "optimizer that has made steps. Create a new one with dynamic_loss_scale=True."
            )
        if not self.dynamic_loss_scale:
            self.dynamic_loss_scale = True

    def __setattr__(self, name, value):
        if name in _BUILT_WITH and vars(self).get("built"):
            raise UserError(
                f"`{name}` must be given to the constructor: the optimizer is built with it. "
                f"Received: {name}={value!r:.200} for an optimizer that has begun. Create a new "
                "one and compile the model again."
            )
        super().__setattr__(name, value)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        paths = [variable.path for variable in variables]
        not_decayed = self.exclude_from_weight_decay_names
        self._is_decayed = [path.split("/")[-1] not in not_decayed for path in paths]
        self._multipliers = layer_multipliers(paths, self.layer_decay)
        for index, path in enumerate(paths):
            for part, factor in self.learning_rate_multipliers.items():
                if part in path.split("/"):
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
        self._means, self._squares = self.add_optimizer_variables(variables, self.slot_names)

    def float32_copies(self) -> list[tuple[keras.Variable, keras.Variable]]:
        """Returns the weights in bfloat16 or float16, each with its float32 copy."""
        return [(self._trainable_variables[i], copy) for i, copy in self._copies.items()]

    def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
        if keras.backend.standardize_dtype(reference_variable.dtype) not in LOW_PRECISION:
            return super().add_variable_from_reference(reference_variable, name, initializer)
        # The variable is Keras's, except for the dtype.
        path = reference_variable.path.replace("/", "_")
        with self.placed_with(reference_variable):
            return self.add_variable(
                reference_variable.shape, initializer, dtype="float32", name=f"{path}_{name}"
            )

    def _scalar(self, name, value, dtype):
        initializer = keras.initializers.Constant(value)
        options = {"dtype": dtype, "aggregation": "only_first_replica"}
        return self.add_variable((), initializer, name=name, **options)

    def scale_loss(self, loss):
        if not self.dynamic_loss_scale:
            return loss
        return loss * tf.cast(tf.convert_to_tensor(self.loss_scale), loss.dtype)

    def _adapt_loss_scale(self, finite):
        """Halves the scale after a skipped step, and doubles it after many good ones."""
        # A skipped step does not count, not even for the schedule.
        self.count_back(~finite)
        good = tf.where(finite, tf.convert_to_tensor(self._good_steps) + 1, 0)
        grows = good >= LOSS_SCALE_GROWTH_STEPS
        scale = tf.convert_to_tensor(self.loss_scale)
        lowered = tf.maximum(scale * 0.5, 1.0)
        self.loss_scale.assign(tf.where(finite, tf.where(grows, scale * 2.0, scale), lowered))
        self._good_steps.assign(tf.where(grows, tf.zeros_like(good), good))

    def _with_l2(self, gradients, variables, indices):
        """Adds the gradient of the L2 term, of the scaled loss if the loss is scaled."""
        factor = self.scale_loss(tf.constant(self.l2_regularization))
        return [
            gradient + tf.cast(factor * tf.cast(variable, tf.float32), gradient.dtype)
            if self._is_decayed[index]
            else gradient
            for gradient, variable, index in zip(gradients, variables, indices)
        ]

    def update_variables(self, gradients, variables, indices, rate):
        if self.l2_regularization:
            gradients = self._with_l2(gradients, variables, indices)
        norm = global_norm(gradients)
        scale = None
        if self.dynamic_loss_scale:
            scale = 1.0 / tf.convert_to_tensor(self.loss_scale)
            norm *= scale
        self.gradient_norm.assign(norm)
        if self.clip_norm is not None:
            clip = self.clip_norm / tf.maximum(norm, self.clip_norm)
            scale = clip if scale is None else scale * clip
        rate, finite = tf.cast(rate, tf.float32), tf.math.is_finite(norm)
        updates = variables, gradients, indices, rate, scale
        if tf.distribute.has_strategy():
            self.merge_call(self._update_on_replicas, *updates, finite)
        elif self.dynamic_loss_scale:
            tf.cond(finite, lambda: self._update(*updates), lambda: None)
        else:
            self._update(*updates)
        if self.dynamic_loss_scale:
            self._adapt_loss_scale(finite)

    def _update_on_replicas(self, strategy, variables, gradients, indices, rate, scale, finite):
        devices = [variable.device for variable in variables]

        def update():
            for device in dict.fromkeys(devices):
                parts = zip(variables, gradients, indices, devices)
                on_device = [part[:3] for part in parts if part[3] == device]
                (first, *others), of_these, their_indices = zip(*on_device)
                strategy.extended.update(
                    first,
                    lambda first, others, of_these, *options, their_indices=their_indices: (
                        self._update([first, *others], of_these, their_indices, *options)
                    ),
                    args=(others, of_these, rate, scale),
                    group=False,
                )

        if self.dynamic_loss_scale:
            finite = strategy.experimental_local_results(finite)[0]  # equal on all replicas
            tf.cond(finite, update, lambda: None)
        else:
            update()

    def _update(self, variables, gradients, indices, learning_rate, scale):
        """Updates variables in one pass; those in bfloat16 or float16 by their float32 copies."""
        updates = []
        for variable, gradient, index in zip(variables, gradients, indices):
            weight = variable
            if index in self._copies:
                weight = self._copies[index].value
                # A weight that is not the rounded copy was assigned, for example from a file.
                is_current = tf.equal(tf.cast(weight, variable.dtype), variable)
                weight.assign(tf.where(is_current, weight, tf.cast(variable, tf.float32)))
            slots = self._means[index].value, self._squares[index].value
            decay = self.weight_decay_rate if self._is_decayed[index] else None
            updates.append(AdamUpdate(weight, *slots, gradient, self._multipliers[index], decay))
        self.update_weights(updates, learning_rate, scale)
        for variable, update in zip(variables, updates):
            if update.variable is not variable:
                variable.assign(tf.cast(update.variable, variable.dtype))

    def update_weights(
        self, updates: list[AdamUpdate], learning_rate: tf.Tensor, gradient_scale: tf.Tensor | None
    ) -> None:
        """Updates variables and their slots. A subclass has another rule.

        Args:
            updates: The variables with their slots and gradients.
            learning_rate: A scalar; `rate_multiplier` of an update is a factor of it.
            gradient_scale: A scalar by which the gradients are to be multiplied, or None. It is
                passed so that no scaled copy of a gradient is needed.
        """
        steps = self.iterations + 1 if self.bias_correction else None
        options = gradient_scale, self.beta_1, self.beta_2, self.epsilon, steps
        adam_weight_decay_all(updates, learning_rate, *options)

    def get_config(self):
        config = super().get_config()
        # Keras's arguments for weight decay and clipping, which this class replaces.
        for name in ("weight_decay", "clipnorm", "global_clipnorm", "clipvalue"):
            config.pop(name, None)
        return {**config, **{name: getattr(self, name) for name in OPTIMIZER_ARGUMENTS}}


def layer_multipliers(paths: list[str], layer_decay: float | None) -> list[float]:
    """Returns the factors of the learning rates of variables with these Keras paths."""
    if layer_decay is None:
        return [1.0] * len(paths)
    blocks = [re.search(r"(?:^|/)layer_(\d+)/", path) for path in paths]
    top = max((int(block[1]) for block in blocks if block), default=-1) + 2

    def depth(path, block):
        if block:
            return int(block[1]) + 1
        return 0 if "embeddings" in path.split("/") else top

    return [layer_decay ** (top - depth(path, block)) for path, block in zip(paths, blocks)]


@keras.saving.register_keras_serializable(package="bert_tf")
class LAMB(AdamWeightDecay):
    """Adam with updates that have the norm of the variable times the learning rate.

    With m and v the bias-corrected running means of the gradient g and of g²:

        update = m / (sqrt(v) + epsilon) + weight_decay_rate * variable
        variable -= learning_rate * |variable| / |update| * update

    The ratio of the norms is 1 if one of them is zero, and for variables without weight decay.

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: The weight decay; 0.01 in the paper.
        bias_correction: Whether to correct the bias of m and v in the first steps.
        exclude_from_weight_decay_names: The last parts of the paths of variables that have neither
            weight decay nor an adapted norm.
        beta_1, beta_2, epsilon, clip_norm, name, layer_decay: See `AdamWeightDecay`.
        dynamic_loss_scale, learning_rate_multipliers, l2_regularization: See there.
        all_reduce_dtype, all_reduce_bytes_per_pack, **kwargs: See there.

    Raises:
        UserError: For the reasons of `AdamWeightDecay`.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> schedule = bert_tf.training.WarmupLinearDecay(1.76e-3, 15625, num_warmup_steps=3125)
        >>> model.compile(optimizer=bert_tf.training.LAMB(schedule))

    Reference: You et al. 2020 (arXiv 1904.00962), algorithm 2.
    """

    slot_names = ("lamb_m", "lamb_v")

    def __init__(
        self,
        learning_rate=1e-3,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = True,
        exclude_from_weight_decay_names: tuple[str, ...] = NOT_DECAYED,
        layer_decay: float | None = None,
        dynamic_loss_scale: bool = False,
        name: str = "lamb",
        learning_rate_multipliers: dict[str, float] | None = None,
        l2_regularization: float = 0.0,
        all_reduce_dtype: str | None = None,
        all_reduce_bytes_per_pack: int = 0,
        **kwargs,
    ):
        super().__init__(
            learning_rate, weight_decay_rate, beta_1, beta_2, epsilon, clip_norm, bias_correction,
            exclude_from_weight_decay_names, layer_decay, dynamic_loss_scale, name,
            learning_rate_multipliers, l2_regularization, all_reduce_dtype,
            all_reduce_bytes_per_pack, **kwargs,
        )  # fmt: skip

    def update_weights(self, updates, learning_rate, gradient_scale):
        for update in updates:
            self._update_weight(update, learning_rate, gradient_scale)

    def _update_weight(self, update, learning_rate, gradient_scale):
        variable, mean, square, gradient, rate_multiplier, weight_decay = update
        dtype = variable.dtype
        learning_rate = scaled_rate(learning_rate, rate_multiplier)
        gradient = tf.cast(gradient, dtype)
        if gradient_scale is not None:
            gradient *= tf.cast(gradient_scale, dtype)
        m = mean.assign_add((1.0 - self.beta_1) * (gradient - mean))
        v = square.assign_add((1.0 - self.beta_2) * (tf.square(gradient) - square))
        m, v = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, tf.float32)
            m /= tf.cast(1.0 - self.beta_1**step, dtype)
            v /= tf.cast(1.0 - self.beta_2**step, dtype)
        update = m / (tf.sqrt(v) + self.epsilon)
        if weight_decay is not None:
            update += weight_decay * variable
            norm, update_norm = tf.norm(variable), tf.norm(update)
            both = (norm > 0) & (update_norm > 0)
            ratio = tf.where(both, tf.math.divide_no_nan(norm, update_norm), 1.0)
            learning_rate = learning_rate * tf.cast(ratio, learning_rate.dtype)
        variable.assign_sub(tf.cast(learning_rate, dtype) * update)
