"""`generate` and the `generate` of transformers choose the same tokens from the same logits."""

import dataclasses
import logging

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.generation import GenerationConfig, generate
from bert_tf.generation.beam_search import MISSING
from bert_tf.generation.logits_processors import restrict_logits
from tests.generation.random_configs import random_config
from tests.generation.table_model import END, PAD, VOCAB_SIZE, VOCABULARY, TableModel

pytestmark = pytest.mark.peers
NAMED = [1, 2, 3]
STARTS = [3, 4, 0]  # whose text is no part of a stop string


@pytest.fixture(scope="module")
def torch():
    pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    return pytest.importorskip("torch", reason="needs transformers and PyTorch")


@pytest.fixture(scope="module")
def table_lm(torch):
    """Makes the `TableModel` a causal language model of transformers."""
    import transformers
    from transformers.modeling_outputs import CausalLMOutput

    class TableLM(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = transformers.PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, model):
            super().__init__(transformers.PretrainedConfig(vocab_size=VOCAB_SIZE))
            self.model = model
            self.table = torch.nn.Parameter(torch.tensor(model.table))

        def forward(self, input_ids, **_):
            states = torch.zeros_like(input_ids[:, 0])
            for token_ids in input_ids.T:
                states = self.model.next_states(token_ids, states)
            return CausalLMOutput(logits=self.table[states][:, None])  # [n, V] -> [n, 1, V]

    return TableLM


OPTIONS = (
    "max_new_tokens",
    "min_new_tokens",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "num_return_sequences",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "renormalize_logits",
)


def their_options(config):
    """The options that are lists, which transformers does not take as tuples."""
    listed = lambda value: list(map(listed, value)) if isinstance(value, tuple) else value  # noqa: E731
    names = ("bad_words_ids", "sequence_bias", "stop_strings")
    options = {name: listed(getattr(config, name)) for name in names}
    if config.forced_prefix_ids:
        options["forced_bos_token_id"] = config.forced_prefix_ids[0]
    return {**options, "eos_token_id": listed(config.eos_token_id) or END}


def test_greedy_decoding_and_beam_search(torch, table_lm, is_full, caplog):
    from transformers import BertTokenizer as TheirTokenizer

    caplog.set_level(logging.ERROR)
    ids = {piece: number for number, piece in enumerate(VOCABULARY)}
    their_tokenizer = TheirTokenizer(vocab=ids, do_lower_case=False)
    tokenizer = BertTokenizer(VOCABULARY, lowercase=False)
    for case in range(1000 if is_full else 100):
        generator = np.random.default_rng(case)
        end_logit = generator.choice([-2.0, 1.0, 3.0])
        config = random_config(generator, do_sample=False)
        # Within a text, these pieces have no text here, and their names there.
        ends = {*(config.eos_token_id or [END])}
        allowed = [number for number in range(VOCAB_SIZE) if number in ends or number not in NAMED]
        model = TableModel(case, end_logit, allowed=allowed)
        config = dataclasses.replace(config, allowed_sequences=None)  # a function in Python there
        ids = dict(end_id=END, pad_id=PAD, vocab_size=VOCAB_SIZE)
        text = dict(tokenizer=tokenizer, source_ids=np.array(STARTS)[:, np.newaxis])
        ours = generate(model.step, tf.zeros([3], tf.int32), STARTS, config, **ids, **text)
        theirs = table_lm(model).generate(
            torch.tensor(STARTS)[:, None],
            attention_mask=torch.ones(3, 1),
            pad_token_id=PAD,
            tokenizer=their_tokenizer,
            use_cache=False,
            output_scores=True,
            return_dict_in_generate=True,
            **{name: getattr(config, name) for name in OPTIONS},
            **their_options(config),
        )
        token_ids = theirs.sequences[:, 1:].numpy()
        length = token_ids.shape[1]
        found = ours.token_ids.numpy()
        if config.num_beams > 1:
            # They return sequences that must not exist where few tokens are allowed.
            exists = theirs.sequences_scores.numpy() > -1e6
            scores = np.where(exists, theirs.sequences_scores, MISSING)
            np.testing.assert_allclose(ours.scores, scores, rtol=1e-5, err_msg=str((case, config)))
            found, token_ids = found[exists], token_ids[exists]
        np.testing.assert_array_equal(found[:, :length], token_ids, err_msg=str((case, config)))
        assert (found[:, length:] == PAD).all()


def test_restrictions_of_sampling(torch):
    from transformers.generation.logits_process import (
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    def compare(logits, config):
        theirs = TemperatureLogitsWarper(config.temperature)(None, torch.tensor(logits))
        if config.top_k:
            theirs = TopKLogitsWarper(config.top_k)(None, theirs)
        if config.top_p:
            theirs = TopPLogitsWarper(config.top_p)(None, theirs)
        ours = restrict_logits(tf.constant(logits), config)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=str(config))

    logits = np.random.default_rng(0).standard_normal((16, VOCAB_SIZE)).astype(np.float32) * 3
    for case in range(100):
        compare(logits, random_config(np.random.default_rng(case), do_sample=True))
    # Equal logits. No sum is `top_p` itself, where the rounding of PyTorch's softmax decides.
    generator = np.random.default_rng(1)
    for _ in range(100):
        shares = generator.multinomial(16, np.full(10, 0.1), size=16) / 16
        with np.errstate(divide="ignore"):
            logits = np.log(shares).astype(np.float32)
        top_k, top_p = int(generator.integers(1, 11)), float(generator.integers(1, 16) + 0.2) / 16
        options = {"top_k": top_k, "top_p": top_p}
        compare(logits, GenerationConfig(9, do_sample=True, **options))
