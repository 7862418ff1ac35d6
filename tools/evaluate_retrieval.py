r"""Scores encoders, BM25, and the results of any search, on data sets for retrieval.

    bert-tf evaluate_retrieval --model_dir=minilm --data_dir=scifact --output_dir=evaluation

--data_dir is a directory as BEIR has it, or one with several such folders, as NanoBEIR has:

    corpus.jsonl         the documents: _id, text and optionally title
    queries.jsonl        the queries: _id and text
    qrels/<split>.tsv    query-id, corpus-id and score: which documents are right, with a header

The queries with grades are compared with all documents. The scores are those of trec_eval: NDCG,
MAP, MRR, recall, precision, F1, hits and hit rate of the first k documents; MAP, MRR, R-precision,
bpref and RBP (persistence 0.8) of whole rankings, which with --model_dir are the documents up to
the largest k. A query without a relevant document counts with zeros.

Several encoders, of sentence vectors and of sparse vectors, and BM25 are scored as one search that
fuses their rankings (hybrid search):

    bert-tf evaluate_retrieval --model_dir=minilm --bm25 --data_dir=scifact --output_dir=evaluation

The results of another search are scored without a model, from files of TREC's form; several are
fused:

    bert-tf evaluate_retrieval --run_file=evaluation/scifact.run \
      --qrels_file=scifact/qrels/test.tsv --output_dir=evaluation

The tool prints a table for each data set and the mean over the data sets, and writes to
--output_dir:

    retrieval_results.json    the scores with their bootstrap confidence intervals (95 %, over
                              queries), and the mean over the data sets
"""

import logging
import os

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, UserError, user_error
from bert_tf.tools.common import fusion_flags, result_files, tool
from bert_tf.tools.common.checks import options_of, positive_integers, require_one
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.corpus_search import fused, search_corpus, search_words
from bert_tf.tools.common.flag_table import FLAGS, define_flags

_logger = logging.getLogger("bert_tf")

define_flags("""
    model_dir (list): The directories of sentence encoders or sparse encoders.
    data_dir (str): With --model_dir or --bm25: the data set, or the directory with several.
    split (str, test): With --model_dir: which file of qrels/ has the grades, without .tsv.
    query_prefix (str, ""): With --model_dir: what is put before each query, such as 'query: '.
    document_prefix (str, ""): With --model_dir: what is put before each document, such as 'passage:
        '.
    similarity (cosine|dot, cosine): With --model_dir: how sentence vectors are compared.
    max_seq_length (int >= 3): With --model_dir: maximum length of a text in tokens; longer text is
        truncated. Default: as the model says.
    ignore_identical_ids (bool, false): With --model_dir: whether a document with the id of the
        query is left out, as BEIR does. For data sets whose queries are documents, such as ArguAna.
    run_output (str): With --model_dir: a directory to write the rankings to, a file NAME.run in
        TREC's form for each data set. Default: they are not written.
    run_file (list): Results of searches in TREC's form, to be scored instead of a model.
    qrels_file (str): With --run_file: the file with the grades, of BEIR or in TREC's form.
    count_missing (bool, false): With --run_file: whether queries with grades that are not in the
        file count with zeros, as with trec_eval's option -c. Otherwise they do not count.
    k (list, 1,10,100): How many documents of each ranking count; several numbers.
    output_dir (str): The directory to write the results to.
""")
fusion_flags.define("With several rankings")

_OF_MODEL = (
    "bm25",
    "data_dir",
    "split",
    "query_prefix",
    "document_prefix",
    "similarity",
    "max_seq_length",
    "ignore_identical_ids",
    "run_output",
)
_BM25 = "bm25"
_OF_RUN = ("qrels_file", "count_missing")


def check_flags():
    """Returns the cutoffs."""
    if FLAGS.run_file or not FLAGS.bm25:
        require_one("model_dir", "run_file")
    mode, needed, other, foreign = "model_dir", "data_dir", "run_file", _OF_RUN
    if FLAGS.run_file:
        mode, needed, other, foreign = "run_file", "qrels_file", "model_dir", _OF_MODEL
    if not FLAGS[needed].value:
        raise UserError(f"--{needed} must be set with --{mode}. Received: none")
    for name in foreign:
        if FLAGS[name].present:
            received = f"--{name}={FLAGS[name].value} and --{mode}"
            raise user_error(f"--{name}", f"be used with --{other}", received)
    searches = FLAGS.run_file or [*(FLAGS.model_dir or ()), *([_BM25] if FLAGS.bm25 else ())]
    fusion_flags.weights(len(searches))
    if FLAGS.bm25:
        require_package("bm25s", "--bm25")
    cutoffs = positive_integers("k")
    if not cutoffs:
        raise UserError("--k must have at least one number. Received: --k=")
    tool.require_writable(FLAGS.output_dir, "output_dir")
    if FLAGS.run_output:
        tool.require_writable(FLAGS.run_output, "run_output")
    return cutoffs


def read_data_set(data_set):
    """Returns the grades, the texts of the queries that have grades, and how many documents.

    It reads all ids, so that mistakes are found before any work.
    """
    from bert_tf.tasks.sentence_embedding.files import (
        read_corpus,
        read_qrels,
        read_queries,
        require_word,
    )

    qrels, queries = read_qrels(data_set.qrels), read_queries(data_set.queries)
    unknown = [query for query in qrels if query not in queries]
    if unknown:
        expected = f"have every query of {data_set.qrels}"
        received = f"{len(unknown)} missing: {unknown[:3]}"
        raise user_error(data_set.queries, expected, received, DataError)
    ids = {id_ for id_, _ in read_corpus(data_set.corpus)}
    if not ids:
        raise DataError(f"{data_set.corpus} must have documents. Received: none.")
    if FLAGS.run_output:
        for id_ in (*qrels, *ids):
            require_word(id_)
    relevant = {id_ for grades in qrels.values() for id_, grade in grades.items() if grade > 0}
    if relevant - ids:
        _logger.warning(
            "%d of %d relevant documents are not in %s, so they are not found.",
            len(relevant - ids),
            len(relevant),
            data_set.corpus,
        )
    return qrels, {id_: text for id_, text in queries.items() if id_ in qrels}, len(ids)


def load_encoder(directory):
    from bert_tf.checkpoints import find_task_class
    from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder
    from bert_tf.tasks.sparse_embedding.model import BertSparseEncoder

    try:
        is_sparse = issubclass(find_task_class(directory), BertSparseEncoder)
    except UserError:  # its files name no task
        is_sparse = False
    encoder_class = BertSparseEncoder if is_sparse else BertSentenceEncoder
    encoder = encoder_class.from_pretrained(directory, **options_of(max_length="max_seq_length"))
    if encoder.tokenizer is None:
        raise UserError(f"--model_dir must have a tokenizer. Received: {directory} without")
    return encoder


def search(encoders, data_set, queries, k, count):
    """Returns scores by document, by query. `count` is the number of documents."""
    from bert_tf.tasks.sentence_embedding.files import read_corpus

    own = FLAGS.ignore_identical_ids
    texts = {id_: FLAGS.query_prefix + text for id_, text in queries.items()}
    is_one = len(encoders) + FLAGS.bm25 == 1
    depth = k + own if is_one else max(k + own, fusion_flags.LEAST_DEPTH)
    runs = []
    for encoder in encoders:
        documents = ((i, FLAGS.document_prefix + text) for i, text in read_corpus(data_set.corpus))
        runs.append(search_corpus(encoder, texts, documents, depth, FLAGS.similarity, count))
    if FLAGS.bm25:
        runs.append(search_words(queries, read_corpus(data_set.corpus), depth))
    found = runs[0] if is_one else fuse(runs, k + own)
    if own:
        found = {query: _without(scores, query, k) for query, scores in found.items()}
    return found


def fuse(runs, k):
    return fused(runs, k, FLAGS.fusion, fusion_flags.weights(len(runs)))


def _without(scores, document, k):
    """Returns the first `k` documents, the best first, other than `document`."""
    return dict([item for item in scores.items() if item[0] != document][:k])


def evaluate_model(cutoffs):
    """Yields the name of each data set, its size in words and its scores."""
    from bert_tf.tasks.sentence_embedding.files import find_data_sets, write_run
    from bert_tf.training.evaluation.ranking import score_rankings

    data_sets = find_data_sets(FLAGS.data_dir, FLAGS.split)
    contents = [read_data_set(data_set) for data_set in data_sets]
    encoders = [load_encoder(directory) for directory in FLAGS.model_dir or ()]
    for data_set, (qrels, queries, count) in zip(data_sets, contents):
        run = search(encoders, data_set, queries, max(cutoffs), count)
        size = f"{len(queries):,} queries, {count:,} documents"
        yield data_set.name, size, score_rankings(run, qrels, cutoffs)
        if FLAGS.run_output:
            write_run(os.path.join(FLAGS.run_output, f"{data_set.name}.run"), run)


def evaluate_run(cutoffs):
    """Yields what `evaluate_model` yields, for --run_file."""
    from bert_tf.tasks.sentence_embedding.files import read_qrels, read_run
    from bert_tf.training.evaluation.ranking import score_rankings

    runs, qrels = [read_run(path) for path in FLAGS.run_file], read_qrels(FLAGS.qrels_file)
    run = runs[0] if len(runs) == 1 else fuse(runs, max(*cutoffs, fusion_flags.LEAST_DEPTH))
    scores = score_rankings(run, qrels, cutoffs, FLAGS.count_missing)
    missing = len(qrels.keys() - run.keys())
    size = f"{len(qrels) - missing:,} queries"
    if missing:
        counted = "count with zeros" if FLAGS.count_missing else "do not count"
        size += f" ({missing:,} more have no results and {counted})"
    name = "+".join(os.path.splitext(os.path.basename(path))[0] for path in FLAGS.run_file)
    yield name, size, scores


def print_table(title, means, cutoffs):
    """Prints one line per score, one column per cutoff and one for whole rankings."""
    names = list(dict.fromkeys(name.partition("@")[0] for name in means))
    width = max(map(len, names))
    print(title)
    print(" " * width, *(f"{f'@{k}':>8s}" for k in cutoffs), f"{'all':>8s}")
    for name in names:
        keys = [*(f"{name}@{k}" for k in cutoffs), name]
        cells = (f"{means[key]:8.4f}" if key in means else " " * 8 for key in keys)
        print(name.ljust(width), " ".join(cells).rstrip())


def main():
    cutoffs = sorted(set(check_flags()))
    path = os.path.join(FLAGS.output_dir, "retrieval_results.json")
    results, tables = {}, []
    for name, size, scores in (evaluate_run if FLAGS.run_file else evaluate_model)(cutoffs):
        means, intervals = scores.means(), scores.intervals()
        tables.append(means)
        print_table(f"{name}: {size}", means, cutoffs)
        results[name] = {
            "queries": len(scores.query_ids),
            "scores": {
                score: {"value": value, "low": intervals[score][0], "high": intervals[score][1]}
                for score, value in means.items()
            },
        }
        mean = {name: sum(table[name] for table in tables) / len(tables) for name in means}
        # Written after each data set, so that an error in a later one does not lose the results.
        result_files.write_json(path, {"data_sets": results, "mean": mean}, indent=2)
    if len(tables) > 1:
        print_table(f"mean of {len(tables)} data sets", mean, cutoffs)
    print_result("results", path)


if __name__ == "__main__":
    tool.run(main, "output_dir")
