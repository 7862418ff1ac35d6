"""`generate` against the reference, alone and in a graph, with XLA and in a SavedModel."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTokenizer
from bert_tf.errors import ConfigError, UserError
from bert_tf.generation import GenerationConfig, generate
from bert_tf.generation.decoding import uniform_numbers
from bert_tf.ops.native import static_shapes
from tests.generation import numpy_generation
from tests.generation.random_configs import random_config
from tests.generation.table_model import END, PAD, VOCAB_SIZE, VOCABULARY, TableModel

STARTS = [5, 9, 5, 7]
STATES = [0, 11, 3, 60]
IDS = dict(end_id=END, pad_id=PAD, vocab_size=VOCAB_SIZE)
SOURCES = np.array([[-1, 5, 6, 7, 8], [9, 9, 10, -1, -1], [5, 6, 7, 11, 12], [20, 6, 9, -1, -1]])
CONFIGS = [
    GenerationConfig(max_new_tokens=9, repetition_penalty=1.2),
    GenerationConfig(max_new_tokens=9, do_sample=True, top_k=9, top_p=0.9, num_return_sequences=2),
    GenerationConfig(max_new_tokens=9, num_beams=3, no_repeat_ngram_size=2, min_new_tokens=2),
]
each_method = pytest.mark.parametrize("config", CONFIGS, ids=["greedy", "sampling", "beams"])
RULES = dict(
    eos_token_id=[END, 14],
    stop_strings=["aba", "c b"],
    encoder_no_repeat_ngram_size=2,
    encoder_repetition_penalty=1.3,
    bad_words_ids=[[5, 6], [7]],
    sequence_bias=[[[8, 9], 3.0], [[6], 1.0]],
    forced_prefix_ids=[20],
)
ALL_RULES = [
    dataclasses.replace(CONFIGS[1], **RULES, min_p=0.01, typical_p=0.95),
    dataclasses.replace(CONFIGS[2], **RULES),
    GenerationConfig(max_new_tokens=9, allowed_sequences=[[5, 6, 7], [5, 8], [9]]),
]
all_rules = pytest.mark.parametrize("config", ALL_RULES, ids=["sampling", "beams", "allowed"])


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCABULARY, lowercase=False)


def ours(model, config, starts=STARTS, states=STATES, **options):
    return generate(model.step, tf.convert_to_tensor(states), starts, config, **IDS, **options)


def expected(model, config):
    """The sequences and, of beam search, the scores of the reference."""
    found, scores = [], []
    ends = numpy_generation.Ends(config, END, VOCABULARY)
    for row, (start, state) in enumerate(zip(STARTS, STATES)):
        logits = lambda ids, state=state: model.logits(ids, state)  # noqa: E731
        source = [token_id for token_id in SOURCES[row] if token_id >= 0]
        if config.num_beams > 1:
            best = numpy_generation.search_beams(logits, start, config, ends, source)
            for score, sequence in best[: config.num_return_sequences]:
                found.append(sequence)
                scores.append(score)
            continue
        for copy in range(config.num_return_sequences):
            numbers = None
            if config.do_sample:
                stream = tf.constant([row + 2**32 * copy], tf.int64)
                numbers = uniform_numbers(config.seed, stream, config.max_new_tokens)[0].numpy()
            found.append(numpy_generation.extend(logits, start, config, ends, numbers, source))
    return [ids + [PAD] * (config.max_new_tokens - len(ids)) for ids in found], scores


OPTIONS_WITH_A_FUNCTION = [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}]


@pytest.mark.parametrize("options", OPTIONS_WITH_A_FUNCTION, ids=["greedy", "beams", "sampling"])
def test_a_function_allows_what_the_sequences_do(options):
    """It is called with the number of the row and all tokens from the start, as in transformers."""
    model, sequences = TableModel(1), [[5, 6, 7], [5, 8], [9]]
    calls = set()

    def allowed(number, ids):
        calls.add((number, ids[0]))
        rest = [[*sequence, END][len(ids) - 1] for sequence in sequences if starts(sequence, ids)]
        return rest or [END]

    def starts(sequence, ids):
        return [*sequence, END][: len(ids) - 1] == ids[1:] and len(ids) - 1 <= len(sequence)

    with_function = GenerationConfig(9, prefix_allowed_tokens_fn=allowed, **options)
    config = GenerationConfig(9, allowed_sequences=sequences, **options)
    expected = ours(model, config)
    for call in (ours, tf.function(ours)):
        found = call(model, with_function)
        np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    assert calls == set(enumerate(STARTS))
    numbers = tf.constant([4, 0, 9, 2])
    calls.clear()
    ours(model, with_function, row_numbers=numbers)
    assert calls == set(zip([4, 0, 9, 2], STARTS))


def test_bad_functions():
    for value in ([], [VOCAB_SIZE], [-1], ["a"], [0.5]):
        config = GenerationConfig(9, prefix_allowed_tokens_fn=lambda number, ids, v=value: v)
        with pytest.raises(Exception, match="`prefix_allowed_tokens_fn` must return one or more"):
            ours(TableModel(1), config)
    with pytest.raises(ConfigError, match="must be None where XLA compiles"):
        with static_shapes():
            ours(TableModel(1), config)
    with pytest.raises(ConfigError, match="`prefix_allowed_tokens_fn` must be a function"):
        GenerationConfig(9, prefix_allowed_tokens_fn=[5])


def test_random_configurations(is_full, tokenizer):
    # In case 1172, a row that cannot improve any longer waits for another one.
    for case in range(1500) if is_full else (*range(20), 1172):
        generator = np.random.default_rng(case)
        model = TableModel(case, end_logit=generator.choice([-2.0, 1.0, 3.0]))
        config = random_config(generator)
        found = ours(model, config, tokenizer=tokenizer, source_ids=SOURCES)
        sequences, scores = expected(model, config)
        assert found.token_ids.numpy().tolist() == sequences, (case, config)
        if config.num_beams > 1:
            np.testing.assert_allclose(found.scores, scores, rtol=1e-5, err_msg=str(config))
        else:
            assert found.scores is None


@pytest.mark.parametrize(  # the tests of rules save models that sample or search
    "config", [CONFIGS[0], *(pytest.param(c, marks=pytest.mark.full) for c in CONFIGS[1:])]
)
def test_one_graph_for_all_batches(config, tmp_path):
    """Traced once, exported and loaded: the same as eagerly."""
    model, module = TableModel(), tf.Module()
    specs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32)]

    @tf.function(input_signature=specs)
    def decode(starts, states):
        return {"token_ids": ours(model, config, starts, states).token_ids}

    module.decode = decode
    whole = ours(model, config).token_ids.numpy()
    per_row = len(whole) // len(STARTS)
    for count in (1, 4):
        found = decode(tf.constant(STARTS[:count]), tf.constant(STATES[:count]))["token_ids"]
        np.testing.assert_array_equal(found, whole[: count * per_row])
    assert decode.experimental_get_tracing_count() == 1
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    found = loaded.decode(tf.constant(STARTS), tf.constant(STATES))["token_ids"]
    np.testing.assert_array_equal(found, whole)


@pytest.mark.full
@each_method
def test_under_xla(config):
    model = TableModel()
    decode = tf.function(lambda: ours(model, config).token_ids, jit_compile=True)
    np.testing.assert_array_equal(decode(), ours(model, config).token_ids)


@each_method
def test_rows_do_not_depend_on_each_other(config):
    model = TableModel(3, end_logit=2.0)
    whole = ours(model, config).token_ids.numpy()
    rows = np.split(whole, len(STARTS))
    assert not np.array_equal(rows[0], rows[2])  # the same start token with another state
    for index, row in enumerate(rows):
        alone = ours(model, config, STARTS[index:][:1], STATES[index:][:1], row_numbers=[index])
        np.testing.assert_array_equal(alone.token_ids, row)


@all_rules
def test_rules_in_a_graph(config, tokenizer, tmp_path):
    """Eagerly, in a graph, with XLA and in a SavedModel: the sequences of the reference."""
    model, module = TableModel(end_logit=-1.0), tf.Module()
    specs = [tf.TensorSpec([None], tf.int32)] * 2 + [tf.TensorSpec([None, None], tf.int32)]

    def decode(starts, states, sources):
        options = dict(tokenizer=tokenizer, source_ids=sources)
        return {"token_ids": ours(model, config, starts, states, **options).token_ids}

    features = [tf.constant(values, tf.int32) for values in (STARTS, STATES, SOURCES)]
    sequences, _ = expected(model, config)
    assert decode(*features)["token_ids"].numpy().tolist() == sequences
    module.decode = tf.function(decode, input_signature=specs)
    tf.saved_model.save(module, tmp_path)
    for function in (tf.saved_model.load(tmp_path).decode, tf.function(decode, jit_compile=True)):
        np.testing.assert_array_equal(function(*features)["token_ids"], sequences)


def test_a_sequence_ends_with_any_end_token_or_stop_string(tokenizer):
    model, ended = TableModel(end_logit=0.0, allowed=np.delete(np.arange(24), PAD)), set()
    for num_beams in (1, 4):
        config = GenerationConfig(
            12, eos_token_id=[END, 14, 9], stop_strings=["aba"], num_beams=num_beams
        )
        starts, states = np.full(200, 5), np.arange(200, dtype=np.int32)
        found = ours(model, config, starts, states, tokenizer=tokenizer).token_ids.numpy()
        ends = numpy_generation.Ends(config, END, VOCABULARY)
        for row in found.tolist():
            length = 12
            while length > 1 and row[length - 1] == PAD:
                length -= 1
            ended.add(row[length - 1] if row[length - 1] in ends.ids else "other")
            assert not any(ends(row[:n]) for n in range(1, length))
            assert length == 12 or ends(row[:length])
    assert ended == {END, 14, 9, "other"}


def test_ends_when_all_sequences_are_finished():
    model, calls = TableModel(end_logit=20.0), []

    def step(token_ids, position, state, memory):
        calls.append(int(position))
        return model.step(token_ids, position, state, memory)

    for options in ({}, {"num_beams": 2}):
        calls.clear()
        config = GenerationConfig(max_new_tokens=50, min_new_tokens=3, **options)
        found = generate(step, tf.constant(STATES), STARTS, config, **IDS)
        np.testing.assert_array_equal(found.token_ids[:, 3], [END] * 4)
        assert calls[:4] == [0, 1, 2, 3] and len(calls) <= 6


@each_method
def test_finished_rows_leave_the_batch_with_their_memory(config):
    """At the end there are few rows, and every row is computed as if it were alone."""
    config = dataclasses.replace(config, early_stopping=config.num_beams > 1)
    model, widths = TableModel(end_logit=2.5), []

    def step(token_ids, position, state, memory):
        widths.append(len(memory["offset"]))
        copies = len(token_ids) // len(memory["offset"])
        token_ids += tf.repeat(memory["offset"], copies)
        return model.step(token_ids, position, state, memory)

    def decoded(rows):
        memory = {"offset": tf.constant([0, 500, 31, 77, 3])[rows]}
        state = tf.zeros([len(memory["offset"])], tf.int32)
        numbers = tf.range(5)[rows]
        starts = [4] * len(state)
        options = dict(memory=memory, row_numbers=numbers, **IDS)
        return generate(step, state, starts, config, **options).token_ids.numpy()

    together = decoded(slice(None))
    assert widths[0] == 5 and sorted(widths, reverse=True) == widths and widths[-1] < 3
    alone = [decoded(slice(row, row + 1)) for row in range(5)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_a_keras_recurrent_network():
    """A state of several tensors follows its beams: scoring the sequences gives their scores."""
    cells = [keras.layers.GRUCell(16), keras.layers.GRUCell(8)]
    embeddings = keras.layers.Embedding(VOCAB_SIZE, 12, embeddings_initializer="normal")
    output = keras.layers.Dense(VOCAB_SIZE, kernel_initializer=keras.initializers.RandomNormal(2))

    def step(token_ids, position, state, memory):
        hidden, first = cells[0](embeddings(token_ids) * 20, state["first"])
        hidden, second = cells[1](hidden, state["second"])
        return output(hidden), {"first": first, "second": second}

    state = {"first": tf.zeros([4, 16]), "second": tf.random.stateless_normal([4, 8], [1, 2])}
    config = GenerationConfig(max_new_tokens=8, num_beams=4, early_stopping=True)
    found = generate(step, state, STARTS, config, **IDS)
    token_ids, total = tf.constant(STARTS), tf.zeros(4)
    is_open, length = tf.ones(4, tf.bool), tf.zeros(4)
    for position in range(8):
        logits, state = step(token_ids, position, state, ())
        token_ids = found.token_ids[:, position]
        log_probs = tf.gather(tf.nn.log_softmax(logits), token_ids, batch_dims=1)
        total += tf.where(is_open, log_probs, 0.0)
        length += tf.cast(is_open, tf.float32)
        is_open &= token_ids != END
    assert len(set(map(tuple, found.token_ids.numpy()))) == 4
    np.testing.assert_allclose(found.scores, total / length, rtol=1e-5)


def test_a_causal_backbone(tiny_config):
    """A step that encodes all tokens again: each token is the most probable after those before."""
    backbone = BertBackbone(tiny_config, causal=True, padding_free=False)
    kernel = backbone.embeddings.word_embeddings
    length = 6

    def logits(token_ids):
        hidden = backbone({"token_ids": token_ids})["sequence_output"]
        return tf.einsum("bth,vh->btv", hidden, tf.convert_to_tensor(kernel))

    def step(token_ids, position, history, memory):
        is_here = tf.range(length) == position  # [S]
        history = tf.where(is_here, token_ids[:, tf.newaxis], history)  # [n, S]
        return tf.gather(logits(history), position, axis=1), history

    starts = tf.constant([7, 30])
    config = GenerationConfig(length, min_new_tokens=length, no_repeat_ngram_size=1)
    ids = dict(end_id=3, pad_id=0, vocab_size=tiny_config.vocab_size)
    decode = tf.function(lambda: generate(step, tf.zeros([2, 6], tf.int32), starts, config, **ids))
    found = decode().token_ids.numpy()
    history = np.concatenate([starts.numpy()[:, np.newaxis], found[:, :-1]], axis=1)
    scores = logits(history).numpy()
    scores[:, :, ids["end_id"]] = -np.inf
    for row in range(2):
        for position in range(length):
            scores[row, position, history[row, : position + 1]] = -np.inf
    np.testing.assert_array_equal(found, scores.argmax(axis=2))


def test_first_of_several_samples_is_the_only_one():
    model = TableModel()
    options = dict(max_new_tokens=6, do_sample=True, seed=4)
    one = ours(model, GenerationConfig(**options)).token_ids
    several = ours(model, GenerationConfig(**options, num_return_sequences=3)).token_ids
    np.testing.assert_array_equal(several[::3], one)
    assert len(set(map(tuple, several.numpy()))) > 4


def test_seeds():
    model = TableModel()
    config = GenerationConfig(max_new_tokens=6, do_sample=True, seed=4)
    first = ours(model, config).token_ids.numpy()
    other = ours(model, config, seed=tf.constant(5, tf.int64)).token_ids.numpy()
    assert (first != other).any()
    np.testing.assert_array_equal(ours(model, config, seed=4).token_ids, first)


@pytest.mark.parametrize(
    "changes,message",
    [
        (
            {"end_id": 24},
            "`end_id` must be at least 0 and below `vocab_size`. Received: end_id=24, voc",
        ),
        ({"pad_id": -1}, "`pad_id` must be at least 0 and below `vocab_size`. Received: pad_id=-1"),
        ({"vocab_size": 3}, "`num_beams` must be below `vocab_size`. Received: num_beams=3"),
        ({"end_id": [1, 24]}, "`end_id` must be at least 0 and below `vocab_size`. Received: end_"),
        ({"end_id": range(24)}, "`end_id` must be at least one id and fewer than `vocab_size`. Re"),
        (
            {"end_id": []},
            "`end_id` must be at least one id and fewer than `vocab_size`. Received: e",
        ),
    ],
)
def test_impossible_arguments_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        generate(TableModel().step, tf.constant([0]), [1], CONFIGS[2], **{**IDS, **changes})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"eos_token_id": [3, 24]}, "`eos_token_id` must be at least 0 and below `vocab_size`"),
        (
            {"bad_words_ids": [[4, 99]]},
            "`bad_words_ids` must be .* Received: bad_words_ids=99, voc",
        ),
        ({"bad_words_ids": [[4], [END]]}, "`bad_words_ids` must not be only an end token"),
        ({"sequence_bias": [[[30], 1.0]]}, "`sequence_bias` must be at least 0 and below"),
        ({"allowed_sequences": [[1], [2, 25]]}, "`allowed_sequences` must be at least 0 and below"),
        ({"forced_prefix_ids": [24]}, "`forced_prefix_ids` must be at least 0 and below"),
        ({"stop_strings": "a"}, "`tokenizer` must be given with `stop_strings`"),
        ({"encoder_repetition_penalty": 2.0}, "must not be set without `source_ids`. Received: en"),
        ({"encoder_no_repeat_ngram_size": 2}, "must not be set without `source_ids`. Received: en"),
    ],
)
def test_impossible_options_are_refused(options, message):
    config = GenerationConfig(9, **options)
    with pytest.raises(UserError, match=message):
        generate(TableModel().step, tf.constant([0]), [1], config, **IDS)
