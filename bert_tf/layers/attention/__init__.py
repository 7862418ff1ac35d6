"""Attention: which rows there are, who attends to whom, and the layers that compute it.

A `TokenLayout` says which token each row is. An `ops.AttentionRule` says which rows of its sequence
a row attends to, and what is added to the scores. The ops, their reference implementations and
padded batches take the same rule.
"""
