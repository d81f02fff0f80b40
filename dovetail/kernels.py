"""How kernels are compiled, and when a compiled one is stale.

Numba keeps what it compiled on disk and compiles anew when the kernel's own file has changed. But
a kernel contains whatever it calls, and the constants of other modules. So here it is stale, too,
when any module has changed that its own one imports, directly or through others.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.ccallback import CFunc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Function = TypeVar("_Function")
_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(rb"^from ([\w.]+) import (?:\(([^)]*)\)|(.*))|^import ([\w.]+)", re.MULTILINE)


class Decorator(Protocol):
    """Gives a function of the same type."""

    def __call__(self, function: _Function, /) -> _Function: ...


@overload
def kernel(function: _Function) -> _Function: ...
@overload
def kernel(function: None = None, **options: Any) -> Decorator: ...
def kernel(function: _Function | None = None, **options: Any) -> _Function | Decorator:
    """Compile a function on its first call, to run without the GIL, and keep it on disk."""
    if function is None:
        return cast("Decorator", functools.partial(kernel, **options))
    compiled = _kept(njit(nogil=True, **options)(function), function)
    return cast("_Function", compiled)


def callback(signature: Any) -> Callable[[Any], Any]:
    """Compile a function that C calls, and keep it on disk."""

    def compile_for_c(function: Any) -> Any:
        types = (signature.args, signature.return_type)
        compiled = _kept(CFunc(function, types, {}, {}), function)
        compiled.compile()
        return compiled

    return compile_for_c


def _kept(compiled: Any, function: Any) -> Any:
    # Numba has no other way to choose what makes a kernel stale.
    compiled._cache = _Cache(function)  # type: ignore[no-untyped-call] # noqa: SLF001
    return compiled


def sources_of(file: Path, package: Path = _PACKAGE) -> frozenset[Path]:
    """A module's file, and those of all modules of the package that it needs."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(_imported(module, package))
    return frozenset(found)


@functools.cache
def _imported(file: Path, package: Path) -> tuple[Path, ...]:
    """What a module imports when it is loaded; what only type checkers read is indented."""
    named = [
        (module or alone, names or name)
        for module, names, name, alone in _IMPORT.findall(file.read_bytes())
    ]
    return tuple(
        path for module, names in named for path in _files(module.decode(), names.decode(), package)
    )


def _files(module: str, names: str, package: Path) -> Iterator[Path]:
    first, *inner = module.split(".")
    if first != package.name:
        return
    folder = package.joinpath(*inner)
    members = re.findall(r"\w+", names)
    for path in (folder, *(folder / member for member in members)):
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                yield candidate


@functools.cache
def _stamp(file: str) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources_of(Path(file))):
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


class _Stamped:
    _py_file: str

    def get_source_stamp(self) -> str:
        return _stamp(self._py_file)


class _Given(_Stamped, UserProvidedCacheLocator):
    """In NUMBA_CACHE_DIR."""


class _InTree(_Stamped, InTreeCacheLocator):
    """Beside the module, in __pycache__."""


class _UserWide(_Stamped, UserWideCacheLocator):
    """In the user's own cache: the module's folder cannot be written to."""


class _Results(CompileResultCacheImpl):
    _locator_classes = [_Given, _InTree, _UserWide]  # noqa: RUF012


class _Cache(FunctionCache):
    _impl_class = _Results
