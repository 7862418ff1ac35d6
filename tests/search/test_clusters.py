"""Pictures of clusters, and what is written for TensorBoard's projector."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.inspection import write_projector
from bert_tf.search import draw_clusters
from bert_tf.search.cluster_picture import principal_components

VECTORS = np.random.default_rng(0).standard_normal([60, 7]) * [5, 1, 1, 3, 1, 1, 1]


def test_principal_components():
    from sklearn.decomposition import PCA

    expected = PCA(2, svd_solver="full").fit_transform(VECTORS)
    np.testing.assert_allclose(np.abs(principal_components(VECTORS)), np.abs(expected), atol=1e-9)
    np.testing.assert_array_equal(principal_components(np.ones([3, 1])), np.zeros([3, 2]))


@pytest.mark.parametrize(
    "suffix,start", [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%P")]
)
@pytest.mark.parametrize("count", [3, 30])
def test_picture(suffix, start, count, tmp_path):
    path = tmp_path / f"clusters{suffix}"
    draw_clusters(path, VECTORS, np.arange(60) % count)
    assert path.read_bytes().startswith(start) and path.stat().st_size > 5000


def test_names_are_in_the_legend(tmp_path):
    draw_clusters(tmp_path / "clusters.svg", VECTORS, ["dogs", "money"] * 30)
    content = (tmp_path / "clusters.svg").read_text()
    assert all(f"<!-- {name} -->" in content for name in ("dogs", "money"))


def test_projector(tmp_path):
    texts = [f"text\t{n}\nwith breaks" for n in range(60)]
    write_projector(tmp_path, VECTORS, {"text": texts, "cluster": np.arange(60)})
    lines = (tmp_path / "metadata.tsv").read_text().splitlines()
    assert lines[:2] == ["text\tcluster", "text 0 with breaks\t0"] and len(lines) == 61
    np.testing.assert_allclose(np.loadtxt(tmp_path / "tensors.tsv"), VECTORS, rtol=1e-5)
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_path: "tensors.tsv"' in config and 'metadata_path: "metadata.tsv"' in config
    write_projector(tmp_path, VECTORS, {"text": texts})
    assert len((tmp_path / "metadata.tsv").read_text().splitlines()) == 60


def test_tensorboard_reads_the_config(tmp_path):
    from google.protobuf import text_format

    plugin = pytest.importorskip(
        "tensorboard.plugins.projector.projector_config_pb2", reason="needs tensorboard"
    )
    write_projector(tmp_path, VECTORS, {"n": range(60)})
    text = (tmp_path / "projector_config.pbtxt").read_text()
    config = text_format.Parse(text, plugin.ProjectorConfig())
    assert config.embeddings[0].tensor_path == "tensors.tsv"


def test_refusals(tmp_path):
    nan = np.full([60, 2], np.nan)
    for call in (
        lambda: draw_clusters(tmp_path / "a.gif", VECTORS, range(60)),
        lambda: draw_clusters(tmp_path / "a.png", VECTORS, range(59)),
        lambda: draw_clusters(tmp_path / "a.png", VECTORS[:1], [0]),
        lambda: draw_clusters(tmp_path / "a.png", nan, range(60)),
        lambda: write_projector(tmp_path / "p", VECTORS, {}),
        lambda: write_projector(tmp_path / "p", VECTORS, {"n": range(59)}),
        lambda: write_projector(tmp_path / "p", nan, {"n": range(60)}),
    ):
        with pytest.raises(UserError, match="Received"):
            call()
    assert not list(tmp_path.iterdir())
