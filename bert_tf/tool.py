"""What every command-line tool does around its `main`."""

import logging
import os
import signal
import sys

from absl import app, flags

from bert_tf.errors import UserError

# TensorFlow's own start-up lines; set before anything imports it, and left alone where it is set.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


INTERRUPTED = 128 + signal.SIGINT  # the exit status that shells give a program after Ctrl-C


def run(main) -> None:
    """Runs `main()` under absl: a user's mistake or Ctrl-C ends with one line, not a traceback.

    Positional arguments are refused, so that a flag whose dashes were forgotten is not ignored.
    `--help` shows every flag of the tool, those of the modules that it shares with others too.
    """
    _show_shared_flags()

    def checked(argv):
        try:
            _refuse_positional(argv[1:])
            logging.getLogger("bert_tf").setLevel(logging.INFO)
            main()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except KeyboardInterrupt:
            _exit_interrupted()

    app.run(checked)


def _exit_interrupted():
    """Ends the process at once: threads of TensorFlow that still compute are not waited for."""
    # A second Ctrl-C while the output is flushed must not bring the traceback back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _interrupted_early(kind, value, traceback):
    """`sys.excepthook` of the tools: Ctrl-C while modules are imported is one line too."""
    if issubclass(kind, KeyboardInterrupt):
        _exit_interrupted()
    sys.__excepthook__(kind, value, traceback)


sys.excepthook = _interrupted_early


def _show_shared_flags():
    """Makes `--help` list the flags of helper modules, not only those of the program's own file."""
    program = sys.argv[0]
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if not module.startswith("absl."):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(program, flag)


def _refuse_positional(arguments):
    if not arguments:
        return
    hint = ""
    if arguments[0].lower() in ("true", "false", "1", "0", "yes", "no"):
        hint = f" A switch takes its value after an equals sign: --do_train={arguments[0]}."
    raise UserError(
        f"Arguments must be flags, --name=value; --help lists them. Received: {arguments}.{hint}"
    )


def require_writable(directory: str, flag: str) -> None:
    """Makes `directory`, or says before any work that results could not be written.

    Raises:
        UserError: If it cannot be made or written to.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise UserError(f"--{flag}: cannot make {directory}: {error.strerror}") from None
    if not os.access(directory, os.W_OK):
        raise UserError(f"--{flag}: {directory} is not writable")
