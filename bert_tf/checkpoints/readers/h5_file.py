"""Reads HDF5 files defensively: the format allows links to other files and compression bombs."""

import h5py
import ml_dtypes
import numpy as np

from bert_tf.base.file_errors import complete_file, file_error, tensor_error
from bert_tf.checkpoints.readers.stored_zip import ViewFile, map_file, release_pages

# For comparison, a BERT-large has 400 tensors in 1,200 groups.
_MAX_OBJECTS = 100_000
_MAX_DEPTH = 24


class H5File:
    """The datasets of one HDF5 file. A member of an archive is given as `content`.

    Raises:
        CheckpointError: If the file is damaged, links to other files, or its datasets are
            compressed or larger than the file.
    """

    def __init__(self, path: str, content: memoryview | None = None):
        self.path = path
        self.datasets = {}
        self._count = 0
        self._total = 0
        self._map = None
        with complete_file(path, "a complete HDF5 file"):
            if content is None:
                self._map = map_file(path)
                content = memoryview(self._map)
            self._size = len(content)
            # h5py gets the bytes, not the path: HDF5 would return a file of this path that is still
            # open, even if the file has been replaced.
            self._file = h5py.File(ViewFile(content), "r")
            self._walk(self._file, "", 0)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each dataset; () for a dataset without values."""
        return {name: tuple(data.shape or ()) for name, data in self.datasets.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns the values of one dataset."""
        dataset = self.datasets[name]
        if self._map is not None:
            release_pages(self._map)
        try:
            values = dataset[()]
            if not self._is_bfloat16(dataset.attrs):
                return values
            values = np.asarray(values)
            convert = values.view if values.dtype.kind == "V" else values.astype
            return convert(ml_dtypes.bfloat16)
        except Exception as error:
            received = f"{error}. The file is damaged."
            raise tensor_error(self, name, "be readable", received) from None

    def _walk(self, group, prefix, depth):
        for name in group:
            self._count += 1
            if self._count > _MAX_OBJECTS or depth > _MAX_DEPTH:
                expected = f"hold at most {_MAX_OBJECTS} objects, in at most {_MAX_DEPTH} levels"
                raise file_error(self.path, expected, "more")
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                received = f"{prefix}{name}, which is of type {type(link).__name__}"
                raise file_error(self.path, "hold all data itself", received)
            item = group[name]
            if isinstance(item, h5py.Group):
                self._walk(item, f"{prefix}{name}/", depth + 1)
            elif isinstance(item, h5py.Dataset):
                self._check(item, f"{prefix}{name}")
                self.datasets[f"{prefix}{name}"] = item

    @staticmethod
    def _is_bfloat16(attributes):
        """Returns whether Keras 3 has marked a dataset; HDF5 has no such type."""
        # An array of strings could need more memory than the file.
        is_single = "dtype" in attributes and attributes.get_id("dtype").shape == ()
        return is_single and attributes["dtype"] == "bfloat16"

    def _check(self, dataset, name):
        if dataset.dtype.hasobject:  # values of any size elsewhere in the file, also many times
            raise tensor_error(self, name, "hold numbers", dataset.dtype)
        if dataset.is_virtual or dataset.external:
            received = "a dataset in another file"
            raise tensor_error(self, name, "be stored in the file itself", received)
        num_filters = dataset.id.get_create_plist().get_nfilters()
        size, held = dataset.nbytes or 0, dataset.id.get_storage_size()
        if num_filters or size > self._size:
            expected = "be uncompressed, as Keras writes it, and not larger than the file"
            received = f"shape={dataset.shape}, dtype={dataset.dtype}, {num_filters} filters"
            raise tensor_error(self, name, expected, received)
        if held < size:
            raise tensor_error(self, name, "be stored in full", f"{held} of {size} bytes")
        self._total += size
        if self._total > self._size:  # one dataset under many names
            received = f"{self._total} bytes in a file of {self._size}"
            raise file_error(
                f"The datasets of {self.path}", "not be larger than the file", received
            )
