"""Files for TensorBoard's projector, read as its browser reads them and by its server."""

import json
import types

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.inspection import Projection, write_projections, write_projector

ODD = [
    "",
    " ",
    "\t",
    "\n",
    "a\tb",
    "\ufeff",
    "\u3000",
    "\u2028",
    "\r\n",
    "plain",
    "##ing",
    '"',
    "é",
]
SHOWN = [
    *("(empty)", r"\x20", r"\t", r"\n", "a b", r"\ufeff", r"\u3000", r"\u2028", r"\r\n"),
    *("plain", "##ing", '"', "é"),
]


def rows_in_browser(content):
    """The rows that `projector_binary.js` makes of a metadata file (`TO`, tensorboard 2.21)."""
    names, rows, has_names = ["label"], [], False
    for number, line in enumerate(x for x in content.split("\n") if x.strip(" \t\r\ufeff\u3000")):
        if number == 0 and "\t" in line:
            names, has_names = line.split("\t"), True
            continue
        rows.append(dict(zip(names, line.split("\t"))))
    return has_names, rows


@pytest.mark.parametrize("columns", [1, 2])
def test_every_row_is_shown_in_its_place(tmp_path, columns):
    metadata = {"text": ODD, "n": range(len(ODD))} if columns == 2 else {"text": ODD}
    write_projector(tmp_path, np.eye(len(ODD)), metadata)
    content = (tmp_path / "metadata.tsv").read_text(encoding="utf-8")
    has_names, rows = rows_in_browser(content)
    assert has_names == (columns == 2)
    assert [row["text" if has_names else "label"] for row in rows] == SHOWN
    if has_names:
        assert [row["n"] for row in rows] == [str(number) for number in range(len(ODD))]


def test_half_of_a_surrogate_pair_is_written(tmp_path):
    write_projector(tmp_path, np.eye(2), {"text": ["a\ud800", "b"]})
    assert (tmp_path / "metadata.tsv").read_text(encoding="utf-8") == "a\\ud800\nb\n"


def test_several_sets_replace_those_before_them(tmp_path):
    first = {"a": Projection(np.eye(2), {"x": "uv"}), "b-1": Projection(np.eye(3), {"x": "uvw"})}
    write_projections(tmp_path, first)
    write_projections(tmp_path, {"a": Projection(np.ones([1, 4]), {"x": ["only"]})})
    assert (tmp_path / "a" / "metadata.tsv").read_text() == "only\n"
    assert np.loadtxt(tmp_path / "a" / "tensors.tsv").tolist() == [1] * 4
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 1 and 'tensor_path: "a/tensors.tsv"' in config


@pytest.mark.parametrize("name", ["", "a/b", "..", 'a"b', "a\nb"])
def test_names_are_those_of_folders(tmp_path, name):
    with pytest.raises(UserError, match="letters, digits"):
        write_projections(tmp_path / "new", {name: Projection(np.eye(1), {"x": ["u"]})})
    assert not list(tmp_path.iterdir())


def test_errors_name_the_set(tmp_path):
    good = Projection(np.eye(2), {"x": "uv"})
    for bad in (Projection(np.eye(2), {"x": "u"}), Projection(np.full([1, 1], np.nan), {"x": "u"})):
        with pytest.raises(UserError, match="of bad"):
            write_projections(tmp_path / "new", {"good": good, "bad": bad})
    assert not list(tmp_path.iterdir())


@pytest.fixture
def get():
    """A function that asks TensorBoard's own server of the projector."""
    plugin = pytest.importorskip(
        "tensorboard.plugins.projector.projector_plugin", reason="needs tensorboard"
    )
    from werkzeug.test import Client

    def get(directory, route, **query):
        runs = types.SimpleNamespace(list_runs=lambda *_, **__: [])
        context = types.SimpleNamespace(logdir=str(directory), data_provider=runs)
        apps = plugin.ProjectorPlugin(context).get_plugin_apps()
        response = Client(apps[route]).get("/", query_string={"run": ".", **query})
        assert response.status_code == 200, response.text
        return response

    return get


def test_the_server_serves_every_set(tmp_path, get):
    values = np.random.default_rng(0).normal(size=[len(ODD), 5])
    sets = {
        "one": Projection(values, {"text": ODD}),
        "two": Projection(values[:3], {"text": ODD[:3], "n": [7, 8, 9]}),
    }
    write_projections(tmp_path, sets)
    config = json.loads(get(tmp_path, "/info").text)
    shapes = {entry["tensorName"]: entry["tensorShape"] for entry in config["embeddings"]}
    assert shapes == {"one": [len(ODD), 5], "two": [3, 5]}
    for name, (vectors, metadata) in sets.items():
        served = np.frombuffer(get(tmp_path, "/tensor", name=name).data, np.float32)
        np.testing.assert_allclose(served.reshape(vectors.shape), vectors, rtol=1e-6)
        text = get(tmp_path, "/metadata", name=name, num_rows=len(vectors)).text
        has_names, rows = rows_in_browser(text)
        assert len(rows) == len(vectors) and has_names == (len(metadata) > 1)


def test_the_server_serves_a_single_set(tmp_path, get):
    write_projector(tmp_path, np.eye(3), {"text": ["a", "", "c"]})
    (entry,) = json.loads(get(tmp_path, "/info").text)["embeddings"]
    assert entry["tensorShape"] == [3, 3]
    assert get(tmp_path, "/metadata", name=entry["tensorName"]).text == "a\n(empty)\nc\n"
