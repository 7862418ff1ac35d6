"""The flags that say which trained model: shared by the tools that open any."""

from absl import flags

from bert_tf import tasks
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

MODELS = {spec.name: spec.model for spec in tasks.specs() if spec.serving}
_OLD_NAMES = {
    "classifier": "text_classification",
    "answerer": "question_answering",
    "tagger": "token_classification",
    "encoder": "sentence_embedding",
    "next_sentence": "next_sentence_prediction",
}

flags.DEFINE_string("model_dir", None, "A directory written by save_pretrained.")
flags.DEFINE_enum(
    "model",
    "auto",
    ["auto", *MODELS, *_OLD_NAMES],
    "The task; auto: what the directory says, which save_pretrained's do.",
)
flags.DEFINE_string(
    "calibration_file",
    None,
    "For int8: unlabelled texts like those to come, a "
    "line each (a tab between the two of a pair), to lose less accuracy.",
)
flags.DEFINE_integer("calibration_texts", 256, "At most so many of them, the first.", lower_bound=1)


def kind_of_model() -> type:
    """The class to load, from --model or from the directory."""
    from bert_tf.checkpoints.opening import open_pretrained

    if FLAGS.model in _OLD_NAMES:
        FLAGS.model = _OLD_NAMES[FLAGS.model]
    if FLAGS.model != "auto":
        return tasks.spec_of(MODELS[FLAGS.model]).model_class()
    pretrained = open_pretrained(FLAGS.model_dir)
    by_architecture = [
        spec.model
        for spec in tasks.specs()
        if set(spec.architectures).intersection(pretrained.architectures)
    ]
    name = pretrained.class_name or next(iter(by_architecture), None)
    if name not in MODELS.values():
        raise UserError(
            f"--model={'|'.join(MODELS)} was expected: {FLAGS.model_dir} names no such model. "
            f"Received: {name or 'no name'}"
        )
    return tasks.spec_of(name).model_class()


def calibration_texts():
    """What --calibration_file holds, as `quantize` takes it; None without the flag."""
    if FLAGS.calibration_file is None:
        return None
    try:
        with open(FLAGS.calibration_file, encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"--calibration_file: cannot read {FLAGS.calibration_file}: {error}"
        ) from None
    rows = [line.split("\t") for line in lines[: FLAGS.calibration_texts]]
    widths = {len(row) for row in rows}
    if widths not in ({1}, {2}):
        raise UserError(
            f"--calibration_file: expected a text, or two with a tab between, in every line of "
            f"{FLAGS.calibration_file}. Received: lines of {sorted(widths) or 'nothing'}"
        )
    columns = tuple(list(column) for column in zip(*rows))
    return columns if len(columns) == 2 else columns[0]
