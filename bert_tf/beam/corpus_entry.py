"""The rows of a corpus."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class CorpusEntry:
    """A row of a corpus: the key that its text carries through a pipeline.

    Attributes:
        source: The path of its file.
        position: Where it begins in the file; see `readers`.
        columns: Its values by name.
    """

    source: str
    position: int
    columns: dict[str, Any]

    def texts(self, names: tuple[str, ...]) -> str | tuple[str, ...]:
        """Returns the value of a column, or those of several, as an example for a model.

        Raises:
            KeyError: If a column is missing. What its value is, the model checks.
        """
        values = tuple(self.columns[name] for name in names)
        return values if len(values) > 1 else values[0]
