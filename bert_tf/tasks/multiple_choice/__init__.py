"""Multiple choice: which of several texts goes with a prompt."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import DROPOUT, Examples, Labels, Serving, TaskSpec
from bert_tf.tasks import text_classification

FORM = (
    "`x` must be a tuple (prompts, choices): strings, and a list of strings for each; or a list "
    "of such pairs, [(prompt, [choice, choice]), ...], or of tuples (prompt, choice, choice)."
)
_PROMPTS = ["She fills the kettle.", "Für Élise"]
_CHOICES = [["She boils it.", "It flies off."], ["déjà vu…", "Beethoven wrote it."]]
SPEC = TaskSpec(
    name="multiple_choice",
    model="BertMultipleChoice",
    architectures=("BertForMultipleChoice",),
    preprocessor="MultipleChoicePreprocessor",
    examples=Examples(form=FORM),
    labels=Labels(no_class_weights="choices have no fixed class; use `sample_weight`"),
    heads={"classifier": text_classification.HEAD},
    serving=Serving(
        "preprocessor.MultipleChoiceModule",
        texts={
            "prompt": "The prompt, UTF-8.",
            "choices": "The choices, UTF-8, filled up with empty strings.",
        },
        lists=("choices",),
        outputs={
            "choice": "The number of the best choice, from 0.",
            "probabilities": "One per choice: softmax of the logits.",
            "logits": "What the classifier computes for each choice.",
        },
        has_sequences=True,
        samples=(
            {"prompt": _PROMPTS[:1], "choices": _CHOICES[:1]},
            {"prompt": _PROMPTS, "choices": _CHOICES},
        ),
    ),
    output_axes=(),
    options={"dropout": DROPOUT},
    built_with=("dropout",),
)

__getattr__, __dir__, __all__ = lazy_names(__name__, {"Choice": ".preprocessor"})
