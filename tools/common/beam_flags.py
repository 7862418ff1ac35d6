"""The flags of the programs that run an Apache Beam pipeline."""

import contextlib
import io
import logging
import os
import shlex

from bert_tf.base import optional_packages
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common.checks import flag_error, require
from bert_tf.tools.common.flag_table import FLAGS, define_flags

LOCAL_RUNNER = "DirectRunner"

define_flags(f"""
    runner (str, {LOCAL_RUNNER}): The Beam runner: DirectRunner (processes of this machine),
        DataflowRunner, FlinkRunner, SparkRunner, PortableRunner, or the full name of a Python
        class.
    direct_num_workers (int >= 1): Number of processes of the DirectRunner; 1 works in this process.
        Default: one per CPU.
    max_retries (int >= 0, 3): How many times the pipeline is started again after it lost a worker.
        Pre-training data and vocabularies keep what is done; predictions begin again.
    setup_file (str): The setup.py with which another runner installs bert_tf on its workers.
        Default: they have it already, as in a container.
    beam_options (str, ""): Further options of Beam or of the runner in one string, for example
        --beam_options="--project=p --region=europe-west4 --temp_location=gs://bucket/temp".
""")


def pipeline_options():
    """Checks the flags and returns Beam's `PipelineOptions`, without importing TensorFlow.

    Raises:
        UserError: If Beam is not installed or an option is unknown or wrong.
    """
    if FLAGS.setup_file and not os.path.isfile(FLAGS.setup_file):
        raise UserError(f"--setup_file must be a file. Received: {FLAGS.setup_file}")
    given = _further_options()
    logging.disable(logging.WARNING)  # of unknown options, and of services that Beam looks for
    try:
        return _parsed(given)
    finally:
        logging.disable(logging.NOTSET)


def is_local() -> bool:
    """Returns whether the pipeline runs in processes of this machine."""
    return FLAGS.runner == LOCAL_RUNNER


def num_workers() -> int:
    """Returns the number of processes of the local runner."""
    return FLAGS.direct_num_workers or os.cpu_count()


def _parsed(given: list[str]):
    options = optional_packages.require_package(
        "apache_beam.options.pipeline_options", "Beam programs"
    )
    if "." in FLAGS.runner:  # its module may define options
        install = optional_packages.install_command("apache_beam")
        require(FLAGS.runner.rpartition(".")[0], f"Install it with: {install}")
    arguments = [f"--runner={FLAGS.runner}", "--no_save_main_session", *_local_options()]
    if FLAGS.setup_file:
        arguments.append(f"--setup_file={FLAGS.setup_file}")
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):  # argparse prints its usage, which is long
            result = options.PipelineOptions([*arguments, *given])
            known = result.get_all_options()
    except SystemExit:
        error = message.getvalue().strip().rpartition("error: ")[2]
        received = f"{FLAGS.beam_options!r}, {error}"
        raise user_error("--beam_options", "be options of Beam", received) from None
    unknown = result.get_all_options(retain_unknown_options=True).keys() - known.keys()
    if unknown:
        raise UserError(
            "--beam_options must be options of Beam. Received: unknown options "
            + ", ".join(f"--{name}" for name in sorted(unknown))
        )
    return result


def _local_options():
    if not is_local():
        if FLAGS.direct_num_workers:
            raise flag_error(
                "direct_num_workers", f"must be used with --runner={LOCAL_RUNNER}", "runner"
            )
        return []
    mode = "in_memory" if num_workers() == 1 else "multi_processing"
    return [
        f"--direct_num_workers={num_workers()}",
        f"--direct_running_mode={mode}",
        # The DirectRunner then does not try the Prism runner, which is a program that it downloads.
        # The pipelines have no triggers.
        "--allow_unsafe_triggers",
        "--default_sdk_harness_log_level=ERROR",
    ]


def _further_options() -> list[str]:
    """Returns the options of --beam_options, each as `--name` or `--name=value`."""
    try:
        given = shlex.split(FLAGS.beam_options)
    except ValueError as error:  # a quotation mark without its pair
        received = f"{FLAGS.beam_options!r} ({error})"
        raise user_error("--beam_options", "be options of Beam", received) from None
    own = ("runner", "direct_num_workers", "setup_file")
    for option in given:
        name = option.removeprefix("--").partition("=")[0]
        if not option.startswith("--") or not name:
            raise user_error("--beam_options", "be of the form --name=value", repr(option))
        if name in own:
            raise UserError(f"--{name} must be a flag of its own, outside of --beam_options")
    return given
