"""The names of classes in a file: `id2label` and `label2id`, as Hugging Face writes them.

A name at another class would be wrong without a word, so the two must agree and have all ids.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import ConfigError

_DEFAULT = "LABEL_{}"  # transformers' names, also in a `label2id` that nobody has set


def file_labels(values: Mapping[str, Any], path: str) -> list[str] | None:
    """Returns the names of classes in the order of their ids; None if the file has no two.

    Args:
        values: The keys of the file, such as `extra` of a `BertConfig`.
        path: The file, for errors.

    Raises:
        ConfigError: If the ids are not 0 to n - 1, a name is there twice, or `label2id` says
            something else.

    Example:
        >>> file_labels({"id2label": {"1": "good", "0": "bad"}}, "config.json")
        ['bad', 'good']
    """
    if not values.get("id2label"):
        return None
    names = {_id_of(key, path): str(name) for key, name in values["id2label"].items()}
    if sorted(names) != list(range(len(values["id2label"]))):
        rule = "have the ids 0 to n - 1 as keys, as the outputs of the head are numbered"
        raise _error(path, f"`id2label` must {rule}", f"the ids {sorted(names)[:20]}")
    labels = [names[number] for number in range(len(names))]
    require_different(labels, path)
    _require_inverse(values.get("label2id"), labels, path)
    return labels if len(labels) > 1 else None


def require_different(labels: Sequence[Any], path: str) -> None:
    """Raises `ConfigError` if a file gives two classes the same name."""
    repeated = [name for name, count in Counter(map(str, labels)).items() if count > 1]
    if repeated:
        raise _error(path, "Labels must be different", f"several times {repeated[:10]}")


def require_same(labels: Sequence[Any] | None, values: Mapping[str, Any], path: str) -> None:
    """Raises `ConfigError` if this package's `labels` in a file are not those of its `id2label`.

    Another program, or a person, may have changed one of the two.
    """
    found = file_labels(values, path) or []
    expected = labels or map(_DEFAULT.format, range(len(found)))
    if found and found != list(map(str, expected)):
        rule = "`id2label` must have the same names as `labels` in `bert_tf`"
        raise _error(path, rule, f"{found[:10]} and {list(labels or ())[:10]}")


def _id_of(key, path):
    try:
        return int(key)
    except ValueError:
        rule = "`id2label` must have class ids as keys"
        raise _error(path, rule, f"{key!r:.200}") from None


def _require_inverse(ids, labels, path):
    """Refuses a `label2id` that gives a name another id, or an id a name that is not a default."""
    if not isinstance(ids, Mapping):
        return
    known = {name: number for number, name in enumerate(labels)}
    for name, number in ids.items():
        is_default = name not in known and name == _DEFAULT.format(number)
        if not is_default and str(known.get(name)) != str(number):
            there = known.get(name, "no such name")
            received = f"{name!r:.200} with the id {number!r:.200}, and in `id2label` {there}"
            raise _error(path, "`label2id` must be the inverse of `id2label`", received)


def _error(path, rule, received):
    return ConfigError(
        f"{rule}. Received in {path}: {received}. Correct the file, or pass `labels=[…]`, the "
        "names in the order of the head's outputs."
    )
