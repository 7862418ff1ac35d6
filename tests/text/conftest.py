import pytest
import tensorflow as tf


@pytest.fixture
def eagerly():
    """Functions are not traced, which takes longer than a few texts."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
