"""Keras's own files, `.keras` and `.weights.h5`, written atomically."""

import os

from bert_tf.base.files import staged_files


class KerasFiles:
    """A Keras model whose files are written atomically: Keras itself writes into the old file."""

    def save(
        self,
        filepath: str | os.PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        **options,
    ) -> None:
        """Writes a `.keras` file as `keras.Model.save` does, atomically.

        Args:
            filepath: The file.
            overwrite: False asks before a file is replaced.
            zipped: False writes a directory.
            **options: See `keras.Model.save`.

        Raises:
            UserError: If the model is prepacked.
        """
        _write(super().save, filepath, overwrite, {"zipped": zipped, **options})

    def save_weights(
        self,
        filepath: str | os.PathLike,
        overwrite: bool = True,
        max_shard_size: float | None = None,
    ) -> None:
        """Writes a `.weights.h5` file as `keras.Model.save_weights` does, atomically.

        Args:
            filepath: The file.
            overwrite: False asks before a file is replaced.
            max_shard_size: Gigabytes; writes a `.weights.json` and files of at most that size.
        """
        _write(super().save_weights, filepath, overwrite, {"max_shard_size": max_shard_size})


def _write(save, filepath, overwrite, options):
    is_local = isinstance(filepath, (str, os.PathLike)) and "://" not in os.fspath(filepath)
    if not is_local or (not overwrite and os.path.exists(filepath)):
        # Keras itself writes to URLs and file objects, and asks before it replaces a file.
        save(filepath, overwrite=overwrite, **options)
        return
    directory, name = os.path.split(os.path.abspath(filepath))
    with staged_files(directory) as new:  # several files where the weights are sharded
        save(os.path.join(new, name), overwrite=overwrite, **options)
