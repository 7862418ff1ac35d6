r"""Pre-trains BERT on masked words and next sentences, and resumes an interrupted run.

The flags and defaults are those of google-research/bert's run_pretraining.py:

    bert-tf run_pretraining --input_file='data/*.tfrecord' --bert_config_file=config.json \
      --output_dir=out --do_train --do_eval

--input_file names TFRecord files, made by bert-tf create_pretraining_data or by the original, or
text files with one sentence per line and an empty line between documents. Text is masked again in
every epoch.

The tool writes to --output_dir:

    checkpoints/        from which the same command resumes an interrupted run
    model/              the trained model, at the end
    eval_results.txt    the results of --do_eval
    log.jsonl           one JSON line every --log_steps
    tensorboard/        the same values for TensorBoard

--pipeline_stages=4 --gradient_accumulation_steps=16 divides a large model among four devices of
this machine.

To train on several machines, run the same command on each of them with
--distribution_strategy=multi_worker_mirrored and TF_CONFIG in the environment, or by
bert-tf launch_workers, which sets TF_CONFIG and starts all workers again when one dies. All
machines must see the same --output_dir.
"""

import os
import warnings

from bert_tf.errors import UserError
from bert_tf.tools.common import result_files, tool, workers
from bert_tf.tools.common.checkpoint_flags import new_tokenizer, require_vocabulary_of
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.optimizer_flags import make_schedule
from bert_tf.tools.common.pretraining_batches import open_batches
from bert_tf.tools.common.pretraining_flags import check_flags, input_files, settings


def with_number_token(tokenizer):
    """Returns the tokenizer of the data and of the saved model: with the piece of numbers, if any.

    Raises:
        UserError: If the vocabulary lacks this piece.
    """
    from bert_tf.tasks.pretraining.text import NUMBER_TOKEN

    piece = FLAGS.number_token or (NUMBER_TOKEN if FLAGS.replace_numbers else None)
    if piece is None:
        return tokenizer
    if piece in tokenizer.vocabulary:
        return type(tokenizer).from_config({**tokenizer.get_config(), "number_token": piece})
    unused = next((one for one in tokenizer.vocabulary if one.startswith("[unused")), None)
    way_out = (
        "" if unused is None else f"take a piece that no text has, --number_token={unused}, or "
    )
    raise UserError(
        f"--vocab_file must have the piece {piece} that numbers become. Received: "
        f"{FLAGS.vocab_file}, which lacks it. To replace numbers, {way_out}learn a vocabulary with "
        f"it: bert-tf build_vocab --special_tokens=[PAD],[UNK],[CLS],[SEP],[MASK],{NUMBER_TOKEN}."
    )


def make_optimizer(config):
    from bert_tf.training import LAMB, AdamWeightDecay

    schedule = make_schedule(
        FLAGS.lr_schedule, FLAGS.num_train_steps, FLAGS.num_warmup_steps, config.hidden_size
    )
    exchange = ("all_reduce_dtype", "all_reduce_bytes_per_pack")
    options = options_of("weight_decay_rate", "layer_decay", "bias_correction", *exchange)
    return {"adamw": AdamWeightDecay, "lamb": LAMB}[FLAGS.optimizer](schedule, **options)


def make_model(config, devices):
    """Creates the compiled model, with random weights or those of --init_checkpoint.

    `devices` are those of the pipeline stages; None without a pipeline.
    """
    from bert_tf import BertBackbone, BertPretrainer, training

    if FLAGS.init_checkpoint:
        options = options_of("objective", "gradient_checkpointing", config_file="bert_config_file")
        model = BertPretrainer.from_pretrained(FLAGS.init_checkpoint, **options)
    else:
        backbone = BertBackbone(config, gradient_checkpointing=FLAGS.gradient_checkpointing)
        model = BertPretrainer(backbone, objective=FLAGS.objective)
    if devices is not None:
        training.pipeline_stages(model, devices)
    model.compile(
        make_optimizer(config),
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
        jit_compile=FLAGS.jit_compile or FLAGS.distribution_strategy == "tpu",
    )
    return model


def train(model, checkpoint, step, training, held_out):
    from bert_tf.training import callbacks, fit_steps
    from bert_tf.training.distribution import WorkerHealthMonitor

    writers = []
    if workers.is_first():
        writers = [
            callbacks.JsonLines(os.path.join(FLAGS.output_dir, "log.jsonl"), step),
            callbacks.TensorBoardScalars(os.path.join(FLAGS.output_dir, "tensorboard")),
        ]
    watchers = [
        callbacks.TerminateOnBadLoss(checkpoint, training.batch_at, FLAGS.output_dir, step),
        WorkerHealthMonitor(checkpoint.newest),
        callbacks.ProgressLine(FLAGS.num_train_steps, FLAGS.log_steps, initial_step=step),
        callbacks.TrainingLog(
            FLAGS.log_steps, writers, FLAGS.train_batch_size, FLAGS.max_seq_length, step
        ),
        checkpoint,
        callbacks.StopOnSignal(checkpoint, initial_step=step),
        callbacks.Heartbeat(),
    ]
    if FLAGS.histogram_rows:
        features, _ = (held_out or training).batch_at(0)
        rows = {name: values[: FLAGS.histogram_rows] for name, values in features.items()}
        directory = os.path.join(FLAGS.output_dir, "tensorboard")
        watchers.append(callbacks.TensorBoardHistograms(directory, rows, initial_step=step))
    several = held_out is not None and held_out.devices > 1
    fit_steps(
        model,
        training.from_step,
        FLAGS.num_train_steps,
        step,
        steps_per_epoch=FLAGS.save_checkpoints_steps,
        callbacks=watchers,
        validation_data=None if held_out is None else held_out.from_step(0),
        validation_steps=FLAGS.max_eval_steps if several else None,
    )


def evaluate(model, step, held_out):
    """Returns the metrics on the held-out batches, and statistics of the labels to compare with."""
    from bert_tf.tools.common.pretraining_statistics import label_statistics
    from bert_tf.training.callbacks import Heartbeat

    results = model.evaluate(
        held_out.from_step(0),
        steps=FLAGS.max_eval_steps if held_out.devices > 1 else None,
        callbacks=[Heartbeat()],
        return_dict=True,
        verbose=0,
    )
    if held_out.devices == 1:  # with several devices, each sees only a part of the batches
        results.update(label_statistics(held_out.of_worker(0, 1, 0), results))
    return {"global_step": step, **results}


def set_up_devices():
    """Returns the devices of the pipeline stages (None without a pipeline) and the strategy."""
    import keras
    import tensorflow as tf

    from bert_tf.training.pipelined_step import make_pipeline_devices

    devices = make_pipeline_devices(FLAGS.pipeline_stages) if FLAGS.pipeline_stages > 1 else None
    strategy = workers.strategy()
    keras.utils.set_random_seed(FLAGS.seed)
    deterministic = FLAGS.deterministic
    if deterministic or (deterministic is None and not tf.config.list_physical_devices("GPU")):
        tf.config.experimental.enable_op_determinism()
    return devices, strategy


def checked_tokenizer(config):
    """Returns the tokenizer of --vocab_file, which fits the model; None without the flag."""
    if not FLAGS.vocab_file:
        return None
    tokenizer = new_tokenizer()
    require_vocabulary_of(config, tokenizer)
    return with_number_token(tokenizer)


def require_trained(model, step):
    """Raises `UserError` if the model that is to be evaluated was never trained."""
    if not step and not FLAGS.init_checkpoint:
        raise UserError(
            f"--do_eval must have a trained model: a checkpoint in {FLAGS.output_dir}/checkpoints, "
            "or --init_checkpoint. Received: neither"
        )
    model.require_trained_heads("evaluated")


def save(model, tokenizer, results):
    """Writes the trained model and the results of the evaluation, and says where they are."""
    directory = os.path.join(FLAGS.output_dir, "model")
    try:
        if FLAGS.do_train:
            model.save_pretrained(directory, format="auto")
            if tokenizer is not None:
                tokenizer.save_pretrained(directory)
        if results:
            result_files.report([f"{name} = {results[name]}" for name in sorted(results)])
    except OSError as error:
        raise UserError(
            "--output_dir must be a directory with room for the results. Received: "
            f"--output_dir={FLAGS.output_dir} ({error.strerror}). The checkpoints are "
            "complete: free disk space and run the same command again."
        ) from None
    if FLAGS.do_train:
        options = {"task_name": "TASK", "data_dir": "DIRECTORY", "output_dir": "DIRECTORY"}
        options["init_checkpoint"] = directory
        print_result("model", directory, "Fine-tune", "run_classifier", **options)


def main():
    """Trains, evaluates and saves a model, as the flags say."""
    config = check_flags()
    train_files = input_files("input_file")
    eval_files = input_files("eval_input_file") if FLAGS.eval_input_file else train_files
    tool.require_writable(FLAGS.output_dir, "output_dir")

    from bert_tf.training import TrainingCheckpoint

    # --max_eval_steps is a maximum, which Keras takes for the number of batches.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    devices, strategy = set_up_devices()
    tokenizer = checked_tokenizer(config)
    train_batches, eval_batches = open_batches(train_files, eval_files, strategy, tokenizer)
    with strategy.scope():
        model = make_model(config, devices)
    in_between = FLAGS.do_train and FLAGS.do_eval and FLAGS.eval_input_file is not None
    checkpoint = TrainingCheckpoint(
        os.path.join(FLAGS.output_dir, "checkpoints"),
        save_every=FLAGS.save_checkpoints_steps,
        keep=FLAGS.keep_checkpoint_max,
        monitor="val_loss" if in_between else None,
        settings=settings(),
    )
    step = workers.restore(checkpoint, model)
    if not FLAGS.do_train:
        require_trained(model, step)
    elif step < FLAGS.num_train_steps:
        held_out = eval_batches if in_between else None
        train(model, checkpoint, step, train_batches, held_out)
        step = FLAGS.num_train_steps
    else:
        print(
            f"--num_train_steps={FLAGS.num_train_steps} is already reached: the newest checkpoint "
            f"in {FLAGS.output_dir} is of step {step}. Nothing is left to train."
        )
    results = evaluate(model, step, eval_batches) if FLAGS.do_eval else None
    if workers.is_first():
        save(model, tokenizer, results)


if __name__ == "__main__":
    tool.run(workers.run(main), "input_file", "bert_config_file", "output_dir")
