"""Arrays in files."""

import resource

import numpy as np
import pytest

from bert_tf.array_files import save_array


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


def test_a_full_disk_is_an_error(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel then refuses to let a file grow past this, as a full disk would.
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # the header, but not the numbers
    try:
        with pytest.raises(OSError, match="too large"):
            save_array(tmp_path / "array.npy", np.arange(36))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
