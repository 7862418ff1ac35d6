"""Static embeddings: opened, trained, exported and written back.

The expected vectors are those of model2vec 0.10 (`StaticModel.from_pretrained(…).encode(TEXTS)`)
and of sentence-transformers 6.2 (`SentenceTransformer(…).encode(TEXTS)`) for the same files.
"""

import glob
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf.errors import CheckpointError, ConfigError, DataError, UserError

PIECES = ["[PAD]", "[UNK]", "a", "film", "good", "bad", "##s", ".", "not", "the"]
TEXTS = ["A good film.", "", "zzz", "not the bad films zzz"]
TABLE = np.sin(np.arange(40)).reshape(10, 4).astype(np.float32)
CONFIG = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": False}
MAPPED = {
    "embeddings": TABLE[:3],
    "mapping": np.arange(10) % 3,
    "weights": np.linspace(0.5, 1.4, 10),
}
NOTHING = [0.0] * 4
MEANS = [
    [0.108947, -0.198186, -0.323108, -0.150966],
    NOTHING,
    NOTHING,
    [-0.193912, 0.296169, 0.513953, 0.259211],
]
OF_MODEL2VEC = {
    "plain": ({"embeddings": TABLE}, {}, MEANS),
    "without a flag": ({"embeddings": TABLE}, {"normalize": None}, MEANS),
    "normalized": (
        {"embeddings": TABLE},
        {"normalize": True},
        [
            [0.257985, -0.469303, -0.765116, -0.357485],
            NOTHING,
            NOTHING,
            [-0.286952, 0.438273, 0.760552, 0.383583],
        ],
    ),
    "mapped": (
        MAPPED,
        {"vocabulary_quantization": 3},
        [
            [-0.224184, -0.26302, -0.060037, 0.198144],
            NOTHING,
            NOTHING,
            [0.455105, 0.744945, 0.349887, -0.366856],
        ],
    ),
    "int8": (
        {"embeddings": (100 * TABLE).astype(np.int8)},
        {},
        [[11.0, -19.75, -32.0, -15.0], NOTHING, NOTHING, [-19.2, 29.4, 51.2, 26.0]],
    ),
}
OF_SENTENCE_TRANSFORMERS = [  # which reads unknown tokens
    [0.257985, -0.469303, -0.765116, -0.357485],
    NOTHING,
    [-0.534874, -0.677725, -0.197478, 0.464329],
    [-0.491986, 0.148739, 0.652715, 0.556587],
]


def write_tokenizer(folder, pieces=PIECES, **changes):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = [piece for piece in pieces if piece.startswith("[")]
    definition = {
        "version": "1.0",
        "added_tokens": [
            {"id": pieces.index(piece), "content": piece, **flags, "special": True}
            for piece in special
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "vocab": {piece: index for index, piece in enumerate(pieces)},
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps({**definition, **changes}))


def write_static(folder, tensors, **config):
    """A directory of model2vec."""
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    save_file(tensors, folder / "model.safetensors")
    values = {key: value for key, value in {**CONFIG, **config}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def write_modules(folder, *modules):
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{kind}"}
        for index, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))


def opened(folder, **options):
    return bert_tf.BertSentenceEncoder.from_pretrained(folder, **options)


@pytest.mark.parametrize("name", OF_MODEL2VEC)
def test_model2vec(name, tmp_path):
    tensors, config, expected = OF_MODEL2VEC[name]
    encoder = opened(write_static(tmp_path / "theirs", tensors, **config))
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert encoder.max_length == 514 and encoder.normalize is bool(config.get("normalize"))
    assert bert_tf.checkpoints.find_task_class(tmp_path / "theirs") is type(encoder)
    encoder.save_pretrained(tmp_path / "ours")
    np.testing.assert_array_equal(opened(tmp_path / "ours").encode(TEXTS), vectors)
    (table,) = load_file(tmp_path / "ours" / "model.safetensors").values()
    assert table.shape == (10, 4)
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["max_length"] == 512 and "vocabulary_quantization" not in written


@pytest.mark.parametrize("place", ["", ".", "0_StaticEmbedding"])
def test_sentence_transformers(place, tmp_path):
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    save_file({"embedding.weight": TABLE}, folder / "model.safetensors")
    write_tokenizer(folder, truncation={"max_length": 6, "direction": "Right"})
    write_modules(tmp_path, ("StaticEmbedding", place), ("Normalize", "1_Normalize"))
    encoder = opened(tmp_path)
    np.testing.assert_allclose(encoder.encode(TEXTS), OF_SENTENCE_TRANSFORMERS, atol=2e-6)
    long = encoder.encode(["film " * 5 + "good bad", "film " * 5 + "good"])
    np.testing.assert_array_equal(*long)  # six tokens each
    encoder.save_pretrained(tmp_path / "ours")
    again = opened(tmp_path / "ours")
    np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert again.max_length == 8
    definition = json.loads((tmp_path / "ours" / "tokenizer.json").read_text())
    assert definition["truncation"]["max_length"] == 6


def test_their_programs_read_ours(tmp_path):
    pytest.importorskip("model2vec", reason="needs sentence-transformers and model2vec")
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    opened(write_static(tmp_path / "theirs", MAPPED, normalize=True)).save_pretrained(
        tmp_path / "o"
    )
    vectors = opened(tmp_path / "o").encode(TEXTS[:2])
    for theirs in (
        StaticModel.from_pretrained(tmp_path / "o"),
        SentenceTransformer(tmp_path / "o"),
    ):
        np.testing.assert_allclose(theirs.encode(TEXTS[:2]), vectors, atol=1e-6)


def test_other_modules_and_a_tokenizer_with_ends(tmp_path):
    """Dense layers may follow; tokens that the tokenizer puts around a text are not read."""
    pieces = [*PIECES[:8], "[CLS]", "[SEP]"]
    ends = {"cls": ["[CLS]", 8], "sep": ["[SEP]", 9]}
    save_file({"embedding.weight": TABLE}, tmp_path / "model.safetensors")
    write_tokenizer(tmp_path, pieces, post_processor={"type": "BertProcessing", **ends})
    dense = tmp_path / "1_Dense"
    dense.mkdir()
    settings = {"in_features": 4, "out_features": 2, "bias": False}
    settings["activation_function"] = "torch.nn.modules.linear.Identity"
    (dense / "config.json").write_text(json.dumps(settings))
    kernel = np.arange(8, dtype=np.float32).reshape(2, 4)
    save_file({"linear.weight": kernel}, dense / "model.safetensors")
    write_modules(tmp_path, ("StaticEmbedding", ""), ("Dense", "1_Dense"))
    vector = opened(tmp_path).encode("good film")
    np.testing.assert_allclose(vector, kernel @ TABLE[[4, 3]].mean(axis=0), atol=1e-6)


def test_unigram(tmp_path):
    """A tokenizer without special tokens around a text, and one row too few for it."""
    pieces = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁good", -1.0]]
    pieces += [["▁film", -1.0], ["s", -2.0]]
    folder = write_static(tmp_path / "theirs", {"embeddings": TABLE[:7]})
    definition = {
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "post_processor": None,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": pieces},
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    encoder = opened(folder)
    vectors = encoder.encode(["good films", "ж"])
    np.testing.assert_allclose(vectors, [TABLE[4:7].mean(axis=0), NOTHING], atol=1e-6)
    encoder.save_pretrained(tmp_path / "ours")
    np.testing.assert_array_equal(opened(tmp_path / "ours").encode(["good films", "ж"]), vectors)
    save_file({"embeddings": TABLE[:6]}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="each of 7 tokens of the tokenizer.*6 vectors"):
        opened(folder)


@pytest.mark.usefixtures("eager_steps")
def test_training_and_what_follows(tmp_path):
    """Only the vectors of tokens in the texts move; the SavedModel and all files are equal."""
    encoder = opened(write_static(tmp_path / "theirs", {"embeddings": TABLE}, normalize=True))
    encoder.compile(keras.optimizers.Adam(0.1), objective="ranking")
    history = encoder.fit((["a good film", "not bad"], ["the bad", "good"]), epochs=3, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < losses[0]
    table = encoder.backbone.embeddings.word_embeddings.numpy()
    moved = np.any(table != TABLE, axis=1)
    assert moved.tolist() == [piece in PIECES[2:6] + PIECES[8:] for piece in PIECES]
    vectors = encoder.encode(TEXTS)
    for format in ("huggingface", "bert_tf"):
        encoder.save_pretrained(tmp_path / format, format=format)
        np.testing.assert_array_equal(opened(tmp_path / format).encode(TEXTS), vectors)
    encoder.save(tmp_path / "encoder.keras")
    again = keras.models.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(again.encode(TEXTS), vectors)
    encoder.export(tmp_path / "saved_model")
    (path,) = glob.glob(str(tmp_path / "saved_model" / "*"))
    signature = tf.saved_model.load(path).signatures["serving_default"]
    exported = signature(text=tf.constant(TEXTS))["vector"]
    np.testing.assert_allclose(exported, vectors, atol=1e-6)
    encoder.quantize("int8")
    np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=0.01)
    with pytest.raises(UserError, match="`format` must be 'bert_tf'"):
        encoder.save_pretrained(tmp_path / "huggingface")


def test_a_new_table_and_a_classifier(tmp_path):
    ids = {"ignored_token_ids": [1, 8, 9], "initializer_range": 0.5}
    backbone = bert_tf.BertBackbone(bert_tf.BertConfig.static(vocab_size=10, hidden_size=4, **ids))
    states = backbone({"token_ids": tf.constant([[8, 4, 1, 3, 9, 0], [8, 9, 0, 0, 0, 0]])})
    table = backbone.embeddings.word_embeddings.numpy()
    expected = np.zeros([2, 6, 4], np.float32)
    expected[0, [1, 3]] = table[[4, 3]]
    np.testing.assert_array_equal(states["sequence_output"], expected)
    folder = write_static(tmp_path / "theirs", {"embeddings": TABLE})
    classifier = bert_tf.BertTextClassifier.from_pretrained(folder, labels=["bad", "good"])
    assert classifier.pooling == "mean"
    classifier.fit(["a good film", "bad"], ["good", "bad"], epochs=1, verbose=0)
    with pytest.raises(UserError, match="`format` must be 'bert_tf' for a BertTextClassifier"):
        classifier.save_pretrained(tmp_path / "no")
    classifier.save_pretrained(tmp_path / "classifier", format="auto")
    again = bert_tf.BertTextClassifier.from_pretrained(tmp_path / "classifier")
    assert again.classify(TEXTS) == classifier.classify(TEXTS)
    for model_class in (bert_tf.BertTextClassifier, bert_tf.BertCrossEncoder):
        with pytest.raises(UserError, match="`backbone` must have blocks for a head on the first"):
            model_class(backbone, **({"num_classes": 2} if "Text" in model_class.__name__ else {}))
    encoder = bert_tf.BertSentenceEncoder(backbone, pooling="max")
    with pytest.raises(UserError, match="`pooling` must be 'mean'"):
        encoder.save_pretrained(tmp_path / "no")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": TABLE}, "must hold static embeddings, embeddings or embedding.weight"),
        ({"embeddings": TABLE[0]}, r"`embeddings` .* must be \[tokens, dimensions\]"),
        ({**MAPPED, "weights": np.ones(9)}, r"`weights` .* must have shape \(10,\)"),
        ({**MAPPED, "mapping": np.ones([10, 1], int)}, r"`mapping` .* must have shape \(10,\)"),
        ({**MAPPED, "mapping": np.arange(10)}, r"`mapping` .* must hold integers in \[0, 3\)"),
        ({**MAPPED, "mapping": -np.ones(10, int)}, r"`mapping` .* from -1 to -1"),
        ({**MAPPED, "mapping": np.ones(10, np.float32)}, r"`mapping` .* float32 from"),
        ({"embeddings": TABLE, "weights": np.ones(9)}, "`weights` .* have 10 values"),
        ({**MAPPED, "mapping": np.zeros(9000, np.uint8), "weights": np.ones(9000)}, "1 to 1000"),
        ({"embeddings": TABLE, "mapping": np.zeros(0, int)}, "`mapping` .* have 1 to 1000 tokens"),
        ({"embeddings": TABLE * np.nan}, "`embeddings` .* must hold finite numbers"),
        ({"embeddings": np.ones([10, 4], int)}, "must hold floating-point numbers"),
    ],
)
def test_damaged_tensors(tensors, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        opened(write_static(tmp_path / "theirs", tensors))


def test_damaged_files(tmp_path):
    folder = write_static(tmp_path / "theirs", {"embeddings": TABLE}, max_length=0)
    with pytest.raises(CheckpointError, match="`max_length` in .* must be a positive"):
        opened(folder)
    write_static(folder, {"embeddings": TABLE[:9]})
    with pytest.raises(CheckpointError, match="each of 10 tokens of the tokenizer.*9 vectors"):
        opened(folder)
    write_static(folder, {"embeddings": TABLE})
    for model in ({}, {"vocab": 7}, {"vocab": [7]}, {"vocab": {"a": "b"}}):
        write_tokenizer(folder, model=model)
        with pytest.raises(DataError, match="`model"):
            opened(folder)
    write_tokenizer(folder, added_tokens=[{"content": "[PAD]"}])
    with pytest.raises(DataError, match="`added_tokens"):
        opened(folder)
    write_tokenizer(folder, truncation=[6])
    (folder / "config.json").rename(folder / "kept.json")
    write_modules(folder, ("StaticEmbedding", ""))
    with pytest.raises(DataError, match="`truncation"):
        opened(folder)
    (folder / "kept.json").rename(folder / "config.json")
    write_tokenizer(folder)
    write_modules(folder, ("StaticEmbedding", ""), ("Asym", "1_Asym"))
    with pytest.raises(CheckpointError, match="StaticEmbedding, Dense or LayerNorm"):
        opened(folder)
    write_modules(folder, ("StaticEmbedding", ""))
    write_tokenizer(folder, ["[UNK]", *PIECES[2:], "b"])
    with pytest.raises(CheckpointError, match="tokenizer .* must have one of the tokens"):
        opened(folder)
    with pytest.raises(ConfigError, match="0 is for position_embedding_type='none'"):
        bert_tf.BertConfig(num_hidden_layers=0)
