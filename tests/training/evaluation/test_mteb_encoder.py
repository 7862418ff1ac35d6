"""mteb scores our encoder and the one of sentence-transformers alike, on film reviews."""

import numpy as np
import pytest

from bert_tf import BertSentenceEncoder
from research.corpora.retrieval import film_reviews_of


@pytest.mark.peers
def test_scores_are_those_of_sentence_transformers(minilm, materials, monkeypatch):
    mteb = pytest.importorskip("mteb", reason="needs mteb")
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.mocks.mock_tasks.retrieval import general_args

    from bert_tf.training.evaluation.mteb_encoder import MtebEncoder

    data = film_reviews_of(materials)
    relevant = dict(list(data.relevant["test"].items())[:40])
    documents = sorted({document for ids in relevant.values() for document in ids})

    def rows(ids, texts):
        return Dataset.from_list([{"id": id_, "text": texts[id_]} for id_ in ids])

    class FilmReviews(AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            type="Retrieval", name="FilmReviews", main_score="ndcg_at_10", **general_args
        )

        def load_data(self, **unused):
            split = {
                "queries": rows(relevant, data.queries),
                "corpus": rows(documents, data.documents),
                "relevant_docs": {q: dict.fromkeys(ids, 1) for q, ids in relevant.items()},
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    def scores(model):
        options = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
        (result,) = mteb.evaluate(model, FilmReviews(), **options).task_results
        (found,) = result.scores["test"]
        return {name: value for name, value in found.items() if name.startswith(("ndcg", "map"))}

    encoder = BertSentenceEncoder.from_pretrained(minilm)
    found = scores(MtebEncoder(encoder, "mine/minilm"))
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers"
    )
    theirs = scores(sentence_transformers.SentenceTransformer(str(minilm), device="cpu"))
    assert found["ndcg_at_10"] > 0.2
    assert found == pytest.approx(theirs, abs=1e-3)

    encoder.prompts = {"query": "film: ", "Retrieval-document": "review: "}
    asked = []
    monkeypatch.setattr(
        BertSentenceEncoder,
        "encode",
        lambda self, texts, *, prompt_name=None, **unused: (
            asked.append(prompt_name) or np.zeros([len(texts), 384], np.float32)
        ),
    )
    scores(MtebEncoder(encoder, "mine/minilm"))
    assert sorted(asked) == ["Retrieval-document", "query"]
