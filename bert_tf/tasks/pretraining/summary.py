"""What a run of create_pretraining_data counted."""

import dataclasses

HISTOGRAM_BINS = 8
BAR_WIDTH = 40


@dataclasses.dataclass
class PretrainingSummary:
    """Counts over examples; those of parts add up.

    Args:
        max_seq_length: the greatest length of an example.
        documents: documents that examples were made of, each pass over them counted.
        examples: how many.
        random_next: how many have a random second segment.
        tokens: tokens of all examples, special ones counted.
        masked: pieces to predict.
        truncated: examples that lost tokens to fit.
        tokens_cut: the tokens they lost.
        lengths: examples by length, in `HISTOGRAM_BINS` bins.
    """

    max_seq_length: int
    documents: int = 0
    examples: int = 0
    random_next: int = 0
    tokens: int = 0
    masked: int = 0
    truncated: int = 0
    tokens_cut: int = 0
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
        """Adds the counts of another part."""
        for field in dataclasses.fields(self):
            if field.name == "lengths":
                self.lengths = [a + b for a, b in zip(self.lengths, other.lengths)]
            elif field.name != "max_seq_length":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def lines(self) -> list[str]:
        """The summary as lines of text for people."""
        examples, tokens = max(1, self.examples), max(1, self.tokens)
        is_next = self.examples - self.random_next
        lines = [
            f"examples           {self.examples}",
            f"masked share       {self.masked / tokens:.4f} of {self.tokens} tokens, "
            f"{self.masked / examples:.2f} an example",
            f"IsNext share       {is_next / examples:.4f}",
            f"truncated examples {self.truncated} ({self.truncated / examples:.1%}), "
            f"{self.tokens_cut} tokens cut away",
            f"lengths            mean {self.tokens / examples:.1f} of {self.max_seq_length}",
        ]
        most = max(1, *self.lengths)
        for index, number in enumerate(self.lengths):
            low, high = (
                -(-edge * self.max_seq_length // HISTOGRAM_BINS) for edge in (index, index + 1)
            )
            bar = "#" * round(BAR_WIDTH * number / most)
            line = f"  {low + 1:>5} to {high:<5} {number:>10} {number / examples:>6.1%} {bar}"
            lines.append(line.rstrip())
        return lines
