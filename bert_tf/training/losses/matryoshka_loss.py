"""A loss on the first dimensions of the vectors, for vectors that can be shortened."""

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, user_error
from bert_tf.training.losses.sentence_loss import SentenceLoss, sentence_loss


class MatryoshkaLoss(SentenceLoss):
    """A loss on the first dimensions of the vectors, summed over several numbers of them.

    So the beginning of a vector is a good shorter vector: `encode(texts, truncate_dim=128)`.

    Args:
        loss: The `SentenceLoss`, or its name; one without variables.
        dims: The numbers of dimensions, such as [384, 256, 128, 64].
        weights: A factor for each; None for 1.

    Raises:
        UserError: If `dims` are not positive integers, or `weights` not as many numbers.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.MatryoshkaLoss("ranking", dims=[32, 16, 8])
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Kusupati et al. 2022 (arXiv 2205.13147); sentence-transformers, `MatryoshkaLoss`.
    """

    def __init__(
        self,
        loss: "str | SentenceLoss",
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
    ):
        self.loss = sentence_loss(loss)
        if not len(dims) or not all(is_integer(dim) and dim > 0 for dim in dims):
            raise UserError(f"`dims` must be positive integers. Received: dims={dims!r}")
        self.dims = [int(dim) for dim in dims]
        self.weights = [1.0] * len(self.dims) if weights is None else list(weights)
        if len(self.weights) != len(self.dims):
            received = f"{len(self.weights)} weights, {len(self.dims)} dims"
            raise user_error("`weights`", "be a number for each of `dims`", received)
        self.take_examples_of(self.loss)

    def build(self, vector_size, initializer_range):
        self.loss.build(vector_size, initializer_range)
        if self.loss.variables or max(self.dims) > vector_size:
            raise UserError(
                f"MatryoshkaLoss must have a loss without variables, and `dims` up to the size of "
                f"the vectors, {vector_size}. Received: {self.loss.description()}, "
                f"dims={self.dims}"
            )

    def description(self):
        return f"MatryoshkaLoss({self.loss.description()}, {self.dims}, {self.weights})"

    def outputs(self, vectors):
        return [self.loss.outputs(vectors[..., :dim]) for dim in self.dims]

    def training_outputs(self, vectors):
        return [self.loss.training_outputs(vectors[..., :dim]) for dim in self.dims]

    def losses(self, labels, outputs):
        each = zip(self.weights, outputs)
        return tf.add_n([weight * self.loss.losses(labels, values) for weight, values in each])

    def hits(self, labels, outputs):
        """Returns the hits for the largest dimension."""
        return self.loss.hits(labels, outputs[self.dims.index(max(self.dims))])
