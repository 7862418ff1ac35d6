r"""Starts the workers of this machine, and starts all again when one dies or hangs.

    bert-tf launch_workers --num_workers=2 -- \
      bert-tf run_pretraining --distribution_strategy=multi_worker_mirrored \
      --input_file='data/*.tfrecord' --bert_config_file=config.json --output_dir=out --do_train

After `--` follows the program of a worker: a Python file, `-m` with a module, or any other program.
Each worker gets TF_CONFIG and runs the same command line. On several machines, start it on each
with the same --hosts, which all machines must reach, and its part of the workers:

    a$ bert-tf launch_workers --hosts=a:2222,b:2222 --first_worker=0 --num_workers=1 -- …
    b$ bert-tf launch_workers --hosts=a:2222,b:2222 --first_worker=1 --num_workers=1 -- …

TensorFlow cannot replace a lost worker, so all are started again, and the program must resume by
itself, as all programs that train do from their newest checkpoint. A worker hangs if it has not
called `bert_tf.base.supervision.beat()` for --hang_timeout seconds; the callback
`bert_tf.training.callbacks.Heartbeat` does so after each batch. A program that never calls it is
not watched for hangs.

SIGTERM and Ctrl-C stop the workers with SIGTERM, on which the programs that train
save a checkpoint; a second one kills them. The exit status is 0 if all workers have finished, 143
after SIGTERM, 130 after Ctrl-C, and otherwise that of the worker that failed first.
"""

import os
import shutil
import sys

from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.worker_group import WorkerGroup, free_addresses, require_free_ports
from bert_tf.tools.common.worker_supervisor import RestartPolicy, Supervisor

define_flags("""
    num_workers (int >= 1): The number of workers of this machine.
    hosts (list): host:port of every worker of the run, in the order of their indices. Default: the
        workers of this machine are all, and free ports are chosen at each start.
    first_worker (int >= 0, 0): With --hosts: the index of this machine's first worker.
""")
define_flags(
    """
    log_dir (str): Append the output of each worker to worker-<index>.log in this folder. Default:
        show the output of all workers, with a prefix on each line.
    """,
    allow_override=True,  # of absl's own flag for its log files, which it does not write here
)
define_flags("""
    max_restarts (int >= 0, 10): The number of restarts in a row without progress.
    progress_seconds (float >= 0, 600.0): Workers that have run for this long have made progress. It
        should be longer than the time from the start to the first new checkpoint.
    backoff_seconds (float >= 0, 1.0): The wait before a restart. It doubles with each restart
        without progress.
    max_backoff_seconds (float >= 0, 60.0): The longest such wait.
    hang_timeout (float >= 0, 600.0): A worker without a heartbeat for this many seconds hangs. It
        must be longer than the start (with the wait for other machines), the longest step and the
        writing of a checkpoint. 0: do not look for hangs.
    final_statuses (list, 1,2,130,143): The exit statuses after which nothing is started again: 1
        and 2 are mistakes in the command line or the files, or a full disk; 130 and 143 come from a
        user who stops a worker.
""")


def command_of(arguments):
    """Returns the command line of a worker."""
    if not arguments:
        expected = "follow `--`, such as -- bert-tf run_pretraining --output_dir=out"
        raise user_error("A program", expected, "no program.")
    program = arguments[0]
    if program == "-m":
        if len(arguments) == 1:
            raise UserError("The name of a module must follow `-m`. Received: none.")
        return [sys.executable, *arguments]
    if program.endswith(".py") and os.path.isfile(program):
        return [sys.executable, *arguments]
    found = shutil.which(program)
    if found is None:
        expected = "be a Python file, `-m` with a module, or a program on PATH"
        raise user_error("The program after `--`", expected, program)
    return [found, *arguments[1:]]


def addresses_of(hosts):
    """Returns --hosts, checked."""
    for host in hosts:
        name, _, port = host.rpartition(":")
        if not name or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UserError(
                "--hosts must be host:port of each worker, with ports from 1 to 65535, such as "
                f"--hosts=a:2222,b:2222. Received: {host!r}"
            )
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise UserError(f"--hosts must be different addresses. Received: {twice} several times.")
    return hosts


def indices_of_workers():
    """Returns the indices of this machine's workers."""
    indices = range(FLAGS.first_worker, FLAGS.first_worker + FLAGS.num_workers)
    if FLAGS.hosts is None and FLAGS.first_worker:
        expected = "be set with --hosts, the addresses of all workers"
        received = f"--first_worker={FLAGS.first_worker} without --hosts."
        raise user_error("--first_worker", expected, received)
    if FLAGS.hosts is not None and indices.stop > len(FLAGS.hosts):
        expected = f"be at most {len(FLAGS.hosts)}, the number of --hosts"
        received = f"{FLAGS.first_worker} + {FLAGS.num_workers}."
        raise user_error("--first_worker + --num_workers", expected, received)
    return indices


def policy_of_flags():
    statuses = FLAGS.final_statuses
    if not all(status.isdecimal() and 0 < int(status) < 256 for status in statuses):
        raise user_error("--final_statuses", "be integers from 1 to 255", ",".join(statuses))
    return RestartPolicy(
        max_restarts=FLAGS.max_restarts,
        progress_seconds=FLAGS.progress_seconds,
        backoff=FLAGS.backoff_seconds,
        max_backoff=FLAGS.max_backoff_seconds,
        hang_timeout=FLAGS.hang_timeout,
        final_statuses=tuple(map(int, statuses)),
    )


def main(arguments):
    command, policy, indices = command_of(arguments), policy_of_flags(), indices_of_workers()
    if FLAGS.hosts is not None:
        require_free_ports([addresses_of(FLAGS.hosts)[index] for index in indices])
    if FLAGS.log_dir:
        tool.require_writable(FLAGS.log_dir, "log_dir")

    def make_group():
        addresses = FLAGS.hosts or free_addresses(FLAGS.num_workers)
        return WorkerGroup(command, addresses, indices, FLAGS.log_dir)

    sys.exit(Supervisor(make_group, policy).run())


if __name__ == "__main__":
    tool.run(main, "num_workers", takes_command=True)
