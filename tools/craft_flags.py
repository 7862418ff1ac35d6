"""The flags of the craft of fine-tuning, and what they do to a model around a backbone.

A tool that imports this module has the flags; `prepare_model` comes after the checkpoint is loaded
and before `compile`.
"""

import numpy as np
from absl import flags

from bert_tf.errors import UserError
from bert_tf.models.lora_model import LORA_LAYERS

FLAGS = flags.FLAGS

flags.DEFINE_float("weight_decay", 0.01, "Decoupled weight decay.", lower_bound=0.0)
flags.DEFINE_float("layer_decay", None, "Learning rate of a block, in parts of the one above it "
                   "(such as 0.9).")
flags.DEFINE_integer("gradient_accumulation_steps", 1, "Parts in which a batch is worked through.",
                     lower_bound=1)
flags.DEFINE_float("label_smoothing", 0.0, "Share of the target spread over all classes.",
                   lower_bound=0.0, upper_bound=0.999)
flags.DEFINE_float("focal_gamma", 0.0, "Focus on hard examples: gamma of the focal loss.",
                   lower_bound=0.0)
flags.DEFINE_list("class_weights", None, "Weights of the classes in the order of their ids, or "
                  "`balanced`: every class counts the same.")
flags.DEFINE_integer("freeze_layers", None, "Freeze the embeddings and the first k blocks.")
flags.DEFINE_integer("unfreeze_every", None, "Gradual unfreezing: the head alone at first, and "
                     "every so many epochs one more block, from the top.", lower_bound=1)
flags.DEFINE_integer("reinit_layers", None, "Draw the last k blocks and the pooler anew.")
flags.DEFINE_integer("lora_rank", None, "Freeze the backbone and train low-rank additions of this "
                     "rank; the model is saved with them merged in.", lower_bound=1)
flags.DEFINE_float("lora_alpha", None, "Scale of the additions times their rank. Default: "
                   "the rank.")
flags.DEFINE_list("lora_layers", ["query_key_value"], f"Which layers: {', '.join(LORA_LAYERS)}.")
flags.DEFINE_string("keep_best", None, "End with the weights of the epoch with the best score of "
                    "the dev file, such as val_accuracy, val_auc, val_best_f1 or val_loss.")
flags.DEFINE_integer("early_stopping_patience", None, "Of --keep_best: stop after so many epochs "
                     "without a better one.", lower_bound=1)
flags.DEFINE_float("augment_insertion", 0.0, "Share of the words after which one is inserted.")
flags.DEFINE_float("augment_swap", 0.0, "Share of the words that are swapped.")
flags.DEFINE_float("augment_deletion", 0.0, "Share of the words that are deleted.")
flags.DEFINE_enum("augment_unit", "word", ["word", "character"], "Character for Chinese.")


def check_flags():
    """Refuses combinations that have no meaning, before any work."""
    if FLAGS.early_stopping_patience and not FLAGS.keep_best:
        raise UserError("--early_stopping_patience needs --keep_best, the score to watch.")
    if FLAGS.keep_best and not FLAGS.num_train_epochs.is_integer():
        raise UserError("--keep_best needs a whole number of epochs. Received: "
                        f"--num_train_epochs={FLAGS.num_train_epochs}")
    freezes = {name: FLAGS[name].value for name in ("freeze_layers", "unfreeze_every", "lora_rank")}
    if sum(value is not None for value in freezes.values()) > 1:
        raise UserError(f"One of {list(freezes)} was expected. Received: {freezes}")


def prepare_model(model):
    """What the flags do to a model before it is compiled."""
    from bert_tf.training import freeze_layers, reinitialize_top_layers

    if FLAGS.reinit_layers is not None:
        reinitialize_top_layers(model, FLAGS.reinit_layers, seed=FLAGS.seed)
    if FLAGS.freeze_layers is not None:
        freeze_layers(model, FLAGS.freeze_layers)
    if FLAGS.lora_rank is not None:
        model.enable_lora(FLAGS.lora_rank, FLAGS.lora_alpha, FLAGS.lora_layers)


def classification_loss(class_ids, num_classes):
    """The loss on class ids; "auto", the model's own, where no flag asks for another."""
    from bert_tf.training import SparseCrossentropy, balanced_class_weights

    weights = FLAGS.class_weights
    if weights == ["balanced"]:
        weights = balanced_class_weights(class_ids, num_classes)
    elif weights is not None:
        try:
            weights = [float(weight) for weight in weights]
        except ValueError:
            weights = []
        if len(weights) != num_classes:
            raise UserError(f"--class_weights: expected `balanced` or {num_classes} numbers. "
                            f"Received: {','.join(FLAGS.class_weights)}")
    if weights is None and not FLAGS.label_smoothing and not FLAGS.focal_gamma:
        return "auto"
    return SparseCrossentropy(FLAGS.label_smoothing, FLAGS.focal_gamma, weights)


def multi_label_loss():
    """The loss on 0 or 1 for every label: Keras's."""
    import keras

    if FLAGS.class_weights is not None:
        raise UserError("--class_weights is for one label an example; several labels have "
                        "--focal_gamma.")
    if FLAGS.focal_gamma:
        return keras.losses.BinaryFocalCrossentropy(
            gamma=FLAGS.focal_gamma, label_smoothing=FLAGS.label_smoothing, from_logits=True)
    return keras.losses.BinaryCrossentropy(
        label_smoothing=FLAGS.label_smoothing, from_logits=True)


def craft_callbacks():
    """Gradual unfreezing, the best epoch and early stopping, as the flags say."""
    import keras

    from bert_tf.training import GradualUnfreezing

    callbacks = []
    if FLAGS.unfreeze_every is not None:
        callbacks.append(GradualUnfreezing(epochs_per_block=FLAGS.unfreeze_every))
    if FLAGS.keep_best:
        callbacks.append(
            keras.callbacks.EarlyStopping(
                monitor=FLAGS.keep_best,
                mode="min" if FLAGS.keep_best in ("val_loss", "val_mae") else "max",
                patience=FLAGS.early_stopping_patience or int(FLAGS.num_train_epochs),
                restore_best_weights=True,
                verbose=1,
            )
        )
    return callbacks


def training_data(x, y, batch_size):
    """Arguments of `fit` for texts and labels: augmented batches where the flags ask for them."""
    import tensorflow as tf

    from bert_tf.data.augmentation import TextAugmentation, augment

    rates = (FLAGS.augment_insertion, FLAGS.augment_swap, FLAGS.augment_deletion)
    if not any(rates):
        return {"x": x, "y": y, "batch_size": batch_size}
    dataset = tf.data.Dataset.from_tensor_slices((x, np.asarray(y)))
    dataset = dataset.shuffle(len(y), seed=FLAGS.seed).batch(batch_size)
    augmentation = TextAugmentation(*rates, unit=FLAGS.augment_unit, seed=FLAGS.seed)
    return {"x": augment(dataset, augmentation)}
