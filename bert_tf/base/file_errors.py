"""Errors about a file: what it must be or do, and what was received."""

import contextlib
from collections.abc import Iterator

from bert_tf.errors import CheckpointError, DataError, user_error


def data_error(path: str, expected: str, received: object, line: int | None = None) -> DataError:
    """Returns the error for a file of data, or a line of it, that is not as expected."""
    place = path if line is None else f"{path}, line {line}"
    return user_error(place, expected, received, DataError)


def file_error(path: str, expected: str, received: object) -> CheckpointError:
    """Returns the error for a file that is not as expected."""
    return user_error(path, expected, received, CheckpointError)


def tensor_error(source, name: str, expected: str, received: object) -> CheckpointError:
    """Returns the error for a tensor of a `TensorSource` that is not as expected."""
    return file_error(f"`{name}` in {source.path}", expected, received)


@contextlib.contextmanager
def complete_file(
    path: str, kind: str, errors: tuple[type[Exception], ...] = (Exception,)
) -> Iterator[None]:
    """Turns errors of a library, which can be of many types for damaged files, into ours."""
    try:
        yield
    except CheckpointError:
        raise
    except errors as error:
        raise file_error(path, f"be {kind}", f"{error}. Download it again.") from None
