"""Random options of `generate`, for fuzzing."""

import numpy as np

from bert_tf.generation import GenerationConfig


def random_config(generator: np.random.Generator, do_sample=None) -> GenerationConfig:
    """Returns a configuration of greedy decoding, sampling or beam search."""

    def one_of(*values):
        return values[generator.integers(len(values))]

    max_new_tokens = int(generator.integers(1, 11))
    options = dict(
        max_new_tokens=max_new_tokens,
        min_new_tokens=int(generator.integers(0, max_new_tokens + 1)) if one_of(0, 1) else 0,
        no_repeat_ngram_size=one_of(0, 0, 1, 2, 3, 4),
        repetition_penalty=one_of(1.0, 0.8, 1.5),
        eos_token_id=one_of(None, None, None, 4, [1, 9], [3, 7, 1]),
        stop_strings=one_of(None, None, ".", "ab", [" caa", "aba", "b c"], ["b.", "abab"]),
        encoder_no_repeat_ngram_size=one_of(0, 0, 0, 1, 2, 3),
        encoder_repetition_penalty=one_of(1.0, 1.0, 0.7, 1.4),
        bad_words_ids=one_of(None, None, [[5], [6, 7]], [[8, 9, 10], [11], [12, 13]]),
        sequence_bias=one_of(None, None, [[[6], 2.5], [[5, 6], -4.0], [[7, 8, 6], 1.0]]),
        exponential_decay_length_penalty=one_of(None, None, (0, 1.3), (2, 0.6)),
        forced_prefix_ids=one_of(None, None, None, [int(generator.integers(24))]),
    )
    if one_of(0, 0, 0, 0, 1):
        lengths = generator.integers(1, max_new_tokens + 1, 8)
        options["allowed_sequences"] = [generator.integers(5, 9, n).tolist() for n in lengths]
        options["forced_prefix_ids"] = None
    do_sample = one_of(False, False, True) if do_sample is None else do_sample
    num_beams = 1 if do_sample else one_of(1, 2, 3, 5)
    if num_beams > 1:
        options |= dict(
            length_penalty=one_of(1.0, 0.0, 0.6, 2.0, -1.0),
            early_stopping=one_of(False, True, "never"),
            renormalize_logits=one_of(False, False, True),
            num_return_sequences=int(generator.integers(1, num_beams + 1)),
        )
    if do_sample:
        options |= dict(
            temperature=one_of(1.0, 0.7, 2.0),
            top_h=one_of(None, None, 0.4, 1.0),
            top_k=one_of(None, 1, 5, 1000),
            top_p=one_of(None, 0.3, 0.9, 1.0),
            min_p=one_of(None, None, 0.01, 0.2),
            typical_p=one_of(None, None, 0.3, 0.9, 1.0),
            epsilon_cutoff=one_of(None, None, 0.05),
            eta_cutoff=one_of(None, None, 0.1),
            seed=int(generator.integers(2**63)),
            num_return_sequences=one_of(1, 3),
        )
    return GenerationConfig(num_beams=num_beams, do_sample=do_sample, **options)
