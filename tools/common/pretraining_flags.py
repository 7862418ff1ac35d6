"""The flags of run_pretraining.py, and what can be checked of them without TensorFlow."""

import glob
import os

from absl import flags

from bert_tf.errors import DataError, UserError
from bert_tf.files import recover_around
from common import original_flags

FLAGS = flags.FLAGS

OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop", "ltr")
# What the objective asks of the pairs, when they are made from raw text.
NEXT_SENTENCE = {"mlm_nsp": "nsp", "mlm_sop": "sop", "mlm": None, "ltr": None}
# As in bert_tf.training.distribution.strategies, which is not imported before the flags are
# checked: it brings TensorFlow.
WARMUP_STEPS = 10000  # google-research/bert run_pretraining.py
STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server")
DTYPES = {"none": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}

# The original's flags.
flags.DEFINE_string("bert_config_file", None, "The configuration of the network, a JSON file.")
flags.DEFINE_string("input_file", None, "TFRecord files, or text files: comma-separated globs.")
flags.DEFINE_string("output_dir", None, "Where checkpoints, model and results are written.")
flags.DEFINE_string(
    "init_checkpoint", None, "Weights to start from: a TF1 or a Hugging Face checkpoint."
)
flags.DEFINE_integer(
    "max_seq_length", 128, "Tokens of a row, as the data were made with.", lower_bound=4
)
flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "Masked places of a row, as the data were made with.",
    lower_bound=1,
)
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate.")
flags.DEFINE_integer(
    "train_batch_size", 32, "Batch size of training, over all devices.", lower_bound=1
)
flags.DEFINE_integer(
    "eval_batch_size", 8, "Batch size of evaluation, over all devices.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate.", lower_bound=0.0)
flags.DEFINE_integer("num_train_steps", 100000, "Optimizer steps of the whole run.", lower_bound=1)
flags.DEFINE_integer(
    "num_warmup_steps",
    None,
    "Steps of the warm-up. Default: 10000, but at most a tenth of --num_train_steps.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "save_checkpoints_steps", 1000, "Steps between two checkpoints.", lower_bound=1
)
flags.DEFINE_integer("max_eval_steps", 100, "Most batches of an evaluation.", lower_bound=1)
flags.DEFINE_bool("use_tpu", False, "The original's; the same as --distribution_strategy=tpu.")
flags.DEFINE_string("tpu_name", None, "Name or address of the TPU. Default: the environment's.")
_IGNORED = ("iterations_per_loop", "tpu_zone", "gcp_project", "master", "num_tpu_cores")
original_flags.define_ignored(*_IGNORED)

# This program's.
flags.DEFINE_enum("distribution_strategy", "one_device", STRATEGIES, "What to train on.")
flags.DEFINE_enum(
    "mixed_precision", "none", sorted(DTYPES), "Type of the activations; float16 scales the loss."
)
flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Parts in which a device works through its batch, to save memory; the step is the same.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "objective",
    "mlm_nsp",
    OBJECTIVES,
    "Masked words with next sentence, without, with sentence order; or left to right.",
)
flags.DEFINE_enum("optimizer", "adamw", ("adamw", "lamb"), "The original's, or LAMB.")
flags.DEFINE_float("weight_decay_rate", 0.01, "Decoupled weight decay.", lower_bound=0.0)
flags.DEFINE_float(
    "layer_decay",
    None,
    "Factor of the learning rate from a block to the one below.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_bool(
    "bias_correction",
    None,
    "Correct the bias of the first steps. Default: as the papers, not with adamw, with lamb.",
)
flags.DEFINE_enum(
    "lr_schedule",
    "linear",
    ("linear", "cosine", "noam"),
    "Decay after the warm-up, from the peak "
    "--learning_rate: linear, as the original, or cosine to zero, or with the step's inverse root.",
)
flags.DEFINE_bool("recompute", False, "Compute activations again in the backward pass, for memory.")
flags.DEFINE_string(
    "eval_input_file",
    None,
    "Held-out files. With them, --do_train evaluates at every checkpoint "
    "and keeps the best. Default: --input_file, as the original.",
)
flags.DEFINE_integer("keep_checkpoint_max", 5, "Newest checkpoints that are kept.", lower_bound=1)
flags.DEFINE_integer("log_steps", 100, "Steps between two lines of the logs.", lower_bound=1)
flags.DEFINE_integer("seed", 12345, "Of weights, dropout, shuffling and masks.")
flags.DEFINE_integer("shuffle_buffer", 10000, "Records that are shuffled together.", lower_bound=1)
flags.DEFINE_bool(
    "deterministic",
    None,
    "The same run twice gives the same weights, bit for bit. Default: on a "
    "CPU, where it costs little; on a GPU it makes some operations slower.",
)
flags.DEFINE_enum(
    "input_sharding",
    "rows",
    ("rows", "records"),
    "How several workers share the input. rows: "
    "each reads all and takes its rows, so that the batches are those of one process, however many "
    "workers there are. records: each reads some of the files or records, which is less work. Raw "
    "text is always shared by rows.",
)
flags.DEFINE_bool("jit_compile", False, "Compile the step with XLA. Always so on a TPU.")

flags.DEFINE_string(
    "vocab_file",
    None,
    "The vocabulary. Raw text needs it; with TFRecords it is "
    "saved with the model, which takes text then.",
)
flags.DEFINE_bool("do_lower_case", True, "Lower the text.")

# Raw text only.
flags.DEFINE_enum("masking", "token", ("token", "whole_word", "span"), "What is masked together.")
flags.DEFINE_bool("whole_word_mask", False, "The original's; the same as --masking=whole_word.")
flags.DEFINE_bool("pack_rows", False, "Put several short sequences into each row.")
flags.DEFINE_float(
    "masked_lm_prob", 0.15, "Share of the tokens to mask.", lower_bound=0.0, upper_bound=1.0
)
flags.DEFINE_float(
    "short_seq_prob",
    0.1,
    "Share of the rows that are made short.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_enum(
    "segmenter",
    None,
    ("jieba",),
    "Cuts Chinese text into words, for --masking=whole_word and "
    "span: pip install jieba. Default: every ideograph is a word.",
)
flags.DEFINE_bool(
    "replace_numbers", False, "Make numbers the token #NUM#, which the vocabulary must have."
)
TEXT_FLAGS = (
    "masking",
    "whole_word_mask",
    "pack_rows",
    "masked_lm_prob",
    "short_seq_prob",
    "segmenter",
    "replace_numbers",
)


def input_files(flag):
    """The files that the flag's globs match, in a fixed order; all are records, or all are text."""
    files = _matching_files(flag)
    for file in files:
        if not os.access(file, os.R_OK):
            raise DataError(f"--{flag}: {file} cannot be read")
        if is_tfrecord(file) == reads_text():
            raise DataError(
                f"--{flag}: {file} is a TFRecord file. Text was expected, as in --input_file."
                if reads_text()
                else f"--{flag}: {file} is no TFRecord file. For raw text give --vocab_file, and "
                "text files alone."
            )
    return files


def reads_text():
    """Whether --input_file names text, which is masked while it is read."""
    return bool(FLAGS.vocab_file) and not is_tfrecord(_matching_files("input_file")[0])


def _matching_files(flag):
    patterns = [pattern.strip() for pattern in FLAGS[flag].value.split(",") if pattern.strip()]
    files = []
    for pattern in patterns:
        recover_around(pattern)
        found = sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        if not found:
            raise DataError(f"--{flag}: a file was expected. Received: {pattern}, which is none")
        files += found
    if not files:
        raise DataError(f"--{flag}: files were expected. Received: {FLAGS[flag].value!r}")
    return files


def is_tfrecord(path):
    """Whether the file starts like a TFRecord: with a length in 8 bytes, the upper ones zero."""
    with open(path, "rb") as file:
        start = file.read(8)
    return len(start) == 8 and start[4:] == b"\0\0\0\0"


def check_flags():
    """Everything that can be seen without TensorFlow. Returns the configuration."""
    from bert_tf.config import BertConfig

    if not (FLAGS.do_train or FLAGS.do_eval):
        raise UserError("At least one of --do_train or --do_eval was expected.")
    if FLAGS.use_tpu:
        FLAGS.distribution_strategy = "tpu"
    original_flags.tell_ignored(*_IGNORED)
    if FLAGS.num_warmup_steps is None:
        FLAGS.num_warmup_steps = min(WARMUP_STEPS, FLAGS.num_train_steps // 10)
    # The same flags must do for an evaluation alone.
    if FLAGS.num_warmup_steps > FLAGS.num_train_steps:
        raise UserError(
            "--num_warmup_steps must be at most --num_train_steps. Received: "
            f"{FLAGS.num_warmup_steps} of {FLAGS.num_train_steps}"
        )
    if FLAGS.max_predictions_per_seq > FLAGS.max_seq_length:
        raise UserError(
            "--max_predictions_per_seq must be at most --max_seq_length. Received: "
            f"{FLAGS.max_predictions_per_seq} of {FLAGS.max_seq_length}"
        )
    if FLAGS.train_batch_size % FLAGS.gradient_accumulation_steps:
        raise UserError(
            "--train_batch_size must be a multiple of --gradient_accumulation_steps. Received: "
            f"{FLAGS.train_batch_size} and {FLAGS.gradient_accumulation_steps}"
        )
    if not reads_text():
        names = TEXT_FLAGS if FLAGS.vocab_file else ("do_lower_case", *TEXT_FLAGS)
        given = [name for name in names if FLAGS[name].present]
        if given:
            raise UserError(
                f"{', '.join(f'--{name}' for name in given)}: for raw text only, with "
                "--vocab_file. TFRecords are masked when they are made: create_pretraining_data."
            )
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    if FLAGS.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length must be at most {config.max_position_embeddings}, the "
            f"max_position_embeddings of {FLAGS.bert_config_file}. Received: "
            f"{FLAGS.max_seq_length}"
        )
    return config


def settings():
    """What makes a run besides the network; another value on resuming is told."""
    names = (
        "input_file",
        "vocab_file",
        "init_checkpoint",
        "max_seq_length",
        "max_predictions_per_seq",
        "train_batch_size",
        "gradient_accumulation_steps",
        "mixed_precision",
        "objective",
        "optimizer",
        "learning_rate",
        "lr_schedule",
        "num_train_steps",
        "num_warmup_steps",
        "weight_decay_rate",
        "layer_decay",
        "bias_correction",
        "seed",
        "shuffle_buffer",
        "do_lower_case",
        *TEXT_FLAGS,
    )
    return {name: FLAGS[name].value for name in names}
