"""API keys of the local server, from a file or the environment: no process list shows them."""

import os
import re
from collections.abc import Mapping, MutableMapping

from bert_tf.base.regular_files import open_input
from bert_tf.errors import UserError, user_error

API_KEY_VARIABLE = "BERT_TF_API_KEY"
_KEY = r"[!-~]+"  # what a header holds as one word: ASCII without spaces


def read_api_keys(
    path: str | None, environment: MutableMapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Reads the API keys of a server.

    Args:
        path: A file with one key per line, or None.
        environment: Where `BERT_TF_API_KEY` is read if there is no file. It is removed, so that
            programs that the server starts do not get it.

    Returns:
        The keys; empty if neither is given.

    Raises:
        UserError: If the file cannot be read, or what was given is no key.
    """
    variable = environment.pop(API_KEY_VARIABLE, None)
    if path is not None:
        try:
            with open_input(path, "r", encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError as error:
            received = f"--api_key_file={path} ({error.strerror})"
            raise user_error("--api_key_file", "be a file that can be read", received) from None
        keys = tuple(line.strip() for line in lines if line.strip())
        source = f"--api_key_file must have one key per line. Received: {path}"
    elif variable is not None:
        keys = (variable.strip(),)
        source = f"{API_KEY_VARIABLE} must have a key. Received: its value"
    else:
        return ()
    if not keys or not all(re.fullmatch(_KEY, key) for key in keys):
        raise UserError(f"{source}, which holds no key of visible ASCII characters.")
    return keys


def authorization(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the headers with which a client sends `BERT_TF_API_KEY`; empty if it is not set.

    Example:
        >>> authorization({"BERT_TF_API_KEY": "of-mine"})
        {'Authorization': 'Bearer of-mine'}

    Raises:
        UserError: If it is no key.
    """
    key = environment.get(API_KEY_VARIABLE, "").strip()
    if key and not re.fullmatch(_KEY, key):
        expected = "be visible ASCII characters"
        raise user_error(API_KEY_VARIABLE, expected, "others in its value")
    return {"Authorization": f"Bearer {key}"} if key else {}
