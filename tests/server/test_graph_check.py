"""What is served without --trust: models that compute. Which others are refused, and by which name.

Before, all of them were served without a word.
"""

import gc
import os
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from bert_tf.errors import UserError
from bert_tf.server import graph_check
from bert_tf.server.graph_check import graph_problems
from bert_tf.server.served_model import ServedModel

TEXT = tf.TensorSpec([None], tf.string, name="text")


def _save(path, function):
    """A SavedModel of one function of strings."""
    module = tf.Module()
    module.function = tf.function(function, input_signature=[TEXT])
    tf.saved_model.save(module, str(path), {"serving_default": module.function})
    return path


def _inside_conditions(text):
    return tf.cond(
        tf.size(text) > 3,
        lambda: tf.while_loop(
            lambda texts: tf.size(texts) > 9,
            lambda texts: (tf.io.read_file(texts[0])[tf.newaxis],),
            (text,),
        )[0],
        lambda: text,
    )


def _in_a_map(text):
    return tf.map_fn(tf.io.read_file, text)


def _written(text):
    with tf.control_dependencies([tf.io.write_file("/tmp/bert_tf_never_written", text[0])]):
        return tf.identity(text)


def _listed(text):
    return tf.io.matching_files(text)


def _python(text):
    return tf.numpy_function(lambda values: values, [text], tf.string)


def _eager_python(text):
    return tf.py_function(lambda values: values, [text], tf.string)


def _lines(text):
    return tf.data.TextLineDataset(text).reduce(text[:1], lambda last, line: line[tf.newaxis])


def _restored(text):
    return tf.raw_ops.RestoreV2(
        prefix=text[0], tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.string]
    )[0]


def _saved(text):
    with tf.control_dependencies(
        [
            tf.raw_ops.SaveV2(
                prefix=text[0], tensor_names=["x"], shape_and_slices=[""], tensors=[text]
            )
        ]
    ):
        return tf.identity(text)


def _table(text):
    table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
    tf.raw_ops.InitializeTableFromTextFileV2(
        table_handle=table, filename=text[0], key_index=-2, value_index=-1
    )
    return tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=text, default_value=tf.constant(0, tf.int64)
    )


def _mapped_memory(text):
    return tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=[4], memory_region_name="/etc/hostname")


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (lambda text: tf.io.read_file(text[0])[tf.newaxis], "ReadFile"),
        (_inside_conditions, "ReadFile"),
        (_in_a_map, "ReadFile"),
        (_written, "WriteFile"),
        (_listed, "MatchingFiles"),
        (_python, "PyFunc"),
        (_eager_python, "EagerPyFunc"),
        (_lines, "TextLineDataset"),
        (_restored, "RestoreV2"),
        (_saved, "SaveV2"),
        (_table, "InitializeTableFromTextFileV2"),
        (_mapped_memory, "ImmutableConst"),
    ],
)
def test_what_reaches_further_is_refused(tmp_path, function, operation):
    path = _save(tmp_path / "1", function)
    with pytest.raises(UserError, match=rf"operation {operation}, node \S+ of function .*--trust"):
        ServedModel(path)


def test_a_trusted_model_may_read_files(tmp_path):
    (tmp_path / "file").write_bytes(b"what it says")
    path = _save(tmp_path / "1", lambda text: {"out": tf.io.read_file(text[0])[tf.newaxis]})
    model = ServedModel(path, trusted=True)
    given = {"text": np.array([str(tmp_path / "file").encode()], object)}
    assert model.run(model.signatures["serving_default"], given)["out"] == [b"what it says"]


class Lookup(tf.Module):
    """A table of a file, as tf.lookup and Keras make one."""

    def __init__(self, file):
        super().__init__()
        self.table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                str(file),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            1,
        )

    @tf.function(input_signature=[TEXT])
    def find(self, text):
        return {"id": self.table.lookup(text)}


@pytest.fixture(scope="module")
def lookup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lookup")
    (folder / "words.txt").write_text("good\nbad\n")
    module = Lookup(folder / "words.txt")
    tf.saved_model.save(module, str(folder / "1"), {"serving_default": module.find})
    (folder / "words.txt").unlink()
    return folder / "1"


def test_a_table_of_an_asset_is_served(lookup):
    model = ServedModel(lookup)
    given = {"text": np.array([b"bad", b"good", b"film"], object)}
    assert model.run(model.signatures["serving_default"], given)["id"].tolist() == [1, 0, 2]


def _changed(path, folder, change):
    """A copy of a SavedModel's graph, changed; its other files are not needed for the check."""
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((path / "saved_model.pb").read_bytes())
    change(saved_model.meta_graphs[0])
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return folder


@pytest.mark.parametrize("filename", ["../../secret.txt", "/etc/hostname"])
def test_an_asset_outside_the_directory_is_refused(lookup, tmp_path, filename):
    def change(meta_graph):
        meta_graph.asset_file_def[0].filename = filename

    with pytest.raises(UserError, match=f"asset '{filename}'"):
        ServedModel(_changed(lookup, tmp_path / "1", change))


def test_a_table_of_another_file_is_refused(lookup, tmp_path):
    """Everywhere the initialiser's captured asset is replaced by another object."""

    def change(meta_graph):
        objects = meta_graph.object_graph_def
        number = next(n for n, node in enumerate(objects.nodes) if node.HasField("asset"))
        for function in objects.concrete_functions.values():
            for place, bound in enumerate(function.bound_inputs):
                if bound == number:
                    function.bound_inputs[place] = 0

    with pytest.raises(UserError, match="InitializeTableFromTextFileV2, node .* of function"):
        ServedModel(_changed(lookup, tmp_path / "1", change))


def test_a_function_with_the_name_of_an_operation_is_refused(lookup, tmp_path):
    def change(meta_graph):
        function = meta_graph.graph_def.library.function.add()
        function.signature.name = "ReadFile"
        meta_graph.graph_def.node.add(name="innocent", op="ReadFile")

    with pytest.raises(UserError, match="operation ReadFile, node innocent"):
        ServedModel(_changed(lookup, tmp_path / "1", change))


def test_functions_inside_attributes_are_looked_at(lookup, tmp_path):
    def change(meta_graph):
        node = meta_graph.graph_def.node.add(name="innocent", op="PartitionedCall")
        inner = node.attr["f"].func
        inner.name = next(iter(meta_graph.graph_def.library.function)).signature.name
        inner.attr["g"].list.func.add(name="WriteFile")

    with pytest.raises(UserError, match="operation PartitionedCall, node innocent"):
        ServedModel(_changed(lookup, tmp_path / "1", change))


def _graph_of_nodes(*nodes):
    """A graph without objects: name, operation and inputs of each node."""
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.saver_def.filename_tensor_name = "file:0"
    for name, operation, *inputs in nodes:
        meta_graph.graph_def.node.add(name=name, op=operation, input=inputs)
    return meta_graph


def _add_function(meta_graph, name, *nodes):
    """Adds a function of one argument, `path`."""
    function = meta_graph.graph_def.library.function.add()
    function.signature.name = name
    function.signature.input_arg.add(name="path")
    for node, operation, *inputs in nodes:
        function.node_def.add(name=node, op=operation, input=inputs)


@pytest.mark.parametrize(
    ("source", "problems"),
    [("file", []), ("other", ["operation RestoreV2, node read of function f0"])],
)
def test_functions_that_call_each_other_twice_are_checked_at_once(source, problems):
    meta_graph = _graph_of_nodes(
        ("file", "Const"), ("other", "Const"), ("start", "f40", source + ":0")
    )
    _add_function(meta_graph, "f0", ("read", "RestoreV2", "path"))
    for k in range(1, 41):
        _add_function(meta_graph, f"f{k}", ("a", f"f{k - 1}", "path"), ("b", f"f{k - 1}", "path"))
    started = time.monotonic()
    assert graph_problems(meta_graph, "") == problems
    assert time.monotonic() - started < 1.0


@pytest.mark.parametrize(
    ("source", "problems"), [("file", []), ("other", ["operation RestoreV2, node read"])]
)
def test_a_long_chain_of_identities_is_followed(source, problems):
    chain = [(f"i{n}", "Identity", f"i{n - 1}:0") for n in range(1, 5000)]
    meta_graph = _graph_of_nodes(
        ("file", "Const"),
        ("other", "Const"),
        ("i0", "Identity", source + ":0"),
        *chain,
        ("read", "RestoreV2", "i4999:0"),
    )
    assert graph_problems(meta_graph, "") == problems


@pytest.mark.parametrize(
    "nodes",
    [
        [("read", "RestoreV2")],
        [("read", "RestoreV2", "^file")],
        [("read", "RestoreV2", "same"), ("same", "Identity")],
        [("read", "RestoreV2", "same"), ("same", "Identity", "same")],
        [("read", "RestoreV2", "a"), ("a", "Identity", "b"), ("b", "Identity", "a")],
        [("read", "RestoreV2", "missing")],
        [("read", "InitializeTableFromTextFileV2")],
        [("read", "InitializeTableFromTextFileV2", "file")],
    ],
)
def test_inputs_that_are_missing_or_lead_nowhere_are_refused(nodes):
    meta_graph = _graph_of_nodes(("file", "Const"), *nodes)
    assert graph_problems(meta_graph, "") == [f"operation {nodes[0][1]}, node read"]


@pytest.mark.parametrize(
    "calls",
    [
        [("start", "f")],
        [("start", "f", "file"), ("again", "f")],
        [("start", "f", "file"), ("again", "f", "other")],
    ],
)
def test_every_call_must_pass_the_savers_file(calls):
    meta_graph = _graph_of_nodes(("file", "Const"), ("other", "Const"), *calls)
    _add_function(meta_graph, "f", ("read", "RestoreV2", "path"))
    assert graph_problems(meta_graph, "") == ["operation RestoreV2, node read of function f"]


def test_a_function_that_calls_itself_is_refused():
    meta_graph = _graph_of_nodes(("file", "Const"), ("start", "f", "file"))
    _add_function(meta_graph, "f", ("read", "RestoreV2", "path"), ("again", "f", "path"))
    assert graph_problems(meta_graph, "") == ["operation RestoreV2, node read of function f"]


def test_a_function_without_a_name_does_not_hide_the_graph():
    meta_graph = _graph_of_nodes(("file", "Const"), ("read", "RestoreV2", "file"))
    meta_graph.signature_def["serving_default"].outputs["out"].name = "read:0"
    _add_function(meta_graph, "", ("file", "Const"))
    assert graph_problems(meta_graph, "") == ["operation RestoreV2, node read"]


def test_a_model_that_cannot_be_checked_is_served_only_if_trusted(lookup, monkeypatch):
    def fail(meta_graph):
        raise RecursionError("too deep")

    monkeypatch.setattr(graph_check, "_Graph", fail)
    with pytest.raises(UserError, match="cannot be checked .*too deep.*--trust"):
        ServedModel(lookup)
    model = ServedModel(lookup, trusted=True)
    given = {"text": np.array([b"bad"], object)}
    assert model.run(model.signatures["serving_default"], given)["id"].tolist() == [1]


def _first_graph(path, make):
    """A SavedModel as TensorFlow 1 wrote it."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        text = v1.placeholder(tf.string, [None], "text")
        weight = v1.get_variable("w", initializer=2.0, use_resource=True)
        out = tf.cast(tf.strings.length(text), tf.float32) * weight
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        out = make(saver, out)
        builder = v1.saved_model.Builder(str(path))
        signature = v1.saved_model.predict_signature_def({"text": text}, {"out": out})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, saver=saver
        )
        builder.save()
    return path


def test_a_model_of_tensorflow_1_is_served(tmp_path):
    model = ServedModel(_first_graph(tmp_path / "1", lambda saver, out: out))
    given = {"text": np.array([b"four"], object)}
    assert model.run(model.signatures["serving_default"], given)["out"] == [8.0]


def _answers_with_a_checkpoint(saver, out):
    restored = tf.raw_ops.RestoreV2(
        prefix="/tmp/other", tensor_names=["w"], shape_and_slices=[""], dtypes=[tf.float32]
    )
    return out + restored[0]


def _answers_with_the_savers_own(saver, out):
    graph = tf.compat.v1.get_default_graph()
    restore = next(node for node in graph.get_operations() if node.type == "RestoreV2")
    return out + restore.outputs[0]


@pytest.mark.parametrize("make", [_answers_with_a_checkpoint, _answers_with_the_savers_own])
def test_a_model_of_tensorflow_1_that_answers_from_files_is_refused(tmp_path, make):
    with pytest.raises(UserError, match="operation RestoreV2"):
        ServedModel(_first_graph(tmp_path / "1", make))


def test_keras_models_are_served(tmp_path):
    text = keras.Input([], dtype="string", name="text")
    ids = keras.layers.TextVectorization(vocabulary=["good", "bad"], output_sequence_length=4)(text)
    states = keras.layers.LSTM(3)(keras.layers.Embedding(5, 2)(ids))
    model = keras.Model(text, keras.layers.Dense(2, activation="softmax")(states))
    model.export(tmp_path / "1", verbose=False)
    served = ServedModel(tmp_path / "1")
    signature = served.signatures["serving_default"]
    given = {name: np.array([b"good film"], object) for name in signature.inputs}
    (answer,) = served.run(signature, given).values()
    np.testing.assert_allclose(answer, model(tf.constant(["good film"])), atol=1e-6)


def test_a_model_that_goes_leaves_nothing(tmp_path):
    """A custom gradient kept every function of its model in TensorFlow for good."""

    @tf.custom_gradient
    def doubled(length):
        return 2 * length, lambda gradient: 2 * gradient

    path = _save(tmp_path / "1", lambda text: {"out": doubled(tf.strings.length(text))})
    graphs = []
    for _ in range(3):
        ServedModel(path).run  # noqa: B018, loaded and dropped
        gc.collect()
        graphs.append(sum(isinstance(thing, tf.Graph) for thing in gc.get_objects()))
    assert graphs[2] == graphs[0]
    assert not [name for name in os.listdir(tmp_path) if name != "1"]
