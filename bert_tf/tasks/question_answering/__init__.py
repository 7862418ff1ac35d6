"""Question answering: which part of a context answers a question."""

from bert_tf.base.json_schema import FLAG, integer, may_lack, number, optional
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import END_AXIS, TOKEN_AXIS, Answers, TaskSpec, layer_head
from bert_tf.models.weight_rows import OUTPUT

_HEAD = layer_head("question_answering", OUTPUT, "qa_outputs", "cls/squad")
SPEC = TaskSpec(
    name="question_answering",
    model="BertQuestionAnswerer",
    architectures=("BertForQuestionAnswering",),
    heads={"span_classifier": _HEAD},
    uses_pooler=False,
    serving="QuestionAnsweringModule",
    output_axes=(END_AXIS, TOKEN_AXIS),
    answers={"answer": Answers("answer", (2,), by_column=True)},
    options={
        "allow_no_answer": may_lack(FLAG),
        "null_score_diff_threshold": may_lack(number()),
        "doc_stride": may_lack(integer(least=1)),
        "max_query_length": optional(integer(least=1)),
        "n_best_size": may_lack(integer(least=1)),
        "max_answer_length": may_lack(integer(least=1)),
    },
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Answer": ".preprocessor",
        "QuestionWindows": ".question_windows",
        "read_answers": ".prediction_files",
        **dict.fromkeys(("GoldAnswer", "SquadExample", "read_squad"), ".files"),
        **dict.fromkeys(("best_null_thresholds", "squad_intervals", "squad_scores"), ".metrics"),
    },
)
