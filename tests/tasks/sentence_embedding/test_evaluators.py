"""Evaluators, compared with those of sentence-transformers 6.2.0 on the same planted vectors."""

import itertools

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import DataError, UserError
from bert_tf.tasks.sentence_embedding import (
    BitextMiningScores,
    DataSetScores,
    PairScores,
    RerankingScores,
    RetrievalScores,
    TranslationScores,
    TripletScores,
)
from bert_tf.tasks.sentence_embedding.compared_vectors import mined_pairs, nearest
from tests.example_files import write_retrieval_data

N = 30
A = [f"a{number}" for number in range(N)]
B = [f"b{number * 3}" for number in range(N)]
C = [f"c{number * 5}" for number in range(N)]
LABELS = [int(number * number % 3 == 0) for number in range(N)]
# BinaryClassificationEvaluator(A, B, LABELS, similarity_fn_names=[name]) and TripletEvaluator(A, B,
# C, main_similarity_function=name, similarity_fn_names=[name]), called with a model whose `encode`
# is that of `PlantedModel` and whose `similarity_fn_name` is "cosine". Distances are negative here.
PAIRS = {
    "cosine": {
        "accuracy": 0.6666666666666666,
        "accuracy_threshold": 0.9649505019187927,
        "f1": 0.5142857142857143,
        "f1_threshold": -0.0970558300614357,
        "precision": 0.36,
        "recall": 0.9,
        "average_precision": 0.3298157894736842,
        "matthews": 0.12649110640673517,
    },
    "dot": {
        "accuracy_threshold": 8.659575462341309,
        "f1": 0.5405405405405406,
        "average_precision": 0.3176146816146816,
    },
    "euclidean": {
        "accuracy": 0.7333333333333333,
        "accuracy_threshold": -1.7754247188568115,
        "f1": 0.5925925925925927,
        "f1_threshold": -2.704239845275879,
        "average_precision": 0.49712091884150705,
        "matthews": 0.33295604590814587,
    },
    "manhattan": {
        "accuracy_threshold": -2.906668186187744,
        "f1_threshold": -4.037399768829346,
        "average_precision": 0.5264699381078691,
    },
}
TRIPLETS = {
    "cosine": 0.5666666626930237,
    "dot": 0.5666666626930237,
    "euclidean": 0.46666666865348816,
    "manhattan": 0.5333333611488342,
}


class PlantedModel:
    """The vector of a text depends on its characters only."""

    def encode(self, texts, batch_size=None, prompt=""):
        return np.stack([self.vector(prompt + text) for text in texts])

    def vector(self, text):
        random = np.random.default_rng([*map(ord, text)])
        return random.normal(size=4).astype(np.float32) + np.float32([1, 0, 0, 0])


class PairModel(PlantedModel):
    """Scores pairs, and cannot be asked for vectors."""

    encode = None

    def score(self, texts, others, batch_size=None):
        return np.array([self.vector(a) @ self.vector(b) for a, b in zip(texts, others)])


@pytest.mark.parametrize("similarity", PAIRS)
def test_pairs_and_triplets(similarity):
    scores = PairScores((A, B), LABELS, similarity)(PlantedModel())
    expected = PAIRS[similarity]
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    accuracy = TripletScores((A, B, C), similarity)(PlantedModel())["accuracy"]
    assert accuracy == pytest.approx(TRIPLETS[similarity], abs=1e-7)
    assert TripletScores((A, B, C), similarity, margin=99)(PlantedModel()) == {"accuracy": 0.0}


def test_a_model_that_scores_pairs():
    by_vectors = PairScores((A, B), LABELS, "dot")(PlantedModel())
    assert PairScores(np.array([A, B]).T, LABELS)(PairModel()) == pytest.approx(by_vectors)
    scores = RerankingScores(A[:2], [B[:2], B[2:3]], [C[:3], C[3:5]])(PairModel())
    assert 0 < scores["map"] <= 1


def test_reranking():
    """RerankingEvaluator(samples, at_k=3)."""
    right = [B[2 * row : 2 * row + 2] for row in range(10)]
    wrong = [C[3 * row : 3 * row + 3] for row in range(10)]
    scores = RerankingScores(A[:10], right, wrong, k=3)(PlantedModel())
    expected = {"map": 0.6783333333333333, "mrr@3": 0.7666666666666666, "ndcg@3": 0.63723095602100}
    assert scores == pytest.approx(expected)


def test_translation():
    """TranslationEvaluator(B[:6], C[:6])."""
    scores = TranslationScores(B[:6], C[:6])(PlantedModel())
    expected = {"accuracy_to_targets": 1 / 6, "accuracy_to_sources": 2 / 6, "accuracy": 0.25}
    assert scores == pytest.approx(expected)
    repeated = TranslationScores(["x", "x", "y"], ["x", "x", "y"])(PlantedModel())
    assert repeated["accuracy"] == 1.0  # equal texts are the same


def retrieval_data():
    documents = {f"d{number}": text for number, text in enumerate(B + C)}
    queries = {f"q{number}": text for number, text in enumerate(A[:12])}
    qrels = {f"q{i}": {f"d{(i * 7 + j * 11) % 60}": 1 for j in range(1 + i % 4)} for i in range(12)}
    return queries, documents, qrels


def test_retrieval():
    """InformationRetrievalEvaluator(queries, documents, relevant, mrr_at_k=[10], …)."""
    scores = RetrievalScores(*retrieval_data())(PlantedModel())
    expected = {
        "hit_rate@10": 0.4166666666666667,
        "precision@10": 0.05,
        "recall@10": 0.17361111111111108,
        "ndcg@10": 0.1460004078915488,
        "mrr@10": 0.225,
        "map@10": 0.08819444444444442,
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    prompted = RetrievalScores(*retrieval_data(), query_prompt="query: ")(PlantedModel())
    assert prompted != scores


def test_data_sets_in_files(tmp_path):
    queries, documents, qrels = retrieval_data()
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{q}\t{d}\t{grade}" for q, grades in qrels.items() for d, grade in grades.items()]
    text = "".join(f"{line}\n" for line in lines)
    write_retrieval_data(tmp_path / "one", [*documents.items()], [*queries.items()], text)
    expected = RetrievalScores(queries, documents, qrels)(PlantedModel())
    assert DataSetScores(tmp_path / "one")(PlantedModel()) == pytest.approx(expected)

    write_retrieval_data(
        tmp_path / "two", [("d0", B[0])], [("q0", A[0])], f"{lines[0]}\nq0\td0\t1\n"
    )
    scores = DataSetScores(tmp_path, cutoffs=[10])(PlantedModel())
    assert scores["two_ndcg@10"] == 1.0 and scores["one_map"] == pytest.approx(expected["map"])
    assert scores["ndcg@10"] == pytest.approx((1.0 + expected["ndcg@10"]) / 2)
    with pytest.raises(DataError, match=r"dev.tsv must be a file of the data set"):
        DataSetScores(tmp_path, split="dev")


def numpy_mined_pairs(sources, targets, k):
    """Float64, pair by pair."""
    one, other = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (sources, targets))
    cosines = one @ other.T
    margins = np.empty_like(cosines)
    for i, j in itertools.product(*map(range, cosines.shape)):
        near = np.sort(cosines[i])[-k:].mean() + np.sort(cosines[:, j])[-k:].mean()
        margins[i, j] = cosines[i, j] / (near / 2)
    candidates = set()
    for i, row in enumerate(cosines):
        candidates.add((i, max(np.argsort(-row)[:k], key=lambda j: margins[i, j])))
    for j, column in enumerate(cosines.T):
        candidates.add((max(np.argsort(-column)[:k], key=lambda i: margins[i, j]), j))
    kept = []
    for i, j in sorted(candidates, key=lambda pair: -margins[pair]):
        if all(i != a and j != b for a, b in kept):
            kept.append((int(i), int(j)))
    return kept, [margins[pair] for pair in kept]


@pytest.mark.parametrize("sizes", [(7, 5), (300, 20), (1, 1)])
def test_mined_pairs(sizes):
    random = np.random.default_rng(0)
    sources, targets = (random.normal(size=(size, 6)) + 1 for size in sizes)
    pairs, margins = mined_pairs(sources, targets, 3)
    expected, values = numpy_mined_pairs(sources, targets, 3)
    assert list(map(tuple, pairs.tolist())) == expected
    np.testing.assert_allclose(margins, values, rtol=1e-5)


def test_bitext_mining():
    shuffled = list(reversed(A[:10]))
    pairs = [(row, 9 - row) for row in range(10)]
    options = {"num_neighbors": 0}
    scores = BitextMiningScores(A[:10], [*shuffled, *C[:5]], pairs, **options)(PlantedModel())
    assert scores["f1"] == scores["precision"] == scores["recall"] == 1.0
    # Two of the right pairs cannot be found: their recall is lost.
    pairs += [(10, 3), (11, 4)]
    more = BitextMiningScores([*A[:10], "x", "y"], [*shuffled, "z"], pairs, **options)
    assert more(PlantedModel())["recall"] == pytest.approx(10 / 12)


def test_nearest_prefers_the_first_of_equals():
    values, rows = nearest(np.ones([300, 2]), np.ones([4, 2]), 9, "dot")
    assert rows.shape == values.shape == (300, 4) and rows[299].tolist() == [0, 1, 2, 3]


def test_logs_of_fit(tiny_config, tiny_vocabulary):
    tokenizer = bert_tf.BertTokenizer(tiny_vocabulary)
    encoder = bert_tf.BertSentenceEncoder(bert_tf.BertBackbone(tiny_config), tokenizer=tokenizer)
    encoder.compile(bert_tf.training.AdamWeightDecay(1e-5), objective="ranking")
    texts, others = ["a film", "a cat", "good .", "bad ."], ["the film", "cat", "good", "bad"]
    evaluators = [
        PairScores((texts, others), [1, 1, 0, 0]),
        TripletScores((texts, others, texts[::-1]), name="dev"),
    ]
    history = encoder.fit((texts, others), epochs=2, callbacks=evaluators, verbose=0).history
    assert len(history["val_f1"]) == len(history["val_dev_accuracy"]) == 2
    now = evaluators[0](encoder)
    assert history["val_f1_threshold"][-1] == pytest.approx(now["f1_threshold"], abs=1e-6)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: PairScores((A, B), LABELS[:3]), DataError, r"labels.shape=\(3,\)"),
        (lambda: PairScores((A, B), [2] * N), DataError, "`labels` must be 0 or 1"),
        (lambda: PairScores((A, B[:3]), LABELS), DataError, r"len\(x\[1\]\)=3"),
        (lambda: PairScores(A, LABELS), DataError, "`x` must be a tuple of 2 lists.*list of 30"),
        (lambda: PairScores((A, B), LABELS, "l2"), UserError, "`similarity` must be one of"),
        (lambda: TripletScores((A, B)), DataError, "`x` must be a tuple of 3 lists"),
        (lambda: TripletScores((A, B, C), "l2"), UserError, "`similarity` must be one of"),
        (lambda: RerankingScores(A[:2], [B], [C]), DataError, r"len\(positives\)=1"),
        (lambda: RerankingScores(A[:1], [[]], [C]), DataError, r"positives.*\[\] for query 0"),
        (lambda: RerankingScores(A[:1], [B], ["x"]), DataError, "negatives.*'x' for query 0"),
        (lambda: RerankingScores(A[:1], [B], [C], k=0), UserError, "k=0"),
        (lambda: TranslationScores([], []), DataError, r"`sources` must be a list of at least one"),
        (lambda: TranslationScores("ab", "cd"), DataError, r"len\(sources\)=0"),
        (lambda: BitextMiningScores(A, B, []), DataError, "`pairs` must be row numbers"),
        (lambda: BitextMiningScores(A, B, [(0, N)]), DataError, r"30 targets. Received: \[\[0, 30"),
        (lambda: BitextMiningScores(A, [], [(0, 0)]), DataError, "`targets` must be a list"),
        (lambda: BitextMiningScores(A, B, [(0, 0)], -1), UserError, "num_neighbors=-1"),
        (lambda: RetrievalScores({}, {"d": "x"}, {"q": {}}), DataError, r"1 missing: \['q'\]"),
        (lambda: RetrievalScores({"q": "x"}, {}, {"q": {}}), DataError, "0 documents"),
        (
            lambda: RetrievalScores({"q": "x"}, {"d": "x"}, {"q": {"d": 1}}, cutoffs=[0]),
            UserError,
            "`cutoffs` must be",
        ),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_vectors_that_are_not_finite():
    class Broken(PlantedModel):
        def vector(self, text):
            return np.full(4, np.nan, np.float32)

    with pytest.raises(UserError, match="`vectors` must be finite"):
        TranslationScores(A, B)(Broken())
