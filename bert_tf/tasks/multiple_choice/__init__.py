"""Multiple choice: which of several texts goes with a prompt."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import DROPOUT, TaskSpec
from bert_tf.tasks import text_classification

SPEC = TaskSpec(
    name="multiple_choice",
    model="BertMultipleChoice",
    architectures=("BertForMultipleChoice",),
    heads={"classifier": text_classification.HEAD},
    serving="MultipleChoiceModule",
    output_axes=(),
    options={"dropout": DROPOUT},
)

__getattr__, __dir__, __all__ = lazy_names(__name__, {"Choice": ".preprocessor"})
