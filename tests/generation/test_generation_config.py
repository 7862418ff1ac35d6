"""`GenerationConfig` refuses what is out of range, without effect or contradictory."""

import dataclasses
import json

import pytest

from bert_tf.errors import ConfigError
from bert_tf.generation import GenerationConfig


@pytest.mark.parametrize(
    "options,message",
    [
        ({"max_new_tokens": 0}, "`max_new_tokens` must be a positive integer"),
        ({"max_new_tokens": True}, "Received: max_new_tokens=True"),
        ({"min_new_tokens": 11}, "at most `max_new_tokens`. Received: min_new_tokens=11, max_new"),
        ({"num_beams": 0}, "`num_beams` must be a positive integer"),
        ({"num_beams": 2, "length_penalty": float("nan")}, "`length_penalty` must be a finite"),
        ({"num_beams": 2, "early_stopping": 1}, "must be False or True or 'never'. Received: ear"),
        ({"no_repeat_ngram_size": -1}, "`no_repeat_ngram_size` must be an integer in"),
        ({"repetition_penalty": 0.0}, "`repetition_penalty` must be a finite number above 0"),
        ({"do_sample": "yes"}, "`do_sample` must be true or false"),
        ({"do_sample": True, "temperature": 0}, "`temperature` must be a finite number above 0"),
        ({"do_sample": True, "top_k": 0}, "`top_k` must be a positive integer"),
        ({"do_sample": True, "top_p": 1.5}, "`top_p` must be a number above 0 and at most 1"),
        ({"do_sample": True, "seed": 2**63}, "`seed` must be an integer in"),
        ({"do_sample": True, "num_beams": 2}, "must be 1 with `do_sample`. Received: num_beams=2"),
        ({"temperature": 0.7}, "must be 1.0, the default, without do_sample=True. Received: temp"),
        ({"top_k": 5}, "`top_k` must be None, the default, without do_sample=True or"),
        (
            {"penalty_alpha": 0.6},
            "`top_k` must be at least 2 with `penalty_alpha`. Received: top_k=",
        ),
        ({"penalty_alpha": 0.6, "top_k": 1}, "`top_k` must be at least 2 with `penalty_alpha`"),
        (
            {"penalty_alpha": 0.0, "top_k": 4},
            "`penalty_alpha` must be a number above 0 and at most",
        ),
        (
            {"penalty_alpha": 0.6, "top_k": 4, "do_sample": True},
            "must be 1 and False with `penalty_alpha`. Received: num_beams=1, do_sample=True",
        ),
        ({"penalty_alpha": 0.6, "top_k": 4, "num_beams": 2}, "must be 1 and False with `penalty"),
        ({"top_p": 0.5, "num_beams": 2}, "`top_p` must be None, the default"),
        ({"seed": 1}, "`seed` must be 0, the default, without do_sample=True"),
        ({"length_penalty": 2.0}, "`length_penalty` must be 1.0, the default, without `num_beams`"),
        ({"early_stopping": True}, "`early_stopping` must be False, the default, without"),
        ({"renormalize_logits": True}, "`renormalize_logits` must be False, the default, without"),
        ({"do_sample": True, "eta_cutoff": 1.0}, "`eta_cutoff` must be a number above 0 and below"),
        ({"epsilon_cutoff": 0.1}, "`epsilon_cutoff` must be None, the default, without do_sample"),
        ({"exponential_decay_length_penalty": [1]}, "must be a pair of a number of tokens and a"),
        (
            {"exponential_decay_length_penalty": [2, 0.0]},
            r"`exponential_decay_length_penalty\[1\]` must be a finite number above 0",
        ),
        ({"num_return_sequences": 2}, "without `do_sample`. Received: num_return_sequences=2"),
        ({"num_return_sequences": 3, "num_beams": 2}, "must be at most `num_beams`"),
        ({"eos_token_id": -1}, "`eos_token_id` must be an integer in .* Received: eos_token_id=-1"),
        ({"eos_token_id": []}, "`eos_token_id` must be .* a list of 1 to"),
        ({"eos_token_id": [3, "4"]}, r"`eos_token_id\[1\]` must be an integer in"),
        ({"stop_strings": ""}, "`stop_strings` must be a string with a character, or a list of 1"),
        ({"stop_strings": ["a", 5]}, r"`stop_strings\[1\]` must be a string with a character"),
        ({"bad_words_ids": [[]]}, r"`bad_words_ids\[0\]` must be a list of 1 to"),
        ({"bad_words_ids": [5]}, r"`bad_words_ids\[0\]` must be a list of 1 to"),
        ({"sequence_bias": [[[5]]]}, r"`sequence_bias\[0\]` must be a pair of a list of ids and a"),
        ({"sequence_bias": {(5,): 1.0}}, "`sequence_bias` must be a list of 1 to"),
        ({"sequence_bias": [[[5], float("inf")]]}, r"`sequence_bias\[0\]\[1\]` must be a finite"),
        ({"allowed_sequences": []}, "`allowed_sequences` must be a list of 1 to"),
        ({"allowed_sequences": [[5] * 11]}, "`max_new_tokens` must be at least 11, the length of"),
        ({"forced_prefix_ids": 5}, "`forced_prefix_ids` must be a list of 1 to"),
        ({"forced_prefix_ids": [5] * 11}, "`max_new_tokens` must be at least 11, the length of `f"),
        (
            {"forced_prefix_ids": [5], "allowed_sequences": [[5]]},
            "`forced_prefix_ids` must be None with `allowed_sequences`. Received: forced_",
        ),
        ({"encoder_no_repeat_ngram_size": -1}, "`encoder_no_repeat_ngram_size` must be an integer"),
        ({"encoder_repetition_penalty": 0}, "`encoder_repetition_penalty` must be a finite number"),
        ({"min_p": 0.1}, "`min_p` must be None, the default, without do_sample=True"),
        ({"typical_p": 0.1}, "`typical_p` must be None, the default, without do_sample=True"),
        ({"do_sample": True, "min_p": 0.0}, "`min_p` must be a number above 0 and at most 1"),
        ({"do_sample": True, "typical_p": 1.1}, "`typical_p` must be a number above 0 and at"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(**{"max_new_tokens": 10, **options})


def test_accepted():
    GenerationConfig(1, num_beams=4, num_return_sequences=4, early_stopping="never")
    GenerationConfig(1, do_sample=True, top_k=50, top_p=1, num_return_sequences=7)


def test_lists_are_tuples():
    """A configuration is a key, and reads what JSON made of it."""
    options = dict(
        eos_token_id=[3, 5],
        stop_strings="a",
        bad_words_ids=[[5], [6, 7]],
        sequence_bias=[[[5, 6], 1.0]],
        allowed_sequences=[[5], [6]],
    )
    config = GenerationConfig(9, **options)
    assert config.stop_strings == ("a",) and config.sequence_bias == (((5, 6), 1.0),)
    assert GenerationConfig(9, eos_token_id=3).eos_token_id == (3,)
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert GenerationConfig.of(stored) == config and hash(config) == hash(
        dataclasses.replace(config)
    )
