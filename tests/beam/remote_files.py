"""A remote file system for tests: files `test://...` that are in a local folder.

As on gs://, there are no directories, and a file appears when it is closed.
"""

import io
import os
import shutil

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

SCHEME = "test"
FOLDER = None  # set by a test


class _NewFile(io.BytesIO):
    def __init__(self, path):
        super().__init__()
        self._path = path

    def close(self):
        if not self.closed:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(self._path, "wb") as file:
                file.write(self.getvalue())
        super().close()


class RemoteFiles(FileSystem):
    """Beam finds it by its scheme."""

    @classmethod
    def scheme(cls):
        return SCHEME

    def _local(self, path):
        return os.path.join(FOLDER, path.removeprefix(f"{SCHEME}://"))

    def join(self, basepath, *paths):
        return "/".join([basepath, *paths])

    def split(self, path):
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path):
        pass

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        for folder, _, names in os.walk(FOLDER):
            for name in names:
                path = f"{SCHEME}://{os.path.relpath(os.path.join(folder, name), FOLDER)}"
                if path.startswith(dir_or_prefix):
                    yield self.metadata(path)

    def create(self, path, mime_type="", compression_type=""):
        return _NewFile(self._local(path))

    def open(self, path, mime_type="", compression_type=""):
        return open(self._local(path), "rb")

    def copy(self, source_file_names, destination_file_names):
        for source, target in zip(source_file_names, destination_file_names):
            os.makedirs(os.path.dirname(self._local(target)), exist_ok=True)
            shutil.copyfile(self._local(source), self._local(target))

    def rename(self, source_file_names, destination_file_names):
        for source, target in zip(source_file_names, destination_file_names):
            os.makedirs(os.path.dirname(self._local(target)), exist_ok=True)
            os.replace(self._local(source), self._local(target))

    def exists(self, path):
        return os.path.isfile(self._local(path))

    def size(self, path):
        return os.path.getsize(self._local(path))

    def last_updated(self, path):
        return os.path.getmtime(self._local(path))

    def checksum(self, path):
        raise AssertionError("is not used")

    def metadata(self, path):
        return FileMetadata(path, self.size(path))

    def delete(self, paths):
        missing = [path for path in paths if not self.exists(path)]
        if missing:
            raise BeamIOError("Delete operation failed", dict.fromkeys(missing))
        for path in paths:
            os.remove(self._local(path))
