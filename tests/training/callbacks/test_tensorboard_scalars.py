"""Scalars on a disk without room."""

import resource

import pytest

from bert_tf.errors import UserError
from bert_tf.training.callbacks import TensorBoardScalars


def test_a_full_disk_is_a_users_error(tmp_path):
    scalars = TensorBoardScalars(tmp_path)
    scalars.write(0, {"loss": 0.5})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel then refuses to let a file grow past this, as a full disk would.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(UserError, match=r"Received at step 7: File too large\. Make room"):
            scalars.write(7, {"loss": 0.5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file/tensorboard must be a writable directory"):
        TensorBoardScalars(tmp_path / "file" / "tensorboard").write(1, {"loss": 0.5})
