"""The flag for the learning rate's schedule."""

from bert_tf.tools.common.flag_table import FLAGS, define_flags


def define_schedule():
    """Defines the flag for the shape of the learning rate."""
    define_flags("""
        lr_schedule (linear|cosine|noam, linear): How the learning rate falls from --learning_rate
            after the warm-up: linearly to 0, as the original; along a cosine to 0; or with the
            inverse square root of the step (noam).
    """)


def make_schedule(name, num_steps, num_warmup_steps, hidden_size):
    """Returns the learning rate schedule `name` with the peak --learning_rate."""
    from bert_tf.training import Noam, WarmupCosineDecay, WarmupLinearDecay

    if name == "noam":
        # Scales the schedule so that its peak, at the end of the warm-up, is --learning_rate.
        warmup = max(1, num_warmup_steps)
        peak = (hidden_size * warmup) ** -0.5
        return Noam(hidden_size, warmup, FLAGS.learning_rate / peak)
    shape = {"linear": WarmupLinearDecay, "cosine": WarmupCosineDecay}[name]
    return shape(FLAGS.learning_rate, num_steps, min(num_warmup_steps, num_steps))
