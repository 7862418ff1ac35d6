"""Reads Parquet and TFRecord files row by row; what is damaged becomes a dead letter.

Reference: tensorflow/core/lib/io/record_writer.h (the format of TFRecord files); tf.train.Example.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.example import example_pb2

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.beam.corpus_entry import CorpusEntry
from bert_tf.beam.dead_letters import DeadLetter
from bert_tf.beam.file_access import open_file
from bert_tf.beam.shards import FileRange
from bert_tf.errors import DataError
from bert_tf.inputs import ParquetRows

_LENGTH_BYTES, _CHECKSUM_BYTES = 8, 4
_MOST_POSITION = 2**62  # in a file
_MAX_RECORD_BYTES = 64 * 2**20  # a few compressed bytes can be a long record


def read_parquet(part: FileRange) -> Iterator[CorpusEntry | DeadLetter]:
    """Yields the rows of the row groups of a part, some at a time.

    A damaged row group yields the rows before the damage and one dead letter for the others. A file
    that is not Parquet is one dead letter.
    """
    with open_file(part.path) as file:
        try:
            parquet = ParquetRows(file)
        except DataError as error:
            message = f"{part.path} must be a Parquet file. Received: {error}"
            yield DeadLetter.of(part.path, None, "", message)
            return
        sizes = [group.num_rows for group in parquet.groups]
        row = sum(sizes[: part.start])
        for group in range(part.start, len(sizes) if part.stop is None else part.stop):
            end = row + sizes[group]
            try:
                for columns in parquet.rows(group):
                    if isinstance(columns, UnicodeDecodeError):
                        message = f"Texts must be UTF-8. Received: {columns}"
                        yield DeadLetter.of(part.path, row, "", message)
                    else:
                        yield CorpusEntry(part.path, row, columns)
                    row += 1
            except DataError as error:
                message = f"CorpusEntry group {group} must not be damaged. Received: {error}"
                yield DeadLetter.of(part.path, row, f"rows {row} to {end - 1}", message)
            row = end


def read_tfrecord(path: str, file) -> Iterator[CorpusEntry | DeadLetter]:
    """Yields the features of each `tf.train.Example` of a file.

    A record with a wrong checksum is a dead letter, and reading goes on after it. After a wrong
    length, no other record can be found, and one dead letter is for the rest of the file.
    """
    position = 0
    while head := file.read(_LENGTH_BYTES + _CHECKSUM_BYTES):
        length = int.from_bytes(head[:_LENGTH_BYTES], "little")
        if not _is_intact(head, _LENGTH_BYTES):
            message = "A record must begin with its length and the checksum of that. Received: "
            message += "others" if len(head) == _LENGTH_BYTES + _CHECKSUM_BYTES else "a cut file"
            yield DeadLetter.of(path, position, "all after this position", message)
            return
        if length > _MAX_RECORD_BYTES:
            message = f"A record must have at most {_MAX_RECORD_BYTES} bytes. Received: {length}"
            yield DeadLetter.of(path, position, "", message)
            position += len(head) + length + _CHECKSUM_BYTES
            if position > _MOST_POSITION:
                return
            file.seek(position)
            continue
        record = file.read(length + _CHECKSUM_BYTES)
        if len(record) < length + _CHECKSUM_BYTES:
            message = f"A record must have {length} bytes. Received: a file that ends before"
            yield DeadLetter.of(path, position, record, message)
            return
        if _is_intact(record, length):
            yield _row_of(path, position, record[:length])
        else:
            message = "A record must have the checksum that is stored after it. Received: another"
            yield DeadLetter.of(path, position, record[:length], message)
        position += len(head) + len(record)


def _is_intact(content, length):
    """Returns whether the first bytes have the checksum that follows them."""
    stored = content[length : length + _CHECKSUM_BYTES]
    return masked(crc32c(content[:length])) == int.from_bytes(stored, "little")


def _row_of(path, position, record):
    try:
        features = example_pb2.Example.FromString(record).features.feature
        columns = {name: _value(feature) for name, feature in sorted(features.items())}
        return CorpusEntry(path, position, columns)
    except DecodeError as error:
        message = f"A record must be a tf.train.Example. Received: {error}"
    except UnicodeDecodeError as error:
        message = f"The features of a record must be numbers or UTF-8. Received: {error}"
    return DeadLetter.of(path, position, record, message)


def _value(feature) -> Any:
    """Returns the value of a feature, a list if it has none or several."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    values = list(getattr(feature, kind).value)
    if kind == "bytes_list":
        values = [value.decode("utf-8") for value in values]
    return values[0] if len(values) == 1 else values
