r"""Searches data sets for retrieval with BM25, a baseline without a network.

    python -m research.baseline_retrieval --data_dir=data/manuals --output_dir=out
    bert-tf evaluate_retrieval --run_file=out/manuals.run \
      --qrels_file=data/manuals/qrels/test.tsv --output_dir=out

BM25 is that of bm25s, on words without English stop words. The data sets are those of
bert-tf evaluate_retrieval. The tool writes the best documents of every query to a file NAME.run in
TREC's form for each data set.
"""

import logging
import os

from absl import flags

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError
from bert_tf.tools.common import tool

FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "The data set, or the directory with several.")
flags.DEFINE_string("split", "test", "Which file of qrels/ names the queries, without .tsv.")
flags.DEFINE_float("k1", 1.5, "How soon repetitions of a word count no more.", lower_bound=0.0)
flags.DEFINE_float("b", 0.75, "How much long documents count less.", 0.0, 1.0)
flags.DEFINE_integer("top_k", 100, "The number of documents of each query.", lower_bound=1)
flags.DEFINE_string("output_dir", None, "The directory to write the results to.")


def main():
    bm25s = require_package("bm25s", "BM25")
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    tool.require_writable(FLAGS.output_dir, "output_dir")
    from bert_tf.tasks.sentence_embedding import files

    for data in files.find_data_sets(FLAGS.data_dir, FLAGS.split):
        ids, texts = zip(*files.read_corpus(data.corpus))
        queries = files.read_queries(data.queries)
        wanted = list(files.read_qrels(data.qrels))
        missing = next((query for query in wanted if query not in queries), None)
        if missing is not None:
            raise DataError(
                f"{data.queries} must have the queries of {data.qrels}. Received: no {missing!r}."
            )
        index = bm25s.BM25(k1=FLAGS.k1, b=FLAGS.b)
        index.index(words(bm25s, texts), show_progress=False)
        rows, scores = index.retrieve(
            words(bm25s, [queries[query] for query in wanted]),
            k=min(FLAGS.top_k, len(ids)),
            show_progress=False,
        )
        run = {
            query: {ids[row]: float(score) for row, score in zip(*found)}
            for query, *found in zip(wanted, rows, scores)
        }
        path = os.path.join(FLAGS.output_dir, f"{data.name}.run")
        files.write_run(path, run, name="bm25")
        print(f"{len(run)} queries, {len(ids)} documents: {path}")


def words(bm25s, texts):
    return bm25s.tokenize(list(texts), stopwords="en", show_progress=False)


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "output_dir"])
    tool.run(main)
