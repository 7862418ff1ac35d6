"""TensorFlow's checkpoint files: what its own reader reads; errors where that one would abort."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2, trackable_object_graph_pb2

from bert_tf import BertBackbone
from bert_tf.base.crc32c import crc32c, masked
from bert_tf.checkpoints.readers.tensor_bundle import TensorBundle, read_sstable
from bert_tf.errors import CheckpointError
from tests.checkpoints import foreign
from tests.fuzz import bundle_mutants
from tests.fuzz.bundle_mutants import GRAPH_KEY, table, table_block, varint

BIAS = b"bert/pooler/dense/bias"


@pytest.mark.parametrize("size", [0, 1, 63, 128, 129, 1000, 99_999, 4 * 2**20, 9_000_001])
def test_crc32c_is_tensorflows(size, tmp_path):
    content = np.random.default_rng(size).bytes(size)
    with tf.io.TFRecordWriter(str(tmp_path / "record")) as writer:
        writer.write(content)
    stored = (tmp_path / "record").read_bytes()[-4:]
    assert masked(crc32c(content)) == int.from_bytes(stored, "little")


def assert_like_tensorflow(prefix):
    bundle, reader = TensorBundle(prefix), tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    assert bundle.shapes == {name: tuple(shape) for name, shape in shapes.items()}
    for name in shapes:
        expected = reader.get_tensor(name)
        if isinstance(expected, bytes):
            assert bundle.read_string(name, 2**20) == expected
        else:
            received = bundle.read(name)
            assert received.dtype == np.asarray(expected).dtype
            np.testing.assert_array_equal(received, expected)


def test_google_research(tmp_path):
    foreign.write_tf1(tmp_path, foreign.random_tensors())
    assert_like_tensorflow(str(tmp_path / "bert_model.ckpt"))


def test_tensorflow_models(tmp_path):
    assert_like_tensorflow(foreign.write_tf_models(tmp_path / "ckpt", foreign.random_tensors()))


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ],
)
def test_types_and_shapes(dtype, tmp_path):
    tensors = [tf.cast(np.arange(6).reshape(shape), dtype) for shape in ((6,), (2, 3), (1, 6, 1))]
    tensors += [tf.zeros((0, 3), dtype), tf.zeros((), dtype)]
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt"),
        tensor_names=[f"t{index}" for index in range(len(tensors))],
        shape_and_slices=[""] * len(tensors),
        tensors=tensors,
    )
    assert_like_tensorflow(str(tmp_path / "ckpt"))


def test_partitioned_variables_in_several_files(tmp_path):
    rows = tf.random.normal((1000, 7))
    columns = tf.random.normal((3, 300))
    parts = {"rows": [(0, 200), (200, 800)], "columns": [(0, 64), (64, 236)]}
    prefixes = []
    for shard in range(2):
        start, size = parts["rows"][shard]
        first, width = parts["columns"][shard]
        prefixes.append(str(tmp_path / f"part{shard}"))
        tf.raw_ops.SaveV2(
            prefix=prefixes[-1],
            tensor_names=["rows", "columns", f"whole{shard}"],
            shape_and_slices=[f"1000 7 {start},{size}:-", f"3 300 -:{first},{width}", ""],
            tensors=[
                rows[start : start + size],
                columns[:, first : first + width],
                tf.range(3 + shard),
            ],
        )
    prefix = str(tmp_path / "ckpt")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)
    assert len(list(tmp_path.glob("ckpt.data-*-of-00002"))) == 2
    assert_like_tensorflow(prefix)


def change_entry(**fields):
    def change(entries):
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(entries[BIAS])
        for name, value in fields.items():
            if name == "dims":
                del entry.shape.dim[:]
                for size in value:
                    entry.shape.dim.add(size=size)
            elif name == "slices":
                for start, length in value:
                    entry.slices.add().extent.add(start=start, length=length)
            elif name == "unknown_rank":
                entry.shape.unknown_rank = value
            else:
                setattr(entry, name, value)
        entries[BIAS] = entry.SerializeToString()
        return table([table_block(list(entries.items()))])

    return change


def change_header(**fields):
    def change(entries):
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries[b""])
        for name, value in fields.items():
            setattr(header.version if name == "min_consumer" else header, name, value)
        return table([table_block([*{**entries, b"": header.SerializeToString()}.items()])])

    return change


def with_items(change):
    return lambda entries: table([table_block(change(list(entries.items())))])


def with_handles(*handles):
    return lambda entries: table([table_block(list(entries.items()))], list(handles))


def many_names_for_the_same_bytes(entries):
    more = {f"{BIAS.decode()}{index:04d}".encode(): entries[BIAS] for index in range(9999)}
    return table([table_block(sorted({**entries, **more}.items()))])


def long_keys_from_prefixes(entries):
    """A key of 1 MB, and 90,000 that continue it by a byte each."""
    name = b"a" * 2**20
    first = varint(0) + varint(len(name)) + varint(0) + name
    rest = [varint(len(name) + index) + varint(1) + varint(0) + b"a" for index in range(90_000)]
    return table([first + b"".join(rest) + bytes(4) + (1).to_bytes(4, "little")])


def compressed(entries):
    block = table_block(list(entries.items()))
    whole = table([block])
    return bundle_mutants.with_trailer(block, kind=1) + whole[len(block) + 5 :]


HOSTILE = {
    "negative dimension": change_entry(dims=[-24]),
    "overflowing dimensions": change_entry(dims=[2**62, 2**62]),
    "a product that wraps to the right size": change_entry(dims=[2**32, 2**32, 24]),
    "255 dimensions": change_entry(dims=[1] * 254 + [24]),
    "unknown rank": change_entry(unknown_rank=True),
    "unknown type": change_entry(dtype=77),
    "negative type": change_entry(dtype=-1),
    "strings": change_entry(dtype=7),
    "resources": change_entry(dtype=20),
    "negative offset": change_entry(offset=-1),
    "negative size": change_entry(size=-96),
    "offset beyond the file": change_entry(offset=2**62),
    "size of another shape": change_entry(size=92),
    "negative data file": change_entry(shard_id=-1),
    "data file that is none": change_entry(shard_id=1),
    "checksum": change_entry(crc32c=1),
    "slices that are nowhere": change_entry(slices=[(0, 12), (12, 12)]),
    "duplicate slices": change_entry(slices=[(0, 12), (0, 12)]),
    "slice beyond the tensor": change_entry(slices=[(2**62, 2**62)]),
    "no data files": change_header(num_shards=0),
    "two thousand million data files": change_header(num_shards=2**31 - 1),
    "other byte order": change_header(endianness=1),
    "later version": change_header(min_consumer=2),
    "duplicate keys": with_items(lambda items: [*items, items[-1]]),
    "unsorted keys": with_items(lambda items: [items[0], items[2], items[1], *items[3:]]),
    "no header": with_items(lambda items: items[1:]),
    "header that is no protobuf": with_items(lambda items: [(b"", b"\xff\xff"), *items[1:]]),
    "entry that is no protobuf": with_items(lambda items: [*items, (b"c", b"\xff" * 9)]),
    "name that is no text": with_items(lambda items: [*items, (b"c\xff", items[-1][1])]),
    "entry of 100 kB": with_items(lambda items: [*items, (b"c", bytes(100_000))]),
    "huge block": with_handles((0, 2**62)),
    "huge offset": with_handles((2**63, 8)),
    "block of nothing": with_handles((0, 0)),
    "one block twice": with_handles((0, 100), (0, 100)),
    "many names for the same bytes": many_names_for_the_same_bytes,
    "long keys from prefixes": long_keys_from_prefixes,
    "compressed block": compressed,
    "empty file": lambda entries: b"",
}


@pytest.fixture(scope="module")
def google_checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("google")
    foreign.write_tf1(directory, foreign.random_tensors())
    path = directory / "bert_model.ckpt.index"
    return path, path.read_bytes(), read_sstable(str(path))


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_index(change, google_checkpoint):
    path, _, entries = google_checkpoint
    path.write_bytes(change(dict(entries)))
    with pytest.raises(CheckpointError, match="bert_model.ckpt"):
        BertBackbone.from_pretrained(path.parent)


def test_index_that_the_tests_wrote_opens(google_checkpoint):
    path, content, entries = google_checkpoint
    items = list(entries.items())
    path.write_bytes(table([table_block(items[:7]), table_block(items[7:])]))
    BertBackbone.from_pretrained(path.parent)
    path.write_bytes(content)
    BertBackbone.from_pretrained(path.parent)


def test_missing_data_file(tmp_path):
    foreign.write_tf1(tmp_path, foreign.random_tensors())
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(CheckpointError, match="data-00000-of-00001.*no such file"):
        BertBackbone.from_pretrained(tmp_path)


def encoder_of(graph):
    children = {child.local_name: child.node_id for child in graph.nodes[0].children}
    return graph.nodes[children["encoder"]], children["encoder"]


def all_nodes_are_the_root(graph):
    for node in graph.nodes:
        for child in node.children:
            child.node_id = 0


def encoder_in_itself(graph):
    encoder, place = encoder_of(graph)
    for child in encoder.children:
        child.node_id = place


def missing_nodes(graph):
    for child in encoder_of(graph)[0].children:
        child.node_id = 10**6


def negative_nodes(graph):
    for child in encoder_of(graph)[0].children:
        child.node_id = -1


def layers_without_end(graph):
    """More blocks than there can be, all of them the same one."""
    encoder, _ = encoder_of(graph)
    (block,) = (
        child.node_id for child in encoder.children if child.local_name == "layer_with_weights-4"
    )
    for index in range(5, 1100):
        encoder.children.add(local_name=f"layer_with_weights-{index}", node_id=block)


def tangled(graph):
    for node in graph.nodes:
        for index in range(100):
            node.children.add(local_name=f"part{index}", node_id=index % len(graph.nodes))


def keys_of_the_graph_itself(graph):
    for node in graph.nodes:
        for attribute in node.attributes:
            attribute.checkpoint_key = GRAPH_KEY.decode()


def absent_keys(graph):
    for node in graph.nodes:
        for attribute in node.attributes:
            attribute.checkpoint_key += "x"


def no_nodes(graph):
    del graph.nodes[:]


def too_large(graph):
    graph.nodes[0].children.add(local_name="a" * 2**23)


@pytest.mark.parametrize(
    "change",
    [
        all_nodes_are_the_root,
        encoder_in_itself,
        missing_nodes,
        negative_nodes,
        layers_without_end,
        tangled,
        keys_of_the_graph_itself,
        absent_keys,
        no_nodes,
        too_large,
    ],
)
def test_hostile_object_graph(change, tmp_path):
    prefix = foreign.write_tf_models(tmp_path / "ckpt", foreign.random_tensors())
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    values = {name: reader.get_tensor(name) for name in names}
    text = values[GRAPH_KEY.decode()]
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(text)
    change(graph)
    values[GRAPH_KEY.decode()] = graph.SerializeToString()
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[values[name] for name in names],
    )
    with pytest.raises(CheckpointError, match="ckpt"):
        BertBackbone.from_pretrained(prefix)
