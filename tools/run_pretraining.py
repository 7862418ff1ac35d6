"""Pre-trains BERT on masked words and next sentences, and goes on where it was interrupted.

Flags and defaults of google-research/bert's run_pretraining.py:

    python tools/run_pretraining.py --input_file='data/*.tfrecord' --bert_config_file=config.json \
      --output_dir=out --do_train --do_eval

--input_file names TFRecord files of tools/create_pretraining_data.py (or of the original's), or,
with --vocab_file, text files (one sentence a line, an empty line between documents), masked anew in
every epoch. In --output_dir: `checkpoints/` (the whole state every --save_checkpoints_steps; the
same command again goes on from the newest good one), `model/` (the trained model, at the end),
`eval_results.txt`, `log.jsonl` (a JSON line every --log_steps) and `tensorboard/`.

Several machines: the same command on each, --distribution_strategy=multi_worker_mirrored and
TF_CONFIG in the environment; --output_dir must be one that all see.
"""

import glob
import os

from absl import flags

from bert_tf import tool
from bert_tf.errors import DataError, UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop", "ltr")
# What the objective asks of the pairs, when they are made from raw text.
NEXT_SENTENCE = {"mlm_nsp": "nsp", "mlm_sop": "sop", "mlm": None, "ltr": None}
# As in bert_tf.training.strategies, which is not imported before the flags are checked: it brings
# TensorFlow.
STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server")
DTYPES = {"none": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}

# The original's flags.
flags.DEFINE_string("bert_config_file", None, "The configuration of the network, a JSON file.")
flags.DEFINE_string(
    "input_file", None, "TFRecord files, or text files with --vocab_file: comma-separated globs."
)
flags.DEFINE_string("output_dir", None, "Where checkpoints, model and results are written.")
flags.DEFINE_string(
    "init_checkpoint", None, "Weights to start from: a TF1 or a Hugging Face checkpoint."
)
flags.DEFINE_integer(
    "max_seq_length", 128, "Tokens of a row, as the data were made with.", lower_bound=4
)
flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "Masked places of a row, as the data were made with.",
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
flags.DEFINE_integer("num_warmup_steps", 10000, "Steps of the warm-up.", lower_bound=0)
flags.DEFINE_integer(
    "save_checkpoints_steps", 1000, "Steps between two checkpoints.", lower_bound=1
)
flags.DEFINE_integer(
    "iterations_per_loop", 1000, "The original's; here every step returns to Python.", lower_bound=1
)
flags.DEFINE_integer("max_eval_steps", 100, "Most batches of an evaluation.", lower_bound=1)
flags.DEFINE_bool("use_tpu", False, "The original's; the same as --distribution_strategy=tpu.")
flags.DEFINE_string("tpu_name", None, "Name or address of the TPU. Default: the environment's.")

# This program's.
flags.DEFINE_enum("distribution_strategy", "one_device", STRATEGIES, "What to train on.")
flags.DEFINE_enum(
    "mixed_precision", "none", sorted(DTYPES), "Type of the activations; float16 scales the loss."
)
flags.DEFINE_integer(
    "gradient_accumulation_steps", 1, "Parts in which a device works through its batch, to save "
    "memory; the step is the same.", lower_bound=1
)
flags.DEFINE_enum("objective", "mlm_nsp", OBJECTIVES, "Masked words with next sentence, without, "
                  "with sentence order; or left to right.")
flags.DEFINE_enum("optimizer", "adamw", ("adamw", "lamb"), "The original's, or LAMB.")
flags.DEFINE_float("weight_decay_rate", 0.01, "Decoupled weight decay.", lower_bound=0.0)
flags.DEFINE_float(
    "layer_decay", None, "Factor of the learning rate from a block to the one below.",
    lower_bound=0.0, upper_bound=1.0,
)
flags.DEFINE_bool(
    "bias_correction", None, "Correct the bias of the first steps. Default: as the papers, not "
    "with adamw, with lamb."
)
flags.DEFINE_enum(
    "lr_schedule", "linear", ("linear", "cosine", "noam"), "Decay after the warm-up, from the peak "
    "--learning_rate: linear, as the original, or cosine to zero, or with the step's inverse root."
)
flags.DEFINE_bool("recompute", False, "Compute activations again in the backward pass, for memory.")
flags.DEFINE_string(
    "eval_input_file", None, "Held-out files. With them, --do_train evaluates at every checkpoint "
    "and keeps the best. Default: --input_file, as the original."
)
flags.DEFINE_integer("keep_checkpoint_max", 5, "Newest checkpoints that are kept.", lower_bound=1)
flags.DEFINE_integer("log_steps", 100, "Steps between two lines of the logs.", lower_bound=1)
flags.DEFINE_integer("seed", 12345, "Of weights, dropout, shuffling and masks.")
flags.DEFINE_integer(
    "shuffle_buffer", 10000, "Records that are shuffled together.", lower_bound=1
)
flags.DEFINE_bool(
    "deterministic", None, "The same run twice gives the same weights, bit for bit. Default: on a "
    "CPU, where it costs little; on a GPU it makes some operations slower."
)
flags.DEFINE_enum(
    "input_sharding", "rows", ("rows", "records"), "How several workers share the input. rows: "
    "each reads all and takes its rows, so that the batches are those of one process, however many "
    "workers there are. records: each reads some of the files or records, which is less work. Raw "
    "text is always shared by rows."
)
flags.DEFINE_bool("jit_compile", False, "Compile the step with XLA. Always so on a TPU.")

# Raw text only.
flags.DEFINE_string("vocab_file", None, "The vocabulary: --input_file is raw text.")
flags.DEFINE_bool("do_lower_case", True, "Lower the text.")
flags.DEFINE_enum(
    "masking", "token", ("token", "whole_word", "span"), "What is masked together."
)
flags.DEFINE_bool("whole_word_mask", False, "The original's; the same as --masking=whole_word.")
flags.DEFINE_bool("pack_rows", False, "Put several short sequences into each row.")
flags.DEFINE_float(
    "masked_lm_prob", 0.15, "Share of the tokens to mask.", lower_bound=0.0, upper_bound=1.0
)
flags.DEFINE_float(
    "short_seq_prob", 0.1, "Share of the rows that are made short.", lower_bound=0.0,
    upper_bound=1.0,
)
TEXT_FLAGS = (
    "do_lower_case", "masking", "whole_word_mask", "pack_rows", "masked_lm_prob", "short_seq_prob",
)


def input_files(flag):
    """The files that the flag's globs match, in a fixed order."""
    patterns = [pattern.strip() for pattern in FLAGS[flag].value.split(",") if pattern.strip()]
    files = []
    for pattern in patterns:
        found = sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        if not found:
            raise DataError(f"--{flag}: a file was expected. Received: {pattern}, which is none")
        files += found
    if not files:
        raise DataError(f"--{flag}: files were expected. Received: {FLAGS[flag].value!r}")
    for file in files:
        if not os.access(file, os.R_OK):
            raise DataError(f"--{flag}: {file} cannot be read")
        if is_tfrecord(file) == bool(FLAGS.vocab_file):
            raise DataError(
                f"--{flag}: {file} is a TFRecord file: leave --vocab_file away."
                if FLAGS.vocab_file
                else f"--{flag}: {file} is no TFRecord file. For raw text give --vocab_file."
            )
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
    if not FLAGS.vocab_file:
        given = [name for name in TEXT_FLAGS if FLAGS[name].present]
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


def batches_of(files, batch_size, strategy, tokenizer, training):
    """The `DistributedBatches` of some files: endless for training, in their order otherwise."""
    from bert_tf.training.distributed_batches import DistributedBatches

    several = strategy.num_replicas_in_sync > 1
    common = {
        "max_seq_length": FLAGS.max_seq_length,
        "max_predictions_per_seq": FLAGS.max_predictions_per_seq,
        "seed": FLAGS.seed,
        "repeat": training or several,  # several devices must get equally many batches
    }

    def read_records(batch_size, start_step, num_shards, shard_index):
        from bert_tf.data.pretraining_records import pretraining_records

        return pretraining_records(
            files,
            batch_size,
            shuffle=training,
            shuffle_buffer=FLAGS.shuffle_buffer,
            start_step=start_step,
            num_shards=num_shards,
            shard_index=shard_index,
            **common,
        )

    def read_text(batch_size, start_step, num_shards, shard_index):
        from bert_tf.data.pretraining_text import pretraining_text

        return pretraining_text(
            files,
            tokenizer,
            batch_size,
            masked_lm_prob=FLAGS.masked_lm_prob,
            masking="whole_word" if FLAGS.whole_word_mask else FLAGS.masking,
            next_sentence=NEXT_SENTENCE[FLAGS.objective],
            short_seq_prob=FLAGS.short_seq_prob,
            packing="rows" if FLAGS.pack_rows else None,
            start_step=start_step,
            num_shards=num_shards,
            shard_index=shard_index,
            **common,
        )

    return DistributedBatches(
        read_text if tokenizer else read_records,
        batch_size,
        strategy,
        # The shards of text are the rows of one process's batches; those of records are not.
        by_rows=tokenizer is None and FLAGS.input_sharding == "rows",
        num_batches=None if training else FLAGS.max_eval_steps,
    )


def make_optimizer(config):
    from bert_tf.training.adam_weight_decay import AdamWeightDecay
    from bert_tf.training.lamb import LAMB
    from bert_tf.training.noam import Noam
    from bert_tf.training.schedules import WarmupLinearDecay
    from bert_tf.training.warmup_cosine_decay import WarmupCosineDecay

    if FLAGS.lr_schedule == "noam":
        # Its own peak is at the end of the warm-up; --learning_rate is made that peak.
        peak = (config.hidden_size * max(1, FLAGS.num_warmup_steps)) ** -0.5
        factor = FLAGS.learning_rate / peak
        schedule = Noam(config.hidden_size, max(1, FLAGS.num_warmup_steps), factor)
    else:
        shape = WarmupLinearDecay if FLAGS.lr_schedule == "linear" else WarmupCosineDecay
        schedule = shape(FLAGS.learning_rate, FLAGS.num_train_steps, FLAGS.num_warmup_steps)
    options = {"weight_decay_rate": FLAGS.weight_decay_rate, "layer_decay": FLAGS.layer_decay}
    if FLAGS.bias_correction is not None:
        options["bias_correction"] = FLAGS.bias_correction
    return {"adamw": AdamWeightDecay, "lamb": LAMB}[FLAGS.optimizer](schedule, **options)


def make_model(config):
    """The compiled model, at random weights or at those of --init_checkpoint."""
    from bert_tf import BertBackbone, BertPretrainer
    from bert_tf.checkpoints import load_task_model

    if FLAGS.init_checkpoint:
        model = load_task_model(
            BertPretrainer,
            FLAGS.init_checkpoint,
            config_file=FLAGS.bert_config_file,
            objective=FLAGS.objective,
            recompute=FLAGS.recompute,
        )
    else:
        backbone = BertBackbone(config, recompute=FLAGS.recompute)
        model = BertPretrainer(backbone, objective=FLAGS.objective)
    model.compile(
        make_optimizer(config),
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
        jit_compile=FLAGS.jit_compile or FLAGS.distribution_strategy == "tpu",
    )
    return model


def settings():
    """What makes a run besides the network; another value on resuming is told."""
    names = (
        "input_file", "vocab_file", "init_checkpoint", "max_seq_length", "max_predictions_per_seq",
        "train_batch_size", "gradient_accumulation_steps", "mixed_precision", "objective",
        "optimizer", "learning_rate", "lr_schedule", "num_train_steps", "num_warmup_steps",
        "weight_decay_rate", "layer_decay", "bias_correction", "seed", "shuffle_buffer",
        *TEXT_FLAGS,
    )
    return {name: FLAGS[name].value for name in names}


def train(model, checkpoint, step, strategy, training, held_out):
    """Trains from `step` on, by `model.fit`."""
    from bert_tf import training as bert_training
    from bert_tf.training.strategies import is_chief

    log = os.path.join(FLAGS.output_dir, "log.jsonl")
    writers = []
    if is_chief(strategy):
        writers = [
            bert_training.JsonLines(log, step),
            bert_training.TensorBoardScalars(os.path.join(FLAGS.output_dir, "tensorboard")),
        ]
    callbacks = [
        bert_training.StopOnBadLoss(checkpoint, training.batch_at, FLAGS.output_dir, step),
        bert_training.PeerWatch(checkpoint.newest),
        bert_training.ProgressLine(FLAGS.num_train_steps, FLAGS.log_steps, initial_step=step),
        bert_training.TrainingLog(
            FLAGS.log_steps, writers, FLAGS.train_batch_size, FLAGS.max_seq_length, step
        ),
        checkpoint,
        bert_training.StopOnSignal(checkpoint, initial_step=step),
    ]
    options = {}
    if held_out is not None:
        options = {
            "validation_data": held_out.from_step(0),
            "validation_steps": FLAGS.max_eval_steps if held_out.devices > 1 else None,
        }
    bert_training.fit_steps(
        model,
        training.from_step,
        FLAGS.num_train_steps,
        step,
        steps_per_epoch=FLAGS.save_checkpoints_steps,
        callbacks=callbacks,
        **options,
    )


def evaluate(model, step, held_out):
    """Evaluates and writes eval_results.txt, with the original's names."""
    results = model.evaluate(
        held_out.from_step(0),
        steps=FLAGS.max_eval_steps if held_out.devices > 1 else None,
        return_dict=True,
        verbose=0,
    )
    return {"global_step": step, **results}


def write_results(results):
    lines = [f"{name} = {value}" for name, value in sorted(results.items())]
    with atomic_path(os.path.join(FLAGS.output_dir, "eval_results.txt")) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    print("***** Eval results *****", *lines, sep="\n")


def save_trained(model, tokenizer):
    """Writes the model as a directory that `from_pretrained` of every task takes."""
    from bert_tf.checkpoints import save_model

    directory = os.path.join(FLAGS.output_dir, "model")
    save_model(model, directory)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)


def run():
    """The whole job."""
    config = check_flags()
    train_files = input_files("input_file")
    eval_files = input_files("eval_input_file") if FLAGS.eval_input_file else train_files
    tool.require_writable(FLAGS.output_dir, "output_dir")

    import keras
    import tensorflow as tf

    from bert_tf import training
    from bert_tf.training.stop_on_signal import largest_of_workers
    from bert_tf.training.strategies import is_chief, worker_addresses

    strategy = training.make_strategy(FLAGS.distribution_strategy, FLAGS.tpu_name)
    keras.utils.set_random_seed(FLAGS.seed)
    deterministic = FLAGS.deterministic
    if deterministic or deterministic is None and not tf.config.list_physical_devices("GPU"):
        tf.config.experimental.enable_op_determinism()
    keras.config.set_dtype_policy(DTYPES[FLAGS.mixed_precision])
    tokenizer = None
    if FLAGS.vocab_file:
        from bert_tf import BertTokenizer

        tokenizer = BertTokenizer(FLAGS.vocab_file, lowercase=FLAGS.do_lower_case)
        if tokenizer.vocab_size != config.vocab_size:
            raise UserError(
                f"--vocab_file must have {config.vocab_size} entries, the vocab_size of "
                f"{FLAGS.bert_config_file}. Received: {tokenizer.vocab_size}"
            )
    train_batches = batches_of(train_files, FLAGS.train_batch_size, strategy, tokenizer, True)
    eval_batches = batches_of(eval_files, FLAGS.eval_batch_size, strategy, tokenizer, False)
    # Readers look at their files when they are made: a bad one is told before any training.
    if FLAGS.do_train:
        train_batches.from_step(0)
    if FLAGS.do_eval:
        eval_batches.from_step(0)

    with strategy.scope():
        model = make_model(config)
    in_between = FLAGS.do_train and FLAGS.do_eval and FLAGS.eval_input_file is not None
    checkpoint = training.TrainingCheckpoint(
        os.path.join(FLAGS.output_dir, "checkpoints"),
        save_every=FLAGS.save_checkpoints_steps,
        keep=FLAGS.keep_checkpoint_max,
        monitor="val_loss" if in_between else None,
        settings=settings(),
    )
    step = checkpoint.restore(model)
    if worker_addresses(strategy) and largest_of_workers(strategy, step) != step:
        raise UserError(
            f"All workers must find the same checkpoint. Received: step {step} on this one, a "
            "later one on another. --output_dir must be a directory that all of them see."
        )
    if FLAGS.do_train and step < FLAGS.num_train_steps:
        held_out = eval_batches if in_between else None
        train(model, checkpoint, step, strategy, train_batches, held_out)
        step = FLAGS.num_train_steps
    elif FLAGS.do_train:
        print(
            f"--num_train_steps={FLAGS.num_train_steps} is already reached: the newest checkpoint "
            f"in {FLAGS.output_dir} is of step {step}. Nothing is left to train."
        )
    elif not step and not FLAGS.init_checkpoint:
        raise UserError(
            f"--do_eval needs a trained model: a checkpoint in {FLAGS.output_dir}/checkpoints, or "
            "--init_checkpoint. Received: neither."
        )
    results = evaluate(model, step, eval_batches) if FLAGS.do_eval else None
    if is_chief(strategy):
        try:
            if FLAGS.do_train:
                save_trained(model, tokenizer)
            if results:
                write_results(results)
        except OSError as error:
            raise UserError(
                f"The results could not be written into {FLAGS.output_dir}: {error.strerror}. The "
                "checkpoints are whole: make room and give the same command again."
            ) from None
    if worker_addresses(strategy):
        largest_of_workers(strategy, 0)  # none leaves while another still needs it


def main():
    try:
        run()
    except Exception as error:
        # What TensorFlow raises in an operation with a worker that is gone.
        peer_errors = (
            "UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError",
            "InternalError",
        )
        several = FLAGS.distribution_strategy == "multi_worker_mirrored"
        if not several or type(error).__name__ not in peer_errors:
            raise
        from bert_tf.training.checkpoint_files import checkpoint_path, checkpoint_steps
        from bert_tf.training.peer_watch import leave

        directory = os.path.join(FLAGS.output_dir, "checkpoints")
        steps = checkpoint_steps(directory)
        leave(
            f"an operation with the other workers failed ({error.message.splitlines()[0][:300]})",
            checkpoint_path(directory, steps[-1]) if steps else None,
        )


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "bert_config_file", "output_dir"])
    tool.run(main)
