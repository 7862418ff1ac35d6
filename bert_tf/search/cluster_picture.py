"""A picture of clusters of vectors, on their two principal axes."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.base.pictures import new_figure, require_picture, save_picture
from bert_tf.base.vectors import as_finite_floats, as_matrix
from bert_tf.errors import user_error

_COLORS = "tab20"  # matplotlib's largest set of colors that can be distinguished
_NUM_COLORS = 20


def draw_clusters(
    path: str | os.PathLike, vectors: np.ndarray, clusters: Sequence[int | str]
) -> None:
    """Draws vectors as points, with a color for each cluster.

    Any clustering of scikit-learn takes the vectors: `KMeans(8).fit_predict(vectors)`, or
    `AgglomerativeClustering(8, metric="cosine", linkage="average").fit_predict(vectors)`. Points
    that are apart in the picture are apart; points that are close need not be.

    Args:
        path: A `.png`, `.svg` or `.pdf` file, which is replaced atomically.
        vectors: Floats `[n, D]`, at least two.
        clusters: The number or the name of the cluster of each vector.

    Raises:
        UserError: If the file has another ending, the sizes differ, a value is not finite, or
            matplotlib is not installed.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> vectors = encoder.encode(["A dog barks.", "A dog is barking.", "Interest rates rose."])
        >>> draw_clusters("clusters.png", vectors, ["dogs", "dogs", "money"])
    """
    require_picture(path)
    vectors = as_finite_floats(as_matrix(vectors, "vectors"), False, "vectors")
    clusters = np.asarray(clusters)
    if len(vectors) < 2 or clusters.shape != (len(vectors),):
        received = f"vectors.shape={vectors.shape}, clusters.shape={clusters.shape}."
        raise user_error("`clusters`", "have one entry for each of at least two vectors", received)
    colors = require_package("matplotlib", "draw_clusters()").colormaps[_COLORS].colors
    points = principal_components(vectors)
    figure = new_figure((7, 6))
    axes = figure.subplots()
    for number, name in enumerate(np.unique(clusters)):
        members = points[clusters == name]
        color = colors[number % _NUM_COLORS]
        axes.scatter(members[:, 0], members[:, 1], s=12, color=color, label=str(name))
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second principal component")
    if len(np.unique(clusters)) <= _NUM_COLORS:
        axes.legend(title="cluster")
    save_picture(figure, path)


def principal_components(vectors: np.ndarray) -> np.ndarray:
    """Returns the coordinates float64 `[n, 2]` of vectors `[n, D]` on their principal axes.

    Example:
        >>> principal_components(np.array([[0.0, 0.0], [0.0, 2.0], [0.0, 4.0]])).round(1).tolist()
        [[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]]
    """
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)  # [D, D], in rising order of the variance
    axes = axes[:, ::-1][:, :2]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    points = centred @ (axes * np.sign(largest))  # an axis and its opposite are equally good
    return np.pad(points, [(0, 0), (0, 2 - points.shape[1])])  # for D = 1
