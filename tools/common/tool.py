"""Runs the `main` function of a command-line tool."""

import importlib
import logging
import os
import select
import signal
import sys
from collections.abc import Iterable

from absl import app, flags

from bert_tf.base import progress, quiet
from bert_tf.base.files import CANNOT_WRITE
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool_help
from bert_tf.tools.common.flag_table import define_flags

FLAGS = flags.FLAGS
define_flags("""
    import_modules (list, []): Modules that are imported first, such as one that registers a class
        of your own with Keras. They may be in the working directory.
""")

# The exit statuses that shells give a program after Ctrl-C, and one whose output nobody reads.
INTERRUPTED = 128 + signal.SIGINT
UNREAD = 128 + signal.SIGPIPE


def run(main, *required: str, takes_command: bool = False) -> None:
    """Runs `main()` with absl. A `UserError` or Ctrl-C prints one line instead of a traceback.

    So does a disk that is full. `--help` is that of `tool_help`. TensorFlow's messages are shown
    with `-v 1`, or as TF_CPP_MIN_LOG_LEVEL says.

    Args:
        main: The function of the program.
        *required: The flags without which it does not run.
        takes_command: Whether `main` gets the list of the arguments after `--`, the command line of
            another program. Otherwise arguments without dashes are refused.
    """
    tool_help.define_help()
    flags.mark_flags_as_required(required)

    def checked(argv):
        try:
            logging.getLogger("bert_tf").setLevel(logging.INFO)
            _import_modules()
            if takes_command:
                main(argv[1:])
            else:
                _refuse_positional(argv[1:])
                main()
            sys.stdout.flush()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except KeyboardInterrupt:
            _exit_interrupted()
        except BrokenPipeError:
            _exit_if_unread()
            raise
        except OSError as error:
            if error.errno not in CANNOT_WRITE or error.filename is None:
                raise
            print(
                f"error: {error.filename} must be writable. Received: {error.strerror}.",
                file=sys.stderr,
            )
            sys.exit(1)

    app.run(checked, flags_parser=_parse)


def is_verbose() -> bool:
    """Returns whether `-v 1` asks for the messages that are silenced without it."""
    return FLAGS.verbosity > 0


def _import_modules():
    if FLAGS.import_modules:
        sys.path.append(os.getcwd())  # `bert-tf` begins with the directory of its own script
    for name in FLAGS.import_modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            expected = "be modules that can be imported"
            received = f"--import_modules={name}: {error}"
            raise user_error("--import_modules", expected, received) from None


def _parse(arguments):
    """Parses the flags before anything imports TensorFlow, whose messages they may silence."""
    try:
        rest = FLAGS(arguments)
    except flags.Error as error:
        print(f"error: {error}\n--help shows the flags.", file=sys.stderr)
        sys.exit(1)
    if is_verbose():
        progress.show_always()
        quiet.show_all()
    else:
        quiet.silence()
    return rest


def _exit_interrupted():
    """Ends the process at once, without waiting for TensorFlow's threads."""
    # A second Ctrl-C while the output is flushed must not show a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _exit_if_unread():
    """Ends the process if nobody reads its output any more, as after `| head`."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in output.poll(0)):
        sys.stderr.flush()
        os._exit(UNREAD)


def _interrupted_early(kind, value, traceback):
    """Prints one line for Ctrl-C during imports, as the `sys.excepthook` of the tools."""
    if issubclass(kind, KeyboardInterrupt):
        _exit_interrupted()
    sys.__excepthook__(kind, value, traceback)


sys.excepthook = _interrupted_early


def _refuse_positional(arguments):
    if not arguments:
        return
    hint = ""
    if arguments[0].lower() in ("true", "false", "1", "0", "yes", "no"):
        hint = f" The value of a Boolean flag follows an equals sign: --do_train={arguments[0]}."
    raise user_error("Arguments", "be flags, --name=value (see --help)", f"{arguments}.{hint}")


def require_output_file(path: str, flag: str, inputs: Iterable[str] = ()) -> None:
    """Creates the directory of a file and checks that the file can be written.

    Args:
        path: The file; an existing one may be replaced.
        flag: The flag with the path, for the error.
        inputs: Files that must not be replaced.

    Raises:
        UserError: If `path` is a directory or one of `inputs`, or its directory is not writable.
    """
    if not path:
        raise UserError(f"--{flag} must be a file. Received: --{flag}=")
    if os.path.isdir(path):
        raise UserError(f"--{flag} must be a file. Received: the directory {path}")
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise UserError(f"--{flag} must not be an input file. Received: {path}")
    require_writable(os.path.dirname(os.path.abspath(path)), flag)


def require_writable(directory: str, flag: str) -> None:
    """Creates `directory` if it does not exist and checks that results can be written to it.

    Raises:
        UserError: If the directory cannot be created or is not writable; it names the `flag`.
    """
    if not directory:
        raise UserError(f"--{flag} must be a directory. Received: --{flag}=")
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        expected = "be a directory that can be created"
        raise user_error(f"--{flag}: {directory}", expected, f"{error.strerror}.") from None
    if not os.access(directory, os.W_OK):
        raise UserError(f"--{flag}: {directory} must be writable. Received: no permission.")
