"""The flags for the learning rate's schedule."""

from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

# The class of each schedule, and its options by the flags that set them.
_END = {"final_learning_rate": "final_rate"}
_SCHEDULES = {
    "linear": ("WarmupLinearDecay", {}),
    "cosine": ("WarmupCosineDecay", _END),
    "noam": ("Noam", {}),
    "constant": ("WarmupConstant", {}),
    "inverse_sqrt": ("WarmupInverseSqrt", {}),
    "polynomial": ("WarmupPolynomialDecay", {**_END, "lr_power": "power"}),
    "cosine_restarts": ("WarmupCosineRestarts", {**_END, "lr_cycles": "num_cycles"}),
    "stable": ("WarmupStableDecay", {**_END, "decay_proportion": "decay"}),
}
_OPTIONS = ("final_learning_rate", "lr_power", "lr_cycles", "decay_proportion")
SCHEDULE_FLAGS = ("lr_schedule", *_OPTIONS)  # that a checkpoint records


def define_schedule():
    """Defines the flags for the shape of the learning rate."""
    define_flags(f"""
        lr_schedule ({"|".join(_SCHEDULES)}, linear): How the learning rate falls from
            --learning_rate after the warm-up: linearly to 0, as the original; along a cosine; with
            the inverse square root of the step (noam) or of the steps after the warm-up
            (inverse_sqrt); not at all (constant); with --lr_power (polynomial); along --lr_cycles
            cosines, each from --learning_rate (cosine_restarts); or constant up to the last
            --decay_proportion of the steps (stable).
        final_learning_rate (float >= 0): With --lr_schedule=cosine, polynomial, cosine_restarts or
            stable: the learning rate at the end. Default: 0.
        lr_power (float >= 0.01): With --lr_schedule=polynomial: the power of the share of the steps
            that are left. Default: 1, which is linear.
        lr_cycles (int >= 1): With --lr_schedule=cosine_restarts: the number of cosines. Default: 1.
        decay_proportion (float 0 to 1): With --lr_schedule=stable: the share of the training steps
            in which the learning rate falls. Default: 0.1.
    """)


def check_schedule():
    """Refuses flags that the schedule has no use for."""
    _, options = _SCHEDULES[FLAGS.lr_schedule]
    for name in _OPTIONS:
        if FLAGS[name].value is not None and name not in options:
            users = [known for known, (_, flags) in _SCHEDULES.items() if name in flags]
            rule = f"must be used with --lr_schedule={' or '.join(users)}"
            raise flag_error(name, rule, "lr_schedule")


def make_schedule(name, num_steps, num_warmup_steps, hidden_size):
    """Returns the learning rate schedule `name` with the peak --learning_rate."""
    from bert_tf import training

    class_name, flags = _SCHEDULES[name]
    shape = getattr(training, class_name)
    if name == "noam":
        # Scales the schedule so that its peak, at the end of the warm-up, is --learning_rate.
        warmup = max(1, num_warmup_steps)
        peak = (hidden_size * warmup) ** -0.5
        return shape(hidden_size, warmup, FLAGS.learning_rate / peak)
    if not shape.has_end:
        return shape(FLAGS.learning_rate, num_warmup_steps)
    values = {option: FLAGS[flag].value for flag, option in flags.items()}
    options = {option: value for option, value in values.items() if value is not None}
    return shape(FLAGS.learning_rate, num_steps, min(num_warmup_steps, num_steps), **options)
