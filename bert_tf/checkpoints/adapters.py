"""The adapters of tasks in a file: low-rank matrices, of which those of one task may be added.

Sources: Sturua et al. 2024 (arXiv 2409.10173), section 3; jinaai/xlm-roberta-flash-implementation,
modeling_lora.py.
"""

import dataclasses

import numpy as np

from bert_tf.base.file_errors import tensor_error
from bert_tf.base.json_schema import check, integer, list_of, number, object_of, text
from bert_tf.base.tensor_source import TensorSource, read_floats
from bert_tf.config import BertConfig
from bert_tf.errors import ConfigError, UserError, require

_TASKS, _RANK, _ALPHA = "lora_adaptations", "lora_rank", "lora_alpha"
_ADAPTERS = object_of({_TASKS: list_of(text(), least=1), _RANK: integer(1), _ALPHA: number()})
_OTHERS = ("lora_dropout_p", "lora_main_params_trainable", "load_trained_adapters")
_ORIGINAL, _LOW_RANK = ".parametrizations.weight.original", ".parametrizations.weight.0.lora_"


class AdaptedSource:
    """The weights of another source, with the products of one task added. A `TensorSource`.

    Args:
        source: The other source.
        tasks: The names of the tasks that have adapters.
        rank: The rank of all adapters.
        alpha: The factor of the products is `alpha / rank`.

    Attributes:
        task: The task whose products are added, one of `tasks`; None adds nothing.
    """

    def __init__(self, source: TensorSource, tasks: list[str], rank: int, alpha: float):
        self.path, self.format, self._source = source.path, source.format, source
        self._tasks, self._rank, self._scale, self.task = tasks, rank, alpha / rank, None
        names = [name for name in source.shapes if _LOW_RANK not in name]
        self._names = {name.replace(_ORIGINAL, ".weight"): name for name in names}
        self.shapes = {ours: source.shapes[name] for ours, name in self._names.items()}

    def choose(self, task: str) -> None:
        """Sets `task`. Raises `UserError` if it has no adapters."""
        require(task in self._tasks, f"must be one of {self._tasks}", UserError, adapter=task)
        self.task = task

    def read(self, name: str) -> np.ndarray:
        original = self._names[name]
        if original == name or self.task is None:
            return self._source.read(original)
        # Kernels are [out, in], the sum of one with B A; tables are [V, H], with A B.
        first, second = (self._matrix(original, part) for part in "AB")
        is_table = first.shape[1] == self._rank and first.shape[0] == self.shapes[name][0]
        left, right = (first, second) if is_table else (second, first)
        if (
            left.shape != (self.shapes[name][0], len(right))
            or right.shape[1] != self.shapes[name][1]
        ):
            expected = f"be a factor of a tensor with shape={self.shapes[name]}"
            received = f"shapes={left.shape}, {right.shape}"
            raise tensor_error(self, original, expected, received)
        return read_floats(self._source, original) + self._scale * (left @ right)

    def _matrix(self, original, part):
        """Returns A or B of the task for a tensor of the file, float32 of rank 2."""
        name, place = original.replace(_ORIGINAL, _LOW_RANK + part), self._tasks.index(self.task)
        shape = self._source.shapes.get(name)
        if shape is None or len(shape) != 3 or shape[0] != len(self._tasks):
            expected = f"have the shape [{len(self._tasks)}, …, …], as there are so many tasks"
            raise tensor_error(self, name, expected, f"shape={shape}")
        return read_floats(self._source, name)[place]


def without_adapters(
    source: TensorSource, config: BertConfig, path: str
) -> tuple[TensorSource, BertConfig, AdaptedSource | None]:
    """Returns the weights of a file, its configuration without adapters, and what has these.

    `path` is the file of the configuration, for errors.

    Raises:
        ConfigError: If the configuration of the adapters is damaged.
    """
    values = {key: config.extra.get(key) for key in (_TASKS, _RANK, _ALPHA)}
    kept = {k: v for k, v in config.extra.items() if k not in (*values, *_OTHERS)}
    if not values[_TASKS]:
        return source, config, None
    check(values, _ADAPTERS, path, ConfigError)
    adapted = AdaptedSource(source, values[_TASKS], values[_RANK], values[_ALPHA])
    return adapted, dataclasses.replace(config, extra=kept), adapted
