"""BertEncoderDecoder.generate: its tokens, its texts, its SavedModel, wrong input."""

import concurrent.futures
import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertEncoderDecoder, BertTokenizer
from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.generation import GenerationConfig
from bert_tf.tasks.shared import text_generator

SOURCES = ["good film", "the bad film.", "a b c", "film", "bad. the b"]
NEW = 7  # tokens


@pytest.fixture(scope="module")
def model(tiny_config, tiny_vocabulary):
    """One that no test changes; its texts end at different places."""
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(tiny_config, num_hidden_layers=1)
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    model = BertEncoderDecoder(BertBackbone(config), tokenizer=tokenizer)
    source = np.random.default_rng(4)
    for weight in model.weights:
        weight.assign(weight + source.normal(0.0, 0.5, weight.shape))
    bias = model.decoder.head.output_bias
    bias.assign(bias + 8.0 * tf.one_hot(model.end_token_id, 64))
    return model


@pytest.fixture(scope="module")
def ids(model):
    """Greedy decoding of `SOURCES`."""
    return model.generate(dict(model.tokenize(SOURCES)), NEW)


def test_every_token_is_the_most_probable_one(model, ids):
    """By the logits that the model has for the finished targets."""
    assert ids.shape == (len(SOURCES), NEW) and ids.dtype == np.int32
    end, lengths = model.end_token_id, []
    for row in ids:
        length = row.tolist().index(end) + 1 if end in row else NEW
        lengths.append(length)
        assert (row[length:] == 0).all()
    assert len(set(lengths)) > 1  # so that rows left the batch
    decoder_ids = np.pad(ids[:, :-1], [[0, 0], [1, 0]], constant_values=model.start_token_id)
    mask = np.arange(NEW) < np.array(lengths)[:, np.newaxis]
    decoder = {"decoder_token_ids": decoder_ids, "decoder_padding_mask": mask}
    logits = model({**model.tokenize(SOURCES), **decoder}).numpy()
    np.testing.assert_array_equal(logits.argmax(axis=-1)[mask], ids[mask])


def test_texts(model, ids):
    texts = [model.written(row[np.newaxis]).numpy()[0].decode() for row in ids]
    assert model.generate(SOURCES, NEW) == texts
    assert model.generate(SOURCES, NEW, batch_size=2) == texts
    assert model.generate(SOURCES[1], NEW) == texts[1]
    assert model.generate([], NEW) == []
    assert not any("[SEP]" in text or "[PAD]" in text for text in texts)


def test_several_texts_of_each_source(model):
    beams = model.generate(SOURCES, NEW, num_beams=3, num_return_sequences=2)
    assert [texts[0] for texts in beams] == model.generate(SOURCES, NEW, num_beams=3)
    assert all(texts[0] != texts[1] for texts in beams)


def test_samples_depend_on_the_seed_and_the_place_alone(model):
    options = dict(do_sample=True, temperature=2.0)
    texts = model.generate(SOURCES, NEW, seed=5, **options)
    assert model.generate(SOURCES, NEW, seed=5, batch_size=2, **options) == texts
    assert model.generate(SOURCES, NEW, seed=6, **options) != texts
    assert len(model.predictor._functions) < 10  # not one graph for each seed


def test_replaced_weights(model, ids):
    """A graph holds the weights that it was traced with."""
    other = BertEncoderDecoder.from_config(model.get_config())
    other.set_weights(model.get_weights())
    tokens = dict(model.tokenize(SOURCES))
    np.testing.assert_array_equal(other.generate(tokens, NEW), ids)
    other.prepack_for_inference()
    np.testing.assert_array_equal(other.generate(tokens, NEW), ids)


def test_under_xla(model, ids):
    other = BertEncoderDecoder.from_config(model.get_config())
    other.set_weights(model.get_weights())
    other.compile("sgd", jit_compile=True)
    tokens = {name: values[:2] for name, values in model.tokenize(SOURCES).items()}
    np.testing.assert_array_equal(other.generate(tokens, NEW), ids[:2])


def test_own_options(model, tmp_path):
    """`generation_config` is used by `generate`, and is saved. The next test exports one."""
    config = GenerationConfig(NEW, num_beams=3, length_penalty=0.5)
    own = {**model.get_config(), "generation_config": dataclasses.asdict(config)}
    own = BertEncoderDecoder.from_config(own)
    own.set_weights(model.get_weights())
    texts = model.generate(SOURCES, NEW, num_beams=3, length_penalty=0.5)
    assert own.generate(SOURCES) == own.predict_decoded(SOURCES) == texts
    assert own.generate(SOURCES, num_beams=1, length_penalty=1.0) == model.generate(SOURCES, NEW)
    own.save_pretrained(tmp_path / "own")
    own = BertEncoderDecoder.from_pretrained(tmp_path / "own")
    assert own.generation_config == config and own.generate(SOURCES) == texts


def test_a_function_is_for_a_call(model, monkeypatch):
    """It gets the number of each text, whatever batch that is in; a model cannot hold it."""
    allowed = [[model.tokenizer.token_to_id(piece)] for piece in ("good", "bad", "film", "a", "b")]
    texts = model.generate(
        SOURCES, 2, batch_size=2, prefix_allowed_tokens_fn=lambda number, ids: allowed[number]
    )
    assert texts == ["good good", "bad bad", "film film", "a a", "b b"]

    def traced(*args, **options):
        raise AssertionError("It is traced once for all functions")

    monkeypatch.setattr(text_generator, "generate", traced)

    def last(ids, number):
        options = {"batch_size": 2, "prefix_allowed_tokens_fn": lambda number, _: ids[number]}
        return model.generate(SOURCES, 2, **options)[number]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda n: last(allowed[n:] + allowed[:n], n), range(5))
    pieces = [model.tokenizer.vocabulary[ids[0]] for ids in allowed]
    assert [*found] == [" ".join([pieces[2 * n % 5]] * 2) for n in range(5)]
    with pytest.raises(Exception, match="one or more ids below .* of row 1"):
        last([[5], []] + [[5]] * 3, 0)
    monkeypatch.undo()
    options = {"do_sample": True, "seed": 7}
    everything = model.generate(
        SOURCES,
        NEW,
        prefix_allowed_tokens_fn=lambda number, ids: range(model.vocab_size),
        **options,
    )
    assert everything == model.generate(SOURCES, NEW, **options)
    config = GenerationConfig(2, prefix_allowed_tokens_fn=lambda number, ids: [5])
    with pytest.raises(ConfigError, match="must be None in a model's `generation_config`"):
        BertEncoderDecoder.from_config({**model.get_config(), "generation_config": config})


def test_stop_strings_and_end_tokens(model):
    """The stop string stays in the text, the end tokens do not."""
    options = dict(sequence_bias=[[[model.end_token_id], -50.0]])  # long texts
    texts = model.generate(SOURCES, NEW, **options)
    ids = model.generate(dict(model.tokenize(SOURCES)), NEW, **options)
    place = max(range(len(texts)), key=lambda place: len(texts[place]))
    whole, row = texts[place], ids[place]
    stop = whole[1 : len(whole) // 2]
    cut = model.generate(SOURCES, NEW, stop_strings=stop, **options)[place]
    assert whole.startswith(cut) and stop in cut and cut != whole
    end = int(row[3])
    ended = model.generate(SOURCES, NEW, eos_token_id=[end, model.end_token_id], **options)[place]
    first = row.tolist().index(end)
    assert ended == model.written(row[np.newaxis, :first]).numpy()[0].decode()


def test_rules_in_the_saved_model(model, tmp_path):
    """What `generation_config` says is in the signatures, with the tokens of the source."""
    options = dict(
        stop_strings=["film."],
        eos_token_id=[model.end_token_id, 9],
        encoder_no_repeat_ngram_size=1,
        encoder_repetition_penalty=0.5,
        bad_words_ids=[[6], [7, 8]],
        sequence_bias=[[[11], 2.0]],
        forced_prefix_ids=[10],
        num_beams=2,
        length_penalty=0.5,
    )
    own = {**model.get_config(), "generation_config": {"max_new_tokens": NEW, **options}}
    own = BertEncoderDecoder.from_config(own)
    own.set_weights(model.get_weights())
    texts = model.generate(SOURCES, NEW, **options)
    assert own.generate(SOURCES) == texts != model.generate(SOURCES, NEW, num_beams=2)
    tokens = dict(own.tokenize(SOURCES))
    ids = own.generate(tokens)
    for row, source in zip(ids, own.tokenize(SOURCES)["token_ids"].numpy()):
        assert row[0] == 10 and not {*row[1:].tolist()} & {*source.tolist()} - {0, own.end_token_id}
    own.save_pretrained(tmp_path / "own")
    own = BertEncoderDecoder.from_pretrained(tmp_path / "own")
    signatures = tf.saved_model.load(own.export(tmp_path / "served")).signatures
    served = signatures["serving_default"](text=tf.constant(SOURCES))["generated_text"]
    assert [text.decode() for text in served.numpy()] == texts
    np.testing.assert_array_equal(signatures["tokens"](**tokens)["token_ids"], ids)


def test_several_end_tokens_of_the_model(model, ids, tmp_path):
    """The first is learned; all end a target and are in Hugging Face's files."""
    end = next(int(number) for number in ids.ravel() if number not in (0, model.end_token_id))
    own = {**model.get_config(), "eos_token_id": [model.end_token_id, end]}
    own = BertEncoderDecoder.from_config(own)
    own.set_weights(model.get_weights())
    assert own.end_token_ids == (model.end_token_id, end) and own.end_token_id == model.end_token_id
    assert own.preprocessor.end_token_id == model.end_token_id
    tokens = dict(model.tokenize(SOURCES))
    expected = model.generate(tokens, NEW, eos_token_id=[model.end_token_id, end])
    np.testing.assert_array_equal(own.generate(tokens, NEW), expected)
    assert (expected != ids).any()
    own.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == [3, end]
    opened = BertEncoderDecoder.from_pretrained(tmp_path)
    assert opened.eos_token_id == [3, end] and opened.end_token_ids == own.end_token_ids


def test_generation_config_of_hugging_face(model, tmp_path):
    """Its ids replace those in `config.json`."""
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("bert_tf")  # the options that this package saves count more
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [3, 7, 9], "max_length": 20, "num_beams": 4}))
    opened = BertEncoderDecoder.from_pretrained(tmp_path)
    assert opened.end_token_ids == (3, 7, 9) and opened.generation_config is None
    path.write_text(json.dumps({"eos_token_id": [3, "7"]}))
    with pytest.raises(ConfigError, match=r"`eos_token_id\[1\]` in .*generation_config.json must"):
        BertEncoderDecoder.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "texts, options, error, message",
    [
        (["good", " "], {}, DataError, "A source must have a word. Received: none in the rows 1"),
        ((["good"], ["bad"]), {}, UserError, "must have 1 texts"),
        ("good", {"max_new_tokens": 40}, UserError, "`max_new_tokens` must be at most 39"),
        ("good", {"num_beams": 64}, UserError, "below the size of the vocabulary, 64"),
        ("good", {"max_length": 9}, UserError, "options must be among .* Received: max_length"),
        ("good", {"top_k": 5}, ConfigError, "without do_sample=True"),
        ("good", {"stop_strings": ["\n"]}, UserError, "the pieces of the vocabulary can write"),
        ("good", {"bad_words_ids": [[64]]}, ConfigError, "`bad_words_ids` must be at least 0 and"),
        ({"token_ids": [[5]]}, {"token_budget": 9}, UserError, "`token_budget` must be None for"),
        ({"input_ids": [[5]]}, {}, UserError, "token_ids"),
        ({"token_ids": [[64]]}, {}, UserError, "`token_ids` must be from 0 to below"),
    ],
)
def test_wrong_input(model, texts, options, error, message):
    with pytest.raises(error, match=message):
        model.generate(texts, **options)


def test_contrastive_search(model):
    """Its last step reads the last token, the most that the model has positions for."""
    options = dict(penalty_alpha=0.6, top_k=4)
    texts = model.generate(SOURCES, model.most_new_tokens, min_new_tokens=9, **options)
    assert texts != model.generate(SOURCES, model.most_new_tokens, min_new_tokens=9)


@pytest.mark.full
def test_contrastive_search_in_the_saved_model(model, tmp_path):
    """tests/generation has it in a graph, and the test of rules a `generation_config`."""
    options = dict(penalty_alpha=0.6, top_k=4)
    texts = model.generate(SOURCES, model.most_new_tokens, min_new_tokens=9, **options)
    config = {"max_new_tokens": model.most_new_tokens, "min_new_tokens": 9, **options}
    own = BertEncoderDecoder.from_config({**model.get_config(), "generation_config": config})
    own.set_weights(model.get_weights())
    signatures = tf.saved_model.load(own.export(tmp_path)).signatures
    served = signatures["serving_default"](text=tf.constant(SOURCES))["generated_text"]
    assert [text.decode() for text in served.numpy()] == texts


@pytest.mark.parametrize("ids", [[], [3, 64]])
def test_wrong_end_tokens(model, ids):
    with pytest.raises(UserError, match="`eos_token_id` must be .* Received: eos_token_id="):
        BertEncoderDecoder.from_config({**model.get_config(), "eos_token_id": ids})


def test_wrong_own_options(model):
    config = {**model.get_config(), "generation_config": {"num_beams": 2}}
    with pytest.raises(ConfigError, match="`max_new_tokens` must be a positive integer"):
        BertEncoderDecoder.from_config(config)


@pytest.mark.peers
def test_the_tokens_of_transformers(tiny_config, tmp_path):
    """After some steps of learning to write a source backwards: at random all is repetition."""
    import torch
    import transformers

    keras.utils.set_random_seed(0)
    model = BertEncoderDecoder(
        BertBackbone(dataclasses.replace(tiny_config, hidden_dropout_prob=0.0)),
        decoder_start_token_id=2,
        eos_token_id=3,
    )
    source = np.random.default_rng(0)

    def examples(count):
        lengths = source.integers(2, 7, [count, 1])
        is_word, words = np.arange(6) < lengths, source.integers(5, 40, [count, 6])
        token_ids = np.where(is_word, words, 0)
        places = np.where(is_word, lengths - 1 - np.arange(6), np.arange(6))
        reverse = np.take_along_axis(token_ids, places, axis=1)
        labels = np.pad(reverse, [[0, 0], [0, 1]])
        np.put_along_axis(labels, lengths, 3, axis=1)
        is_known = np.arange(7) <= lengths
        decoder = {
            "decoder_token_ids": np.pad(reverse, [[0, 0], [1, 0]], constant_values=2),
            "decoder_padding_mask": is_known,
        }
        return {"token_ids": token_ids, **decoder}, np.where(is_known, labels, -100)

    model.compile(keras.optimizers.Adam(3e-3))
    model.fit(*examples(6400), batch_size=32, epochs=2, verbose=0)
    model.save_pretrained(tmp_path)
    theirs = transformers.EncoderDecoderModel.from_pretrained(tmp_path).eval()
    tokens = {"token_ids": examples(20)[0]["token_ids"]}
    received = {"input_ids": torch.tensor(tokens["token_ids"])}
    received["attention_mask"] = (received["input_ids"] > 0).long()
    for options in (
        {},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 4},
        {"num_beams": 4},
        {"num_beams": 3, "length_penalty": -1.0, "num_return_sequences": 3},
        {"num_beams": 5, "early_stopping": True, "repetition_penalty": 1.3},
    ):
        ids = model.generate(tokens, 9, **options)
        with torch.no_grad():
            expected = theirs.generate(
                **received, max_new_tokens=9, pad_token_id=0, eos_token_id=3, **options
            ).numpy()[:, 1:]
        expected = np.pad(expected, [[0, 0], [0, 9 - expected.shape[1]]])
        # Beam search there takes the end token for the pad token 0.
        expected[np.cumsum(expected == 3, axis=1) - (expected == 3) > 0] = 0
        np.testing.assert_array_equal(ids, expected, err_msg=str(options))
    assert len(np.unique(ids)) > 20
