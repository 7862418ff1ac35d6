"""Question answering: which part of a context answers a question."""

from bert_tf.base.json_schema import FLAG, integer, may_lack, number, optional
from bert_tf.base.lazy_names import lazy_names
from bert_tf.config import PADDING_LOGIT
from bert_tf.models import task_spec
from bert_tf.models.weight_rows import OUTPUT

_HEAD = task_spec.layer_head("question_answering", OUTPUT, "qa_outputs", "cls/squad")
_DETAILS = (
    *("allow_no_answer", "null_score_diff_threshold", "n_best_size"),
    *("doc_stride", "max_query_length"),
)
SPEC = task_spec.TaskSpec(
    name="question_answering",
    model="BertQuestionAnswerer",
    architectures=("BertForQuestionAnswering",),
    preprocessor="QuestionAnsweringPreprocessor",
    examples=task_spec.Examples(
        texts=(2,),
        form="A pair (questions, contexts) must be two lists of strings; or pass a list of tuples, "
        "[(question, context), ...].",
        are_cut=True,
    ),
    labels=task_spec.Labels(no_class_weights="labels are positions, not classes"),
    token_axis=2,
    token_padding=PADDING_LOGIT,
    heads={"span_classifier": _HEAD},
    optional_heads={"lstm": task_spec.LSTM},
    uses_pooler=False,
    serving=task_spec.Serving(
        "QuestionAnsweringModule",
        texts={
            "question": "The question, UTF-8.",
            "context": "The text that the answer is looked for in, UTF-8, of any length.",
        },
        outputs={
            "answer": "The answer, a piece of the context; empty where it has none.",
            "start": "The answer's first character in the context, in code points.",
            "end": "The one after its last.",
            "score": "Its probability among the n best.",
            "score_difference": "How much better no answer is than the best span.",
            "n_best_count": "How many of the n best there are; what follows is padding.",
            "n_best_text": "The n best answers, the best first.",
            "n_best_start": "Their first characters.",
            "n_best_end": "The ones after their last.",
            "n_best_score": "Their probabilities.",
        },
        token_outputs={
            "start_logits": "Logits of the answer's first token.",
            "end_logits": "Logits of its last token.",
        },
        details=dict(zip(_DETAILS, _DETAILS)),
    ),
    output_axes=(task_spec.END_AXIS, task_spec.TOKEN_AXIS),
    answers={"answer": task_spec.Answers("answer", (2,), by_column=True)},
    options={
        "allow_no_answer": may_lack(FLAG),
        "null_score_diff_threshold": may_lack(number()),
        "doc_stride": may_lack(integer(least=1)),
        "max_query_length": optional(integer(least=1)),
        "n_best_size": may_lack(integer(least=1)),
        "max_answer_length": may_lack(integer(least=1)),
        **task_spec.LSTM_OPTIONS,
    },
    built_with=tuple(task_spec.LSTM_OPTIONS),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Answer": ".preprocessor",
        "QuestionWindows": ".question_windows",
        "read_answers": ".files",
        **dict.fromkeys(("GoldAnswer", "SquadExample", "read_squad"), ".files"),
        **dict.fromkeys(("best_null_thresholds", "squad_intervals", "squad_scores"), ".metrics"),
    },
)
