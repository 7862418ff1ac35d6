"""The processors of logits compute what those of transformers do.

`PROCESSED` is what this prints with transformers 5.24:

    from transformers.generation import logits_process as lp

    logits, ids, source = map(torch.tensor, (LOGITS, IDS, SOURCE))
    for name, processor in {
        "sequence_bias": lp.SequenceBiasLogitsProcessor(OPTIONS["sequence_bias"]),
        "encoder_repetition_penalty": lp.EncoderRepetitionPenaltyLogitsProcessor(1.7, source),
        "repetition_penalty": lp.RepetitionPenaltyLogitsProcessor(1.3),
        "no_repeat_ngram_size": lp.NoRepeatNGramLogitsProcessor(2),
        "encoder_no_repeat_ngram_size": lp.EncoderNoRepeatNGramLogitsProcessor(2, source),
        "bad_words_ids": lp.NoBadWordsLogitsProcessor(OPTIONS["bad_words_ids"], [1, 3]),
        "min_new_tokens": lp.MinNewTokensLengthLogitsProcessor(1, 4, [1, 3]),
        "allowed_sequences": lp.PrefixConstrainedLogitsProcessor(
            lambda row, ids: [[2, 7], [1]][row], 1
        ),
        "forced_prefix_ids": lp.ForcedBOSTokenLogitsProcessor(6),
        "exponential_decay_length_penalty": lp.ExponentialDecayLengthPenalty((1, 1.5), [1, 3], 1),
        "renormalize_logits": lp.LogitNormalization(),
        "temperature": lp.TemperatureLogitsWarper(0.7),
        "top_h": lp.TopHLogitsWarper(0.6),
        "top_k": lp.TopKLogitsWarper(3),
        "top_p": lp.TopPLogitsWarper(0.8),
        "min_p": lp.MinPLogitsWarper(0.15),
        "typical_p": lp.TypicalLogitsWarper(0.6),
        "epsilon_cutoff": lp.EpsilonLogitsWarper(0.06),
        "eta_cutoff": lp.EtaLogitsWarper(0.2),
    }.items():
        known = ids[:, :1] if name == "forced_prefix_ids" else ids
        rows = processor(known, logits.clone()).tolist()
        print(f'    "{name}": {[[round(value, 7) for value in row] for row in rows]},')
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.generation import GenerationConfig
from bert_tf.generation.generation_config import SAMPLING_OPTIONS
from bert_tf.generation.logits_processors import Known, process_logits, restrict_logits

INF = float("inf")
LOGITS = [[2.0, -1.0, 0.5, 3.0, -2.5, 1.0, 0.0, -0.5], [0.1, 0.2, -0.3, 0.4, 2.5, -0.6, 0.7, 1.8]]
IDS = [[3, 5, 6, 5], [4, 4, 7, 4]]
SOURCE = [[2, 5, 6, 3, 1], [7, 4, 0, 4, 2]]
BIASES = [[[6, 5, 2], -4.0], [[5, 3], 1.5], [[0], 0.25], [[7, 4, 6], 2.0], [[4, 6], 0.5]]
OPTIONS = {
    "sequence_bias": BIASES,
    "encoder_repetition_penalty": 1.7,
    "repetition_penalty": 1.3,
    "no_repeat_ngram_size": 2,
    "encoder_no_repeat_ngram_size": 2,
    "bad_words_ids": [[5, 0], [6], [7, 4, 4]],
    "min_new_tokens": 4,
    # The first row has the first three ids of two sequences, the second row has all ids of one.
    "allowed_sequences": [[5, 6, 5, 2], [5, 6, 5, 7], [4, 7, 4], [5, 6, 4, 0], [6, 6, 5, 3]],
    "forced_prefix_ids": [6],
    "exponential_decay_length_penalty": (1, 1.5),
    "renormalize_logits": True,
    "temperature": 0.7,
    "top_h": 0.6,
    "top_k": 3,
    "top_p": 0.8,
    "min_p": 0.15,
    "typical_p": 0.6,
    "epsilon_cutoff": 0.06,
    "eta_cutoff": 0.2,
}
PROCESSED = {
    "sequence_bias": [
        [2.25, -1.0, -3.5, 4.5, -2.5, 1.0, 0.0, -0.5],
        [0.35, 0.2, -0.3, 0.4, 2.5, -0.6, 3.2, 1.8],
    ],
    "encoder_repetition_penalty": [
        [2.0, -0.5882353, 0.85, 5.0999999, -2.5, 1.6999999, 0.0, -0.5],
        [0.17, 0.2, -0.1764706, 0.4, 4.25, -0.6, 0.7, 3.0599997],
    ],
    "repetition_penalty": [
        [2.0, -1.0, 0.5, 2.3076923, -2.5, 0.7692308, 0.0, -0.5],
        [0.1, 0.2, -0.3, 0.4, 1.923077, -0.6, 0.7, 1.3846154],
    ],
    "no_repeat_ngram_size": [
        [2.0, -1.0, 0.5, 3.0, -2.5, 1.0, -INF, -0.5],
        [0.1, 0.2, -0.3, 0.4, -INF, -0.6, 0.7, -INF],
    ],
    "encoder_no_repeat_ngram_size": [
        [2.0, -1.0, 0.5, 3.0, -2.5, 1.0, -INF, -0.5],
        [-INF, 0.2, -INF, 0.4, 2.5, -0.6, 0.7, 1.8],
    ],
    "bad_words_ids": [
        [-INF, -1.0, 0.5, 3.0, -2.5, 1.0, -INF, -0.5],
        [0.1, 0.2, -0.3, 0.4, -INF, -0.6, -INF, 1.8],
    ],
    "min_new_tokens": [
        [2.0, -INF, 0.5, -INF, -2.5, 1.0, 0.0, -0.5],
        [0.1, -INF, -0.3, -INF, 2.5, -0.6, 0.7, 1.8],
    ],
    "allowed_sequences": [
        [-INF, -INF, 0.5, -INF, -INF, -INF, -INF, -0.5],
        [-INF, 0.2, -INF, -INF, -INF, -INF, -INF, -INF],
    ],
    "forced_prefix_ids": [
        [-INF, -INF, -INF, -INF, -INF, -INF, 0.0, -INF],
        [-INF, -INF, -INF, -INF, -INF, -INF, 0.0, -INF],
    ],
    "exponential_decay_length_penalty": [
        [2.0, 0.25, 0.5, 6.75, -2.5, 1.0, 0.0, -0.5],
        [0.1, 0.45, -0.3, 0.9, 2.5, -0.6, 0.7, 1.8],
    ],
    "renormalize_logits": [
        [
            -1.5233587,
            -4.5233588,
            -3.0233588,
            -0.5233587,
            -6.0233588,
            -2.5233588,
            -3.5233588,
            -4.0233588,
        ],
        [
            -3.1329336,
            -3.0329335,
            -3.5329335,
            -2.8329334,
            -0.7329335,
            -3.8329334,
            -2.5329335,
            -1.4329336,
        ],
    ],
    "temperature": [
        [2.8571429, -1.4285715, 0.7142857, 4.2857141, -3.5714285, 1.4285715, 0.0, -0.7142857],
        [0.1428571, 0.2857143, -0.4285715, 0.5714286, 3.5714285, -0.8571429, 1.0, 2.5714285],
    ],
    "top_h": [
        [2.0, -INF, -INF, 3.0, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, -INF, 2.5, -INF, 0.7, 1.8],
    ],
    "top_k": [
        [2.0, -INF, -INF, 3.0, -INF, 1.0, -INF, -INF],
        [-INF, -INF, -INF, -INF, 2.5, -INF, 0.7, 1.8],
    ],
    "top_p": [
        [2.0, -INF, -INF, 3.0, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, 0.4, 2.5, -INF, 0.7, 1.8],
    ],
    "min_p": [
        [2.0, -INF, -INF, 3.0, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, -INF, 2.5, -INF, 0.7, 1.8],
    ],
    "typical_p": [
        [2.0, -INF, -INF, 3.0, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, -INF, 2.5, -INF, -INF, 1.8],
    ],
    "epsilon_cutoff": [
        [2.0, -INF, -INF, 3.0, -INF, 1.0, -INF, -INF],
        [-INF, -INF, -INF, -INF, 2.5, -INF, 0.7, 1.8],
    ],
    "eta_cutoff": [
        [2.0, -INF, -INF, 3.0, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, -INF, 2.5, -INF, -INF, 1.8],
    ],
}


def ours(logits, name, value):
    """What `generate` does with the logits after the tokens `IDS`."""
    if name in (*SAMPLING_OPTIONS, "top_k"):
        return restrict_logits(logits, GenerationConfig(9, do_sample=True, **{name: value}))
    # What follows the known tokens has no influence, and neither has the padding of the source.
    token_ids = tf.pad(tf.constant(IDS), [[0, 0], [0, 6]], constant_values=6)
    source_ids = tf.pad(tf.constant(SOURCE), [[0, 0], [2, 1]], constant_values=-1)
    position = tf.constant(0 if name == "forced_prefix_ids" else 3)
    known = Known(token_ids, position, (1, 3), source_ids)
    num_beams = 2 if name == "renormalize_logits" else 1
    config = GenerationConfig(9, num_beams=num_beams, **{name: value})
    return process_logits(logits, config, known)


@pytest.mark.parametrize("name", list(OPTIONS))
def test_the_numbers_of_transformers(name):
    for function in (ours, tf.function(ours), tf.function(ours, jit_compile=True)):
        found = function(tf.constant(LOGITS), name, OPTIONS[name])
        np.testing.assert_allclose(found, PROCESSED[name], rtol=0, atol=1e-6)
        assert not np.allclose(found, LOGITS)


def test_the_order_of_the_rules_is_theirs():
    """A forced prefix replaces all other rules, which follow a bias."""
    known = Known(tf.constant(IDS), tf.constant(3), (1,), tf.constant(SOURCE))
    config = GenerationConfig(9, sequence_bias=[[[5], -4.0]], repetition_penalty=2.0)
    found = process_logits(tf.constant(LOGITS), config, known)
    assert found[0, 5] == (1.0 - 4.0) * 2.0 and found[1, 4] == 1.25
    config = GenerationConfig(9, bad_words_ids=[[5]], forced_prefix_ids=[5])
    known = known._replace(position=tf.constant(0))
    found = process_logits(tf.constant(LOGITS), config, known)
    np.testing.assert_array_equal(tf.argmax(found, axis=1), [5, 5])
