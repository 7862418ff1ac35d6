"""Whitening: mean zero, covariance one, the principal directions first."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.layers.vector_projection import Whitening


@pytest.mark.parametrize("units", [6, 2])
def test_covariance_is_the_identity(units):
    random = np.random.default_rng(0)
    vectors = 5.0 + random.standard_normal([400, 6]) @ random.standard_normal([6, 6])
    layer = Whitening(units)
    layer.build([None, 6])
    layer.fit(vectors)
    white = layer(vectors.astype(np.float32)).numpy()
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(white.T @ white / 400, np.eye(units), atol=1e-3)
    # The first directions are those of the largest variance: their span is NumPy's.
    directions = np.linalg.svd(vectors - vectors.mean(axis=0))[2][:units]
    kernel = layer.kernel.numpy().astype(np.float64)
    kernel /= np.linalg.norm(kernel, axis=0)
    np.testing.assert_allclose(np.abs(np.diag(directions @ kernel)), 1, atol=1e-4)
    assert not layer.trainable_variables


def test_too_few_vectors():
    layer = Whitening(5)
    layer.build([None, 8])
    with pytest.raises(UserError, match="more sentences"):
        layer.fit(np.random.default_rng(0).standard_normal([4, 8]))
    with pytest.raises(UserError, match=r"\[1, 3\]"):
        Whitening(4).build([None, 3])
