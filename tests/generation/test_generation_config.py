"""`GenerationConfig` refuses what is out of range, without effect or contradictory."""

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
        ({"top_k": 5}, "`top_k` must be None, the default, without do_sample=True"),
        ({"top_p": 0.5, "num_beams": 2}, "`top_p` must be None, the default"),
        ({"seed": 1}, "`seed` must be 0, the default, without do_sample=True"),
        ({"length_penalty": 2.0}, "`length_penalty` must be 1.0, the default, without `num_beams`"),
        ({"early_stopping": True}, "`early_stopping` must be False, the default, without"),
        ({"num_return_sequences": 2}, "without `do_sample`. Received: num_return_sequences=2"),
        ({"num_return_sequences": 3, "num_beams": 2}, "must be at most `num_beams`"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(**{"max_new_tokens": 10, **options})


def test_accepted():
    GenerationConfig(1, num_beams=4, num_return_sequences=4, early_stopping="never")
    GenerationConfig(1, do_sample=True, top_k=50, top_p=1, num_return_sequences=7)
