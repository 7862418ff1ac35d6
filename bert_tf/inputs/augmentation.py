"""Augments training texts in tf.data: words are inserted, swapped and deleted at random.

Reference: Wei and Zou 2019 (arXiv 1901.11196), "Easy Data Augmentation", but an inserted word is a
random word of the same text.

Glossary: `B` texts, `W` words of all texts.
"""

import tensorflow as tf

from bert_tf.base.optional_packages import require_package
from bert_tf.base.ragged_rows import joined_strings, kept_values, row_ids
from bert_tf.errors import user_error

UNITS = ("word", "character")


class TextAugmentation:
    """Changes texts at random. No text becomes empty.

    Args:
        insertion: The fraction of words after which a word of the same text is inserted.
        swap, deletion: The fraction of words that are swapped with another, or deleted.
        unit: "word" (separated by white space), or "character" for Chinese.
        seed: The seed of all random changes.

    Raises:
        UserError: If a fraction is not in [0, 1) or `unit` is unknown, or if `swap` is set and
            keras-nlp is missing.

    Example:
        >>> augmentation = TextAugmentation(insertion=0.1, swap=0.1, deletion=0.1)
        >>> batches = augment(
        ...     tf.data.Dataset.from_tensor_slices((texts, labels)).batch(32), augmentation
        ... )
        >>> len(next(iter(batches))[0])
        4
    """

    def __init__(
        self,
        insertion: float = 0.0,
        swap: float = 0.0,
        deletion: float = 0.0,
        unit: str = "word",
        seed: int = 0,
    ):
        rates = (insertion, swap, deletion)
        if unit not in UNITS or any(not 0.0 <= rate < 1.0 for rate in rates):
            expected = f"be in [0, 1), and `unit` one of {UNITS}"
            received = f"insertion={insertion}, swap={swap}, deletion={deletion}, unit={unit!r}"
            raise user_error("`insertion`, `swap` and `deletion`", expected, received)
        self.insertion = insertion
        self.deletion = deletion
        self.unit = unit
        self._generator = tf.random.Generator.from_seed(seed)
        # keras-hub's `RandomDeletion` is not used: with one seed, its results differ between runs.
        self._swap = _random_swap(swap, seed) if swap else None

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the changed texts: strings `[B]` -> strings `[B]`."""
        if self.unit == "word":
            words, separator = tf.strings.split(texts), " "
        else:
            words, separator = tf.strings.unicode_split(texts, "UTF-8", errors="ignore"), ""
        if self.insertion:
            words = self._insert(words)
        if self._swap is not None:
            words = self._swap(words)
        if self.deletion:
            kept = self._generator.uniform(tf.shape(words.values)) >= self.deletion
            words = kept_values(words, kept)
        changed = joined_strings(words, separator)
        return tf.where(changed == "", texts, changed)

    def _insert(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Inserts a random word of the text after each word, with probability `insertion`."""
        values, rows = words.values, row_ids(words.row_splits)  # [W], [W]
        lengths = tf.gather(words.row_lengths(), rows)
        places = self._generator.uniform(tf.shape(values)) * tf.cast(lengths, tf.float32)
        places = tf.minimum(tf.cast(places, tf.int64), lengths - 1)
        others = tf.gather(values, tf.gather(words.row_starts(), rows) + places)
        inserted = self._generator.uniform(tf.shape(values)) < self.insertion
        kept = tf.stack([tf.ones_like(inserted), inserted], axis=1)  # [W, 2]
        changed = tf.boolean_mask(tf.stack([values, others], axis=1), kept)
        rows = tf.repeat(rows, 1 + tf.cast(inserted, tf.int64))
        return tf.RaggedTensor.from_value_rowids(changed, rows, words.nrows(), validate=False)


def _random_swap(rate: float, seed: int):
    """Returns keras-hub's layer that swaps words."""
    return require_package("keras_hub.layers", "`swap`").RandomSwap(rate, seed=seed)


def augment(dataset: tf.data.Dataset, augmentation: TextAugmentation) -> tf.data.Dataset:
    """Augments the texts of a dataset for a task model's `fit`, differently in every epoch.

    Its batches are `(texts, labels, ...)`. The texts are strings `[B]` or a tuple of them.
    """

    def change(texts, *rest):
        return (tf.nest.map_structure(augmentation, texts), *rest)

    return dataset.map(change)  # not in parallel, so that the order of random numbers is fixed
