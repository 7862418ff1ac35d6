"""The flags of run_pretraining.py, and the checks of them that do not need TensorFlow."""

import glob
import os

from bert_tf.base.files import recover_around
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, UserError
from bert_tf.tools.common import optimizer_flags, original_flags, training_flags
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Pre-training"),)

# How the objective pairs segments when the examples are made from raw text.
NEXT_SENTENCE = {"mlm_nsp": "nsp", "mlm": None, "mlm_sop": "sop", "ltr": None}
WARMUP_STEPS = 10000  # google-research/bert run_pretraining.py

# The flags of google-research/bert.
define_flags("""
    bert_config_file (str): The JSON file with the model's configuration.
    input_file (str): The TFRecord files or text files, as glob patterns separated by commas.
    output_dir (str): The directory to write checkpoints, model, results and logs to.
    init_checkpoint (str): The TF1 or Hugging Face checkpoint to start from. Default: random
        weights.
    max_seq_length (int >= 4, 128): Length of a row in tokens. With TFRecord files: the value that
        they were made with.
    max_predictions_per_seq (int >= 1, 20): Maximum number of masked tokens per row. With TFRecord
        files: the value that they were made with.
    do_train (bool, false): Whether to train the model.
    do_eval (bool, false): Whether to evaluate the model.
    train_batch_size (int >= 1, 32): Batch size for training, over all devices.
    eval_batch_size (int >= 1, 8): Batch size for evaluation, over all devices.
    learning_rate (float >= 0, 5e-5): The peak learning rate.
    num_train_steps (int >= 1, 100000): Total number of optimizer steps of the run.
    num_warmup_steps (int >= 0): Number of warm-up steps. Default: 10000, but at most a tenth of
        --num_train_steps.
    max_eval_steps (int >= 1, 100): Maximum number of batches per evaluation.
    use_tpu (bool, false): The original's flag: the same as --distribution_strategy=tpu.
""")
original_flags.define_ignored()

# The flags that google-research/bert does not have.
training_flags.define()
define_flags(f"""
    pipeline_stages (int >= 1, 1): Number of devices to divide the model among, each with some of
        its blocks: GPUs if there are any, otherwise logical CPUs. The parts of
        --gradient_accumulation_steps, a few times as many, pass through them at the same time. The
        numbers do not change.
    objective ({"|".join(NEXT_SENTENCE)}, mlm_nsp): What the model learns: masked words and next
        sentences (mlm_nsp), masked words (mlm), masked words and the order of sentences (mlm_sop),
        or the next word from left to right (ltr).
    optimizer (adamw|lamb, adamw): The optimizer: adamw, as the original, or LAMB.
    weight_decay_rate (float >= 0, 0.01): Decoupled weight decay of the optimizer.
    layer_decay (float 0 to 1): Layer-wise learning rate decay: the learning rate of a block divided
        by that of the block above it. Default: no decay.
    bias_correction (bool): Whether the optimizer corrects the bias of its first steps. Default:
        false with adamw, as the original; true with lamb, as its paper.
""")
optimizer_flags.define_schedule()
define_flags("""
    gradient_checkpointing (bool, false): Compute activations again in the backward pass, to save
        memory.
    eval_input_file (str): The held-out files, as --input_file. With it, --do_train --do_eval
        evaluates at every checkpoint and keeps the best one. Default: --input_file, as the
        original.
    keep_checkpoint_max (int >= 1, 5): Number of newest checkpoints to keep.
    log_steps (int >= 1, 100): Number of steps between two lines of the logs.
    histogram_rows (int >= 0, 0): Write histograms of attention and hidden states to the TensorBoard
        files, for this number of rows of one batch, the held-out one if there is one, before
        training and at every checkpoint. Default: none.
    seed (int, 12345): Seed of the weights, the dropout, the shuffling and the masks.
    shuffle_buffer (int >= 1, 10000): Size of the shuffle buffer, in records.
    deterministic (bool): Whether two runs with the same flags give the same weights, bit for bit.
        Default: true on a CPU, where it costs little; false on a GPU, where it makes some
        operations slower.
    input_sharding (rows|records, rows): How several workers share the input. rows: each worker
        reads all records and keeps its rows, so that the batches do not depend on the number of
        workers. records: each worker reads some of the files or records, which is less work. Raw
        text is always shared by rows.
    jit_compile (bool, false): Whether to compile the training step with XLA. Always true on a TPU.
    vocab_file (str): The vocabulary file. Required for raw text. With TFRecord files it is only
        saved with the model, so that the model accepts text.
    do_lower_case (bool, true): Whether to convert the text to lower case.
    vocab_segmenter (jieba): The --segmenter that --vocab_file was learned with: its Chinese words
        become one token.
""")

TEXT_FLAGS = define_flags("""
    masking (token|whole_word|span, token): For raw text: mask single tokens, all tokens of a word,
        or spans of words.
    whole_word_mask (bool, false): The original's flag: the same as --masking=whole_word.
    pack_rows (bool, false): For raw text: put several short sequences into each row.
    masked_lm_prob (float 0 to 1, 0.15): For raw text: share of the tokens to mask.
    short_seq_prob (float 0 to 1, 0.1): For raw text: probability of making a row shorter than
        --max_seq_length on purpose.
    segmenter (jieba): For raw text with --masking=whole_word or span: the program that splits
        Chinese text into words (it needs the extra `chinese`). Default: every ideograph is a word.
    replace_numbers (bool, false): For raw text: replace numbers by one piece, in the saved model
        too.
    number_token (str): The piece that numbers become, such as [unused1], which implies
        --replace_numbers. Default: #NUM#.
""")


def input_files(flag):
    """Returns the files of the expected kind that the flag's globs match, in a fixed order."""
    files = _matching_files(flag)
    for file in files:
        if not os.access(file, os.R_OK):
            raise DataError(f"--{flag} must be files that can be read. Received: {file}")
        if is_tfrecord(file) == reads_text():
            raise DataError(
                f"{file} must be a text file, as the first file of --input_file is. Received: a "
                "TFRecord file"
                if reads_text()
                else f"{file} must be a TFRecord file. Received: another file. For raw text, set "
                "--vocab_file and give text files only."
            )
    return files


def reads_text():
    """Returns whether --input_file is raw text, which is masked while it is read."""
    return bool(FLAGS.vocab_file) and not is_tfrecord(_matching_files("input_file")[0])


def _matching_files(flag):
    files = []
    for pattern in filter(None, map(str.strip, FLAGS[flag].value.split(","))):
        recover_around(pattern)
        found = sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        if not found:
            raise DataError(f"--{flag} must match at least one file. Received: {pattern}")
        files += found
    if not files:
        raise DataError(f"--{flag} must name files. Received: --{flag}={FLAGS[flag].value!r}")
    return files


def is_tfrecord(path):
    """Returns whether a file starts like a TFRecord: a length of 8 bytes, the upper 4 zero."""
    with open(path, "rb") as file:
        start = file.read(8)
    return len(start) == 8 and start[4:] == b"\0\0\0\0"


def check_flags():
    """Checks the flags as far as possible without TensorFlow, and completes their values.

    Returns the `BertConfig` of --bert_config_file.
    """
    from bert_tf.config import BertConfig

    if not (FLAGS.do_train or FLAGS.do_eval):
        raise UserError("At least one of --do_train and --do_eval must be true. Received: neither")
    if FLAGS.use_tpu:
        FLAGS.distribution_strategy = "tpu"
    original_flags.print_ignored()
    optimizer_flags.check_schedule()
    if FLAGS.num_warmup_steps is None:
        FLAGS.num_warmup_steps = min(WARMUP_STEPS, FLAGS.num_train_steps // 10)
    # Checked without --do_train too, so that the flags of a training run also work for --do_eval.
    for small, large in (
        ("num_warmup_steps", "num_train_steps"),
        ("max_predictions_per_seq", "max_seq_length"),
    ):
        if FLAGS[small].value > FLAGS[large].value:
            raise flag_error(small, f"must be at most --{large}", large)
    if FLAGS.train_batch_size % FLAGS.gradient_accumulation_steps:
        raise UserError(
            "--train_batch_size must be a multiple of --gradient_accumulation_steps. Received: "
            f"--train_batch_size={FLAGS.train_batch_size}, "
            f"--gradient_accumulation_steps={FLAGS.gradient_accumulation_steps}"
        )
    if not reads_text():
        of_vocabulary = () if FLAGS.vocab_file else ("do_lower_case", "vocab_segmenter")
        names = (*of_vocabulary, *TEXT_FLAGS)
        given = [name for name in names if FLAGS[name].present]
        if given:
            raise UserError(
                f"{', '.join(f'--{name}' for name in given)} must not be set with TFRecord files, "
                "which bert-tf create_pretraining_data has masked already; such flags are for raw "
                f"text, with --vocab_file. Received: --input_file={FLAGS.input_file}"
            )
    if FLAGS.segmenter:
        require_package("jieba", "--segmenter")
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    _check_pipeline(config)
    if FLAGS.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length must be at most {config.max_position_embeddings}, the "
            f"max_position_embeddings of {FLAGS.bert_config_file}. Received: "
            f"--max_seq_length={FLAGS.max_seq_length}"
        )
    return config


def _check_pipeline(config):
    stages = FLAGS.pipeline_stages
    if stages > config.num_hidden_layers:
        raise UserError(
            f"--pipeline_stages must be at most {config.num_hidden_layers}, the number of blocks "
            f"in {FLAGS.bert_config_file}. Received: --pipeline_stages={stages}"
        )
    if stages > 1 and (FLAGS.distribution_strategy != "one_device" or FLAGS.jit_compile):
        raise UserError(
            "--pipeline_stages must be 1 with a --distribution_strategy or --jit_compile: a "
            f"pipeline is neither replicated nor compiled. Received: --pipeline_stages={stages}, "
            f"--distribution_strategy={FLAGS.distribution_strategy}, "
            f"--jit_compile={FLAGS.jit_compile}"
        )


def settings():
    """Returns the flags that a checkpoint records; a change of one on resuming is reported."""
    data = ("input_file", "vocab_file", "init_checkpoint")
    rows = ("max_seq_length", "max_predictions_per_seq", "train_batch_size")
    model = ("gradient_accumulation_steps", "mixed_precision", "objective")
    schedule = (*optimizer_flags.SCHEDULE_FLAGS, "num_train_steps", "num_warmup_steps")
    optimizer = ("optimizer", "learning_rate", *schedule)
    decay = ("weight_decay_rate", "layer_decay", "bias_correction", "all_reduce_dtype")
    reading = ("seed", "shuffle_buffer", "do_lower_case", *TEXT_FLAGS)
    names = (*data, *rows, *model, *optimizer, *decay, *reading)
    return {name: FLAGS[name].value for name in names}
