"""Counts of pre-training examples."""

import dataclasses

HISTOGRAM_BINS = 8
BAR_WIDTH = 40


@dataclasses.dataclass
class PretrainingSummary:
    """Counts over examples.

    Example:
        >>> PretrainingSummary(max_seq_length=128).lines()[0]
        'examples           0'
    """

    max_seq_length: int
    documents: int = 0  # over all passes
    examples: int = 0
    random_next: int = 0  # examples with a random second segment
    tokens: int = 0  # with special tokens
    masked: int = 0  # tokens to predict
    truncated: int = 0  # examples that lost tokens
    tokens_cut: int = 0  # lost tokens
    lengths: list[int] = dataclasses.field(default_factory=lambda: [0] * HISTOGRAM_BINS)

    def count(self, example) -> None:
        """Counts a `PretrainingExample`."""
        length = len(example.token_ids)
        self.examples += 1
        self.random_next += example.is_random_next
        self.tokens += length
        self.masked += len(example.masked_positions)
        self.truncated += example.tokens_cut > 0
        self.tokens_cut += example.tokens_cut
        self.lengths[(length - 1) * HISTOGRAM_BINS // self.max_seq_length] += 1

    def add(self, other: "PretrainingSummary") -> None:
        """Adds the counts of other examples."""
        self.lengths = [a + b for a, b in zip(self.lengths, other.lengths)]
        for field in dataclasses.fields(self):
            if field.type is int and field.name != "max_seq_length":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def lines(self) -> list[str]:
        """Returns the summary as lines of text."""
        examples, tokens = max(1, self.examples), max(1, self.tokens)
        is_next = self.examples - self.random_next
        lines = [
            f"examples           {self.examples}",
            f"masked share       {self.masked / tokens:.4f} of {self.tokens} tokens, "
            f"{self.masked / examples:.2f} per example",
            f"IsNext share       {is_next / examples:.4f}",
            f"truncated examples {self.truncated} ({self.truncated / examples:.1%}), "
            f"{self.tokens_cut} tokens dropped",
            f"lengths            mean {self.tokens / examples:.1f} of {self.max_seq_length}",
        ]
        most = max(1, *self.lengths)
        bins = range(HISTOGRAM_BINS + 1)
        edges = [-(-edge * self.max_seq_length // HISTOGRAM_BINS) for edge in bins]
        for low, high, number in zip(edges, edges[1:], self.lengths):
            bar = "#" * round(BAR_WIDTH * number / most)
            line = f"  {low + 1:>5} to {high:<5} {number:>10} {number / examples:>6.1%} {bar}"
            lines.append(line.rstrip())
        return lines
