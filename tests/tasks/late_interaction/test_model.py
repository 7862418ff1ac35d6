"""BertLateInteractionEncoder: vectors and scores, ranks, losses, directories and errors."""

import json
import re
import string

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_tf import (
    BertBackbone,
    BertConfig,
    BertLateInteractionEncoder,
    BertTextClassifier,
    BertTokenizer,
)
from bert_tf.checkpoints.opening import open_pretrained
from bert_tf.errors import CheckpointError, DataError, UserError
from bert_tf.search import max_sim_top_k
from bert_tf.tasks.late_interaction import DocumentRankingLoss
from bert_tf.training import AdamWeightDecay
from tests.checkpoints.module_folders import move_encoder
from tests.numpy_bert import NumpyBert

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"),
    *("good", "bad", "film", "the"),
    *string.punctuation,
    *string.ascii_lowercase,
]
QUERIES = ["good [MASK] film?", "the bad", "a b c d e f g h i j k l m"]
DOCUMENTS = ["the good, bad film.", "film", "a b c d e f g h i j k l m n o p q"]
OTHERS = ["...", "good good", "the film (bad)"]


@pytest.fixture(scope="module")
def config():
    return BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.3,
    )


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCABULARY, lowercase=False)


@pytest.fixture(scope="module")
def make(config, tokenizer):
    def make(padding_free="auto", **options):
        options = {"dim": 16, "query_max_length": 12, "max_length": 14, **options}
        backbone = BertBackbone(config, padding_free=padding_free)
        model = BertLateInteractionEncoder(backbone, tokenizer=tokenizer, **options)
        model.run_eagerly = True
        return model

    return make


@pytest.fixture
def model(make):
    return make()


@pytest.fixture(scope="module")
def same_model(make):
    """A model for the tests that compare none of its numbers."""
    return make()


class NumpyColbert:
    """ColBERT in float64, from the files that a model wrote."""

    def __init__(self, directory):
        self.bert = NumpyBert(directory)
        self.kernel = self.bert.tensors["linear.weight"]
        self.options = json.loads((directory / "artifact.metadata").read_text())

    def _vectors(self, ids, attended, counts):
        ids, attended = np.array([ids]), np.array([[attended]])  # [1, T], [1, 1, T]
        states = self.bert(ids, np.zeros_like(ids), np.ones_like(ids, bool), attended)[0][0]
        vectors = states @ self.kernel.T
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True))[counts]

    def _ids(self, text, length, marker):
        pieces = re.findall(r"\[MASK\]|\w+|[^\w\s]", text)[: length - 3]
        return list(map(VOCABULARY.index, ["[CLS]", marker, *pieces, "[SEP]"]))

    def query(self, text):
        length = self.options["query_maxlen"]
        ids = self._ids(text, length, self.options["query_token_id"])
        masks = length - len(ids)
        attended = [True] * len(ids) + [self.options["attend_to_mask_tokens"]] * masks
        ids += [VOCABULARY.index("[MASK]")] * masks
        return self._vectors(ids, attended, slice(None))

    def document(self, text):
        ids = self._ids(text, self.options["doc_maxlen"], self.options["doc_token_id"])
        skipped = string.punctuation if self.options["mask_punctuation"] else ()
        counts = [VOCABULARY[token] not in skipped for token in ids]
        return self._vectors(ids, [True] * len(ids), counts)

    def score(self, query, document):
        return (self.query(query) @ self.document(document).T).max(axis=1).sum()


@pytest.mark.parametrize("padding_free", [True, False])
@pytest.mark.parametrize("attends", [True, False])
def test_vectors_and_scores_are_those_of_a_float64_reference(make, attends, padding_free, tmp_path):
    model = make(padding_free, attend_to_mask_tokens=attends, mask_punctuation=not attends)
    model.save_pretrained(tmp_path)
    reference = NumpyColbert(tmp_path)
    queries, documents = model.encode_queries(QUERIES), model.encode_documents(DOCUMENTS)
    for text, vectors in zip(QUERIES, queries):
        np.testing.assert_allclose(vectors, reference.query(text), atol=1e-5)
    for text, vectors in zip(DOCUMENTS, documents):
        np.testing.assert_allclose(vectors, reference.document(text), atol=1e-5)
    expected = [[reference.score(q, d) for d in DOCUMENTS] for q in QUERIES]
    np.testing.assert_allclose(model.score(QUERIES, DOCUMENTS), np.diag(expected), rtol=1e-5)
    scores, rows = max_sim_top_k(queries, documents, 3)
    np.testing.assert_allclose(np.take_along_axis(np.array(expected), rows, 1), scores, rtol=1e-5)
    lists = (QUERIES, DOCUMENTS, DOCUMENTS[::-1])
    expected = np.stack([np.diag(expected), np.diag(np.fliplr(expected))], axis=1)
    np.testing.assert_allclose(model.predict(lists, verbose=0), expected, rtol=1e-5)
    np.testing.assert_allclose(model(tuple(map(tf.constant, lists))), expected, rtol=1e-5)


def test_without_augmentation_and_markers(make):
    plain = make(query_augmentation=False, query_marker=None, document_marker=None)
    assert [len(vectors) for vectors in plain.encode_queries(QUERIES)] == [6, 4, 12]
    assert [len(vectors) for vectors in plain.encode_documents(DOCUMENTS)] == [6, 3, 14]
    # A query is then a document whose punctuation counts.
    np.testing.assert_allclose(
        plain.encode_queries("the bad"), plain.encode_documents("the bad"), atol=1e-6
    )


def test_one_text_none_and_how_they_are_batched(model):
    assert model.encode_queries("good").shape == (12, 16)
    assert model.encode_documents([]).vectors.shape == (0, 16)
    scores = model.score(QUERIES, DOCUMENTS)
    assert model.score(QUERIES[0], DOCUMENTS[0]) == pytest.approx(scores[0], rel=1e-5)
    one_by_one = model.encode_documents(DOCUMENTS, batch_size=1).vectors
    np.testing.assert_allclose(one_by_one, model.encode_documents(DOCUMENTS).vectors, atol=1e-5)


def test_ranks_by_score(model):
    documents = [*DOCUMENTS, "film", *OTHERS]
    scores = model.score(QUERIES[:1] * 7, documents)
    ranked = model.rank(QUERIES[0], documents)
    np.testing.assert_allclose([d.score for d in ranked], np.sort(scores)[::-1], rtol=1e-5)
    assert all(documents[d.index] == d.text for d in ranked)
    assert [d.index for d in ranked if d.text == "film"] == [1, 3]
    assert model.rank(QUERIES[0], documents, top_k=2) == ranked[:2]
    assert model.rank(QUERIES[0], []) == []


def loss_of(model, lists, y=None, **compiled):
    model.compile("sgd", run_eagerly=True, **compiled)
    return model.evaluate(lists, y, verbose=0, return_dict=True)["loss"]


def cross_entropy(scores):
    """Of the first columns."""
    return np.log(np.exp(scores).sum(axis=1)) - scores[:, 0]


def test_the_losses(model):
    lists = (QUERIES, DOCUMENTS, OTHERS)
    columns = [model.encode_documents(column) for column in lists[1:]]
    queries = model.encode_queries(QUERIES)
    by_query = np.array(  # [B, B, K - 1]
        [
            [[(q @ texts[n].T).max(axis=1).sum() for texts in columns] for n in range(3)]
            for q in queries.ragged().to_list()
        ],
        np.float64,
    )
    own = np.stack([by_query[n, n] for n in range(3)])
    others = np.stack([np.delete(by_query[n], n, axis=0).ravel() for n in range(3)])
    together = np.concatenate([own, others], axis=1)
    received = loss_of(model, lists, in_batch_negatives=False)
    np.testing.assert_allclose(received, cross_entropy(own).mean(), rtol=1e-5)
    received = loss_of(model, lists)
    np.testing.assert_allclose(received, cross_entropy(together).mean(), rtol=1e-5)
    received = loss_of(model, lists[:2])
    pairs = np.concatenate([own[:, :1], others[:, ::2]], axis=1)
    np.testing.assert_allclose(received, cross_entropy(pairs).mean(), rtol=1e-5)

    teacher = np.array([[3.0, 1.0], [0.5, 1.0], [-1.0, -2.0]])
    targets = np.exp(teacher) / np.exp(teacher).sum(axis=1, keepdims=True)
    found = np.exp(own) / np.exp(own).sum(axis=1, keepdims=True)
    divergence = (targets * np.log(targets / found)).sum(axis=1).mean()
    received = loss_of(model, lists, teacher, in_batch_negatives=False)
    np.testing.assert_allclose(received, divergence, rtol=1e-4)
    in_batch = cross_entropy(np.concatenate([own[:, :1], others], axis=1)).mean()
    np.testing.assert_allclose(loss_of(model, lists, teacher), divergence + in_batch, rtol=1e-4)
    margins = (own[:, 0] - own[:, 1]) - (teacher[:, 0] - teacher[:, 1])
    loss = DocumentRankingLoss("margin_mse")
    received = loss_of(model, lists, teacher, loss=loss, in_batch_negatives=False)
    np.testing.assert_allclose(received, np.mean(margins**2), rtol=1e-4)


@pytest.mark.parametrize("eager", [True, False])
def test_a_batch_of_one_query_teaches_nothing(model, eager):
    model.compile("sgd", metrics=model.default_compile(None)["metrics"], run_eagerly=eager)
    found = model.evaluate((QUERIES[:1], DOCUMENTS[:1]), verbose=0, return_dict=True)
    assert found == {"loss": pytest.approx(0.0, abs=1e-6), "accuracy": 1.0}


def test_documents_as_columns_and_as_lists(model):
    """There are no labels, or those are a teacher's scores of all documents of a query."""
    lists = [list(pair) for pair in zip(OTHERS, OTHERS[::-1])]
    scores = np.random.default_rng(0).normal(size=[3, 3])
    for loss, labels in (("auto", None), (DocumentRankingLoss("margin_mse"), scores)):
        model.compile("sgd", loss, in_batch_negatives=False, run_eagerly=True)
        found = [
            model.evaluate((QUERIES, DOCUMENTS, *others), labels, verbose=0)
            for others in ((OTHERS, OTHERS[::-1]), (lists,))
        ]
        assert found[0] == found[1] > 0
    with pytest.raises(DataError, match="1 texts in row 2"):
        model.fit((QUERIES, DOCUMENTS, [*lists[:2], ["good"]]), verbose=0)


@pytest.mark.full
def test_learns_which_document_fits(model):
    queries, fits, others = ["the film", "a b"] * 60, ["good", "bad"] * 60, ["c", "d"] * 60
    model.compile(AdamWeightDecay(2e-3), metrics=model.default_compile(None)["metrics"])
    history = model.fit((queries, fits, others), batch_size=2, shuffle=False, epochs=2, verbose=0)
    assert history.history["accuracy"][-1] > 0.9
    assert [model.rank(query, ["bad", "c", "good"])[0].text for query in ("the film", "a b")] == [
        "good",
        "bad",
    ]


@pytest.mark.full
def test_served_vectors(model, tmp_path):
    signatures = tf.saved_model.load(model.export(tmp_path)).signatures
    for name, encode, texts in (
        ("queries", model.encode_queries, QUERIES),
        ("documents", model.encode_documents, DOCUMENTS),
    ):
        outputs = signatures[name](text=tf.constant(texts))
        counts = outputs["vector_count"].numpy()
        assert outputs["vectors"].shape == (3, counts.max(), 16)
        for expected, count, vectors in zip(encode(texts), counts, outputs["vectors"].numpy()):
            np.testing.assert_allclose(vectors[:count], expected, atol=1e-5)
            assert not vectors[count:].any()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: model.predict(QUERIES, verbose=0), "a query with one document or more"),
        (lambda model: model.encode_queries((QUERIES, DOCUMENTS)), "one list of strings"),
        (lambda model: model.rank(QUERIES, DOCUMENTS), "`query` must be a string"),
        (lambda model: model.score(QUERIES, DOCUMENTS[:2]), "same number of rows"),
        (lambda model: model.predict_decoded(QUERIES), r"pairs, \(queries, documents\)"),
        (
            lambda model: model.fit((QUERIES, DOCUMENTS), [1, 0, 0], verbose=0),
            "`y` must be None for queries with one document",
        ),
        (
            lambda model: loss_of(model, (QUERIES, DOCUMENTS), in_batch_negatives=False),
            "several documents with `in_batch_negatives=False`",
        ),
        (
            lambda model: model({"token_ids": np.ones([2, 1, 3], np.int32)}),
            "a query and at least one document",
        ),
        (lambda model: BertLateInteractionEncoder(model.backbone, dim=0), "`dim` must"),
        (
            lambda model: BertLateInteractionEncoder(model.backbone, query_max_length=41),
            r"`query_max_length` must be in \[3, 40\]",
        ),
        (
            lambda model: BertLateInteractionEncoder(
                model.backbone, query_marker="[Q]", tokenizer=model.tokenizer
            ),
            "`query_marker` must be a piece of the vocabulary",
        ),
        (
            lambda model: BertLateInteractionEncoder(model.backbone)(
                {"token_ids": np.ones([1, 3], np.int32)}
            ),
            "`tokenizer` must be given",
        ),
        (lambda model: DocumentRankingLoss("mse"), "`distillation` must"),
    ],
)
def test_what_has_no_meaning_is_refused(same_model, call, message):
    with pytest.raises(UserError, match=message):
        call(same_model)


def rewrite(path, **changes):
    values = json.loads(path.read_text())
    values.update(changes)
    path.write_text(json.dumps({key: v for key, v in values.items() if v is not None}))


def test_directories_of_colbert(make, tmp_path):
    model = make(attend_to_mask_tokens=True, mask_punctuation=False, query_marker="a")
    model.save_pretrained(tmp_path)
    assert sorted(load_file(tmp_path / "model.safetensors"))[-1] == "linear.weight"
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["HF_ColBERT"]
    rewrite(tmp_path / "config.json", bert_tf=None)  # as ColBERT writes it
    opened = BertLateInteractionEncoder.from_pretrained(tmp_path)
    options = ("dim", "query_max_length", "max_length", "query_marker", "document_marker")
    options += ("attend_to_mask_tokens", "mask_punctuation", "query_augmentation")
    assert [getattr(opened, name) for name in options] == [getattr(model, name) for name in options]
    assert not opened.untrained_heads
    np.testing.assert_allclose(
        opened.score(QUERIES, DOCUMENTS), model.score(QUERIES, DOCUMENTS), rtol=1e-6
    )
    rewrite(tmp_path / "artifact.metadata", dim=10**8)
    with pytest.raises(CheckpointError, match="must fit the configuration"):
        BertLateInteractionEncoder.from_pretrained(tmp_path)
    rewrite(tmp_path / "artifact.metadata", similarity="l2")
    with pytest.raises(CheckpointError, match="`similarity` in .* must be 'cosine'"):
        BertLateInteractionEncoder.from_pretrained(tmp_path)
    (tmp_path / "artifact.metadata").unlink()
    opened = BertLateInteractionEncoder.from_pretrained(tmp_path)
    assert (opened.dim, opened.query_max_length, opened.query_marker) == (16, 32, "[unused0]")


def write_pylate(model, directory, **settings):
    """The files of PyLate for a model."""
    model.save_pretrained(directory)
    (directory / "artifact.metadata").unlink()
    rewrite(directory / "config.json", bert_tf=None, architectures=["BertModel"])
    tensors = load_file(directory / "model.safetensors")
    (directory / "1_Dense").mkdir()
    kernel = {"linear.weight": tensors.pop("linear.weight")}
    save_file(kernel, directory / "1_Dense" / "model.safetensors")
    encoder = {name.removeprefix("bert."): values for name, values in tensors.items()}
    save_file(encoder, directory / "model.safetensors")
    identity = "torch.nn.modules.linear.Identity"
    dense = {"in_features": 32, "out_features": 16, "bias": False, "use_residual": False}
    files = {
        "1_Dense/config.json": {**dense, "activation_function": identity},
        "modules.json": [
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "pylate.models.Dense.Dense", "path": "1_Dense"},
        ],
        "config_sentence_transformers.json": {"model_type": "ColBERT", **settings},
    }
    for name, values in files.items():
        (directory / name).write_text(json.dumps(values))


PYLATE = {
    "query_prefix": "[unused0]",
    "document_prefix": "",
    "query_length": 12,
    "document_length": 14,
    "attend_to_expansion_tokens": True,
    "skiplist_words": list(string.punctuation),
    "do_query_expansion": True,
}


def test_directories_of_pylate(make, tmp_path):
    model = make(attend_to_mask_tokens=True, document_marker=None)
    write_pylate(model, tmp_path, **PYLATE)
    opened = BertLateInteractionEncoder.from_pretrained(tmp_path)
    assert opened.document_marker is None and opened.mask_punctuation
    move_encoder(tmp_path)
    opened = BertLateInteractionEncoder.from_pretrained(tmp_path)
    np.testing.assert_allclose(
        opened.score(QUERIES, DOCUMENTS), model.score(QUERIES, DOCUMENTS), rtol=1e-6
    )


@pytest.mark.parametrize(
    "file, changes, message",
    [
        ("config_sentence_transformers.json", {"skiplist_words": ["the"]}, "`skiplist_words` in"),
        ("config_sentence_transformers.json", {"default_prompt_name": "a"}, "must be null"),
        ("1_Dense/config.json", {"bias": True}, "`bias` in .* must be False"),
        ("1_Dense/config.json", {"use_residual": True}, "`use_residual`"),
    ],
)
def test_what_pylate_can_do_more_is_refused(same_model, tmp_path, file, changes, message):
    write_pylate(same_model, tmp_path, **PYLATE)
    rewrite(tmp_path / file, **changes)
    with pytest.raises(CheckpointError, match=message):
        BertLateInteractionEncoder.from_pretrained(tmp_path)


def test_several_dense_modules_are_refused(model, tmp_path):
    write_pylate(model, tmp_path, **PYLATE)
    modules = json.loads((tmp_path / "modules.json").read_text())
    (tmp_path / "modules.json").write_text(json.dumps([*modules, modules[1]]))
    with pytest.raises(CheckpointError, match="must be one Transformer, Dense"):
        BertLateInteractionEncoder.from_pretrained(tmp_path)


def test_a_classifier_saved_over_a_model_of_pylate(model, tmp_path):
    write_pylate(model, tmp_path, **PYLATE)
    classifier = BertTextClassifier(model.backbone, labels=["a", "b"], pooling="mean")
    classifier.save_pretrained(tmp_path)
    assert open_pretrained(tmp_path).class_name == "BertTextClassifier"
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert opened.labels == ["a", "b"] and opened.pooling == "mean"


@pytest.mark.peers
@pytest.mark.parametrize("attends", [True, False])
def test_vectors_and_scores_are_those_of_sentence_transformers(make, attends, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    model = make(attend_to_mask_tokens=attends, mask_punctuation=not attends)
    model.save_pretrained(tmp_path / "colbert")
    theirs = library.MultiVectorEncoder(str(tmp_path / "colbert"), device="cpu")
    queries, documents = theirs.encode_query(QUERIES), theirs.encode_document(DOCUMENTS)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    for opened in (model, BertLateInteractionEncoder.from_pretrained(tmp_path / "theirs")):
        for ours, expected in (
            (opened.encode_queries(QUERIES), queries),
            (opened.encode_documents(DOCUMENTS), documents),
        ):
            assert len(ours) == len(expected)
            for received, vectors in zip(ours, expected):
                np.testing.assert_allclose(received, vectors, atol=1e-5)
        expected = theirs.similarity_pairwise(queries, documents)
        np.testing.assert_allclose(opened.score(QUERIES, DOCUMENTS), expected, rtol=1e-5)
