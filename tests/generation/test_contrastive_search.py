"""Contrastive search against a reference in NumPy, and its choices against transformers.

`CHOICES` are the results of `_ranking_fast` of transformers 4.48, the last with contrastive search:

    context, following = torch.tensor(CONTEXT) / 10, torch.tensor(FOLLOWING) / 10
    for alpha in (0.1, 0.15, 0.3, 0.6):
        print(_ranking_fast(context.repeat_interleave(4, dim=0), following.reshape(12, 1, 3),
                            torch.tensor(PROBABILITIES), torch.ones(12, 4), alpha, 4))
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import ConfigError
from bert_tf.generation import GenerationConfig, generate
from tests.generation import numpy_generation
from tests.generation.table_model import END, PAD, VOCAB_SIZE, VOCABULARY, TableModel
from tests.generation.test_decoding import IDS, SOURCES, STARTS, STATES

CONTEXT = [
    [[-1, 4, -8], [1, 7, -3], [16, -16, -1], [-3, 2, -2]],
    [[9, 2, 6], [4, 3, 9], [-5, -17, 0], [-1, 4, -9]],
    [[-12, 10, 1], [-2, -10, 1], [7, 8, 6], [-2, -11, 6]],
]
FOLLOWING = [
    [[6, -23, 13], [-2, 6, 19], [-16, 5, -8], [-5, 14, 14]],
    [[6, 11, -1], [6, -16, 14], [-10, 11, 3], [1, -6, 0]],
    [[-4, -8, -12], [-7, 5, -9], [6, 14, -2], [-31, -4, 13]],
]
PROBABILITIES = [[0.4, 0.3, 0.2, 0.1], [0.31, 0.3, 0.2, 0.1], [0.5, 0.1, 0.1, 0.1]]
CHOICES = {0.1: [0, 0, 0], 0.15: [1, 0, 0], 0.3: [1, 2, 0], 0.6: [1, 2, 0]}
RULES = dict(
    eos_token_id=[END, 14],
    stop_strings=["aba"],
    repetition_penalty=1.2,
    no_repeat_ngram_size=2,
    encoder_repetition_penalty=1.3,
    min_new_tokens=2,
    forced_prefix_ids=[20],
)


class VectorModel(TableModel):
    """A `TableModel` whose tokens have a vector, which depends on all tokens before."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.vectors = np.random.default_rng(1).normal(0.5, 1.0, [len(self.table), 5])
        self.vectors = self.vectors.astype(np.float32)

    def step(self, token_ids, position, states, memory):
        logits, states = super().step(token_ids, position, states, memory)
        return logits, states, tf.gather(self.vectors, states)

    def vectors_of(self, token_ids, state):
        states = [state := self.next_states(token_id, state) for token_id in token_ids]
        return self.vectors[states]


def ours(model, config, starts=STARTS, states=STATES, sources=SOURCES, **options):
    states, tokenizer = tf.convert_to_tensor(states), BertTokenizer(VOCABULARY, lowercase=False)
    options = {**IDS, "tokenizer": tokenizer, "source_ids": sources, **options}
    return generate(model.step, states, starts, config, **options).token_ids


def expected(model, config):
    found, ends = [], numpy_generation.Ends(config, END, VOCABULARY)
    for start, state, source in zip(STARTS, STATES, SOURCES):
        sequence = numpy_generation.search_contrastively(
            lambda ids, state=state: model.logits(ids, state),
            lambda ids, state=state: model.vectors_of(ids, state),
            start,
            config,
            ends,
            [token_id for token_id in source if token_id >= 0],
        )
        found.append(sequence + [PAD] * (config.max_new_tokens - len(sequence)))
    return found


def test_choices_of_transformers():
    for alpha, choices in CHOICES.items():
        for row, choice in enumerate(choices):
            scores = numpy_generation.contrastive_scores(
                PROBABILITIES[row], FOLLOWING[row], CONTEXT[row], alpha
            )
            assert scores.argmax() == choice
    assert len(set(map(tuple, CHOICES.values()))) > 2


@pytest.mark.parametrize(
    "rules", [pytest.param({}, marks=pytest.mark.full), RULES], ids=["plain", "rules"]
)
def test_sequences(rules):
    lengths, others = set(), 0
    for seed, (top_k, alpha) in enumerate(((2, 0.6), (VOCAB_SIZE, 0.5), (5, 0.05), (3, 1.0))):
        for end_logit in (1.0, 3.0):
            model = VectorModel(seed, end_logit)
            config = GenerationConfig(9, penalty_alpha=alpha, top_k=top_k, **rules)
            sequences = expected(model, config)
            assert ours(model, config).numpy().tolist() == sequences, (seed, top_k, alpha)
            lengths |= {row.index(PAD) if PAD in row else 9 for row in sequences}
            others += sequences != ours(model, GenerationConfig(9, **rules)).numpy().tolist()
    assert len(lengths) > 2 and others > 4


@pytest.mark.full
def test_with_xla_and_in_a_saved_model(tmp_path):
    """Models of tests/tasks/encoder_decoder search in a graph."""
    model, module = VectorModel(end_logit=1.0), tf.Module()
    config = GenerationConfig(9, penalty_alpha=0.6, top_k=4, **RULES)
    specs = [tf.TensorSpec([None], tf.int32)] * 2 + [tf.TensorSpec([None, None], tf.int32)]

    def decode(starts, states, sources):
        return {"token_ids": ours(model, config, starts, states, sources)}

    features = [tf.constant(values, tf.int32) for values in (STARTS, STATES, SOURCES)]
    sequences = expected(model, config)
    module.decode = tf.function(decode, input_signature=specs)
    tf.saved_model.save(module, tmp_path)
    for function in (tf.saved_model.load(tmp_path).decode, tf.function(decode, jit_compile=True)):
        np.testing.assert_array_equal(function(*features)["token_ids"], sequences)


def test_refused():
    config = GenerationConfig(4, penalty_alpha=0.6, top_k=4)
    with pytest.raises(ConfigError, match="`penalty_alpha` needs a step that returns the vectors"):
        ours(TableModel(), config)
    with pytest.raises(ConfigError, match="`top_k` must be at most `vocab_size` with `penalty_al"):
        ours(VectorModel(), GenerationConfig(4, penalty_alpha=0.6, top_k=VOCAB_SIZE + 1))
