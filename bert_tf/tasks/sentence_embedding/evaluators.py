"""Scores of held-out texts for models that make vectors or score pairs: functions and callbacks.

An evaluator is called with a model, `TripletScores(…)(encoder)`, or is a callback of `fit`, which
adds its scores to the logs of each epoch as `val_<score>`, with a name as `val_<name>_<score>`.
Models that score pairs of texts (`BertCrossEncoder`, `BertLateInteractionEncoder`) do it in
`PairScores` and `RerankingScores`; other models give a vector for each text.

Glossary: `n` examples, `D` the size of a vector.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.base.vectors import as_matrix
from bert_tf.errors import DataError, UserError, require, require_one_of, user_error
from bert_tf.tasks.sentence_embedding.compared_vectors import (
    SIMILARITIES,
    mined_pairs,
    nearest,
    similarities,
)
from bert_tf.tasks.sentence_embedding.files import (
    find_data_sets,
    read_corpus,
    read_qrels,
    read_queries,
)
from bert_tf.training.evaluation.pair_scores import best_f1_threshold, pair_scores
from bert_tf.training.evaluation.ranking import score_rankings


class Evaluator(keras.callbacks.Callback):
    """Base class: a subclass defines `scores`.

    Args:
        name: The name of the data in the logs; "" for none.
        batch_size: The batch size of the model.
    """

    def __init__(self, name: str = "", batch_size: int = 32):
        super().__init__()
        self.name = name
        self.batch_size = batch_size

    def scores(self, model: keras.Model) -> dict[str, float]:
        """Returns the scores of a model by name."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `scores`.")

    def __call__(self, model: keras.Model) -> dict[str, float]:
        """Returns the scores of a model by name."""
        return self.scores(model)

    def on_epoch_end(self, epoch, logs=None):
        scores = self.scores(getattr(self.model, "student", self.model))
        if logs is not None:
            prefix = f"val_{self.name}_" if self.name else "val_"
            logs.update({prefix + name: value for name, value in scores.items()})

    def vectors(
        self, model: keras.Model, texts: Sequence[str], prompt: str | None = None
    ) -> np.ndarray:
        """Returns the vectors of texts, `[n, D]`."""
        options = {} if prompt is None else {"prompt": prompt}
        return as_matrix(model.encode(texts, batch_size=self.batch_size, **options), "vectors")


class PairScores(Evaluator):
    """`pair_scores` of held-out pairs: how well a threshold tells those of label 1 from others.

    Args:
        x: Two lists of n texts, or an array of pairs as `fit` takes them.
        y: n labels, 0 or 1.
        similarity: "cosine", "dot", "euclidean" or "manhattan": how vectors are compared; distances
            are negative. Not for models that score pairs.
        name, batch_size: See `Evaluator`.

    Raises:
        DataError: If there are not as many labels as pairs, or a label is neither 0 nor 1.
        UserError: If `similarity` is unknown.

    Example:
        >>> from bert_tf.tasks.sentence_embedding import PairScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> evaluator = PairScores((["a film", "a cat"], ["the film", "good ."]), [1, 0])
        >>> scores = evaluator(encoder)
        >>> scores["f1"], -1 < scores["f1_threshold"] <= 1
        (1.0, True)

    Reference: `BinaryClassificationEvaluator` of sentence-transformers.
    """

    def __init__(self, x, y, similarity: str = "cosine", name: str = "", batch_size: int = 32):
        super().__init__(name, batch_size)
        require_one_of("similarity", similarity, SIMILARITIES)
        self.x = _columns("x", x, 2)
        self.y = np.asarray(y)
        self.similarity = similarity
        pair_scores(np.zeros(len(self.x[0])), self.y)  # what is wrong is found before training

    def scores(self, model):
        if hasattr(model, "score"):
            return pair_scores(model.score(*self.x, batch_size=self.batch_size), self.y)
        one, other = (self.vectors(model, texts) for texts in self.x)
        return pair_scores(similarities(one, other, self.similarity), self.y)


class TripletScores(Evaluator):
    """The share of held-out anchors that are more similar to the positive than to the negative.

    Its score is `accuracy`.

    Args:
        x: Three lists of n texts: anchors, positives and negatives.
        similarity: See `PairScores`.
        margin: The difference that the similarities must exceed.
        name, batch_size: See `Evaluator`.

    Raises:
        DataError: If there are no texts, or not as many in each list.
        UserError: If `similarity` is unknown.

    Example:
        >>> from bert_tf.tasks.sentence_embedding import TripletScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> TripletScores((["a film"], ["a film"], ["good ."]))(encoder)
        {'accuracy': 1.0}

    Reference: `TripletEvaluator` of sentence-transformers.
    """

    def __init__(
        self,
        x,
        similarity: str = "cosine",
        margin: float = 0.0,
        name: str = "",
        batch_size: int = 32,
    ):
        super().__init__(name, batch_size)
        require_one_of("similarity", similarity, SIMILARITIES)
        self.x = _columns("x", x, 3)
        self.similarity = similarity
        self.margin = margin

    def scores(self, model):
        anchors, *others = (self.vectors(model, texts) for texts in self.x)
        positive, negative = (similarities(anchors, other, self.similarity) for other in others)
        return {"accuracy": float(np.mean(positive > negative + self.margin))}


class RerankingScores(Evaluator):
    """Scores of the order in which a model ranks the documents of each query.

    They are `map`, `mrr@k` and `ndcg@k`.

    Args:
        queries: n texts.
        positives, negatives: n lists of documents each, the right and the wrong ones of the query.
        k: How many documents of a ranking count for MRR and NDCG.
        query_prompt, document_prompt: What is put before each text, for models that give vectors;
            None as the model says.
        name, batch_size: See `Evaluator`.

    Raises:
        DataError: If there are no queries, not as many lists, or a query has no positive or no
            negative.
        UserError: If `k` is below 1.

    Example:
        >>> from bert_tf.tasks.sentence_embedding import RerankingScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> RerankingScores(["a film"], [["a film"]], [["good .", "bad ."]])(encoder)
        {'map': 1.0, 'mrr@10': 1.0, 'ndcg@10': 1.0}

    Reference: `RerankingEvaluator` of sentence-transformers.
    """

    def __init__(
        self,
        queries: Sequence[str],
        positives: Sequence[Sequence[str]],
        negatives: Sequence[Sequence[str]],
        k: int = 10,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        name: str = "",
        batch_size: int = 32,
    ):
        super().__init__(name, batch_size)
        require(k >= 1, "must be at least 1", UserError, k=k)
        self.queries, self.positives, self.negatives = queries, positives, negatives
        _require_lengths(queries=queries, positives=positives, negatives=negatives)
        for what, lists in (("positives", positives), ("negatives", negatives)):
            for row, documents in enumerate(lists):
                if isinstance(documents, str) or not len(documents):
                    expected = "have a list of at least one document for each query"
                    received = f"{documents!r} for query {row}"
                    raise user_error(f"`{what}`", expected, received, DataError)
        self.k = k
        self.query_prompt = query_prompt
        self.document_prompt = document_prompt

    def scores(self, model):
        documents = [[*right, *wrong] for right, wrong in zip(self.positives, self.negatives)]
        sizes = np.array([len(texts) for texts in documents])
        flat = [text for texts in documents for text in texts]
        owners = np.repeat(np.arange(len(sizes)), sizes)  # the query of each document
        if hasattr(model, "score"):
            pairs = [self.queries[row] for row in owners], flat
            values = model.score(*pairs, batch_size=self.batch_size)
        else:
            queries = self.vectors(model, self.queries, self.query_prompt)
            values = similarities(
                queries[owners], self.vectors(model, flat, self.document_prompt), "cosine"
            )
        rankings, qrels = {}, {}
        for row, (end, size) in enumerate(zip(np.cumsum(sizes), sizes)):
            order = np.argsort(-values[end - size : end], kind="stable")
            rankings[row] = order.tolist()
            qrels[row] = dict.fromkeys(range(len(self.positives[row])), 1)
        means = score_rankings(rankings, qrels, [self.k]).means()
        return {name: means[name] for name in ("map", f"mrr@{self.k}", f"ndcg@{self.k}")}


class TranslationScores(Evaluator):
    """How often the translation of a text is the most similar of all, in both directions.

    The scores are `accuracy_to_targets`, `accuracy_to_sources` and their mean `accuracy`. Equal
    texts count as the same.

    Args:
        sources, targets: n texts and their translations.
        name, batch_size: See `Evaluator`.

    Raises:
        DataError: If there are no texts, or not as many targets.

    Example:
        >>> from bert_tf.tasks.sentence_embedding import TranslationScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> TranslationScores(["a film", "good ."], ["a film", "good ."])(encoder)["accuracy"]
        1.0

    Reference: `TranslationEvaluator` of sentence-transformers.
    """

    def __init__(
        self, sources: Sequence[str], targets: Sequence[str], name: str = "", batch_size: int = 32
    ):
        super().__init__(name, batch_size)
        _require_lengths(sources=sources, targets=targets)
        self.sources, self.targets = list(sources), list(targets)

    def scores(self, model):
        vectors = [self.vectors(model, texts) for texts in (self.sources, self.targets)]
        results = {}
        directions = (("targets", vectors, self.targets), ("sources", vectors[::-1], self.sources))
        for name, (one, other), texts in directions:
            _, best = nearest(one, other, 1)
            hits = [texts[row] == texts[place] for row, (place,) in enumerate(best)]
            results[f"accuracy_to_{name}"] = float(np.mean(hits))
        return {**results, "accuracy": sum(results.values()) / 2}


class BitextMiningScores(Evaluator):
    """How well a model finds the pairs of translations in two unordered collections.

    Each text and the neighbor with the largest margin are a candidate. The margin is the cosine
    divided by the mean cosine of both texts with their nearest neighbors. A text of several
    candidates keeps the best one. The scores are `f1`, `precision`, `recall` and `threshold` at
    the margin with the largest F1.

    Args:
        sources, targets: Texts; the lists may have different lengths.
        pairs: The right pairs: row numbers of `sources` and of `targets`, int `[p, 2]`.
        num_neighbors: The number of neighbors; 0 takes the cosine as the margin.
        name, batch_size: See `Evaluator`.

    Raises:
        DataError: If there are no texts or pairs, or a number is not one of a text.
        UserError: If `num_neighbors` is negative.

    Example:
        >>> from bert_tf.tasks.sentence_embedding import BitextMiningScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> texts = ["a film", "good ."]
        >>> BitextMiningScores(texts, texts[::-1], [(0, 1), (1, 0)])(encoder)["f1"]
        1.0

    Reference: Artetxe and Schwenk 2019 (arXiv 1811.01136), ratio margin, maximum strategy.
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        pairs: Sequence[tuple[int, int]],
        num_neighbors: int = 4,
        name: str = "",
        batch_size: int = 32,
    ):
        super().__init__(name, batch_size)
        rule = "must be at least 0"
        require(num_neighbors >= 0, rule, UserError, num_neighbors=num_neighbors)
        self.sources, self.targets = sources, targets
        for what, texts in (("sources", sources), ("targets", targets)):
            _require_lengths(**{what: texts})
        self.num_neighbors = num_neighbors
        self.pairs = np.asarray(pairs)
        limits = (len(sources), len(targets))
        is_valid = self.pairs.ndim == 2 and self.pairs.shape[1] == 2 and len(self.pairs) > 0
        is_valid = is_valid and self.pairs.dtype.kind in "iu"
        if not is_valid or (self.pairs < 0).any() or (self.pairs >= limits).any():
            expected = f"be row numbers [p, 2] of the {limits[0]} sources and {limits[1]} targets"
            raise user_error("`pairs`", expected, f"{self.pairs[:3].tolist()}", DataError)

    def scores(self, model):
        vectors = [self.vectors(model, texts) for texts in (self.sources, self.targets)]
        pairs, values = mined_pairs(*vectors, self.num_neighbors)
        right = {tuple(pair) for pair in self.pairs.tolist()}
        labels = np.array([tuple(pair) in right for pair in pairs.tolist()])
        best = best_f1_threshold(values, labels, len(right))
        found = values >= best.threshold
        hits, count = int(np.sum(found & labels)), int(np.sum(found))
        return {
            "f1": best.value,
            "precision": hits / max(count, 1),
            "recall": hits / len(right),
            "threshold": best.threshold,
        }


class RetrievalScores(Evaluator):
    """Scores of an exact search of queries in documents: those of `score_rankings`.

    Args:
        queries, documents: Texts by their ids.
        qrels: Grades of documents by id, by the id of the query. Queries without grades are left
            out.
        cutoffs: The values of k; rankings have as many documents as the largest.
        similarity: "cosine" or "dot".
        query_prompt, document_prompt: See `RerankingScores`.
        name, batch_size: See `Evaluator`.

    Raises:
        DataError: If there are no documents, or a query of `qrels` has no text.
        UserError: If `similarity` is unknown, or a cutoff is below 1.

    Example:
        >>> from bert_tf.tasks.sentence_embedding import RetrievalScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> documents = {"d1": "a film", "d2": "good ."}
        >>> evaluator = RetrievalScores({"q": "a film"}, documents, {"q": {"d1": 1}}, cutoffs=[1])
        >>> evaluator(encoder)["ndcg@1"]
        1.0

    Reference: `InformationRetrievalEvaluator` of sentence-transformers.
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int]],
        cutoffs: Sequence[int] = (10,),
        similarity: str = "cosine",
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        name: str = "",
        batch_size: int = 32,
    ):
        super().__init__(name, batch_size)
        require_one_of("similarity", similarity, ("cosine", "dot"))
        unknown = [query for query in qrels if query not in queries]
        if unknown or not documents:
            expected = "have a text for every query of `qrels`, and `documents` at least one"
            received = f"{len(unknown)} missing: {unknown[:3]}, {len(documents)} documents"
            raise user_error("`queries`", expected, received, DataError)
        score_rankings({query: [] for query in qrels}, qrels, cutoffs)  # checks both
        self.queries, self.documents, self.qrels = queries, documents, qrels
        self.cutoffs = cutoffs
        self.similarity = similarity
        self.query_prompt = query_prompt
        self.document_prompt = document_prompt

    def scores(self, model):
        texts = [self.queries[query] for query in self.qrels]
        ids = list(self.documents)
        queries = self.vectors(model, texts, self.query_prompt)
        documents = self.vectors(model, list(self.documents.values()), self.document_prompt)
        values, rows = nearest(queries, documents, max(self.cutoffs), self.similarity)
        rankings = {
            query: {ids[row]: float(value) for row, value in zip(*found)}
            for query, *found in zip(self.qrels, rows, values)
        }
        return score_rankings(rankings, self.qrels, self.cutoffs).means()


class DataSetScores(Evaluator):
    """`RetrievalScores` of a data set in files of BEIR, or of several and their mean.

    With several data sets, such as those of NanoBEIR, the scores of each have its name before them,
    as in `NanoMSMARCO_ndcg@10`, and `ndcg@10` is their mean.

    Args:
        directory: A directory with `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, or with
            folders that have them.
        split: The name of the file with the grades.
        name, batch_size: See `Evaluator`.
        **options: `cutoffs`, `similarity`, `query_prompt`, `document_prompt`; see
            `RetrievalScores`.

    Raises:
        DataError: If there is no data set, or a file is missing or malformed.
        UserError: See `RetrievalScores`.

    Example:
        >>> import os, pathlib
        >>> from bert_tf.tasks.sentence_embedding import DataSetScores
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> os.makedirs("films/qrels")
        >>> files = {
        ...     "corpus.jsonl": '{"_id": "d1", "text": "a film"}',
        ...     "queries.jsonl": '{"_id": "q1", "text": "film"}',
        ...     "qrels/test.tsv": "query-id\\tcorpus-id\\tscore\\nq1\\td1\\t1",
        ... }
        >>> for name, text in files.items():
        ...     size = pathlib.Path("films", name).write_text(text)
        >>> DataSetScores("films/", cutoffs=[1])(encoder)["ndcg@1"]
        1.0

    Reference: `NanoBEIREvaluator` of sentence-transformers, which downloads the data.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        split: str = "test",
        name: str = "",
        batch_size: int = 32,
        **options: Any,
    ):
        super().__init__(name, batch_size)
        self.data_sets = {}
        for files in find_data_sets(directory, split):
            contents = read_queries(files.queries), dict(read_corpus(files.corpus))
            options_of_set = {**options, "batch_size": batch_size}
            self.data_sets[files.name] = RetrievalScores(
                *contents, read_qrels(files.qrels), **options_of_set
            )

    def scores(self, model):
        tables = {name: scores(model) for name, scores in self.data_sets.items()}
        first, *others = tables.values()
        if not others:
            return first
        means = {name: sum(t[name] for t in tables.values()) / len(tables) for name in first}
        named = {f"{data}_{name}": v for data, table in tables.items() for name, v in table.items()}
        return {**means, **named}


def _columns(name, x, count):
    """Returns lists of texts, of an array of examples too."""
    if isinstance(x, np.ndarray) and x.ndim == 2:
        x = tuple(x.T.tolist())
    if not isinstance(x, tuple) or len(x) != count:
        expected = f"be a tuple of {count} lists of texts"
        received = f"{type(x).__name__} of {len(x) if hasattr(x, '__len__') else '?'}"
        raise user_error(f"`{name}`", expected, received, DataError)
    _require_lengths(**{f"{name}[{number}]": texts for number, texts in enumerate(x)})
    return tuple(list(texts) for texts in x)


def _require_lengths(**lists):
    """Requires that lists of texts have the same length, at least 1."""
    lengths = {name: 0 if isinstance(texts, str) else len(texts) for name, texts in lists.items()}
    if len(set(lengths.values())) != 1 or not min(lengths.values()):
        first, *others = lengths
        expected = "be a list of at least one text" + (
            f", and as many as {' and '.join(f'`{name}`' for name in others)}" if others else ""
        )
        received = ", ".join(f"len({name})={length}" for name, length in lengths.items())
        raise user_error(f"`{first}`", expected, received, DataError)
