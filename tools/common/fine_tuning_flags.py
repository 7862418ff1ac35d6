"""Flags for fine-tuning; `fine_tuning.py` has the functions that apply them to a model.

Importing this module defines the flags that every task can use; `define_...` adds others. A tool
calls `check_flags` before any work.
"""

from absl import flags

from bert_tf.adapt.lora import LORA_LAYERS
from bert_tf.base.optional_packages import require_package
from bert_tf.config import REGRESSION
from bert_tf.errors import UserError

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
        require_package("keras_hub.layers", "--augment_swap")
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


def value_of(name):
    """Returns the flag's value, or None if the tool has no such flag."""
    return FLAGS[name].value if name in FLAGS else None
