"""What the Beam programs that read a corpus have in common: its flags, and how a run ends."""

import contextlib
import os
import signal
import sys

from bert_tf import __version__
from bert_tf.base.files import atomic_path
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, UserError
from bert_tf.tools.common import beam_flags, tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    input_format (text|wiki|json, text): text: one sentence per line and a blank line between
        documents. wiki: the output of wikiextractor, with <doc ...> and </doc>. json: one document
        per line, an object with the text under --json_key.
    json_key (str, text): The key of the text, with --input_format=json.
    dead_letter_file (str): The file for lines and files that cannot be read, as JSON lines; they
        are left out. Default: the first of them ends the run.
    work_directory (str): The directory for the work, which all workers must reach. It needs room
        for twice the output. Default: the directory of the output.
""")


def check_places(inputs, output_files):
    """Checks before any work that the places for the work and for dead letters can be written."""
    if FLAGS.dead_letter_file:
        path = FLAGS.dead_letter_file
        require_local("dead_letter_file")
        others = map(os.path.realpath, [*inputs, *output_files])
        if os.path.isdir(path) or os.path.realpath(path) in others:
            raise flag_error("dead_letter_file", "must be a file of its own")
        tool.require_writable(os.path.dirname(os.path.abspath(path)), "dead_letter_file")
    work = _work_directory(output_files)
    if FLAGS.work_directory and "://" not in work:
        tool.require_writable(work, "work_directory")
    if not beam_flags.is_local() and "://" not in work:
        print(
            f"note: {work} must be a directory that all workers of {FLAGS.runner} share.",
            file=sys.stderr,
        )


def require_local(name):
    """Requires that the flag `name` is a path of this machine."""
    if "://" in FLAGS[name].value:
        raise UserError(f"--{name} must be a local path. Received: --{name}={FLAGS[name].value}")


def find_input():
    """Returns the files of --input_file."""
    require_package("apache_beam", "Beam programs")
    from bert_tf.beam.file_access import match_files

    return match_files(FLAGS.input_file)


def format_flags():
    """Returns the flags of the format of the input with which another program reads it too."""
    return {name: FLAGS[name].value for name in ("input_format", "json_key") if FLAGS[name].present}


def _work_directory(output_files):
    place = FLAGS.work_directory or os.path.dirname(output_files[0]) or "."
    return place if "://" in place else os.path.abspath(place)


@contextlib.contextmanager
def workspace(output_files, description):
    """Yields the workspace of a run; it is kept if the run is interrupted, to be continued.

    `description` is JSON for all that determines the result.
    """
    from bert_tf.beam.workspace import Workspace

    found = Workspace.of(
        _work_directory(output_files), [__version__, description, list(output_files)]
    )
    again = f"The same command continues the run. Its work so far is in {found.directory}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"ended by SIGTERM. {again}"))
    with found.locked():
        try:
            yield found
        except DataError:  # another attempt would end in the same way
            found.remove()
            raise
        except UserError as error:
            raise UserError(f"{error}\n{again}") from None
        except KeyboardInterrupt:
            print(again, file=sys.stderr)
            raise
        found.remove()


def write_dead_letters(letters):
    """Writes --dead_letter_file, if the flag is set, and prints how many there are."""
    if not FLAGS.dead_letter_file:
        return
    number = 0
    with atomic_path(FLAGS.dead_letter_file) as path, open(path, "w", encoding="utf-8") as file:
        for letter in letters:
            file.write(f"{letter.to_json()}\n")
            number += 1
    print(f"dead letters       {number} in {FLAGS.dead_letter_file}")
