r"""Serves a model over HTTP with TensorFlow Serving's REST interface, and a page to try it.

    python tools/serve.py --model=out/model
    python tools/serve.py --model=serving/reviews --port=8501
    curl -d '{"instances": ["a waste of time"]}' http://127.0.0.1:8501/v1/models/reviews:predict

--model is a directory with numbered versions (1/, 2/, …), which is watched, or a model itself: a
SavedModel, or what save_pretrained wrote, which runs on the padding-free operations where they are
built. docs/local_server.md says what is answered and what is refused.
"""

import logging
import os
import re

from absl import flags

from bert_tf import tool
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

flags.DEFINE_string("model", None, "Directory of the model or of its numbered versions.")
flags.DEFINE_string("model_name", None, "The model's name in paths; default: the directory's name.")
flags.DEFINE_bool(
    "pairs", False, "Whether a classifier that save_pretrained wrote takes `text` and `pair`."
)
flags.DEFINE_bool(
    "trust", False, "Whether a SavedModel may read and write files, call Python and the like."
)
flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; 0.0.0.0 for every machine.")
flags.DEFINE_integer(
    "port", 8501, "Port; 0 takes a free one, which is printed.", lower_bound=0, upper_bound=65535
)
flags.DEFINE_integer(
    "token_budget", 4096, "Tokens of a batch, estimated from the texts' bytes.", lower_bound=1
)
flags.DEFINE_float(
    "batch_wait_ms",
    0.0,
    "How long a request waits for others although the model is free.",
    lower_bound=0.0,
)
flags.DEFINE_integer("threads", 0, "Threads of one computation; 0 takes one a core.", lower_bound=0)
flags.DEFINE_float(
    "poll_seconds", 1.0, "Time between two looks for new versions.", lower_bound=0.01
)
flags.DEFINE_float(
    "drain_seconds",
    1.0,
    "From SIGTERM until the port closes: /readyz says no, requests are still answered.",
    lower_bound=0.0,
)
flags.DEFINE_float(
    "stop_seconds", 60.0, "Time that requests then have to be answered.", lower_bound=0.0
)
flags.DEFINE_integer("max_body_bytes", 8 << 20, "The largest request.", lower_bound=1)
flags.DEFINE_integer(
    "max_buffered_bytes",
    256 << 20,
    "Of all requests and answers in memory at a time.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_answer_bytes", 64 << 20, "The largest answer, in bytes of its values.", lower_bound=1
)
flags.DEFINE_integer(
    "max_text_length", 100_000, "The longest string, in characters.", lower_bound=1
)
flags.DEFINE_integer(
    "max_tokens", 131_072, "Tokens of one row's texts, estimated from their bytes.", lower_bound=1
)
flags.DEFINE_integer("max_rows", 1024, "Rows of a request.", lower_bound=1)
flags.DEFINE_integer(
    "max_waiting", 1024, "Requests in the queue; further ones get status 429.", lower_bound=1
)
flags.DEFINE_float(
    "read_timeout_seconds", 30.0, "Time for a request's body to arrive.", lower_bound=0.01
)
flags.DEFINE_float(
    "write_timeout_seconds",
    30.0,
    "Time that a client may take nothing of its answer.",
    lower_bound=0.01,
)
flags.DEFINE_float(
    "idle_timeout_seconds",
    75.0,
    "Time for a request's head to arrive, and for the next request.",
    lower_bound=0.01,
)
flags.DEFINE_float(
    "request_timeout_seconds", 60.0, "Time that a request waits for its answer.", lower_bound=0.01
)


def model_name() -> str:
    """The name in paths, checked."""
    name = FLAGS.model_name or os.path.basename(os.path.abspath(FLAGS.model))
    if not re.fullmatch(r"[^/:\s]+", name):
        raise UserError(
            f"--model_name: a name without slashes, colons and spaces was expected. "
            f"Received: {name!r}"
        )
    return name


def main():
    name = model_name()
    if not os.path.isdir(FLAGS.model):
        raise UserError(f"--model: a directory was expected. Received: {FLAGS.model!r}")

    import tensorflow as tf

    from bert_tf.serving.server.application import ServerOptions, serve
    from bert_tf.serving.server.limits import Limits

    logging.basicConfig(format="%(message)s")
    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    serve(
        ServerOptions(
            model_dir=FLAGS.model,
            model_name=name,
            pairs=FLAGS.pairs,
            trusted=FLAGS.trust,
            host=FLAGS.host,
            port=FLAGS.port,
            token_budget=FLAGS.token_budget,
            batch_wait=FLAGS.batch_wait_ms / 1000,
            poll_seconds=FLAGS.poll_seconds,
            drain_seconds=FLAGS.drain_seconds,
            stop_seconds=FLAGS.stop_seconds,
            limits=Limits(
                max_body=FLAGS.max_body_bytes,
                max_buffered=FLAGS.max_buffered_bytes,
                max_answer=FLAGS.max_answer_bytes,
                max_text_length=FLAGS.max_text_length,
                max_tokens=FLAGS.max_tokens,
                max_rows=FLAGS.max_rows,
                max_waiting=FLAGS.max_waiting,
                read_timeout=FLAGS.read_timeout_seconds,
                write_timeout=FLAGS.write_timeout_seconds,
                idle_timeout=FLAGS.idle_timeout_seconds,
                request_timeout=FLAGS.request_timeout_seconds,
            ),
        )
    )


if __name__ == "__main__":
    flags.mark_flag_as_required("model")
    tool.run(main)
