"""Damage that knows nothing of a format: bits, bytes, ranges, numbers at the ends of types."""

import random
from collections.abc import Iterator

# Little-endian, as every format here but HDF5's object headers of old versions has them.
EXTREMES = [
    value.to_bytes(size, "little", signed=True)
    for size in (1, 2, 4, 8)
    for value in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)))
]


def mutants(content: bytes, seed: int, limit: int | None = None) -> Iterator[bytes]:
    """Damaged copies of a file, without end.

    Args:
        content: The file.
        seed: The same seed gives the same mutants.
        limit: Only its first `limit` bytes are damaged; None for all.
    """
    rng = random.Random(seed)
    limit = min(limit or len(content), len(content))
    while True:
        yield _damaged(bytearray(content), rng, limit)


def _damaged(content, rng, limit):
    place, kind = rng.randrange(max(limit, 1)), rng.randrange(8)
    if kind <= 1 and content:
        content[place] ^= 1 << rng.randrange(8)
    elif kind == 2 and content:
        content[place] = rng.randrange(256)
    elif kind == 3:
        del content[place : place + rng.choice((1, 1, 2, 8))]
    elif kind == 4:
        content[place:place] = rng.randbytes(rng.randint(1, 9))
    elif kind == 5:
        other, size = rng.randrange(max(limit, 1)), rng.choice((1, 4, 8, 64))
        content[place : place + size] = content[other : other + size]
    elif kind == 6:
        extreme = rng.choice(EXTREMES)
        content[place : place + len(extreme)] = extreme
    else:
        del content[place:]
    return bytes(content)
