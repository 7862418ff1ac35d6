"""Flags for fine-tuning techniques, and the functions that apply them to a task model.

Importing this module defines the flags that every task can use. A tool calls `define_...` to add
the flags for epochs, class weights and augmentation. It calls `check_flags` first, `prepare_model`
after it has loaded the checkpoint and before `compile`, and `finish_model` before it saves the
model.
"""

import os

import numpy as np
from absl import flags

from bert_tf.errors import UserError
from bert_tf.models.lora_model import LORA_LAYERS

FLAGS = flags.FLAGS

flags.DEFINE_float(
    "weight_decay", 0.01, "Decoupled weight decay of the optimizer.", lower_bound=0.0
)
flags.DEFINE_float(
    "layer_decay",
    None,
    "Layer-wise learning rate decay: the learning rate of a block divided by that of the block "
    "above it, such as 0.9. Default: no decay.",
)
flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Number of parts that each batch is split into to save memory; their gradients are "
    "accumulated before the optimizer step.",
    lower_bound=1,
)
flags.DEFINE_float(
    "label_smoothing",
    0.0,
    "Share of the target probability that is spread evenly over all classes.",
    lower_bound=0.0,
    upper_bound=0.999,
)
flags.DEFINE_float(
    "focal_gamma",
    0.0,
    "Exponent gamma of the focal loss, which gives hard examples more weight. 0 turns it off.",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "freeze_layers",
    None,
    "Freeze the embeddings and this number of encoder blocks, from the first. Default: freeze "
    "nothing.",
)
flags.DEFINE_integer(
    "reinit_layers",
    None,
    "Initialize this number of encoder blocks, from the last, and the pooler at random again. "
    "Default: keep the weights of the checkpoint.",
)
flags.DEFINE_integer(
    "lora_rank",
    None,
    "Fine-tune with LoRA of this rank: the backbone is frozen and low-rank matrices are trained. "
    "They are written to lora.safetensors, and the saved model has them merged into its weights.",
    lower_bound=1,
)
flags.DEFINE_float(
    "lora_alpha",
    None,
    "With --lora_rank: the LoRA matrices are scaled by alpha / rank. Default: the rank.",
)
flags.DEFINE_list(
    "lora_target_modules",
    ["query_key_value"],
    f"With --lora_rank: the layers that get LoRA matrices, of {', '.join(LORA_LAYERS)}.",
)
flags.DEFINE_alias("lora_layers", "lora_target_modules")  # the flag's old name

_COMMON = (
    "weight_decay",
    "layer_decay",
    "gradient_accumulation_steps",
    "label_smoothing",
    "focal_gamma",
    "freeze_layers",
    "reinit_layers",
    "lora_rank",
    "lora_alpha",
    "lora_target_modules",
)


def define_epoch_flags(scores):
    """Defines the flags for gradual unfreezing, the best epoch and early stopping.

    Args:
        scores: Examples of values for --keep_best, for its help.
    """
    flags.DEFINE_integer(
        "unfreeze_every",
        None,
        "Gradual unfreezing: train only the head at first, then unfreeze one more encoder block, "
        "from the last to the first, every this many epochs.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "keep_best",
        None,
        "Keep the weights of the epoch with the best value of this score on the dev file, such as "
        f"{scores}. Default: keep those of the last epoch.",
    )
    flags.DEFINE_integer(
        "early_stopping_patience",
        None,
        "With --keep_best: stop after this many epochs without a better score. Default: train all "
        "epochs.",
        lower_bound=1,
    )


def define_class_weights():
    """Defines the flag for tasks whose classes mean the same in every example."""
    flags.DEFINE_list(
        "class_weights",
        None,
        "Weights of the classes in the loss, in the order of their ids, or `balanced` to give all "
        "classes the same total weight. Default: no weights.",
    )


def define_augmentation():
    """Defines the flags for tasks in which the words of a text may change."""
    flags.DEFINE_float(
        "augment_insertion",
        0.0,
        "Augmentation: share of the words after which another word of the same text is inserted.",
    )
    flags.DEFINE_float(
        "augment_swap", 0.0, "Augmentation: share of the words that are swapped with another."
    )
    flags.DEFINE_float(
        "augment_deletion", 0.0, "Augmentation: share of the words that are deleted."
    )
    flags.DEFINE_enum(
        "augment_unit",
        "word",
        ["word", "character"],
        "Augmentation: whether it changes words or, for Chinese, characters.",
    )


def check_flags(has_dev=True):
    """Refuses combinations of flags that have no meaning, before any work.

    Args:
        has_dev: Whether there are examples to score after each epoch.

    Raises:
        UserError: If flags do not fit together.
    """
    if _value("early_stopping_patience") and not FLAGS.keep_best:
        raise UserError(
            "--keep_best must be set with --early_stopping_patience: it names the score to watch. "
            "Received: --keep_best=None"
        )
    if _value("keep_best"):
        if not FLAGS.keep_best.startswith("val_"):
            raise UserError(
                "--keep_best must be a score of the dev file, whose name begins with val_: scores "
                "of the training data do not show which epoch is best. Received: "
                f"--keep_best={FLAGS.keep_best}"
            )
        if not float(FLAGS.num_train_epochs).is_integer():
            raise UserError(
                "--num_train_epochs must be a whole number with --keep_best. Received: "
                f"--num_train_epochs={FLAGS.num_train_epochs}"
            )
        if not has_dev:
            raise UserError(
                "--keep_best must have a dev file to score after each epoch. Received: no dev "
                "file, or --do_eval=False"
            )
    freezes = {name: _value(name) for name in ("freeze_layers", "unfreeze_every", "lora_rank")}
    if sum(value is not None for value in freezes.values()) > 1:
        raise UserError(
            f"At most one of {', '.join(f'--{name}' for name in freezes)} must be set. Received: "
            + ", ".join(f"--{name}={value}" for name, value in freezes.items())
        )


def changes_loss():
    """Whether a flag asks for another loss than cross-entropy."""
    return bool(FLAGS.label_smoothing or FLAGS.focal_gamma or _value("class_weights"))


def settings():
    """Returns the values of the flags that a checkpoint records, to compare them on resuming."""
    values = {name: FLAGS[name].value for name in _COMMON}
    values["lora_layers"] = values.pop("lora_target_modules")  # as older checkpoints have it
    return values


def prepare_model(model):
    """Reinitializes, freezes or adds LoRA to a model, as the flags say, before `compile`."""
    from bert_tf.training import freeze_layers, reinitialize_top_layers

    if FLAGS.reinit_layers is not None:
        reinitialize_top_layers(model, FLAGS.reinit_layers, seed=FLAGS.seed)
    if FLAGS.freeze_layers is not None:
        freeze_layers(model, FLAGS.freeze_layers)
    if FLAGS.lora_rank is not None:
        model.enable_lora(FLAGS.lora_rank, FLAGS.lora_alpha, FLAGS.lora_target_modules)


def finish_model(model):
    """Writes the LoRA weights to a file of their own and merges them into the model."""
    if model.lora is not None:
        model.save_lora_weights(os.path.join(FLAGS.output_dir, "lora.safetensors"))
        model.merge_lora()


def schedule(num_steps):
    """Returns the learning rate schedule: linear warm-up, then linear decay to 0."""
    from bert_tf.training import WarmupLinearDecay

    return WarmupLinearDecay(
        FLAGS.learning_rate, num_steps, int(num_steps * FLAGS.warmup_proportion)
    )


def optimizer(learning_rate, **options):
    """Creates Adam with the weight decay and the layer-wise decay of the flags."""
    from bert_tf.training import AdamWeightDecay

    return AdamWeightDecay(
        learning_rate,
        weight_decay_rate=FLAGS.weight_decay,
        layer_decay=FLAGS.layer_decay,
        **options,
    )


def class_loss(class_ids=None, num_classes=None):
    """Returns the loss on class ids; "auto", the model's own, if no flag asks for another.

    Args:
        class_ids: The class ids of the training data, for a tool with --class_weights.
        num_classes: The number of classes.

    Raises:
        UserError: If --class_weights does not fit the classes.
    """
    from bert_tf.training import SparseCrossentropy

    if not changes_loss():
        return "auto"
    weights = None if class_ids is None else _class_weights(class_ids, num_classes)
    return SparseCrossentropy(FLAGS.label_smoothing, FLAGS.focal_gamma, weights)


def _class_weights(class_ids, num_classes):
    from bert_tf.training import balanced_class_weights

    weights = FLAGS.class_weights
    if weights is None:
        return None
    if weights == ["balanced"]:
        return balanced_class_weights(class_ids, num_classes)
    try:
        weights = [float(weight) for weight in weights]
    except ValueError:
        weights = []
    if len(weights) != num_classes:
        raise UserError(
            f"--class_weights must be `balanced` or {num_classes} numbers. "
            f"Received: --class_weights={','.join(FLAGS.class_weights)}"
        )
    return weights


def multi_label_loss():
    """Returns the binary cross-entropy or focal loss for examples with several labels.

    Raises:
        UserError: If --class_weights is set.
    """
    import keras

    if FLAGS.class_weights is not None:
        raise UserError(
            "--class_weights must not be set for a task with several labels per example. Received: "
            f"--class_weights={','.join(FLAGS.class_weights)}. Use --focal_gamma instead."
        )
    if FLAGS.focal_gamma:
        return keras.losses.BinaryFocalCrossentropy(
            gamma=FLAGS.focal_gamma, label_smoothing=FLAGS.label_smoothing, from_logits=True
        )
    return keras.losses.BinaryCrossentropy(label_smoothing=FLAGS.label_smoothing, from_logits=True)


def fit(model, x, y, batch_size, num_steps, initial_step=0, callbacks=()):
    """Trains a model from a given step on. Every epoch has its own order, equal in every run.

    Args:
        model: A compiled task model or `DistillationModel`.
        x: A list of texts, or a tuple of two lists for pairs.
        y: The targets, such as class ids; None without labels.
        batch_size: Rows per batch; the last batch of an epoch may have fewer.
        num_steps: Total number of steps of the run.
        initial_step: Number of steps that are already done.
        callbacks: Passed to `fit`.
    """
    from bert_tf.training import fit_steps

    columns = (x,) if y is None else (x, np.asarray(y))
    num_rows = len(x[0]) if isinstance(x, tuple) else len(x)
    task_model = getattr(model, "student", model)
    fit_steps(
        model,
        lambda step: _batches(task_model, columns, num_rows, batch_size, step, num_steps),
        num_steps,
        initial_step,
        steps_per_epoch=-(-num_rows // batch_size),
        callbacks=list(callbacks),
        verbose="auto",
    )


def _batches(model, columns, num_rows, batch_size, step, num_steps):
    """Returns the batches from a step on, as token dictionaries, augmented if flags say so."""
    import tensorflow as tf

    from bert_tf.data.augmentation import TextAugmentation, augment
    from bert_tf.models.text_inputs import TextColumns

    texts, labels = columns[0], tuple(map(tf.constant, columns[1:]))
    texts = tuple(map(np.asarray, texts if isinstance(texts, tuple) else (texts,)))
    steps_per_epoch = -(-num_rows // batch_size)
    first, done = divmod(step, steps_per_epoch)
    dataset = None
    for epoch in range(first, -(-num_steps // steps_per_epoch)):
        order = np.random.default_rng([FLAGS.seed, epoch]).permutation(num_rows)
        rows = tf.data.Dataset.from_tensor_slices(order).batch(batch_size)
        dataset = rows if dataset is None else dataset.concatenate(rows)
    dataset = dataset.skip(done)

    def gathered(columns, rows):
        return tuple(tf.gather(column, rows) for column in columns)

    rates = (FLAGS.augment_insertion, FLAGS.augment_swap, FLAGS.augment_deletion)
    if any(rates):  # the texts change in every epoch, so they are tokenized batch by batch
        texts = tuple(map(tf.constant, texts))
        dataset = dataset.map(lambda rows: (gathered(texts, rows), *gathered(labels, rows)))
        augmentation = TextAugmentation(*rates, unit=FLAGS.augment_unit, seed=FLAGS.seed + step)
        dataset = augment(dataset, augmentation)

        def batch(texts, *labels):
            return model.tokens_of(texts), *labels

    else:
        tokens = model.preprocessor.example_rows(TextColumns(texts))

        def batch(rows):
            return tokens.batch(rows), *gathered(labels, rows)

    return dataset.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(
        tf.data.AUTOTUNE
    )


def callbacks():
    """Returns the callbacks for gradual unfreezing, the best epoch and early stopping."""
    import keras

    from bert_tf.training import GradualUnfreezing

    found = []
    if FLAGS.unfreeze_every is not None:
        found.append(GradualUnfreezing(epochs_per_block=FLAGS.unfreeze_every))
    if FLAGS.keep_best:
        found.append(keras.callbacks.LambdaCallback(on_epoch_end=_require_score))
        found.append(
            keras.callbacks.EarlyStopping(
                monitor=FLAGS.keep_best,
                mode="min" if FLAGS.keep_best.endswith(("loss", "mae")) else "max",
                patience=FLAGS.early_stopping_patience or int(FLAGS.num_train_epochs),
                restore_best_weights=True,
                verbose=1,
            )
        )
    return found


def _require_score(epoch, logs):
    if FLAGS.keep_best not in logs:
        raise UserError(
            f"--keep_best must be one of {sorted(logs)}. Received: --keep_best={FLAGS.keep_best}"
        )


def _value(name):
    """Returns the flag's value, or None if the tool has no such flag."""
    return FLAGS[name].value if name in FLAGS else None
