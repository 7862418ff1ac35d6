"""How similar the vector of a text is to others, for the losses of sentence encoders.

Glossary: `B` examples, `K` texts of an example, `D` size of a vector.
"""

import tensorflow as tf

SIMILARITIES = ("cosine", "dot")
DISTANCES = ("euclidean", "cosine")


def comparable(vectors: tf.Tensor, similarity: str) -> tf.Tensor:
    """Returns vectors whose dot products are the similarities, one of `SIMILARITIES`."""
    return tf.math.l2_normalize(vectors, axis=-1) if similarity == "cosine" else vectors


def own_similarities(vectors: tf.Tensor, similarity: str) -> tf.Tensor:
    """Returns how similar the first text of each example is to its others.

    `[B, K, D] -> [B, K - 1]`.
    """
    vectors = comparable(vectors, similarity)
    return tf.reduce_sum(vectors[:, :1] * vectors[:, 1:], axis=-1)


def own_distances(vectors: tf.Tensor, distance: str) -> tf.Tensor:
    """Returns how far the first text of each example is from its others.

    `[B, K, D] -> [B, K - 1]`; `distance` is one of `DISTANCES`, where "cosine" is 1 - cos.
    """
    if distance == "cosine":
        return 1.0 - own_similarities(vectors, "cosine")
    return root(tf.reduce_sum(tf.square(vectors[:, :1] - vectors[:, 1:]), axis=-1))


def batch_distances(vectors: tf.Tensor, distance: str) -> tf.Tensor:
    """Returns the distances of all vectors `[B, D]` of a batch, `[B, B]`; 0 to itself."""
    vectors = comparable(vectors, distance)
    products = tf.matmul(vectors, vectors, transpose_b=True)
    if distance == "cosine":
        distances = 1.0 - products
    else:
        squares = tf.linalg.diag_part(products)
        distances = root(squares[:, tf.newaxis] + squares - 2.0 * products)
    return tf.linalg.set_diag(distances, tf.zeros(tf.shape(vectors)[:1]))


def root(squares: tf.Tensor) -> tf.Tensor:
    """Returns square roots, with a gradient of 0 where rounding left 0 or less."""
    is_zero = squares <= 0.0  # the square root has no gradient at 0
    return tf.where(is_zero, 0.0, tf.sqrt(tf.where(is_zero, 1.0, squares)))
