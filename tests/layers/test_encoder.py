"""`BertEncoder`: what its blocks share."""

import numpy as np
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.layers import BertEncoder
from bert_tf.layers.attention.token_layout import TokenLayout


def test_vectors_of_distances_are_dropped_in_training():
    """A dropped element of the only block has no gradient."""
    options = {"position_embedding_type": "disentangled", "norm_rel_ebd": "none"}
    options |= {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 64}
    options |= {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(num_hidden_layers=1, position_buckets=8, **options)
    encoder = BertEncoder(config)
    layout = TokenLayout.packed(tf.ones([1, 4], tf.bool))
    rows = tf.random.stateless_normal([4, 64], seed=[1, 2])
    encoder(rows, layout=layout)  # builds it

    def share_of_zeros(training):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(encoder(rows, layout=layout, training=training)[-1] * rows)
        gradient = tf.convert_to_tensor(tape.gradient(loss, encoder.distances.value)).numpy()
        reached = gradient[np.any(gradient != 0, axis=1)]
        assert len(reached) == 7  # distances -3 to 3
        return np.mean(reached == 0)

    assert share_of_zeros(training=False) == 0
    assert abs(share_of_zeros(training=True) - 0.5) < 0.1  # 448 elements: 4 standard deviations
