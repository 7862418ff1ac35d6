"""Counts the fields of a protobuf message before it is parsed.

A parsed message takes up to 30 times the memory of its bytes, because an empty string or message
has two bytes, and the parser stops the other threads until it is finished. The fields are counted
by Python functions, between which other threads run.

Reference: protobuf.dev/programming-guides/encoding.
"""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # wire types


def count_fields(body: bytes, descriptor, enough: int) -> int:
    """Counts the fields of a message and of the messages in it.

    Args:
        body: The bytes, which may be no message; then their beginning is counted.
        descriptor: The `Descriptor` of the message.
        enough: Where the counting stops.

    Example:
        >>> example = tf.train.Example()
        >>> example.features.feature["x"].int64_list.value[:] = [1, 2]
        >>> count_fields(example.SerializeToString(), example.DESCRIPTOR, 100)
        6
    """
    count, parts = 0, [(0, len(body), descriptor)]
    try:
        while parts and count <= enough:
            place, end, kind = parts.pop()
            while place < end and count <= enough:
                tag, place = _varint(body, place)
                count += 1
                wire_type = tag & 7
                if wire_type == _VARINT:
                    _, place = _varint(body, place)
                elif wire_type == _LENGTH:
                    size, place = _varint(body, place)
                    field = kind.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        parts.append((place, min(end, place + size), field.message_type))
                    place += size
                elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
                    place += 8 if wire_type == _EIGHT_BYTES else 4
    except IndexError:  # the message is cut off, which the parser reports
        pass
    return count


def _varint(body, place):
    """Returns an integer of variable length and the place after it."""
    value = shift = 0
    while True:
        byte = body[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            return value, place
