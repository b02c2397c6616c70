"""Paths of files and folders: of this host, or of a file system that fsspec reaches, as in `s3://bucket/logs/*.gz`.

Looks for files, opens, renames and removes them. Must not know: what is in them, and who reads them. fsspec need
not be installed; nothing imports it before a URL is used.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Mapping
from glob import has_magic
from typing import IO, Any

from shmjet.processors.files.file_blocks import absolute_patterns, find_files, is_unfinished

PathLike = str | os.PathLike[str]
Options = Mapping[str, Any]

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*::)*[A-Za-z][A-Za-z0-9+.\-]+://")


def make_folder(path: PathLike) -> None:
    """Make the folder into which a sink writes, and those above it; it may be there. Raises OSError, which names it."""
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        what = "a sink writes files into a folder, and there is a file in its place; give another path"
        raise type(error)(error.errno, what, str(path)) from None


def is_url(path: str) -> bool:
    """Whether a path is for fsspec.

    Example:
        >>> is_url("s3://bucket/a"), is_url("simplecache::s3://bucket/a"), is_url("C:/a"), is_url("/tmp/a::b")
        (True, True, False, False)
    """
    return _URL.match(path) is not None


def import_fsspec(url: str) -> Any:
    """Return the module.

    Raises:
        ModuleNotFoundError: it is not installed; the text says what to do.
    """
    try:
        return importlib.import_module("fsspec")
    except ModuleNotFoundError as error:
        if error.name != "fsspec":
            raise
        raise ModuleNotFoundError(
            f"{url!r} needs the package fsspec (and the one for its protocol): pip install fsspec", name="fsspec"
        ) from None


def absolute_paths(who: str, paths: PathLike | Iterable[PathLike]) -> tuple[str, ...]:
    """Return paths, folders, globs and URLs so that they mean the same in another process.

    Raises:
        ValueError: there are none. TypeError: one is not a path. ModuleNotFoundError: see `import_fsspec`.
    """
    several: list[Any]
    if isinstance(paths, str | bytes | os.PathLike) or not isinstance(paths, Iterable):
        several = [paths]
    else:
        several = list(paths)
    if not several:
        raise ValueError(f"{who}: no paths were given")
    found = []
    for path in several:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"{who}: expected a path, a glob or a URL, got {path!r} ({type(path).__name__})")
        text = os.fspath(path)
        if not isinstance(text, str) or not text:
            raise TypeError(f"{who}: expected a non-empty str as path, got {text!r}")
        if is_url(text):
            import_fsspec(text)
            found.append(text)
        else:
            found += absolute_patterns(text)
    return tuple(found)


def find(paths: Iterable[str], options: Options) -> list[tuple[str, int]]:
    """Return (path or URL, size in bytes) of the files meant, each once; files that are being written are left out.

    A size of -1: the file system does not report it.

    Raises:
        FileNotFoundError: a path does not exist, or a glob meets nothing; it names it.
    """
    found: dict[str, int] = {}
    for path in paths:
        if is_url(path):
            entries = _find_remote(path, options)
            found.update(entry for entry in entries if entry[0] == path or not is_unfinished(entry[0]))
        else:
            found.update(find_files([path]))
    return list(found.items())


def open_file(path: str, options: Options) -> IO[bytes]:
    """Open a file for reading. Raises OSError, which names it."""
    if not is_url(path):
        return open(path, "rb", buffering=0)
    fs, inner = _filesystem(path, options)
    opened: Any = _RemoteFile(fs.open(inner, "rb"), fs)
    file: IO[bytes] = opened
    return file


class _RemoteFile:
    """A file and its file system: an archive closes itself when nothing refers to it any more."""

    def __init__(self, file: Any, fs: Any) -> None:
        self._file = file
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Folder:
    """A folder that files are written into.

    Args:
        path: absolute, or a URL.
        options: for fsspec.
    """

    def __init__(self, path: str, options: Options) -> None:
        self.path = path.rstrip("/") if is_url(path) else path
        self._options = options
        self._fs: Any = None

    @property
    def is_remote(self) -> bool:
        """Whether fsspec is needed."""
        return is_url(self.path)

    def create(self) -> None:
        """Make the folder unless it is there. Raises OSError, which names it."""
        if self.is_remote:
            fs, inner = self._at("")
            fs.makedirs(inner, exist_ok=True)
        else:
            make_folder(self.path)

    def open_new(self, name: str) -> IO[bytes]:
        """Open a file for writing; one of that name is replaced."""
        if self.is_remote:
            fs, inner = self._at(name)
            file: IO[bytes] = fs.open(inner, "wb")
            return file
        return open(os.path.join(self.path, name), "wb")

    def names(self) -> list[str]:
        """Return the names of the files in it. Raises OSError, which names it."""
        if not self.is_remote:
            return os.listdir(self.path)
        fs, inner = self._at("")
        fs.invalidate_cache(inner)
        return [path.rstrip("/").rpartition("/")[2] for path in fs.ls(inner, detail=False)]

    def exists(self, name: str) -> bool:
        """Say whether there is a file of that name."""
        if self.is_remote:
            fs, inner = self._at(name)
            return bool(fs.exists(inner))
        return os.path.lexists(os.path.join(self.path, name))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file of the new name."""
        if self.is_remote:
            fs, source = self._at(old)
            fs.mv(source, self._at(new)[1])
        else:
            os.replace(os.path.join(self.path, old), os.path.join(self.path, new))

    def remove(self, name: str) -> None:
        """Remove a file. Raises FileNotFoundError when there is none."""
        if self.is_remote:
            fs, inner = self._at(name)
            fs.rm_file(inner)
        else:
            os.unlink(os.path.join(self.path, name))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}

    def _at(self, name: str) -> tuple[Any, str]:
        if self._fs is None:
            self._fs = _filesystem(self.path, self._options)
        fs, inner = self._fs
        return fs, f"{inner.rstrip('/')}/{name}" if name else inner


def _filesystem(url: str, options: Options) -> tuple[Any, str]:
    fs, inner = import_fsspec(url).core.url_to_fs(url, **options)
    return fs, inner


def _find_remote(url: str, options: Options) -> list[tuple[str, int]]:
    fs, inner = _filesystem(url, options)
    if has_magic(inner):
        infos = fs.glob(inner, detail=True)
        what = "nothing matches"
    elif fs.isdir(inner):
        infos = {inner: fs.info(inner)}
        what = ""
    else:
        infos = {inner: fs.info(inner)} if fs.exists(inner) else {}
        what = "no such file or folder"
    if not infos:
        raise FileNotFoundError(2, what, url)
    found: dict[str, int] = {}
    for path, info in sorted(infos.items()):
        below = fs.find(path, detail=True) if info.get("type") == "directory" else {path: info}
        for name, entry in sorted(below.items()):
            size = entry.get("size")
            found[_url_of(url, name)] = -1 if size is None else size
    return list(found.items())


def _url_of(pattern: str, inner: str) -> str:
    """Return the URL of a file that was found by a pattern: that of the pattern with the file's path in its place."""
    if is_url(inner):
        return inner
    links = pattern.split("::")
    at = next(index for index, link in enumerate(links) if "://" in link)
    links[at] = f"{links[at].partition('://')[0]}://{inner}"
    return "::".join(links)
