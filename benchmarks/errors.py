r"""Compares the errors of engines with real weights, against PyTorch in float64.

    python -m benchmarks.errors --text_file=reviews.txt --model_dir=.cache/materials/minilm \
        --peer_python=pytorch=torch_env/bin/python,onnxruntime=torch_env/bin/python

The texts are encoded one by one. The vector of a text is the mean of its states, scaled to length
1. The relative error is the root mean square of the errors of all numbers, divided by that of the
numbers; the worst is that of one text. In 8-bit integers, engines that need examples for their
scales get other texts of the file, and only vectors are compared. The peer pytorch is always there.
"""

import os

import numpy as np
from absl import flags

from bert_tf.errors import UserError
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tools.common import result_files, tool

from .peers import OURS, PEERS, of_job
from .peers.hf_sentence import tokenizer
from .report import machine, print_machine
from .turns import relative_error
from .workers import PeerFailed, Worker, crew, parse_interpreters, require_installed

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A sentence encoder with model.safetensors.")
flags.DEFINE_string("text_file", None, "A UTF-8 file with texts, one per line.")
flags.DEFINE_integer("texts", 16, "The number of texts to encode.", lower_bound=1)
flags.DEFINE_list("peers", ["onnxruntime", "openvino"], "The other engines.")
flags.DEFINE_list("peer_python", [], "As of `python -m benchmarks`.")
flags.DEFINE_integer("threads", 1, "The threads of each engine.", lower_bound=1)
flags.DEFINE_string("json", None, "A JSON file to write the table to. Default: none.")

REFERENCE = "pytorch"
_CALIBRATION_TEXTS = 48
# The jobs of each dtype, in the order in which they are looked for.
JOBS = {
    "float32": ("inference", "encode"),
    "bfloat16": ("inference_bfloat16",),
    "int8": ("latency_int8", "encode_int8"),
}


def measure(workers, texts: list[str], calibration: tuple[str, ...]):
    """Yields a row of the table for each variant of each engine that works."""
    tokenize = tokenizer(FLAGS.model_dir)
    batches = [_batch(tokenize(text)) for text in texts]
    exact = _outputs(workers[REFERENCE], "inference_float64", batches=batches)
    expected = _vectors(exact)
    for dtype, jobs in JOBS.items():
        for name, worker in workers.items():
            job = next((one for one in jobs if name == OURS or one in PEERS[name].jobs), None)
            for variant in worker.variants(job) if job else ():
                row = {"dtype": dtype, "engine": name, "variant": variant}
                try:
                    if job.startswith("inference"):
                        states = _outputs(worker, job, batches=batches, variant=variant)
                        yield row | errors(expected, _vectors(states), exact, states)
                        continue
                    found = {}
                    options = {"calibration": calibration} if dtype == "int8" else {}
                    if job.startswith("encode"):
                        arguments = {"slices": [[text] for text in texts], "variant": variant}
                        vectors = _outputs(worker, job, **arguments, **options)["vectors"]
                        found = {str(index): vector for index, vector in enumerate(vectors)}
                    else:
                        for index, text in enumerate(texts):
                            arguments = {"text": text, "variant": variant, **options}
                            found[str(index)] = _outputs(worker, job, **arguments)["vector"][0]
                    yield row | errors(expected, found)
                except PeerFailed as failure:
                    print(f"{name}, {variant}, {dtype}: {failure}", flush=True)


def errors(expected, vectors, exact=None, states=None) -> dict[str, float]:
    """Returns the relative errors of vectors and, if there are some, of states, by index."""
    together = [{"all": np.stack([by[key] for key in expected])} for by in (expected, vectors)]
    found = {
        "vectors": relative_error(*together),
        "worst vector": relative_error(expected, vectors),
    }
    if states is not None:
        flat = [{"all": np.concatenate([by[key] for key in exact])} for by in (exact, states)]
        found["states"] = relative_error(*flat)
    return found


def _batch(feed):
    return {
        "token_ids": feed["input_ids"].astype(np.int32),
        "segment_ids": feed["token_type_ids"].astype(np.int32),
        "padding_mask": feed["attention_mask"].astype(bool),
    }


def _outputs(worker, job, variant="default", **arguments):
    """Returns the outputs of a job: of those with states, only these, `[T, H]` by index."""
    key = worker.make(job, variant=variant, **arguments)
    outputs = worker.outputs(key)
    worker.drop(key)
    states = {name: value[0] for name, value in outputs.items() if name.endswith("sequence_output")}
    return {name.partition("/")[0]: value for name, value in states.items()} or outputs


def _vectors(states):
    means = {name: np.mean(value, axis=0, dtype=np.float64) for name, value in states.items()}
    return {name: mean / np.linalg.norm(mean) for name, mean in means.items()}


def main():
    peers = [REFERENCE, *(name for name in FLAGS.peers if name != REFERENCE)]
    known = {name for jobs in JOBS.values() for job in jobs for name in of_job(job)}
    if strangers := sorted(set(peers) - known):
        raise UserError(f"--peers must be some of {sorted(known)}. Received: {strangers}")
    interpreters = parse_interpreters(FLAGS.peer_python, peers)
    for name in peers:
        job = next(job for jobs in JOBS.values() for job in jobs if job in PEERS[name].jobs)
        require_installed([name], job, interpreters)
    if FLAGS.json:
        tool.require_output_file(FLAGS.json, "json", [FLAGS.text_file])
    texts = [text for _, text in read_lines(FLAGS.text_file) if text.strip()]
    if len(texts) < FLAGS.texts + _CALIBRATION_TEXTS:
        expected = f"have {FLAGS.texts + _CALIBRATION_TEXTS} texts"
        raise UserError(f"{FLAGS.text_file} must {expected}. Received: {len(texts)}")
    chosen, calibration = texts[: FLAGS.texts], texts[-_CALIBRATION_TEXTS:]

    def start(name, directory):
        return Worker(name, directory, FLAGS.threads, interpreters=interpreters)

    print_machine({**machine(), "threads": FLAGS.threads})
    rows = []
    with crew([OURS, *peers], start, os.path.abspath(FLAGS.model_dir)) as workers:
        if missing := {OURS, REFERENCE} - workers.keys():
            raise UserError(f"{sorted(missing)} must start. Received: an error above")
        columns = ("vectors", "worst vector", "states")
        print(f"| dtype | engine | variant | {' | '.join(columns)} |\n|---|---|---|---:|---:|---:|")
        for row in measure(workers, chosen, tuple(calibration)):
            cells = [f"{row[name]:.1e}" if name in row else "" for name in columns]
            rows.append(row)
            print(f"| {' | '.join([row['dtype'], row['engine'], row['variant'], *cells])} |")
    if FLAGS.json:
        result_files.write_json(FLAGS.json, rows)


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir", "text_file"])
    tool.run(main)
