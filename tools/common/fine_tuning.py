"""Fine-tuning as the flags of `fine_tuning_flags.py` say.

A tool calls `compile_model`, `TrainingRun.fit` and `save_model`.
"""

import os

from bert_tf.config import MULTI_LABEL
from bert_tf.errors import user_error
from bert_tf.tools.common.checks import flag_error, options_of
from bert_tf.tools.common.fine_tuning_flags import changes_loss, value_of
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.optimizer_flags import make_schedule


def require_checkpoints_to_average(num_steps):
    """Requires that a run of this length saves as many checkpoints as are averaged."""
    saved = num_steps // FLAGS.save_checkpoints_steps
    if FLAGS.average_checkpoints > saved:
        raise flag_error(
            "average_checkpoints",
            f"must be at most {saved}, the number of checkpoints that a run of {num_steps} steps "
            f"saves with --save_checkpoints_steps={FLAGS.save_checkpoints_steps}",
        )


def num_steps_of(steps_per_epoch):
    """Returns the number of steps of the run."""
    num_steps = max(1, int(steps_per_epoch * FLAGS.num_train_epochs))
    return min(num_steps, value_of("max_train_steps") or num_steps)


def warmup_steps_of(num_steps):
    """Returns the number of warm-up steps of a run."""
    given = value_of("num_warmup_steps")
    return int(num_steps * FLAGS.warmup_proportion) if given is None else given


def compile_model(model, num_steps, learning_rate_multipliers=None, **options):
    """Reinitializes, freezes or adds LoRA to a model or a student, as flags say, and compiles it.

    The learning rate's warm-up and decay take `num_steps`.
    """
    from bert_tf.training import AdamWeightDecay, freeze_layers, reinitialize_top_layers

    with model.distribute_strategy.scope():
        task_model = getattr(model, "student", model)
        if FLAGS.reinit_layers is not None:
            reinitialize_top_layers(task_model, FLAGS.reinit_layers, seed=FLAGS.seed)
        if FLAGS.freeze_layers is not None:
            freeze_layers(task_model, FLAGS.freeze_layers)
        if FLAGS.lora_rank is not None:
            task_model.enable_lora(FLAGS.lora_rank, FLAGS.lora_alpha, FLAGS.lora_target_modules)
        optimizer = AdamWeightDecay(
            make_schedule(
                value_of("lr_schedule") or "linear",
                num_steps,
                warmup_steps_of(num_steps),
                task_model.backbone.config.hidden_size,
            ),
            learning_rate_multipliers=learning_rate_multipliers,
            **options_of(
                "layer_decay",
                "bias_correction",
                "l2_regularization",
                "all_reduce_dtype",
                "all_reduce_bytes_per_pack",
                weight_decay_rate="weight_decay",
            ),
        )
        accumulation = FLAGS.gradient_accumulation_steps
        if FLAGS.distribution_strategy == "tpu":
            options["jit_compile"] = True
        model.compile(optimizer, gradient_accumulation_steps=accumulation, **options)


def merge_lora(model):
    """Writes the LoRA weights, if any, to a file of their own and merges them into the model."""
    model = getattr(model, "student", model)
    if model.lora is not None:
        model.save_lora_weights(os.path.join(FLAGS.output_dir, "lora.safetensors"))
        model.merge_lora()


def save_model(model):
    """Writes a trained model to `model` in --output_dir."""
    model.save_pretrained(os.path.join(FLAGS.output_dir, "model"), format="auto")


def class_loss(class_ids=None, num_classes=None):
    """Returns the loss on class ids; "auto", the model's own, if no flag asks for another."""
    from bert_tf.training import OrdinalLogLoss, SparseCrossentropy, balanced_class_weights

    if not changes_loss():
        return "auto"
    weights = value_of("class_weights")
    if weights == ["balanced"]:
        weights = balanced_class_weights(class_ids, num_classes)
    elif weights is not None:
        try:
            weights = [float(weight) for weight in weights]
        except ValueError:
            weights = []
        if len(weights) != num_classes:
            raise flag_error("class_weights", f"must be `balanced` or {num_classes} numbers")
    if (alpha := value_of("ordinal_alpha")) is not None:
        return OrdinalLogLoss(alpha, weights)
    return SparseCrossentropy(FLAGS.label_smoothing, FLAGS.focal_gamma, weights)


def classifier_loss(model, targets):
    """Returns the loss of a text classifier, with one or several labels per example."""
    if not changes_loss() or model.problem_type != MULTI_LABEL:
        return class_loss(targets, model.num_classes)
    import keras

    if FLAGS.class_weights is not None:
        expected = "not be set for a task with several labels per example"
        received = f"--class_weights={','.join(FLAGS.class_weights)}. Use --focal_gamma instead."
        raise user_error("--class_weights", expected, received)
    if FLAGS.focal_gamma:
        return keras.losses.BinaryFocalCrossentropy(
            gamma=FLAGS.focal_gamma, label_smoothing=FLAGS.label_smoothing, from_logits=True
        )
    return keras.losses.BinaryCrossentropy(label_smoothing=FLAGS.label_smoothing, from_logits=True)


def epoch_callbacks():
    """Returns the callbacks for gradual unfreezing, the best epoch and early stopping."""
    import keras

    from bert_tf.training import GradualUnfreezing

    def require_score(epoch, logs):
        if FLAGS.keep_best not in logs:
            raise flag_error("keep_best", f"must be one of {sorted(logs)}")

    found = []
    if value_of("unfreeze_every") is not None:
        found.append(GradualUnfreezing(epochs_per_block=FLAGS.unfreeze_every))
    if value_of("keep_best"):
        best = keras.callbacks.EarlyStopping(
            monitor=FLAGS.keep_best,
            mode="min" if FLAGS.keep_best.endswith(("loss", "mae")) else "max",
            patience=FLAGS.early_stopping_patience or int(FLAGS.num_train_epochs),
            restore_best_weights=True,
            verbose=1,
        )
        found += [keras.callbacks.LambdaCallback(on_epoch_end=require_score), best]
    return found
