r"""Serves a model over HTTP with TensorFlow Serving's REST API, and a web page to try it.

    bert-tf serve --model=out/model
    bert-tf serve --model=serving/reviews --port=8501 --grpc_port=8500
    curl -d '{"instances": ["a waste of time"]}' http://127.0.0.1:8501/v1/models/reviews:predict

--model is the directory of a model, or a directory with numbered versions (1/, 2/, ...), which the
server watches for new ones. A model is a SavedModel or a directory that save_pretrained wrote; the
latter runs on the padding-free operations if they are built. docs/local_server.md describes the
requests that the server answers and those that it refuses.
"""

import os
import re

from bert_tf.base.optional_packages import require_package, without_packages
from bert_tf.errors import UserError, user_error
from bert_tf.server.api_keys import read_api_keys
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

# Keras imports them if they are installed: 150 MiB for what no server does.
_UNUSED_PACKAGES = ("IPython", "PIL", "matplotlib", "pandas", "sklearn")

define_flags("""
    model (str): The directory of the model, or of its numbered versions.
    model_name (str): The name of the model in URLs. Default: the name of the directory.
    pairs (bool, false): With a classifier that save_pretrained wrote: whether it has two inputs,
        `text` and `pair`.
    precision (auto|float32|bfloat16, float32): With a model that save_pretrained wrote: what its
        encoder computes in, if the operations are built; auto is what is fastest here, and
        bfloat16 only if the processor has it. A quantized model stays as it is.
    trust (bool, false): Whether a SavedModel may have operations that read or write files or call
        Python.
    host (str, 127.0.0.1): The address to listen on; 0.0.0.0 accepts requests from other machines.
    allowed_hosts (list, []): Names that requests may give the server, next to its own addresses:
        those that a proxy passes on; * allows all.
    allowed_origins (list, []): Sites whose pages may ask the server from a browser (CORS), such as
        https://app.example; * allows all.
    api_key_file (str): A file with one API key per line. Requests must then have one of them:
        Authorization: Bearer KEY. Default: the environment variable BERT_TF_API_KEY; without
        either, no key is needed.
    port (int 0 to 65535, 8501): The port of REST; 0 chooses a free one, which is printed.
    grpc_port (int 0 to 65535): The port of TensorFlow Serving's gRPC interface; 0 chooses a free
        one. Default: no gRPC.
    version_labels (list, []): Names of versions in paths and requests, such as
        stable=1,canary=2; these versions stay loaded next to the highest one.
    token_budget (int >= 1, 4096): Maximum number of tokens per batch, estimated from the bytes of
        the texts.
    batch_wait_ms (float >= 0, 0.0): Milliseconds that a request waits for others to share a batch
        although the model is idle.
    threads (int >= 0, 0): Number of threads of one computation; 0 for one per core.
    poll_seconds (float >= 0.01, 1.0): Seconds between two searches for new versions.
    log_format (text|json, text): The form of the log on stderr: lines of text, or one JSON object
        per line.
    drain_seconds (float >= 0, 1.0): Seconds from SIGTERM until the port closes; /readyz fails in
        that time, and requests are still answered.
    stop_seconds (float >= 0, 60.0): Maximum number of seconds to answer the remaining requests
        after the port has closed.
""")
# The fields of `Limits`, with their units.
_LIMITS = define_flags("""
    max_body_bytes (int >= 1, 8388608): Maximum size of a request, in bytes.
    max_buffered_bytes (int >= 1, 268435456): Maximum size of all requests and answers in memory at
        a time, in bytes.
    max_answer_bytes (int >= 1, 67108864): Maximum size of an answer, in bytes of its values.
    max_text_length (int >= 1, 100000): Maximum length of a string, in characters.
    max_tokens (int >= 1, 131072): Maximum number of tokens in the texts of one row, estimated from
        their bytes.
    max_rows (int >= 1, 2048): Maximum number of rows per request.
    max_elements (int >= 1, 65536): Maximum number of strings, lists and objects in the body of a
        request.
    max_connections (int >= 1, 1024): Maximum number of connections, if the process may open as many
        files; further ones close an idle one or get the status 503, except for probes.
    max_waiting (int >= 1, 1024): Maximum number of requests in the queue; further ones get the
        status 429.
    read_timeout_seconds (float >= 0.01, 30.0): Maximum number of seconds for the body of a request
        to arrive.
    write_timeout_seconds (float >= 0.01, 30.0): Maximum number of seconds in which a client reads
        nothing of its answer.
    idle_timeout_seconds (float >= 0.01, 75.0): Maximum number of seconds for the headers of a
        request to arrive, and until the next request.
    request_timeout_seconds (float >= 0.01, 60.0): Maximum number of seconds that a request waits
        for its answer.
""")


def model_name() -> str:
    name = FLAGS.model_name or os.path.basename(os.path.abspath(FLAGS.model))
    if not re.fullmatch(r"[^/:\s]+", name):
        received = f"--model_name={name}"
        raise user_error("--model_name", "be a name without slashes, colons and spaces", received)
    return name


def check_access():
    for host in FLAGS.allowed_hosts:
        if not re.fullmatch(r"[\w.-]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*|\*", host):
            raise flag_error("allowed_hosts", "must be names or addresses without ports")
    for origin in FLAGS.allowed_origins:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+|\*", origin):
            raise flag_error(
                "allowed_origins", "must be sites such as https://app.example, without a path"
            )


def version_labels() -> dict[str, int]:
    """Returns the versions by their labels."""
    labels = {}
    for entry in FLAGS.version_labels:
        label, _, number = entry.partition("=")
        if not re.fullmatch(r"[^/:\s]+", label) or not re.fullmatch(r"[0-9]{1,18}", number):
            raise flag_error("version_labels", "must be labels and versions such as stable=1")
        if label in labels:
            raise flag_error("version_labels", "must have each label once")
        labels[label] = int(number)
    return labels


def check_grpc():
    """Raises an error if a package is missing, before the model is loaded."""
    # A client could fill the log of gRPC's C library, which has a line for each wrong request.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for module in ("grpc_health", "grpc", "tensorflow_serving"):
        require_package(module, "--grpc_port")


def main():
    name, labels = model_name(), version_labels()
    check_access()
    if FLAGS.grpc_port is not None:
        check_grpc()
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
    same_names = ("pairs", "precision", "host", "port", "grpc_port", "token_budget", *seconds)
    options = {flag: FLAGS[flag].value for flag in same_names}
    options |= {"model_dir": FLAGS.model, "model_name": name, "trusted": FLAGS.trust}
    options |= {"allowed_hosts": tuple(FLAGS.allowed_hosts), "api_keys": api_keys}
    options["allowed_origins"] = tuple(FLAGS.allowed_origins)
    options["version_labels"] = labels
    options["batch_wait"] = FLAGS.batch_wait_ms / 1000
    serve(ServerOptions(**options, limits=Limits(**limits)))


if __name__ == "__main__":
    tool.run(main, "model")
