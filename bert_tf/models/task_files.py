"""The files that tasks have in checkpoint directories, apart from weights and options."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, ClassVar

from bert_tf.base import hooks
from bert_tf.base.tensor_source import JoinedSource, TensorSource
from bert_tf.config import BertConfig

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass
class OpenedDirectory:
    """A directory whose weights are open, for `TaskFiles.read`.

    Attributes:
        path: The directory.
        modules: The type and the folder of each module that a `modules.json` lists.
        config: What `config.json` says; `extra` has the keys that the network does not need.
        architectures: Hugging Face's names of the model's class.
        source: The tensors. None while they are unknown.
    """

    path: str
    modules: list[tuple[str, str]]
    config: BertConfig
    architectures: tuple[str, ...] = ()
    source: TensorSource | None = None

    def add_weights(self, folder: str) -> None:
        """Adds the tensors in the folder of a module to `source`.

        Raises:
            CheckpointError: If there are none, they are damaged, or `source` has the same names.
        """
        self.source = JoinedSource(self.path, [self.source, hooks.folder_weights(folder)])


class TaskFiles:
    """The files of a task apart from weights, tokenizer and options.

    A task has a subclass in its `files.py`.

    `save_pretrained` calls `write` and `config_values`, `from_pretrained` calls `read`. A task
    without files of its own is recognised by the files that `save_pretrained` writes for every
    model.

    Attributes:
        names: The names of the files, to fetch them from the Hugging Face Hub.

    Example:
        >>> import os
        >>> from bert_tf.base.json_files import read_json, write_json
        >>> from bert_tf.base.json_schema import number, object_of
        >>> class ScaleFiles(TaskFiles):
        ...     names = ("scale.json",)
        ...
        ...     def write(self, model, directory, format):
        ...         write_json(os.path.join(directory, "scale.json"), {"scale": model.scale})
        ...
        ...     def read(self, opened):
        ...         path = os.path.join(opened.path, "scale.json")
        ...         if not os.path.exists(path):
        ...             return None
        ...         return {"scale": read_json(path, object_of({"scale": number()}))["scale"]}
    """

    names: ClassVar[tuple[str, ...]] = ()

    def load(self, model_class: type, path: str | os.PathLike, **options: Any) -> Any:
        """Builds the model of a directory: what `from_pretrained` of its class does."""
        return hooks.load_task_model(model_class, path, **options)

    def read(self, opened: OpenedDirectory) -> dict[str, Any] | None:
        """Returns the options of the model in the files, or None if they belong to another task.

        They replace the same options in `config.json`.

        Raises:
            CheckpointError: If a file is damaged or describes a model that is not supported.
        """
        return None

    def write(self, model: Any, directory: str, format: str) -> None:
        """Writes the files of a model next to weights of a format of `save_pretrained`."""

    def recognises(self, directory: str) -> bool:
        """Returns whether a directory that names no class and has no head is one of the task.

        Raises:
            CheckpointError: See `read`.
        """
        return False

    def variables(self, model: Any) -> list[Any]:
        """Returns the variables of a model that `write` writes, and no head of the SPEC has."""
        return []

    def config_values(self, model: Any) -> dict[str, Any]:
        """Returns further entries of `config.json`."""
        return {}


class NetworksFiles(TaskFiles):
    """The files of a task whose models are several networks, with a `config.json` of its own kind.

    Attributes:
        model_type: The `model_type` in `config.json`.
        backbone_prefix: What the names of the backbone's tensors begin with.
    """

    model_type: ClassVar[str]
    backbone_prefix: ClassVar[str] = "bert."

    def read_config(self, path: str) -> tuple[BertConfig, dict[str, Any], dict[str, Any]]:
        """Reads a `config.json`.

        Returns:
            The configuration of the backbone, options of the model, and the whole file.

        Raises:
            ConfigError: If a value is missing or out of range, or describes another network.
        """
        raise NotImplementedError(f"{type(self).__name__} must have `read_config`.")

    def by_our_names(self, source: TensorSource, options: dict[str, Any]) -> TensorSource:
        """Returns the tensors of a file with the names of the backbone and of the SPEC's heads."""
        return source

    def config_of(self, model: Any) -> dict[str, Any]:
        """Returns the content of `config.json`, without the keys of this package."""
        raise NotImplementedError(f"{type(self).__name__} must have `config_of`.")

    def own_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the options that `config_of` does not hold."""
        return options

    def by_their_names(self, tensors: dict[str, np.ndarray], model: Any) -> dict[str, np.ndarray]:
        """Returns the tensors of a file, from those of the weights of a model by name."""
        return tensors
