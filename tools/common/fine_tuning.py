"""The flags of the craft of fine-tuning, and what they do to a model around a backbone.

A tool that imports this module has the flags that make sense in every task; those of epochs, of
classes and of augmentation it asks for by `define_…`. `check_flags` comes first; `prepare_model`
after the checkpoint is loaded and before `compile`; `finish_model` before the model is saved.
"""

import os

import numpy as np
from absl import flags

from bert_tf.errors import UserError
from bert_tf.models.lora_model import LORA_LAYERS

FLAGS = flags.FLAGS

flags.DEFINE_float("weight_decay", 0.01, "Decoupled weight decay.", lower_bound=0.0)
flags.DEFINE_float(
    "layer_decay", None, "Learning rate of a block, in parts of the one above it (such as 0.9)."
)
flags.DEFINE_integer(
    "gradient_accumulation_steps", 1, "Parts in which a batch is worked through.", lower_bound=1
)
flags.DEFINE_float(
    "label_smoothing",
    0.0,
    "Share of the target spread over all classes.",
    lower_bound=0.0,
    upper_bound=0.999,
)
flags.DEFINE_float(
    "focal_gamma", 0.0, "Focus on hard examples: gamma of the focal loss.", lower_bound=0.0
)
flags.DEFINE_integer("freeze_layers", None, "Freeze the embeddings and the first k blocks.")
flags.DEFINE_integer("reinit_layers", None, "Draw the last k blocks and the pooler anew.")
flags.DEFINE_integer(
    "lora_rank",
    None,
    "Freeze the backbone and train low-rank additions of this "
    "rank; they are written to lora.safetensors, and the model is saved with them "
    "merged in.",
    lower_bound=1,
)
flags.DEFINE_float(
    "lora_alpha", None, "Scale of the additions times their rank. Default: the rank."
)
flags.DEFINE_list("lora_layers", ["query_key_value"], f"Which layers: {', '.join(LORA_LAYERS)}.")

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
    "lora_layers",
)


def define_epoch_flags(scores):
    """Flags of what happens at the ends of epochs; `scores` names some that can be watched."""
    flags.DEFINE_integer(
        "unfreeze_every",
        None,
        "Gradual unfreezing: the head alone at first, and "
        "every so many epochs one more block, from the top.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "keep_best",
        None,
        f"End with the weights of the epoch with the best score of the dev file, such as {scores}.",
    )
    flags.DEFINE_integer(
        "early_stopping_patience",
        None,
        "Of --keep_best: stop after so many epochs without a better one.",
        lower_bound=1,
    )


def define_class_weights():
    """The flag for tasks whose classes mean the same in every example."""
    flags.DEFINE_list(
        "class_weights",
        None,
        "Weights of the classes in the order of their ids, or "
        "`balanced`: every class counts the same.",
    )


def define_augmentation():
    """Flags for tasks in which the words of a text may change."""
    flags.DEFINE_float("augment_insertion", 0.0, "Share of the words after which one is inserted.")
    flags.DEFINE_float("augment_swap", 0.0, "Share of the words that are swapped.")
    flags.DEFINE_float("augment_deletion", 0.0, "Share of the words that are deleted.")
    flags.DEFINE_enum("augment_unit", "word", ["word", "character"], "Character for Chinese.")


def check_flags(has_dev=True):
    """Refuses combinations that have no meaning, before any work.

    Args:
        has_dev: Whether there are examples to score after each epoch.
    """
    if _value("early_stopping_patience") and not FLAGS.keep_best:
        raise UserError("--early_stopping_patience needs --keep_best, the score to watch.")
    if _value("keep_best"):
        if not FLAGS.keep_best.startswith("val_"):
            raise UserError(
                "--keep_best must be a score of the dev file, whose names begin with val_: on the "
                "training data the best epoch is not seen. Received: "
                f"--keep_best={FLAGS.keep_best}"
            )
        if not float(FLAGS.num_train_epochs).is_integer():
            raise UserError(
                "--keep_best needs a whole number of epochs. Received: "
                f"--num_train_epochs={FLAGS.num_train_epochs}"
            )
        if not has_dev:
            raise UserError(
                "--keep_best needs examples to score after each epoch. Received: no "
                "dev file, or none to evaluate."
            )
    freezes = {name: _value(name) for name in ("freeze_layers", "unfreeze_every", "lora_rank")}
    if sum(value is not None for value in freezes.values()) > 1:
        raise UserError(f"One of {list(freezes)} was expected. Received: {freezes}")


def changes_loss():
    """Whether a flag asks for another loss than cross-entropy."""
    return bool(FLAGS.label_smoothing or FLAGS.focal_gamma or _value("class_weights"))


def settings():
    """What makes a run another one, for checkpoints."""
    return {name: FLAGS[name].value for name in _COMMON}


def prepare_model(model):
    """What the flags do to a model before it is compiled."""
    from bert_tf.training import freeze_layers, reinitialize_top_layers

    if FLAGS.reinit_layers is not None:
        reinitialize_top_layers(model, FLAGS.reinit_layers, seed=FLAGS.seed)
    if FLAGS.freeze_layers is not None:
        freeze_layers(model, FLAGS.freeze_layers)
    if FLAGS.lora_rank is not None:
        model.enable_lora(FLAGS.lora_rank, FLAGS.lora_alpha, FLAGS.lora_layers)


def finish_model(model):
    """Writes LoRA's additions alone and merges them, so that the model can be saved like any."""
    if model.lora is not None:
        model.save_lora_weights(os.path.join(FLAGS.output_dir, "lora.safetensors"))
        model.merge_lora()


def schedule(num_steps):
    """The rate of a run: it rises for --warmup_proportion of the steps, then falls to 0."""
    from bert_tf.training import WarmupLinearDecay

    return WarmupLinearDecay(
        FLAGS.learning_rate, num_steps, int(num_steps * FLAGS.warmup_proportion)
    )


def optimizer(learning_rate, **options):
    """Adam with the decays that the flags name."""
    from bert_tf.training import AdamWeightDecay

    return AdamWeightDecay(
        learning_rate,
        weight_decay_rate=FLAGS.weight_decay,
        layer_decay=FLAGS.layer_decay,
        **options,
    )


def class_loss(class_ids=None, num_classes=None):
    """The loss on class ids; "auto", the model's own, where no flag asks for another.

    Args:
        class_ids: Those to train on, where the tool has --class_weights.
        num_classes: How many classes there are.
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
            f"--class_weights: expected `balanced` or {num_classes} numbers. "
            f"Received: {','.join(FLAGS.class_weights)}"
        )
    return weights


def multi_label_loss():
    """The loss on 0 or 1 for every label: Keras's."""
    import keras

    if FLAGS.class_weights is not None:
        raise UserError(
            "--class_weights is for one label an example; several labels have --focal_gamma."
        )
    if FLAGS.focal_gamma:
        return keras.losses.BinaryFocalCrossentropy(
            gamma=FLAGS.focal_gamma, label_smoothing=FLAGS.label_smoothing, from_logits=True
        )
    return keras.losses.BinaryCrossentropy(label_smoothing=FLAGS.label_smoothing, from_logits=True)


def fit(model, x, y, batch_size, num_steps, initial_step=0, callbacks=()):
    """`model.fit` from a step on. Each epoch has an order of its own, the same in every run.

    Args:
        model: Compiled; a task model or a `DistillationModel`.
        x: Texts, or a tuple of two lists.
        y: Class ids or what else the model learns; None without labels.
        batch_size: Rows of a batch; the last of an epoch has what is left.
        num_steps: Steps of the whole run.
        initial_step: Steps that are done.
        callbacks: Of `fit`.
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
    """The batches from a step on, as token dictionaries: augmented where the flags ask for it."""
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
    if any(rates):  # other words in every epoch
        texts = tuple(map(tf.constant, texts))
        dataset = dataset.map(lambda rows: (gathered(texts, rows), *gathered(labels, rows)))
        augmentation = TextAugmentation(*rates, unit=FLAGS.augment_unit, seed=FLAGS.seed + step)
        dataset = augment(dataset, augmentation)

        def batch(texts, *labels):
            return model.tokens_of(texts), *labels

    else:
        tokens = model.tokenized_texts(TextColumns(texts))

        def batch(rows):
            return tokens.batch(rows), *gathered(labels, rows)

    return dataset.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(
        tf.data.AUTOTUNE
    )


def callbacks():
    """Gradual unfreezing, the best epoch and early stopping, as the flags say."""
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
        raise UserError(f"--keep_best must be one of {sorted(logs)}. Received: {FLAGS.keep_best}")


def _value(name):
    """The flag's value; None where the tool has no such flag."""
    return FLAGS[name].value if name in FLAGS else None
