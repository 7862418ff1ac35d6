"""Tiny files under the names that examples use, in docstrings and documents."""

import json
import os
import pathlib

import bert_tf
from bert_tf.inputs.tables.table_writer import open_table
from bert_tf.tasks.pretraining.create_data import create_pretraining_data
from bert_tf.tasks.pretraining.document_chunks import scan_documents
from bert_tf.tasks.pretraining.examples import ExampleOptions
from research.corpora.film_reviews import read_film_reviews, split_by_film
from tests.conftest import MATERIALS

TEXTS = ["a good film", "a bad film", "the good .", "the bad ."]
LABELS = ["good", "bad", "good", "bad"]
DOCUMENTS = "\n".join(["a good film .\nthe bad film .\na film is good .\n"] * 4)
SWAG = """sent1,sent2,ending0,ending1,ending2,ending3,label
A band arrives.,It,walks down the street.,is a good film.,eats the road.,sleeps.,0
A dog sees a cat.,It,is a bad film.,barks.,reads.,flies off.,1
"""
SST_2 = "sentence\tlabel\n" + "a bad film\t0\na good film\t1\n" * 2
SST_2_TEST = "index\tsentence\n0\ta bad film\n"
PAIRS = "A good film. The bad film.\tA good film.\nThe film. It is bad.\tIt is bad.\n" * 8
CORPUS = [("d1", "a good film"), ("d2", "a bad film"), ("d3", "the good .")]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td3\t1\nq2\td2\t1\n"
STS = "sentence1\tsentence2\tscore\na good film\tgood .\t4.5\nthe film\tbad\t1.0\n"
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "A tower",
            "paragraphs": [
                {
                    "context": "The tower is in Paris.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "Where is it?",
                            "is_impossible": False,
                            "answers": [{"text": "Paris", "answer_start": 16}],
                        }
                    ],
                }
            ],
        }
    ],
}
BASES = ("bert-base", "bert-base-uncased", "bert-base-chinese")
TF1_BASES = ("uncased_L-12_H-768_A-12", "cased_L-12_H-768_A-12", "uncased_L-4_H-256_A-4")
CLASSIFIERS = {"reviews": ["bad", "good"], "out/model": ["0", "1"]}


def write_example_files(
    directory: pathlib.Path, vocabulary: list[str], num_hidden_layers: int = 2
) -> None:
    """Fills a folder with checkpoints and texts under the names that the examples use.

    Args:
        directory: An empty folder.
        vocabulary: 64 pieces.
        num_hidden_layers: Of the checkpoints.
    """
    (directory / ".cache").mkdir()
    (directory / ".cache" / "materials").symlink_to(MATERIALS)
    _write_checkpoints(directory, vocabulary, num_hidden_layers)
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary))
    (directory / "corpus").mkdir()
    (directory / "corpus" / "films.txt").write_text(DOCUMENTS)
    _write_records(directory, vocabulary)
    fixtures = MATERIALS / "format_fixtures"
    (directory / "dev-v1.1.json").symlink_to(fixtures / "squad.json")
    (directory / "eng.train").symlink_to(fixtures / "conll2003.txt")
    (directory / "swag").mkdir()
    for split in ("train", "val", "test"):
        (directory / "swag" / f"{split}.csv").write_text(SWAG)


def write_docstring_files(directory: pathlib.Path, vocabulary: list[str]) -> None:
    """`write_example_files`, and MiniLM itself: docstrings show what comes out of it."""
    write_example_files(directory, vocabulary)
    (directory / "minilm").symlink_to(MATERIALS / "minilm")


def write_document_files(directory: pathlib.Path, vocabulary: list[str]) -> None:
    """`write_example_files`, and the data files that documents name."""
    write_example_files(directory, vocabulary, num_hidden_layers=4)  # students take 3 and 4
    (directory / "minilm").symlink_to(directory / BASES[0])
    (directory / "SST-2").mkdir()
    for split, lines in (("train", SST_2), ("dev", SST_2), ("test", SST_2_TEST)):
        (directory / "SST-2" / f"{split}.tsv").write_text(lines)
    for name in ("pairs", "descriptions"):
        (directory / name).mkdir()
        for split in ("train", "dev", "test"):
            (directory / name / f"{split}.tsv").write_text(PAIRS)
    (directory / "conll2003").mkdir()
    for split in ("train", "dev", "test"):
        (directory / "conll2003" / f"{split}.txt").symlink_to(directory / "eng.train")
    for version in ("v1.1", "v2.0"):
        (directory / f"train-{version}.json").write_text(json.dumps(SQUAD))
    (directory / "dev-v2.0.json").write_text(json.dumps(SQUAD))
    for split in ("train", "dev"):
        (directory / f"sts-{split}.tsv").write_text(STS)
    write_retrieval_data(
        directory / "scifact", CORPUS, [("q1", "good film"), ("q2", "bad film")], QRELS
    )
    for name in ("input.txt", "reviews.txt", "corpus-1.txt", "heldout.txt"):
        (directory / name).write_text(DOCUMENTS)
    write_film_reviews(directory, 32, 8)
    (directory / "out" / "dev_results.tsv").write_text("0.8\t0.2\n0.1\t0.9\n" * 2)
    (directory / "out" / "test_predictions.txt").write_text("Ada B-PER B-PER\nwrote O O\n")
    (directory / "tf_idf").mkdir()
    (directory / "tf_idf" / "dev_results.tsv").write_text("0.4\t0.6\n0.1\t0.9\n" * 2)
    for name in ("one", "two", "references_1", "references_2"):
        (directory / f"{name}.txt").write_text("a good film\na bad film\n")
    for name in ("bm25", "minilm"):
        (directory / f"{name}.run").write_text("q1 Q0 d1 1 0.5 x\nq2 Q0 d1 1 0.5 x\n")
    (directory / "out" / "predictions.json").write_text('{"q1": "Paris"}')


def write_retrieval_data(
    directory: pathlib.Path,
    documents: list[tuple[str, str]],
    queries: list[tuple[str, str]],
    qrels: str,
) -> None:
    """Writes a data set as BEIR has it; `qrels` is the file of its split test."""
    (directory / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps({"_id": id_, "text": text}) + "\n" for id_, text in rows)
        (directory / f"{name}.jsonl").write_text("".join(lines))
    (directory / "qrels" / "test.tsv").write_text(qrels)


def write_film_reviews(directory: pathlib.Path, num_train: int, num_test: int) -> None:
    """Writes tables of real reviews: some to train on, some to predict, of other films."""
    archive = MATERIALS / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    splits = split_by_film(read_film_reviews(archive))
    for split, count in (("train", num_train), ("test", num_test)):
        with open_table(directory / f"{split}.csv") as table:
            rows = enumerate(splits[split][:count])
            table.write([{"id": n, "text": text, "label": label} for n, (text, label) in rows])


def _write_records(directory, vocabulary):
    tokenizer = bert_tf.BertTokenizer(vocabulary)
    options = ExampleOptions(max_seq_length=128, max_predictions_per_seq=20)
    corpus = scan_documents([directory / "corpus" / "films.txt"], progress=False)
    create_pretraining_data(
        corpus, [directory / "out-0.tfrecord"], tokenizer, options, progress=False
    )


def _write_checkpoints(directory, vocabulary, num_hidden_layers):
    config = bert_tf.BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=512,
    )
    (directory / "config.json").write_text(json.dumps(config.to_dict()))
    model = bert_tf.BertPretrainer(bert_tf.BertBackbone(config))
    tokenizer = bert_tf.BertTokenizer(vocabulary)
    base, tf1 = directory / BASES[0], directory / TF1_BASES[0]
    for path, format in ((base, "huggingface"), (tf1, "tf1")):
        model.save_pretrained(path, format=format)
        tokenizer.save_pretrained(path)
    for name in BASES[1:]:
        os.symlink(base, directory / name)
    for name in TF1_BASES[1:]:
        os.symlink(tf1, directory / name)
    for name, labels in CLASSIFIERS.items():
        classifier = bert_tf.BertTextClassifier.from_pretrained(base, labels=labels)
        classifier.save_pretrained(directory / name)
    translator = bert_tf.BertEncoderDecoder.from_encoder_decoder_pretrained(base, base)
    translator.save_pretrained(directory / "translator")
    switches = {"model_type": "electra", "embedding_size": 16, "pooler_act": "gelu"}
    backbone = bert_tf.BertBackbone(bert_tf.BertConfig(**{**config.to_dict(), **switches}))
    detector = bert_tf.BertReplacedTokenDetector(backbone, tokenizer)
    detector.save_pretrained(directory / "electra-base-discriminator")
