"""The arguments of the task models in checkpoint files, which are stored with the configuration.

Types and ranges are checked here for all files; the constructors refuse invalid combinations. Other
keys are arguments of the user's own classes. They are not passed to constructors of this package.
"""

from bert_tf.json_schema import (
    FLAG,
    MOST_INTEGER,
    SCALAR,
    integer,
    list_of,
    may_lack,
    number,
    object_of,
    optional,
    text,
)

OPTION_KEYS = {
    "max_length": optional(integer(least=3)),
    "num_classes": optional(integer(least=1)),
    "labels": optional(list_of(SCALAR)),
    "problem_type": optional(text()),
    "pooling": may_lack(text()),
    "dropout": optional(number("in [0, 1)", lambda value: 0 <= value < 1)),
    "use_crf": may_lack(FLAG),
    "allow_no_answer": may_lack(FLAG),
    "null_score_diff_threshold": may_lack(number()),
    "doc_stride": may_lack(integer(least=1)),
    "max_query_length": optional(integer(least=1)),
    "n_best_size": may_lack(integer(least=1)),
    "max_answer_length": may_lack(integer(least=1)),
    "normalize": may_lack(FLAG),
    "whitening_size": optional(integer(least=1)),
    "layer_indices": may_lack(list_of(integer(least=-MOST_INTEGER), least=1, most=10_000)),
    "combine": may_lack(text()),
    "objective": may_lack(text()),
}
OPTIONS = object_of(OPTION_KEYS)
