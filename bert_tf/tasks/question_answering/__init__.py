"""Question answering: which part of a context answers a question."""

from bert_tf.lazy_names import lazy_names
from bert_tf.models.task_spec import Head, TaskSpec
from bert_tf.models.weight_rows import OUTPUT, Row

SPEC = TaskSpec(
    name="question_answering",
    model="BertQuestionAnswerer",
    architectures=("BertForQuestionAnswering",),
    heads={
        "span_classifier": Head(
            "question_answering", (Row(OUTPUT, "", "qa_outputs", "cls/squad", None, None),)
        )
    },
    uses_pooler=False,
    serving="QuestionAnsweringModule",
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Answer": ".preprocessor",
        "GoldAnswer": ".files",
        "SquadExample": ".files",
        "QuestionWindows": ".question_windows",
        "best_null_thresholds": ".metrics",
        "read_answers": ".prediction_files",
        "read_squad": ".files",
        "squad_intervals": ".metrics",
        "squad_scores": ".metrics",
    },
)
