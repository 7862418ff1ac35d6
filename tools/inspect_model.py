r"""Shows what a model does with a text: a page to type texts on, or one HTML file.

    bert-tf inspect_model --model=out/model
    bert-tf inspect_model --model=out/model --text="a waste of time" --output=page.html
    bert-tf inspect_model --model=out/model --model_b=other/model --text="a waste of time"

The page shows the pieces, attention by layer and head, attention rollout, what each piece counts
for the prediction, candidates for masked words, the layers, nearest neighbours and heads switched
off; docs/inspection.md explains them. --output writes a file that needs no server and no network,
and ends. Otherwise the page is served on this machine until Ctrl-C.
"""

import os

from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    model (str): The directory of a model that save_pretrained wrote.
    model_b (str): The directory of a second model, shown side by side.
    text (str): The text; with --output it is required.
    text_pair (str): The second text of a pair with --text.
    text_b (str): Another text, shown side by side; or the one for --model_b.
    text_pair_b (str): The second text of a pair with --text_b, or with --text for --model_b.
    output (str): The HTML file to write.
    host (str, 127.0.0.1): The address to listen on; 0.0.0.0 accepts requests from other machines.
    port (int 0 to 65535, 8502): The port to listen on; 0 chooses a free one, which is printed.
    max_tokens (int >= 1, 50_000): Maximum number of tokens in the encoder for one part of the page,
        such as occlusion, which computes the text once for every piece; a part that needs more is
        left out, with the reason.
""")


def check_flags():
    for name in ("model", "model_b"):
        path = FLAGS[name].value
        if path is not None and not os.path.isdir(path):
            raise UserError(f"--{name} must be a directory. Received: --{name}={path}")
    if FLAGS.text_pair_b is not None and FLAGS.text_b is None and FLAGS.model_b is None:
        raise flag_error(
            "text_pair_b", "must be given with --text_b or --model_b, whose text it belongs to"
        )
    if FLAGS.output is None:
        return
    if FLAGS.text is None:
        raise UserError("--text must be given with --output. Received: --text=None")
    if FLAGS["host"].present or FLAGS["port"].present:
        expected = "be given without --output, which writes a file and serves no page"
        raise user_error("--host and --port", expected, _given("host", "port"))
    tool.require_output_file(FLAGS.output, "output")


def _given(*names):
    return ", ".join(f"--{name}={FLAGS[name].value}" for name in names if FLAGS[name].present)


def pairs_of_texts() -> list[tuple[str, str | None]]:
    """Returns the text with its pair for each side of the page."""
    first = (FLAGS.text, FLAGS.text_pair)
    if FLAGS.text_b is not None:
        return [first, (FLAGS.text_b, FLAGS.text_pair_b)]
    if FLAGS.model_b is None:
        return [first]
    pair = FLAGS.text_pair if FLAGS.text_pair_b is None else FLAGS.text_pair_b
    return [first, (FLAGS.text, pair)]


def load_models():
    from bert_tf.checkpoints import find_task_class

    paths = [path for path in (FLAGS.model, FLAGS.model_b) if path is not None]
    return [
        (os.path.basename(os.path.abspath(path)), find_task_class(path).from_pretrained(path))
        for path in paths
    ]


def main():
    check_flags()
    if FLAGS.output is None:
        from bert_tf.inspection.page import InspectionOptions, serve_inspections

        texts = {"text": FLAGS.text, "pair": FLAGS.text_pair}
        texts |= {"text_b": FLAGS.text_b, "pair_b": FLAGS.text_pair_b}
        given = {name: text for name, text in texts.items() if text is not None}
        options = {"host": FLAGS.host, "port": FLAGS.port, "max_tokens": FLAGS.max_tokens}
        serve_inspections(load_models, InspectionOptions(texts=given, **options))
        return

    from bert_tf.inspection import inspect_text, to_html

    models = load_models()
    inspections = [
        inspect_text(model, text, pair, model_name=name, max_tokens=FLAGS.max_tokens)
        for (text, pair), (name, model) in zip(pairs_of_texts(), [models[0], models[-1]])
    ]
    to_html(inspections, FLAGS.output)
    print(f"Written: {FLAGS.output}")


if __name__ == "__main__":
    tool.run(main, "model")
