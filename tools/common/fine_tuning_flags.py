"""Flags for fine-tuning; `fine_tuning.py` has the functions that apply them to a model.

Importing this module defines the flags that every task can use; `define_...` adds others. A tool
calls `check_flags` before any work.
"""

from bert_tf.adapt.lora import LORA_LAYERS
from bert_tf.base.optional_packages import require_package
from bert_tf.config import REGRESSION
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import training_flags, workers
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("augment_", "Augmentation"), ("lora_", "LoRA"), ("", "Fine-tuning"))

define_flags(f"""
    output_dir (str): The directory to write the trained model and the results to.
    warmup_proportion (float 0 to 1, 0.1): Share of the training steps that are warm-up, in which
        the learning rate rises from 0.
    bias_correction (bool, false): Whether Adam corrects the bias of its moments; the original does
        not.
    seed (int, 12345): Seed of a new head, the shuffling and the dropout.
    weight_decay (float >= 0, 0.01): Decoupled weight decay of the optimizer.
    l2_regularization (float >= 0, 0.0): Factor of an L2 term of the loss, which is half the sum of
        the squares of the weights that have decay.
    layer_decay (float): Layer-wise learning rate decay: the learning rate of a block divided by
        that of the block above it, such as 0.9. Default: no decay.
    label_smoothing (float 0 to 0.999, 0.0): Share of the target probability that is spread evenly
        over all classes.
    focal_gamma (float >= 0, 0.0): Exponent gamma of the focal loss, which gives hard examples more
        weight. 0 turns it off.
    freeze_layers (int): Freeze the embeddings and this number of encoder blocks, from the first;
        -1: all blocks, so that only the classifier is trained, and the pooler if it is used.
        Default: freeze nothing.
    reinit_layers (int): Initialize this number of encoder blocks, from the last, and the pooler at
        random again. Default: keep the weights of the checkpoint.
    lora_rank (int >= 1): Fine-tune with LoRA of this rank: the backbone is frozen and low-rank
        matrices are trained. They are written to lora.safetensors, and the saved model has them
        merged into its weights.
    lora_alpha (float): With --lora_rank: the LoRA matrices are scaled by alpha / rank. Default: the
        rank.
    lora_target_modules (list, query_key_value): With --lora_rank: the layers that get LoRA
        matrices, of {", ".join(LORA_LAYERS)}.
""")
training_flags.define()

# Maps the flags for the kinds of work of most tools to the flags that they need.
WORKS = {"do_train": ("init_checkpoint",), "do_eval": (), "do_predict": ()}


def define_training(batch_of="examples", batch_size=32, learning_rate=5e-5, num_train_epochs=3.0):
    """Defines the flags for the batch size, the learning rate and the epochs, by their defaults."""
    define_flags(f"""
        train_batch_size (int >= 1, {batch_size}): Batch size for training, in {batch_of}.
        learning_rate (float >= 0, {learning_rate}): The peak learning rate of Adam.
        num_train_epochs (float >= 0, {num_train_epochs}): Number of training epochs; may be a
            fraction.
    """)


def define_epoch_flags(scores):
    """Defines the flags for gradual unfreezing, the best epoch (by `scores`) and early stopping."""
    define_flags(f"""
        unfreeze_every (int >= 1): Gradual unfreezing: train only the head at first, then unfreeze
            one more encoder block, from the last to the first, every this many epochs.
        keep_best (str): Keep the weights of the epoch with the best value of this score on the dev
            file, such as {scores}. Default: keep those of the last epoch.
        early_stopping_patience (int >= 1): With --keep_best: stop after this many epochs without a
            better score. Default: train all epochs.
    """)


def define_checkpoints():
    """Defines the flags for the number of checkpoints that a run keeps, and for their mean."""
    define_flags("""
        keep_checkpoint_max (int >= 1, 5): Number of newest checkpoints to keep.
        average_checkpoints (int >= 0, 0): The trained model has the mean of the weights in this
            number of last checkpoints, those at multiples of --save_checkpoints_steps. Default: the
            weights of the last step.
    """)


def define_class_weights():
    """Defines the flag for tasks whose classes mean the same in every example."""
    define_flags("""
        class_weights (list): Weights of the classes in the loss, in the order of their ids, or
            `balanced` to give all classes the same total weight. Default: no weights.
    """)


def define_augmentation():
    """Defines the flags for tasks in which the words of a text may change."""
    define_flags("""
        augment_insertion (float, 0.0): Augmentation: share of the words after which another word of
            the same text is inserted.
        augment_swap (float, 0.0): Augmentation: share of the words that are swapped with another.
        augment_deletion (float, 0.0): Augmentation: share of the words that are deleted.
        augment_unit (word|character, word): Augmentation: whether it changes words or, for Chinese,
            characters.
    """)


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
        raise user_error(f"At least one of {', '.join(others)} and {last}", "be true", "none")
    for work, needed in works.items():
        for name in needed:
            if FLAGS[work].value and not FLAGS[name].value:
                raise UserError(f"--{name} must be set with --{work}. Received: none")
    if "do_train" in works:
        workers.require_training()
    if value_of("early_stopping_patience") and not FLAGS.keep_best:
        raise flag_error(
            "keep_best", "must be set with --early_stopping_patience: it names the score to watch"
        )
    if value_of("keep_best"):
        if not FLAGS.keep_best.startswith("val_"):
            raise UserError(
                "--keep_best must be a score of the dev file, whose name begins with val_: scores "
                "of the training data do not show which epoch is best. Received: "
                f"--keep_best={FLAGS.keep_best}"
            )
        if not float(FLAGS.num_train_epochs).is_integer():
            raise flag_error("num_train_epochs", "must be a whole number with --keep_best")
        if not has_dev:
            received = "no dev file, or --do_eval=False"
            raise user_error("--keep_best", "have a dev file to score after each epoch", received)
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
    names = ("label_smoothing", "focal_gamma", "class_weights", "ordinal_alpha")
    return any(map(value_of, names))


def require_classes(task):
    """Refuses the flags for the loss on classes if the labels of the task are numbers."""
    if task.problem_type == REGRESSION and changes_loss():
        expected = "be used with classes"
        received = f"--task_name={FLAGS.task_name}, whose labels are numbers"
        raise user_error("--label_smoothing, --focal_gamma and --class_weights", expected, received)


def value_of(name):
    """Returns the flag's value, or None if the tool has no such flag."""
    return FLAGS[name].value if name in FLAGS else None
