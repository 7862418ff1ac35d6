"""HDF5 files, opened with suspicion: the format can point to other files and unpack without end."""

import mmap

import h5py
import numpy as np

from bert_tf.checkpoints.readers.stored_zip import ViewFile, release_pages
from bert_tf.errors import CheckpointError

# A BERT-large has 400 tensors in 1,200 groups.
_MOST_OBJECTS = 100_000
_DEEPEST = 24


class H5File:
    """The datasets of one HDF5 file.

    Args:
        path: The file, or what to call it in messages.
        content: The file's bytes, if it stands in an archive.

    Attributes:
        datasets: The datasets by path; only those whose numbers stand in this very file.
        shapes: Their shapes; of one without numbers ().

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
        try:
            if content is None:
                with open(path, "rb") as file:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                content = memoryview(self._map)
            self._size = len(content)
            # By its bytes, not by its name: HDF5 hands out a file again that it still has open,
            # even if another one has taken its place.
            self._file = h5py.File(ViewFile(content), "r")
            self._walk(self._file, "", 0)
        except _ERRORS as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(
                f"{path} is not a whole HDF5 file ({error}). Fetch it again."
            ) from None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(data.shape or ()) for name, data in self.datasets.items()}

    def read(self, name: str) -> np.ndarray:
        """The values of one dataset."""
        dataset = self.datasets[name]
        if self._map is not None:
            release_pages(self._map)
        try:
            values = dataset[()]
            if dataset.attrs.get("dtype") == "bfloat16":  # Keras 3 marks what HDF5 cannot name
                import ml_dtypes

                values = np.asarray(values)
                raw = values.dtype.kind == "V"
                return values.view(ml_dtypes.bfloat16) if raw else values.astype(ml_dtypes.bfloat16)
            return values
        except _ERRORS as error:
            raise CheckpointError(f"{self.path}: {name} is damaged ({error})") from None

    def _walk(self, group, prefix, depth):
        for name in group:
            self._count += 1
            if self._count > _MOST_OBJECTS or depth > _DEEPEST:
                raise CheckpointError(f"{self.path}: too many groups for a model's weights")
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise CheckpointError(
                    f"{self.path}: expected everything in the file itself. Received: {prefix}{name}"
                    f", a {type(link).__name__}"
                )
            item = group[name]
            if isinstance(item, h5py.Group):
                self._walk(item, f"{prefix}{name}/", depth + 1)
            elif isinstance(item, h5py.Dataset):
                self._check(item, f"{prefix}{name}")
                self.datasets[f"{prefix}{name}"] = item

    def _check(self, dataset, name):
        if dataset.is_virtual or dataset.external:
            raise CheckpointError(
                f"{self.path}: {name} keeps its numbers in another file, which is not read"
            )
        properties = dataset.id.get_create_plist()
        if properties.get_nfilters() or (dataset.nbytes or 0) > self._size:
            raise CheckpointError(
                f"{self.path}: expected plain numbers, as Keras writes them. Received: {name}, "
                f"{dataset.shape} {dataset.dtype}, compressed or larger than the file"
            )
        if dataset.id.get_storage_size() < (dataset.nbytes or 0):
            raise CheckpointError(f"{self.path}: the numbers of {name} are not in the file")
        self._total += dataset.nbytes or 0
        if self._total > self._size:  # one dataset under many names
            raise CheckpointError(f"{self.path}: its datasets are larger than the file")


# What h5py raises over a damaged file.
_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    RuntimeError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    UnicodeError,
    IndexError,
    NotImplementedError,
)
