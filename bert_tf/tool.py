"""What every command-line tool does around its `main`."""

import logging
import os
import sys

from absl import app

from bert_tf.errors import UserError

# TensorFlow's own start-up lines; set before anything imports it, and left alone where it is set.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def run(main) -> None:
    """Runs `main(argv)` under absl: a user's mistake ends with its message, not with a stack trace.

    Positional arguments are refused, so that a flag whose dashes were forgotten is not ignored.
    """

    def checked(argv):
        if len(argv) > 1:
            raise app.UsageError(f"Only flags were expected. Received: {argv[1:]}")
        logging.getLogger("bert_tf").setLevel(logging.INFO)
        try:
            main()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)

    app.run(checked)


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
