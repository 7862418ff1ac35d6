"""The attention ops, which here take the fields of an `AttentionRule` as arguments."""

import dataclasses
import functools

from bert_tf import ops

_FIELDS = {field.name for field in dataclasses.fields(ops.AttentionRule)}


def with_rule(op):
    """Returns a function like `op` that makes the rule of its arguments."""

    @functools.wraps(op)
    def call(*args, **kwargs):
        rule = {name: kwargs.pop(name) for name in _FIELDS & kwargs.keys()}
        return op(*args, rule=ops.AttentionRule(**rule), **kwargs)

    return call


varlen_attention = with_rule(ops.varlen_attention)
varlen_cross_attention = with_rule(ops.varlen_cross_attention)
quantized_attention = with_rule(ops.quantized_attention)
