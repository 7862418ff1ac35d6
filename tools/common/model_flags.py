"""The flags that name a trained model, for the tools that open models of every task."""

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

flags.DEFINE_string(
    "model_dir", None, "The directory of the trained model, as save_pretrained writes it."
)
flags.DEFINE_enum(
    "model",
    "auto",
    ["auto", *MODELS, *_OLD_NAMES],
    "The task of the model. `auto` reads it from the files in --model_dir; save_pretrained writes "
    "it there.",
)


def kind_of_model() -> type:
    """Returns the model class, from --model or from the files in --model_dir."""
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
            f"--model must be one of {', '.join(MODELS)}, as the files in {FLAGS.model_dir} name "
            f"no such model. Received: --model=auto, with {name or 'no class'} in the files"
        )
    return tasks.spec_of(name).model_class()
