r"""Searches an index of texts that bert-tf build_index has written.

    bert-tf search --index_dir=out/index --model_dir=minilm --query="a waste of time" --top_k=3

With --bm25, the words of the texts count too, and both rankings become one (hybrid search).

Without --query and --query_file it asks for queries on a terminal, until Ctrl-D.

For each query it prints the query and a line for each text that it finds: its score, its id (or the
number of its row), and the text, with tabs between them; white space of a text becomes single
spaces, and control characters are escaped. As JSON lines:

    {"query": "...", "results": [{"score": 0.83, "row": 7, "id": "...", "text": "..."}, ...]}
"""

import json
import sys

from bert_tf.base.files import atomic_path
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import fusion_flags, tool
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.text_files import read_single_texts

define_flags("""
    index_dir (str): The index: --output_dir of bert-tf build_index.
    model_dir (str): The sentence encoder that encoded the corpus, or its query encoder.
    query (repeated str): A query. The flag may be repeated.
    query_file (str): A UTF-8 file with one query per line.
    prompt (str): What is put before each query, such as 'query: '. Default: the model's default
        prompt, if it has one.
    top_k (int >= 1, 10): How many texts are found for a query.
    rescore_multiplier (int >= 0, 10): With an index of int8 or bits: how many times --top_k texts
        are scored again with the queries' own vectors. 0: none.
    output_file (str): The file to write to; a .jsonl file gets JSON lines. Default: standard
        output.
    json (bool, false): Whether JSON lines are printed instead of text.
    batch_size (int >= 1, 32): Batch size for encoding.
""")
fusion_flags.define("With --bm25")

BLOCK_OF_QUERIES = 1024
DIGITS = 6  # of scores, after the point


def typed_queries():
    while True:
        try:
            query = input("query: ").strip()
        except EOFError:
            print()
            return
        if query:
            yield [query]


def blocks_of_queries():
    """Yields lists of queries."""
    queries = FLAGS.query or read_single_texts(FLAGS.query_file)
    for start in range(0, len(queries), BLOCK_OF_QUERIES):
        yield queries[start : start + BLOCK_OF_QUERIES]


def index_words(index):
    """Returns the `BM25Index` of the texts of an index."""
    from bert_tf.search import BM25Index

    texts = [item.get("text") for item in index.items(range(len(index)))]
    if None in texts:
        received = f"{FLAGS.index_dir}, whose row {texts.index(None)} has none"
        raise user_error("With --bm25, --index_dir", "be an index with texts", received)
    return BM25Index(texts)


def results_of(index, words, encoder, queries):
    """Returns for each query what is written of it."""
    from bert_tf.search import fuse_rankings

    vectors = encoder.encode(queries, batch_size=FLAGS.batch_size, prompt=FLAGS.prompt)
    depth = FLAGS.top_k if words is None else max(FLAGS.top_k, fusion_flags.LEAST_DEPTH)
    scores, rows = index.search(vectors, depth, FLAGS.rescore_multiplier)
    if words is not None:
        rankings = [(scores, rows), words.search(queries, depth)]
        k = min(FLAGS.top_k, len(index))
        weights = fusion_flags.weights(len(rankings))
        scores, rows = fuse_rankings(rankings, k, FLAGS.fusion, weights)
    return [
        {
            "query": query,
            "results": [
                {"score": round(score, DIGITS), "row": row, **item}
                for score, row, item in zip(*found, index.items(found[1]))
            ],
        }
        for query, *found in zip(queries, scores.tolist(), rows.tolist())
    ]


def as_text(result):
    from bert_tf.base.printable_text import escape_unprintable

    lines = [result["query"]]
    for found in result["results"]:
        name = found["row"] if found.get("id") is None else found["id"]
        text = " ".join((found.get("text") or "").split())
        # Control characters of a corpus could steer the terminal.
        lines.append(
            f"{found['score']:.4f}\t{escape_unprintable(str(name))}\t{escape_unprintable(text)}"
        )
    return "\n".join(lines) + "\n\n"


def as_json_line(result):
    return json.dumps(result, ensure_ascii=False) + "\n"


def main():
    if FLAGS.query and FLAGS.query_file:
        raise UserError("Only one of --query and --query_file must be set. Received: both")
    if FLAGS.bm25:
        require_package("bm25s", "--bm25")
        fusion_flags.weights(2)
    is_typed = not (FLAGS.query or FLAGS.query_file)
    if is_typed and not sys.stdin.isatty():
        expected = "be set where queries cannot be typed"
        received = "neither, and standard input is not a terminal"
        raise user_error("--query or --query_file", expected, received)
    if is_typed and FLAGS.output_file:
        raise user_error("--output_file", "be used with --query or --query_file", "neither")
    if FLAGS.output_file:
        inputs = [FLAGS.query_file] if FLAGS.query_file else []
        tool.require_output_file(FLAGS.output_file, "output_file", inputs)
    blocks = typed_queries() if is_typed else list(blocks_of_queries())
    from bert_tf.search.vector_index import VectorIndex
    from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder

    index = VectorIndex(FLAGS.index_dir)
    words = index_words(index) if FLAGS.bm25 else None
    encoder = BertSentenceEncoder.from_pretrained(FLAGS.model_dir)
    results = (result for block in blocks for result in results_of(index, words, encoder, block))
    if not FLAGS.output_file:
        show = as_json_line if FLAGS.json else as_text
        for result in results:
            sys.stdout.write(show(result))
            sys.stdout.flush()
        return
    is_json = FLAGS.json or FLAGS.output_file.lower().endswith(".jsonl")
    with atomic_path(FLAGS.output_file) as new, open(new, "w", encoding="utf-8") as file:
        file.writelines(map(as_json_line if is_json else as_text, results))
    print_result("results", FLAGS.output_file)


if __name__ == "__main__":
    tool.run(main, "index_dir", "model_dir")
