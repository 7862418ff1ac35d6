"""Arrays in files."""

import contextlib
import resource

import numpy as np
import pytest
from safetensors import safe_open

from bert_tf.base.array_files import save_array, write_safetensors


@pytest.mark.parametrize(
    "array",
    [
        np.arange(36),
        np.zeros([0, 3], np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(5),
    ],
)
def test_round_trip(array, tmp_path):
    save_array(tmp_path / "array.npy", array)
    read = np.load(tmp_path / "array.npy")
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@contextlib.contextmanager
def small_disk():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel then refuses to let a file grow past this, as a full disk would.
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # the header, but not the numbers
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_an_error(tmp_path):
    with small_disk(), pytest.raises(OSError, match="too large"):
        save_array(tmp_path / "array.npy", np.arange(36))


def test_a_full_disk_is_an_error_for_safetensors(tmp_path):
    with small_disk(), pytest.raises(OSError, match="too large.*a.safetensors"):
        write_safetensors(tmp_path / "a.safetensors", {"a": np.zeros(10_000)})


def test_safetensors_with_and_without_checksums(tmp_path):
    path, values = tmp_path / "a.safetensors", np.arange(6.0).reshape(2, 3)
    for checksums in (True, False):
        write_safetensors(path, {"a": values}, checksums)
        with safe_open(path, framework="numpy") as file:
            np.testing.assert_array_equal(file.get_tensor("a"), values)
            assert bool(file.metadata()) == checksums
