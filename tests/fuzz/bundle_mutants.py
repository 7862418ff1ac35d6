"""Hostile TensorFlow checkpoints: entries, blocks and object graphs that lie, checksummed."""

import random
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2, trackable_object_graph_pb2

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.checkpoints.readers.tensor_bundle import read_sstable
from tests.fuzz import byte_mutants

GRAPH_KEY = b"_CHECKPOINTABLE_OBJECT_GRAPH"
NUMBERS = [0, 1, -1, 2, 7, 24, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 10**10]
_MAGIC = bytes.fromhex("57fb808b247547db")


def varint(value: int) -> bytes:
    content = bytearray()
    while value >= 0x80:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])


def table_block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A block without prefixes, and with one restart offset."""
    content = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in entries
    )
    return content + bytes(4) + (1).to_bytes(4, "little")


def table(blocks: list[bytes], handles: list[tuple[int, int]] | None = None) -> bytes:
    """A file of the blocks, with right checksums; `handles` replace the right ones."""
    content, found = b"", []
    for block in (*blocks, table_block([])):
        found.append((len(content), len(block)))
        content += with_trailer(block)
    claimed = handles or found[:-1]
    keys = [bytes([index // 256, index % 256]) for index in range(len(claimed))]
    index = table_block(
        [(key, varint(offset) + varint(size)) for key, (offset, size) in zip(keys, claimed)]
    )
    footer = b"".join(map(varint, (*found[-1], len(content), len(index))))
    return content + with_trailer(index) + footer.ljust(40, b"\0") + _MAGIC


def with_trailer(block: bytes, kind: int = 0) -> bytes:
    block += bytes([kind])
    return block + masked(crc32c(block)).to_bytes(4, "little")


def string_tensor(text: bytes) -> tuple[bytes, int]:
    """The bytes of a tensor that is one string, and its checksum."""
    length = (len(text) & 0xFFFFFFFF).to_bytes(4, "little")
    stored = masked(crc32c(length)).to_bytes(4, "little")
    return varint(len(text)) + stored + text, masked(crc32c(length + stored + text))


def mutants(files: dict[str, bytes], seed: int, index_path: str) -> Iterator[dict[str, bytes]]:
    """Hostile checkpoints, without end.

    Args:
        files: The index and the data file, by name.
        seed: The same seed gives the same mutants.
        index_path: The index, for reading its entries.
    """
    rng = random.Random(seed)
    entries = read_sstable(index_path)
    index_name = next(name for name in files if name.endswith(".index"))
    data_name = next(name for name in files if ".data-" in name)
    graph = _graph(entries, files[data_name])
    while True:
        if graph is not None and rng.random() < 0.5:
            text = _hostile_graph(graph, rng)
            content, checksum = string_tensor(text)
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(entries[GRAPH_KEY])
            entry.offset, entry.size = len(files[data_name]), len(content)
            entry.crc32c = checksum
            changed = {**entries, GRAPH_KEY: entry.SerializeToString()}
            yield {
                index_name: table([table_block(list(changed.items()))]),
                data_name: files[data_name] + content,
            }
        else:
            yield {index_name: _hostile_index(entries, rng)}


def _graph(entries, data):
    if GRAPH_KEY not in entries:
        return None
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(entries[GRAPH_KEY])
    content = data[entry.offset : entry.offset + entry.size]
    size = 1 + next(index for index, byte in enumerate(content) if byte < 0x80)
    return content[size + 4 :]


def _hostile_index(entries, rng):
    items = list(entries.items())
    kind = rng.randrange(10)
    if kind < 5:
        for place in rng.sample(range(1, len(items)), min(rng.choice((1, 1, 3)), len(items) - 1)):
            key, value = items[place]
            items[place] = (key, _hostile_entry(value, rng))
    elif kind == 5:
        items[0] = (b"", _hostile_header(items[0][1], rng))
    elif kind == 6:
        place, other = rng.randrange(len(items)), rng.randrange(len(items))
        items.insert(place, items[other])
    elif kind == 7:
        key, value = items.pop(rng.randrange(len(items)))
        items.append((next(byte_mutants.mutants(key, rng.randrange(2**32))), value))
        items.sort()
    if kind < 8:
        cut = rng.randrange(len(items))
        return table([table_block(items[:cut]), table_block(items[cut:])])
    block = table_block(items)
    if kind == 8:
        return table([next(byte_mutants.mutants(block, rng.randrange(2**32)))])
    handles = [
        (
            rng.choice([0, 1, len(block), *NUMBERS[-6:]]) % 2**64,
            rng.choice([0, 1, len(block), *NUMBERS[-6:]]) % 2**64,
        )
        for _ in range(2)
    ]
    return table([block], handles)


def _hostile_entry(value, rng):
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    kind = rng.randrange(10)
    if kind == 0:
        entry.dtype = rng.choice([*range(40), 100, 101, 114, 255, 2**31 - 1, -1])
    elif kind == 1 and entry.shape.dim:
        rng.choice(entry.shape.dim).size = rng.choice(NUMBERS)
    elif kind == 2:
        for _ in range(rng.choice((1, 8, 33, 254, 255, 300))):
            entry.shape.dim.add(size=rng.choice((1, 1, 1, rng.choice(NUMBERS))))
    elif kind == 3:
        entry.offset = rng.choice(NUMBERS)
    elif kind == 4:
        entry.size = rng.choice(NUMBERS)
    elif kind == 5:
        entry.shard_id = rng.choice([number for number in NUMBERS if -(2**31) <= number < 2**31])
    elif kind == 6:
        entry.shape.unknown_rank = True
    elif kind == 7:
        part = entry.slices.add()
        for _ in range(rng.choice((0, len(entry.shape.dim), 255))):
            extent = part.extent.add(start=rng.choice(NUMBERS))
            if rng.random() < 0.5:
                extent.length = rng.choice(NUMBERS)
    elif kind == 8:
        entry.crc32c ^= 1 << rng.randrange(32)
    else:
        return next(byte_mutants.mutants(value, rng.randrange(2**32)))
    return entry.SerializeToString()


def _hostile_header(value, rng):
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(value)
    kind = rng.randrange(4)
    if kind == 0:
        header.num_shards = rng.choice([-1, 0, 2, 10**5, 2**31 - 1, -(2**31)])
    elif kind == 1:
        header.endianness = rng.choice((1, 2, 77))
    elif kind == 2:
        header.version.min_consumer = rng.choice((-1, 1, 2, 2**31 - 1))
    else:
        return next(byte_mutants.mutants(value, rng.randrange(2**32)))
    return header.SerializeToString()


def _hostile_graph(text, rng):
    if rng.random() < 0.3:
        return next(byte_mutants.mutants(text, rng.randrange(2**32)))
    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(text)
    except DecodeError:
        return text
    nodes = list(graph.nodes)
    names = [child.local_name for node in nodes for child in node.children]
    keys = [attribute.checkpoint_key for node in nodes for attribute in node.attributes]
    for _ in range(rng.choice((1, 2, 20))):
        node, kind = rng.choice(nodes), rng.randrange(6)
        if kind == 0 and node.children:
            rng.choice(node.children).node_id = rng.choice(
                [0, -1, 2**31 - 1, rng.randrange(len(nodes))]
            )
        elif kind == 1 and node.children:
            rng.choice(node.children).local_name = rng.choice([*names, "", "a" * 5000, "/", ".."])
        elif kind == 2 and node.attributes:
            rng.choice(node.attributes).checkpoint_key = rng.choice(
                [*keys, "", "absent", GRAPH_KEY.decode()]
            )
        elif kind == 3:
            for name in rng.sample(names, min(len(names), 10)):
                node.children.add(local_name=name, node_id=rng.randrange(len(nodes)))
        elif kind == 4:
            for index in range(rng.choice((10, 1100))):
                node.children.add(
                    local_name=f"layer_with_weights-{index}", node_id=rng.randrange(len(nodes))
                )
        else:
            node.attributes.add(name="VARIABLE_VALUE", checkpoint_key=rng.choice(keys))
    return graph.SerializeToString()
