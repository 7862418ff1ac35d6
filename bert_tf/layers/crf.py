"""A linear-chain conditional random field on the scores of each tag at each word.

The score of a path y through the tags is

    s(y) = start[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_t-1, y_t] + end[y_n]

and its probability is exp(s(y)) / Σ exp(s), a sum over all paths. The forward algorithm computes
the sum, and the Viterbi algorithm computes the best path. Both loop over the words, with a
`[B, C, C]` tensor in each step, where `C` is the number of tags.

Reference: Lafferty, McCallum and Pereira 2001; Lample et al. 2016 (arXiv 1603.01360), section 2.2.
"""

import keras
import tensorflow as tf

from bert_tf.base.keras_compat import QuickLayer
from bert_tf.layers.attention.token_layout import real_tokens_first


@keras.saving.register_keras_serializable(package="bert_tf")
class ConditionalRandomField(QuickLayer):
    """The best path through the tags, and the negative log-likelihood of a given path.

    Everything is computed in float32 for every dtype policy of the model, because the sums over
    paths grow with the length of the sentence.

    Args:
        num_tags: C, the number of tags.

    Call arguments:
        emissions: `[B, T, C]`.
        mask: bool `[B, T]`, True for the words. The positions between them (other pieces of a
            word, padding) are not part of the chain.

    Returns:
        The best tag at each word, int32 `[B, T]`, and 0 elsewhere.

    Example:
        >>> crf = ConditionalRandomField(3)
        >>> crf(tf.one_hot([[2, 0, 1]], 3), tf.constant([[True, False, True]]))
        <tf.Tensor: shape=(1, 3), dtype=int32, numpy=array([[2, 0, 1]], dtype=int32)>
    """

    def __init__(self, num_tags: int, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_tags = num_tags
        self.build([None, None, num_tags])

    def build(self, emissions_shape=None, mask_shape=None):
        if self.built:
            return
        size = self.num_tags
        # With zeros, every word is initially tagged independently of the others.
        zeros = {"initializer": "zeros"}
        self.transitions = self.add_weight(name="transitions", shape=[size, size], **zeros)
        self.start_transitions = self.add_weight(name="start_transitions", shape=[size], **zeros)
        self.end_transitions = self.add_weight(name="end_transitions", shape=[size], **zeros)
        self.built = True

    def negative_log_likelihood(
        self, emissions: tf.Tensor, tags: tf.Tensor, mask: tf.Tensor
    ) -> tf.Tensor:
        """Returns those of paths `tags`, int `[B, T]`: float32 `[B]`, 0 for rows without a word.

        Values of tags outside of the mask are ignored; for the other arguments see the class.
        """
        mask, _, emissions, tags = _to_front(mask, tf.cast(emissions, tf.float32), tags)
        tags = tf.where(mask, tf.cast(tags, tf.int32), 0)
        losses = self._log_partition(emissions, mask) - self._path_scores(emissions, tags, mask)
        return tf.where(mask[:, 0], losses, 0.0)

    def call(self, emissions, mask):
        mask, order, emissions = _to_front(mask, tf.cast(emissions, tf.float32))
        tags = tf.where(mask, self._best_paths(emissions, mask), 0)
        back = tf.argsort(order, axis=1)
        return tf.gather(tags, back, batch_dims=1)

    def _path_scores(self, emissions, tags, mask):
        """Computes s(y), `[B]`. The words must be at the front of each row."""
        words = tf.cast(mask, tf.float32)
        scores = tf.reduce_sum(tf.gather(emissions, tags, batch_dims=2) * words, axis=1)
        steps = tf.gather_nd(
            self._values(self.transitions), tf.stack([tags[:, :-1], tags[:, 1:]], axis=-1)
        )  # [B, T - 1]
        scores += tf.reduce_sum(steps * words[:, 1:], axis=1)
        last = tf.maximum(tf.reduce_sum(tf.cast(mask, tf.int32), axis=1) - 1, 0)  # [B]
        scores += tf.gather(self._values(self.start_transitions), tags[:, 0])
        return scores + tf.gather(
            self._values(self.end_transitions), tf.gather(tags, last, batch_dims=1)
        )

    def _log_partition(self, emissions, mask):
        """Computes log Σ exp(s) over all paths, `[B]`, with the forward algorithm."""
        transitions = self._values(self.transitions)
        emissions, words, length = _by_word(emissions, mask)

        def step(place, scores):  # scores [B, C]: log-sum of all paths that end in each tag
            paths = scores[:, :, tf.newaxis] + transitions  # [B, from, to]
            reached = tf.reduce_logsumexp(paths, axis=1) + emissions.read(place)
            return place + 1, tf.where(words.read(place), reached, scores)

        first = self._values(self.start_transitions) + emissions.read(0)
        _, scores = tf.while_loop(
            lambda place, _: place < length, step, (1, first), maximum_iterations=length
        )
        return tf.reduce_logsumexp(scores + self._values(self.end_transitions), axis=1)

    def _best_paths(self, emissions, mask):
        """Computes argmax s(y), int32 `[B, T]`, with the Viterbi algorithm."""
        transitions = self._values(self.transitions)
        shape = [mask.shape[0], self.num_tags]
        origins = tf.zeros([tf.shape(mask)[0], self.num_tags], tf.int32)
        emissions, words, length = _by_word(emissions, mask)
        stay = tf.range(self.num_tags)

        def step(place, scores, before):
            paths = scores[:, :, tf.newaxis] + transitions  # [B, from, to]
            reached = tf.reduce_max(paths, axis=1) + emissions.read(place)
            origin = tf.argmax(paths, axis=1, output_type=tf.int32)  # [B, to]
            is_word = words.read(place)
            before = before.write(place, tf.where(is_word, origin, stay))
            return place + 1, tf.where(is_word, reached, scores), before

        def step_back(place, tags, path):
            tags = tf.gather(before.read(place), tags, batch_dims=1)
            return place - 1, tags, path.write(place - 1, tags)

        before = tf.TensorArray(tf.int32, length, element_shape=shape)
        first = self._values(self.start_transitions) + emissions.read(0)
        _, scores, before = tf.while_loop(
            lambda place, *_: place < length,
            step,
            (1, first, before.write(0, origins)),
            maximum_iterations=length,
        )
        tags = tf.argmax(scores + self._values(self.end_transitions), 1, output_type=tf.int32)
        path = tf.TensorArray(tf.int32, length, element_shape=shape[:1])
        _, _, path = tf.while_loop(
            lambda place, *_: place > 0,
            step_back,
            (length - 1, tags, path.write(length - 1, tags)),
            maximum_iterations=length,
        )
        return tf.transpose(path.stack())  # [T, B] -> [B, T]

    def _values(self, variable):
        return tf.cast(tf.convert_to_tensor(variable), tf.float32)

    def compute_output_shape(self, emissions_shape, mask_shape=None):
        return tuple(emissions_shape[:-1])


def _to_front(mask, *values):
    """Moves the words of each row to its front, in their order.

    Returns the moved mask, the original index of each position, int32 `[B, T]`, and moved values.
    """
    order = real_tokens_first(mask)
    moved = (tf.gather(value, order, batch_dims=1) for value in values)
    return tf.gather(mask, order, batch_dims=1), order, *moved


def _by_word(emissions, mask):
    """Splits `[B, T, C]` and `[B, T]` into TensorArrays of T tensors `[B, C]` and `[B, 1]`; and T.

    The gradient of a TensorArray is written element by element. The gradient of a slice would be a
    full-size tensor in every step.
    """
    length = emissions.shape[1] if emissions.shape[1] is not None else tf.shape(emissions)[1]

    def array(values, dtype):
        values = tf.transpose(values, [1, 0, 2])
        return tf.TensorArray(dtype, length, clear_after_read=False).unstack(values)

    return array(emissions, tf.float32), array(mask[:, :, tf.newaxis], tf.bool), length
