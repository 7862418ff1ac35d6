r"""Serves a model over HTTP with TensorFlow Serving's REST API, and a web page to try it.

    bert-tf serve --model=out/model
    bert-tf serve --model=serving/reviews --port=8501
    curl -d '{"instances": ["a waste of time"]}' http://127.0.0.1:8501/v1/models/reviews:predict

--model is the directory of a model, or a directory with numbered versions (1/, 2/, ...), which the
server watches for new ones. A model is a SavedModel or a directory that save_pretrained wrote; the
latter runs on the padding-free operations if they are built. docs/local_server.md describes the
requests that the server answers and those that it refuses.
"""

import os
import re

from absl import flags

from bert_tf.base.optional_packages import without_packages
from bert_tf.errors import UserError
from bert_tf.server.api_keys import read_api_keys
from bert_tf.tools.common import tool

FLAGS = flags.FLAGS

# Keras imports them if they are installed: 150 MiB for what no server does.
_UNUSED_PACKAGES = ("IPython", "PIL", "matplotlib", "pandas", "sklearn")

flags.DEFINE_string("model", None, "The directory of the model, or of its numbered versions.")
flags.DEFINE_string(
    "model_name", None, "The name of the model in URLs. Default: the name of the directory."
)
flags.DEFINE_bool(
    "pairs",
    False,
    "With a classifier that save_pretrained wrote: whether it has two inputs, `text` and `pair`.",
)
flags.DEFINE_enum(
    "precision",
    "float32",
    ["auto", "float32", "bfloat16"],
    "With a model that save_pretrained wrote: what its encoder computes in, if the operations are "
    "built; auto is bfloat16 if the processor has it. A quantized model stays as it is.",
)
flags.DEFINE_bool(
    "trust",
    False,
    "Whether a SavedModel may have operations that read or write files or call Python.",
)
flags.DEFINE_string(
    "host", "127.0.0.1", "The address to listen on; 0.0.0.0 accepts requests from other machines."
)
flags.DEFINE_list(
    "allowed_hosts",
    [],
    "Names that requests may give the server, next to its own addresses: those that a proxy passes "
    "on; * allows all.",
)
flags.DEFINE_list(
    "allowed_origins",
    [],
    "Sites whose pages may ask the server from a browser (CORS), such as https://app.example; * "
    "allows all.",
)
flags.DEFINE_string(
    "api_key_file",
    None,
    "A file with one API key per line. Requests must then have one of them: Authorization: Bearer "
    "KEY. Default: the environment variable BERT_TF_API_KEY; without either, no key is needed.",
)
flags.DEFINE_integer(
    "port", 8501, "The port to listen on; 0 chooses a free one, which is printed.", 0, 65535
)
flags.DEFINE_integer(
    "token_budget",
    4096,
    "Maximum number of tokens per batch, estimated from the bytes of the texts.",
    lower_bound=1,
)
flags.DEFINE_float(
    "batch_wait_ms",
    0.0,
    "Milliseconds that a request waits for others to share a batch although the model is idle.",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "threads", 0, "Number of threads of one computation; 0 for one per core.", lower_bound=0
)
flags.DEFINE_float(
    "poll_seconds", 1.0, "Seconds between two searches for new versions.", lower_bound=0.01
)
flags.DEFINE_enum(
    "log_format",
    "text",
    ["text", "json"],
    "The form of the log on stderr: lines of text, or one JSON object per line.",
)
flags.DEFINE_float(
    "drain_seconds",
    1.0,
    "Seconds from SIGTERM until the port closes; /readyz fails in that time, and requests are "
    "still answered.",
    lower_bound=0.0,
)
flags.DEFINE_float(
    "stop_seconds",
    60.0,
    "Maximum number of seconds to answer the remaining requests after the port has closed.",
    lower_bound=0.0,
)
# The fields of `Limits`, with their units: (default, what is limited).
_LIMITS = {
    "max_body_bytes": (8 << 20, "size of a request, in bytes."),
    "max_buffered_bytes": (
        256 << 20,
        "size of all requests and answers in memory at a time, in bytes.",
    ),
    "max_answer_bytes": (64 << 20, "size of an answer, in bytes of its values."),
    "max_text_length": (100_000, "length of a string, in characters."),
    "max_tokens": (
        131_072,
        "number of tokens in the texts of one row, estimated from their bytes.",
    ),
    "max_rows": (2048, "number of rows per request."),
    "max_elements": (65_536, "number of strings, lists and objects in the body of a request."),
    "max_connections": (
        1024,
        "number of connections, if the process may open as many files; further ones close an idle "
        "one or get the status 503, except for probes.",
    ),
    "max_waiting": (1024, "number of requests in the queue; further ones get the status 429."),
    "read_timeout_seconds": (30.0, "number of seconds for the body of a request to arrive."),
    "write_timeout_seconds": (
        30.0,
        "number of seconds in which a client reads nothing of its answer.",
    ),
    "idle_timeout_seconds": (
        75.0,
        "number of seconds for the headers of a request to arrive, and until the next request.",
    ),
    "request_timeout_seconds": (60.0, "number of seconds that a request waits for its answer."),
}
for _name, (_default, _limited) in _LIMITS.items():
    if isinstance(_default, int):
        flags.DEFINE_integer(_name, _default, f"Maximum {_limited}", lower_bound=1)
    else:
        flags.DEFINE_float(_name, _default, f"Maximum {_limited}", lower_bound=0.01)


def model_name() -> str:
    name = FLAGS.model_name or os.path.basename(os.path.abspath(FLAGS.model))
    if not re.fullmatch(r"[^/:\s]+", name):
        raise UserError(
            "--model_name must be a name without slashes, colons and spaces. "
            f"Received: --model_name={name}"
        )
    return name


def check_access():
    for host in FLAGS.allowed_hosts:
        if not re.fullmatch(r"[\w.-]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*|\*", host):
            raise UserError(
                "--allowed_hosts must be names or addresses without ports. "
                f"Received: --allowed_hosts={','.join(FLAGS.allowed_hosts)}"
            )
    for origin in FLAGS.allowed_origins:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+|\*", origin):
            raise UserError(
                "--allowed_origins must be sites such as https://app.example, without a path. "
                f"Received: --allowed_origins={','.join(FLAGS.allowed_origins)}"
            )


def main():
    name = model_name()
    check_access()
    api_keys = read_api_keys(FLAGS.api_key_file)
    if not os.path.isdir(FLAGS.model):
        raise UserError(f"--model must be a directory. Received: --model={FLAGS.model}")

    with without_packages(*_UNUSED_PACKAGES):
        import tensorflow as tf

    from bert_tf.server import logs
    from bert_tf.server.application import ServerOptions, serve
    from bert_tf.server.limits import Limits

    limits = {
        name.removesuffix("_bytes").removesuffix("_seconds"): FLAGS[name].value for name in _LIMITS
    }
    logs.configure(FLAGS.log_format)
    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    seconds = ("poll_seconds", "drain_seconds", "stop_seconds")
    same_names = ("pairs", "precision", "host", "port", "token_budget", *seconds)
    options = {flag: FLAGS[flag].value for flag in same_names}
    options |= {"model_dir": FLAGS.model, "model_name": name, "trusted": FLAGS.trust}
    options |= {"allowed_hosts": tuple(FLAGS.allowed_hosts), "api_keys": api_keys}
    options["allowed_origins"] = tuple(FLAGS.allowed_origins)
    options["batch_wait"] = FLAGS.batch_wait_ms / 1000
    serve(ServerOptions(**options, limits=Limits(**limits)))


if __name__ == "__main__":
    flags.mark_flag_as_required("model")
    tool.run(main)
