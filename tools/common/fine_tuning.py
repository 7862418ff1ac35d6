"""Flags for fine-tuning, and the functions that apply them to a task model.

Importing this module defines the flags that every task can use; `define_...` adds others. A tool
calls `check_flags` first, and `compile_model` and `finish_model` (or `train_epochs`, which calls
both) between loading and saving the model.
"""

import os

from absl import flags

from bert_tf.base.optional_packages import require
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.errors import UserError
from bert_tf.models.lora_model import LORA_LAYERS
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.console import training_verbose
from bert_tf.tools.common.optimizer_flags import make_schedule

FLAGS = flags.FLAGS
FLAG_HEADINGS = (("augment_", "Augmentation"), ("lora_", "LoRA"), ("", "Fine-tuning"))

flags.DEFINE_string(
    "output_dir", None, "The directory to write the trained model and the results to."
)
flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the training steps that are warm-up, in which the learning rate rises from 0.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_bool(
    "bias_correction",
    False,
    "Whether Adam corrects the bias of its moments; the original does not.",
)
flags.DEFINE_integer("seed", 12345, "Seed of a new head, the shuffling and the dropout.")
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
    "Freeze the embeddings and this number of encoder blocks, from the first; -1: all blocks, so "
    "that only the classifier is trained, and the pooler if it is used. Default: freeze nothing.",
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

_STEPS = ("train_batch_size", "learning_rate", "num_train_epochs", "seed")
_OPTIMIZER = ("weight_decay", "layer_decay", "gradient_accumulation_steps")
_LOSS = ("label_smoothing", "focal_gamma")
_LAYERS = ("freeze_layers", "reinit_layers", "lora_rank", "lora_alpha", "lora_target_modules")
# The flags that every checkpoint records.
_RECORDED = (*_STEPS, *_OPTIMIZER, *_LOSS, *_LAYERS)
# Maps the flags for the kinds of work of most tools to the flags that they need.
WORKS = {"do_train": ("init_checkpoint",), "do_eval": (), "do_predict": ()}


def define_training(batch_of="examples", batch_size=32, learning_rate=5e-5, num_train_epochs=3.0):
    """Defines the flags for the batch size, the learning rate and the epochs, by their defaults."""
    flags.DEFINE_integer(
        "train_batch_size", batch_size, f"Batch size for training, in {batch_of}.", lower_bound=1
    )
    flags.DEFINE_float(
        "learning_rate", learning_rate, "The peak learning rate of Adam.", lower_bound=0.0
    )
    flags.DEFINE_float(
        "num_train_epochs",
        num_train_epochs,
        "Number of training epochs; may be a fraction.",
        lower_bound=0.0,
    )


def define_epoch_flags(scores):
    """Defines the flags for gradual unfreezing, the best epoch (by `scores`) and early stopping."""
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


def define_checkpoints():
    """Defines the flags for the checkpoints of a run, and for their mean."""
    flags.DEFINE_integer(
        "save_checkpoints_steps", 1000, "Number of steps between two checkpoints.", lower_bound=1
    )
    flags.DEFINE_integer(
        "keep_checkpoint_max", 5, "Number of newest checkpoints to keep.", lower_bound=1
    )
    flags.DEFINE_integer(
        "average_checkpoints",
        0,
        "The trained model has the mean of the weights in this number of last checkpoints, those "
        "at multiples of --save_checkpoints_steps. Default: the weights of the last step.",
        lower_bound=0,
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


def check_flags(works=WORKS, has_dev=True):
    """Refuses flags that do not fit together, before any work.

    Args:
        works: From the flags for the kinds of work to the flags that they need.
        has_dev: Whether there are examples to score after each epoch.

    Raises:
        UserError: If flags contradict each other or one that is needed is missing.
    """
    if works and not any(FLAGS[work].value for work in works):
        *others, last = (f"--{work}" for work in works)
        raise UserError(
            f"At least one of {', '.join(others)} and {last} must be true. Received: none"
        )
    for work, needed in works.items():
        for name in needed:
            if FLAGS[work].value and not FLAGS[name].value:
                raise UserError(f"--{name} must be set with --{work}. Received: none")
    if value_of("early_stopping_patience") and not FLAGS.keep_best:
        raise UserError(
            "--keep_best must be set with --early_stopping_patience: it names the score to watch. "
            "Received: --keep_best=None"
        )
    if value_of("keep_best"):
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
    if value_of("augment_swap"):
        require("keras_hub.layers", "--augment_swap")
    freezes = {name: value_of(name) for name in ("freeze_layers", "unfreeze_every", "lora_rank")}
    if sum(value is not None for value in freezes.values()) > 1:
        raise UserError(
            f"At most one of {', '.join(f'--{name}' for name in freezes)} must be set. Received: "
            + ", ".join(f"--{name}={value}" for name, value in freezes.items())
        )


def changes_loss():
    """Returns whether a flag asks for another loss than cross-entropy."""
    return bool(FLAGS.label_smoothing or FLAGS.focal_gamma or value_of("class_weights"))


def require_classes(task):
    """Refuses the flags for the loss on classes if the labels of the task are numbers."""
    if task.problem_type == REGRESSION and changes_loss():
        raise UserError(
            "--label_smoothing, --focal_gamma and --class_weights must be used with classes. "
            f"Received: --task_name={FLAGS.task_name}, whose labels are numbers"
        )


def training_checkpoint(names, **options):
    """Creates a `TrainingCheckpoint` that records the flags `names` and those of the training."""
    from bert_tf.training import TrainingCheckpoint

    return TrainingCheckpoint(
        os.path.join(FLAGS.output_dir, "checkpoints"),
        save_every=FLAGS.save_checkpoints_steps,
        settings={name: FLAGS[name].value for name in (*names, *_RECORDED)},
        **options,
    )


def steps_of(rows):
    """Returns the steps per epoch and in total for a list, a tuple of lists or a number of rows."""
    num_rows = rows if isinstance(rows, int) else len(rows[0] if isinstance(rows, tuple) else rows)
    steps_per_epoch = -(-num_rows // FLAGS.train_batch_size)
    return steps_per_epoch, num_steps_of(steps_per_epoch)


def average_last_checkpoints(checkpoint, model):
    """Gives the model the mean of its weights in the last checkpoints, if the flags say so."""
    from bert_tf.training import load_average

    if FLAGS.average_checkpoints:
        steps = load_average(checkpoint, model, FLAGS.average_checkpoints)
        print(f"The weights are the mean of the checkpoints of the steps {steps}.")


def require_checkpoints_to_average(num_steps):
    """Requires that a run of this length saves as many checkpoints as are averaged."""
    saved = num_steps // FLAGS.save_checkpoints_steps
    if FLAGS.average_checkpoints > saved:
        raise UserError(
            f"--average_checkpoints must be at most {saved}, the number of checkpoints that a run "
            f"of {num_steps} steps saves with "
            f"--save_checkpoints_steps={FLAGS.save_checkpoints_steps}. Received: "
            f"--average_checkpoints={FLAGS.average_checkpoints}"
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
        **options_of("layer_decay", "bias_correction", weight_decay_rate="weight_decay"),
    )
    accumulation = FLAGS.gradient_accumulation_steps
    model.compile(optimizer, gradient_accumulation_steps=accumulation, **options)


def finish_model(model):
    """Writes the LoRA weights to a file of their own and merges them into the model."""
    if model.lora is not None:
        model.save_lora_weights(os.path.join(FLAGS.output_dir, "lora.safetensors"))
        model.merge_lora()


def class_loss(class_ids=None, num_classes=None):
    """Returns the loss on class ids; "auto", the model's own, if no flag asks for another."""
    from bert_tf.training import SparseCrossentropy, balanced_class_weights

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
            raise UserError(
                f"--class_weights must be `balanced` or {num_classes} numbers. "
                f"Received: --class_weights={','.join(FLAGS.class_weights)}"
            )
    return SparseCrossentropy(FLAGS.label_smoothing, FLAGS.focal_gamma, weights)


def classifier_loss(model, targets):
    """Returns the loss of a text classifier, with one or several labels per example."""
    if not changes_loss() or model.problem_type != MULTI_LABEL:
        return class_loss(targets, model.num_classes)
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


def train_epochs(model, x, y, num_rows=None, callbacks=(), validation_data=None, **options):
    """Trains a model with its own `fit`, from `compile_model(**options)` to `finish_model`.

    With a fraction in --num_train_epochs, the last epoch has fewer steps.
    """
    steps_per_epoch, num_steps = steps_of(num_rows or x)
    compile_model(model, num_steps, **options)
    epochs, rest = divmod(num_steps, steps_per_epoch)
    data = {
        "batch_size": FLAGS.train_batch_size,
        "callbacks": [*callbacks, *epoch_callbacks()],
        "validation_data": validation_data,
        "verbose": training_verbose(),
    }
    if epochs:
        model.fit(x, y, epochs=epochs, **data)
    if rest:
        model.fit(x, y, initial_epoch=epochs, epochs=epochs + 1, steps_per_epoch=rest, **data)
    finish_model(model)


def epoch_callbacks():
    """Returns the callbacks for gradual unfreezing, the best epoch and early stopping."""
    import keras

    from bert_tf.training import GradualUnfreezing

    def require_score(epoch, logs):
        if FLAGS.keep_best not in logs:
            raise UserError(
                f"--keep_best must be one of {sorted(logs)}. Received: "
                f"--keep_best={FLAGS.keep_best}"
            )

    found = []
    if FLAGS.unfreeze_every is not None:
        found.append(GradualUnfreezing(epochs_per_block=FLAGS.unfreeze_every))
    if FLAGS.keep_best:
        best = keras.callbacks.EarlyStopping(
            monitor=FLAGS.keep_best,
            mode="min" if FLAGS.keep_best.endswith(("loss", "mae")) else "max",
            patience=FLAGS.early_stopping_patience or int(FLAGS.num_train_epochs),
            restore_best_weights=True,
            verbose=1,
        )
        found += [keras.callbacks.LambdaCallback(on_epoch_end=require_score), best]
    return found


def value_of(name):
    """Returns the flag's value, or None if the tool has no such flag."""
    return FLAGS[name].value if name in FLAGS else None
