"""Reads Thrift's compact protocol, in which Parquet files describe their data.

Reference: apache/thrift, thrift-compact-protocol.md.
"""

from typing import Any

_MOST_NESTED = 8


class CompactReader:
    """Reads values from bytes. What ends too early or is of an unknown type is an IndexError."""

    def __init__(self, content: bytes):
        self._content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self._content):
            raise IndexError
        return self._content[start : self.position]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                return value

    def struct(self, level: int = 0) -> dict[int, Any]:
        """Returns the fields by id: numbers, structs, lists; of bytes and maps None."""
        fields, field = {}, 0
        while head := self.take(1)[0]:
            field = field + (head >> 4) if head >> 4 else self._signed()
            fields[field] = self._value(head & 15, level)
        return fields

    def _signed(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind, level, in_list=False):
        if level > _MOST_NESTED:
            raise IndexError
        if kind in (1, 2):
            return self.take(1) == b"\1" if in_list else kind == 1
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 12:
            return self.struct(level + 1)
        if kind in (3, 7):
            self.take(1 if kind == 3 else 8)
        elif kind == 8:
            self.take(self.varint())
        elif kind in (9, 10):
            head = self.take(1)[0]
            size = head >> 4 if head >> 4 < 15 else self.varint()
            return [self._value(head & 15, level + 1, True) for _ in range(size)]
        elif kind == 11:
            size = self.varint()
            kinds = self.take(1)[0] if size else 0
            for _ in range(size):
                self._value(kinds >> 4, level + 1, True)
                self._value(kinds & 15, level + 1, True)
        else:
            raise IndexError
        return None
