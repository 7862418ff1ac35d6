"""BertSentenceEncoder: real vectors of real sentences, any number of them, in their own order."""

import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer
from bert_tf.adapt import student_from_teacher
from bert_tf.errors import CheckpointError, UserError
from bert_tf.inputs import batches as text_batches
from bert_tf.inputs.token_rows import TokenizedTexts
from bert_tf.tasks.sentence_embedding.module_files import encoder_options
from research.corpora.film_reviews import read_film_reviews
from tests.checkpoints.module_folders import move_encoder
from tests.numpy_bert import NumpyBert

TEXTS = ["good film", "", "the bad good film", "a", "the good the bad the film . a b c d e f"]


@pytest.fixture
def make_encoder(tiny_config, tiny_vocabulary):
    def make(**options):
        keras.utils.set_random_seed(5)
        return BertSentenceEncoder(
            BertBackbone(tiny_config),
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
            **options,
        )

    return make


@pytest.fixture(scope="module")
def minilm_encoder(minilm):
    return BertSentenceEncoder.from_pretrained(minilm)


def test_real_vectors_against_float64(minilm, minilm_encoder, materials):
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts = [text for text, _, _ in read_film_reviews(path)[:12]]
    reference = NumpyBert(minilm)
    for text, vector in zip(texts, minilm_encoder.encode(texts), strict=True):
        ids = minilm_encoder.tokenize([text])["token_ids"].numpy()
        states = reference(ids, np.zeros_like(ids), np.ones_like(ids, bool))[0]
        mean = states[0].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=2e-6)


def test_like_sentences_are_near(minilm_encoder):
    dog, barking, rates = minilm_encoder.encode(
        ["A dog barks.", "There is a dog barking.", "The bank raised its interest rates."]
    )
    assert dog @ barking > 0.7 > 0.3 > dog @ rates


@pytest.mark.parametrize(
    "pooling",
    ["cls", "mean_max", *(pytest.param(p, marks=pytest.mark.full) for p in ("mean", "max"))],
)
@pytest.mark.parametrize("normalize", [pytest.param(False, marks=pytest.mark.full), True])
def test_each_text_gets_its_own_vector(make_encoder, pooling, normalize):
    encoder = make_encoder(pooling=pooling, normalize=normalize)
    texts = [f"{text} {'film ' * (number % 5)}" for number in range(6) for text in TEXTS]
    vectors = encoder.encode(texts, token_budget=24)
    assert vectors.shape == (len(texts), 64 if pooling == "mean_max" else 32)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(vector, encoder(tf.constant([text]))[0], atol=1e-5)
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_batches_keep_to_the_budget(tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    texts = np.array([b"film " * (7 * number % 13) for number in range(40)], object)
    rows = TokenizedTexts.of(tokenizer, (texts,), 9)
    batches = text_batches.sorted_batches(rows, token_budget=30)
    for numbers in batches:
        batch = rows.batch(numbers)
        count, width = batch["token_ids"].shape
        assert count == len(numbers) and count * width <= 30
        assert batch["padding_mask"][:, -1].any()  # no wider than its longest
    assert sorted(np.concatenate(batches)) == list(range(40))


def test_batches_of_a_static_length_have_as_many_rows_as_asked_for(tiny_vocabulary):
    texts = np.array([b"film"] * 8, object)
    rows = TokenizedTexts.of(BertTokenizer(tiny_vocabulary), (texts,), 64)
    batches = text_batches.sorted_batches(rows, batch_size=4, length=64)
    assert [rows.batch(numbers, 64)["token_ids"].shape for numbers in batches] == [(4, 64), (4, 64)]


def test_an_example_of_several_texts_is_as_long_as_its_longest(tiny_vocabulary):
    texts = np.array([b"film", b"film film", b"", b"film film film"], object)
    rows = TokenizedTexts.of(BertTokenizer(tiny_vocabulary), (texts,), 64, rows_per_example=2)
    assert rows.lengths().tolist() == [4, 5]
    (numbers,) = text_batches.sorted_batches(rows)
    assert rows.batch(numbers)["token_ids"].shape == (2, 2, 5)


def test_one_string_and_none(make_encoder):
    encoder = make_encoder(pooling="mean_max")
    assert encoder.encode("good film").shape == (64,)
    assert encoder.encode([]).shape == (0, 64)


def test_predict_refuses_a_budget_without_texts(make_encoder):
    encoder = make_encoder()
    with pytest.raises(UserError, match="token_budget"):
        encoder.predict(encoder.tokenize(TEXTS), token_budget=16)
    with pytest.raises(UserError, match="steps"):
        encoder.predict(TEXTS, steps=1)


def test_the_encoder_is_in_the_folder_that_modules_json_names(make_encoder, tmp_path):
    encoder = make_encoder(max_length=9)
    other = BertSentenceEncoder(BertBackbone(encoder.backbone.config), tokenizer=encoder.tokenizer)
    encoder.save_pretrained(tmp_path)
    move_encoder(tmp_path)
    for has_root in (False, True):
        if has_root:  # other weights and another length, which nothing names
            other.save_pretrained(tmp_path / "other")
            for name in ("config.json", "model.safetensors", "vocab.txt"):
                (tmp_path / "other" / name).rename(tmp_path / name)
            (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
        opened = BertSentenceEncoder.from_pretrained(tmp_path)
        assert opened.max_length == 9
        np.testing.assert_allclose(opened.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
        backbone = BertBackbone.from_pretrained(tmp_path)
        np.testing.assert_array_equal(*(m.get_weights()[0] for m in (backbone, encoder.backbone)))
    (tmp_path / "0_Transformer" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="0_Transformer must hold the weights"):
        BertSentenceEncoder.from_pretrained(tmp_path)


def test_options_of_a_sentence_transformers_directory(minilm, tmp_path):
    assert encoder_options(minilm) == {"pooling": "mean", "normalize": True}
    assert encoder_options(tmp_path) == {}
    pooling = tmp_path / "1_Pooling"
    pooling.mkdir()
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (pooling / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    assert encoder_options(tmp_path) == {"pooling": "cls", "normalize": False, "max_length": 99}

    (pooling / "config.json").write_text('{"pooling_mode_weightedmean_tokens": true}')
    with pytest.raises(CheckpointError, match="weightedmean"):
        encoder_options(tmp_path)
    (pooling / "config.json").write_text('{"pooling_mode": ["mean", "max"]}')
    assert encoder_options(tmp_path)["pooling"] == "mean_max"
    (pooling / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    with pytest.raises(CheckpointError, match="lasttoken"):
        encoder_options(tmp_path)
    (pooling / "config.json").write_text('{"pooling_mode": "cls"}')
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    (dense / "config.json").write_text('{"out_features": 3}')
    modules.append({"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    step = {"type": "dense", "units": 3, "activation": "tanh", "use_bias": True}
    assert encoder_options(tmp_path)["projection"] == [{**step, "use_residual": False}]
    identity = '{"out_features": 3, "activation_function": "torch.nn.modules.linear.Identity"'
    (dense / "config.json").write_text(identity + "}")
    assert encoder_options(tmp_path)["whitening_size"] == 3
    (dense / "config.json").write_text(identity + ', "use_residual": true}')
    step = {**step, "activation": "linear", "use_residual": True}
    assert encoder_options(tmp_path)["projection"] == [step]
    (dense / "config.json").write_text('{"out_features": 3, "activation_function": "os.remove"}')
    with pytest.raises(CheckpointError, match="activation"):
        encoder_options(tmp_path)
    modules[-1]["type"] = "sentence_transformers.models.LSTM"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="LSTM"):
        encoder_options(tmp_path)
    (tmp_path / "modules.json").write_text("not JSON")
    with pytest.raises(CheckpointError, match="JSON"):
        encoder_options(tmp_path)


WORDS = ["good", "bad", "film", "the", *"abcdefghijklmnopqrstuvwxyz"]
SENTENCES = [f"{first} {second}" for first in WORDS[:4] for second in WORDS]


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize(  # the test of a projection whitens in both formats
    "format", ["huggingface", pytest.param("bert_tf", marks=pytest.mark.full)]
)
def test_whitening_goes_with_the_model(make_encoder, tmp_path, format):
    encoder = make_encoder(pooling="mean_max")
    plain = encoder.encode(SENTENCES)
    encoder.fit_whitening(SENTENCES, size=20)
    vectors = encoder.encode(SENTENCES)
    np.testing.assert_allclose(np.cov(vectors, rowvar=False, bias=True), np.eye(20), atol=1e-3)
    np.testing.assert_allclose(encoder.whitening(plain), vectors, atol=1e-4)
    encoder.normalize = True
    directory = tmp_path / format
    encoder.save_pretrained(directory, format=format)
    again = BertSentenceEncoder.from_pretrained(directory)
    assert (again.whitening_size, again.normalize) == (20, True)
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(again.encode(SENTENCES), expected, atol=1e-5)
    without = BertSentenceEncoder.from_pretrained(directory, whitening_size=None, normalize=False)
    np.testing.assert_allclose(without.encode(SENTENCES), plain, atol=1e-5)
    with pytest.raises(CheckpointError, match="whitening_size=7.*Received: 20"):
        BertSentenceEncoder.from_pretrained(directory, whitening_size=7)
    path = directory / "2_Dense" / "model.safetensors"
    tensors = load_file(path)
    tensors["linear.bias"][3] = np.nan
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="`linear.bias` in .* must hold finite"):
        BertSentenceEncoder.from_pretrained(directory)


PROJECTION = [
    {"type": "dense", "units": 12, "activation": "tanh", "use_bias": False},
    {"type": "layer_norm"},
    {"type": "dense", "units": 9, "activation": "gelu", "use_residual": True},
    {"type": "dense", "units": 9, "activation": "tanh", "use_residual": True},
]


def randomize(layer):
    random = np.random.default_rng(0)
    layer.set_weights([random.normal(size=w.shape, scale=0.5) for w in layer.get_weights()])


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize("format", ["huggingface", "bert_tf"])
def test_a_projection_goes_with_the_model(make_encoder, tmp_path, format):
    encoder = make_encoder(pooling="mean_max", projection=PROJECTION)
    plain = make_encoder(pooling="mean_max").encode(SENTENCES)
    randomize(encoder.projection_layer)
    first, scale, shift, second, bias, residual, third, last = (
        encoder.projection_layer.get_weights()
    )
    hidden = np.tanh(plain.astype(np.float64) @ first)
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    hidden = centred / np.sqrt(hidden.var(axis=1, keepdims=True) + 1e-5) * scale + shift
    dense = hidden @ second + bias
    dense *= [[0.5 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in dense]
    dense += hidden @ residual
    expected = np.tanh(dense @ third + last) + dense
    vectors = encoder.encode(SENTENCES)
    np.testing.assert_allclose(vectors, expected, atol=2e-4)
    encoder.save_pretrained(tmp_path, format=format)
    again = BertSentenceEncoder.from_pretrained(tmp_path)
    np.testing.assert_allclose(again.encode(SENTENCES), vectors, atol=1e-6)
    encoder.fit_whitening(SENTENCES, size=4)
    vectors = encoder.encode(SENTENCES)
    np.testing.assert_allclose(np.cov(vectors, rowvar=False, bias=True), np.eye(4), atol=1e-3)
    encoder.save_pretrained(tmp_path, format=format)
    again = BertSentenceEncoder.from_pretrained(tmp_path)
    assert (again.projection, again.whitening_size) == (encoder.projection, 4)
    np.testing.assert_allclose(again.encode(SENTENCES), vectors, atol=1e-5)
    # Steps without the keys that have a default are those of the directory.
    again = BertSentenceEncoder.from_pretrained(tmp_path, projection=PROJECTION)
    np.testing.assert_allclose(again.encode(SENTENCES), vectors, atol=1e-5)
    new = BertSentenceEncoder.from_pretrained(
        tmp_path, projection=[{"type": "dense", "units": 3}], whitening_size=None
    )
    assert new.encode("a").shape == (3,)
    with pytest.raises(CheckpointError, match="whitening_size=4"):
        BertSentenceEncoder.from_pretrained(tmp_path, projection=None)
    for wrong in ([{"type": "dense"}], [{"type": "layer_norm", "units": 3}], [{"type": "LSTM"}]):
        with pytest.raises(UserError, match="LSTM|units"):
            make_encoder(projection=wrong)


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize("format", ["huggingface", "bert_tf"])
def test_a_mean_of_layers_goes_with_the_model(make_encoder, tmp_path, format):
    encoder = make_encoder(layer_start=1, normalize=True)
    weights = np.linspace(0.5, 2.0, encoder.backbone.config.num_hidden_layers)
    encoder.scalar_mix.set_weights([weights])
    tokens = encoder.tokenize(SENTENCES)
    states = encoder.backbone(tokens, output_hidden_states=True)["hidden_states"][1:]
    mean = sum(w * np.array(state, np.float64) for w, state in zip(weights, states, strict=True))
    mask = tokens["padding_mask"].numpy()[..., np.newaxis]
    expected = (mean * mask).sum(axis=1) / mask.sum(axis=1) / weights.sum()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = encoder.encode(SENTENCES)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    encoder.save_pretrained(tmp_path, format=format)
    again = BertSentenceEncoder.from_pretrained(tmp_path)
    assert again.layer_start == 1
    np.testing.assert_allclose(again.encode(SENTENCES), vectors, atol=1e-6)
    last = BertSentenceEncoder.from_pretrained(tmp_path, layer_start=None)
    assert np.abs(last.encode(SENTENCES) - vectors).max() > 1e-3
    encoder.fit_whitening(SENTENCES, size=4)
    encoder.normalize = False
    whitened = np.cov(encoder.encode(SENTENCES), rowvar=False, bias=True)
    np.testing.assert_allclose(whitened, np.eye(4), atol=1e-3)
    encoder.save_pretrained(tmp_path, format=format)
    again = BertSentenceEncoder.from_pretrained(tmp_path)
    np.testing.assert_allclose(again.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)
    path = next(tmp_path.glob("*_WeightedLayerPooling")) / "model.safetensors"
    save_file({"layer_weights": np.ones(5, np.float32)}, path)
    with pytest.raises(CheckpointError, match="`layer_weights` in .* must have shape"):
        BertSentenceEncoder.from_pretrained(tmp_path)


def test_a_mean_of_layers_is_trained(make_encoder):
    encoder = make_encoder(layer_start=0)
    encoder.fit((SENTENCES[:8], SENTENCES[8:16]), epochs=1, verbose=0)
    assert np.abs(encoder.scalar_mix.get_weights()[0] - 1).max() > 1e-6
    for wrong in (-1, 1.5, 40):
        with pytest.raises(UserError, match="`layer_start` must be in"):
            make_encoder(layer_start=wrong)
    with pytest.raises(UserError, match="`layer_start` of the teacher must be None"):
        student_from_teacher(encoder, num_hidden_layers=1)


def test_a_projection_is_trained(make_encoder):
    encoder = make_encoder(projection=PROJECTION)
    before = encoder.projection_layer.get_weights()
    encoder.fit((SENTENCES[:8], SENTENCES[8:16]), epochs=1, verbose=0)
    assert all(np.any(a != b) for a, b in zip(before, encoder.projection_layer.get_weights()))


def test_whitening_of_truncated_vectors_and_with_a_prompt(make_encoder):
    encoder = make_encoder(truncate_dim=20, prompts={"find": "good "}, default_prompt_name="find")
    with pytest.raises(UserError, match="size=8, truncate_dim=20"):
        encoder.fit_whitening(SENTENCES, size=8)
    assert encoder.whitening is None
    encoder.fit_whitening(SENTENCES, size=20)
    vectors = encoder.encode(SENTENCES)  # with the prompt
    np.testing.assert_allclose(vectors.mean(axis=0), np.zeros(20), atol=1e-3)


@pytest.mark.full
def test_whitening_in_a_keras_file(make_encoder, tmp_path):
    encoder = make_encoder()
    encoder.fit_whitening(SENTENCES)
    assert encoder.whitening_size == 31  # a LayerNorm came last
    encoder.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    with pytest.raises(UserError, match="more sentences"):
        encoder.fit_whitening(TEXTS, size=8)


@pytest.mark.peers
@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "mean_max"])
def test_sentence_transformers_gives_the_same(minilm, materials, tmp_path, pooling):
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts = [text for text, _, _ in read_film_reviews(path)[:1000]]
    # Its own directory first, then one that this package wrote, with layers on the vectors.
    expected = library.SentenceTransformer(str(minilm), device="cpu").encode(texts[:200])
    encoder = BertSentenceEncoder.from_pretrained(minilm, max_length=256)
    np.testing.assert_allclose(encoder.encode(texts[:200]), expected, atol=5e-6)
    options = {"pooling": pooling, "projection": PROJECTION, "max_length": 64}
    options |= {"layer_start": 3} if pooling == "mean" else {}
    encoder = BertSentenceEncoder.from_pretrained(minilm, **options)
    if encoder.scalar_mix is not None:
        encoder.scalar_mix.set_weights([np.array([0.5, 1.0, 2.0, 1.5])])
    randomize(encoder.projection_layer)
    encoder.fit_whitening(texts, size=8)
    encoder.save_pretrained(tmp_path / "saved")
    theirs = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert theirs.max_seq_length == 64
    np.testing.assert_allclose(encoder.encode(texts[:200]), theirs.encode(texts[:200]), atol=2e-5)
