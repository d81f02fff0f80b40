"""How kernels are compiled, and when a compiled one is stale.

Numba keeps what it compiled on disk and compiles anew when the kernel's own file has changed. But
a kernel contains whatever it calls, and the constants of other modules. So here it is stale, too,
when any module has changed that its own one imports, directly or through others.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import os
import pickle
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

import numpy as np

from dovetail.machine_code import (
    POSSIBLE,
    Compiled,
    Environment,
    UnfamiliarError,
    address_of,
    function_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Function = TypeVar("_Function")
_Loaded = TypeVar("_Loaded")
_PACKAGE = Path(__file__).parent
_CPU = re.compile(r"(model name|flags)\s")
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
    made = Kernel(function, {"nogil": True, **options})
    # A kernel that is to be inlined is known to Numba by its own object alone.
    return cast("_Function", made.dispatcher if "inline" in options else made)


class Kernel:
    """A function that is compiled for the types of its arguments, or was, and is loaded."""

    def __init__(self, function: Any, options: dict[str, Any], *, kept: bool = True) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._kept = kept
        self._count = function.__code__.co_argcount
        self._found: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.loaded = 0
        """For how many types it was found on disk."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        kinds = tuple(map(_kind, arguments))
        found = self._found.get(kinds)
        if found is None or named:
            found = self._find(kinds, arguments, named)
        return found(*arguments, **named)

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """What it was called with so far."""
        return list(self._found)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's own: what compiles, and what other kernels call when they are compiled."""
        from numba import njit  # noqa: PLC0415 - it takes 80 MiB: only if something is compiled

        made = njit(**self._options)(self._function)
        return _kept(made, self._function) if self._kept else made

    @property
    def _numba_type_(self) -> Any:
        """What a kernel that calls this one is compiled with: Numba asks by this name."""
        return self.dispatcher._numba_type_

    def _find(
        self, kinds: tuple[Any, ...], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Callable[..., Any]:
        words = None if named or len(arguments) != self._count else _words(kinds)
        if words is None or not self._kept:
            if not named:
                self._found[kinds] = self.dispatcher
            return cast("Callable[..., Any]", self.dispatcher)
        place = _place(self._function, words)
        found = _loaded(place, self._function, function_of)
        if found is None:
            types = tuple(map(self.dispatcher.typeof_pyval, arguments))
            found = self.dispatcher.compile(types)
            made = self.dispatcher.overloads[types]
            _write(place, self._function, made, made.fndesc.llvm_cpython_wrapper_name)
        else:
            self.loaded += 1
        self._found[kinds] = found
        return cast("Callable[..., Any]", found)


_HALF = 1 << 63
_SCALARS: dict[Any, str] = {
    int: "int64",
    float: "float64",
    bool: "bool",
    type(None): "none",
    np.bool_: "bool",
    **{
        of: np.dtype(of).name
        for of in (np.int8, np.int16, np.int32, np.int64, np.float32, np.float64)
    },
    **{of: np.dtype(of).name for of in (np.uint8, np.uint16, np.uint32, np.uint64)},
}
_NUMBERS = "biuf"
"""Kinds of arrays' items."""
_BY_ROWS, _BY_COLUMNS, _ALIGNED, _WRITEABLE = 1, 2, 0x100, 0x400
"""Flags of an array: `NPY_ARRAY_C_CONTIGUOUS`, …"""


def _kind(value: Any) -> Any:
    """What of an argument tells its type, at once."""
    of = type(value)
    if of is np.ndarray:
        return value.dtype, value.ndim, value.flags.num
    if of is int:  # Numba has a larger one as an unsigned
        return int if -_HALF <= value < _HALF else None
    if issubclass(of, tuple):
        return of, *map(_kind, value)
    return of


def _words(kinds: tuple[Any, ...]) -> str | None:
    """The same in words, one for each type that Numba tells apart; None for what is not known."""
    try:
        return ",".join(map(_word, kinds))
    except KeyError:
        return None


def _word(kind: Any) -> str:
    if not isinstance(kind, tuple):
        return _SCALARS[kind]
    first, *rest = kind
    if isinstance(first, type):
        return f"{first.__module__}.{first.__qualname__}({','.join(map(_word, rest))})"
    dimensions, flags = rest
    if first.kind not in _NUMBERS:
        raise KeyError(first)
    layout = "C" if flags & _BY_ROWS else "F" if flags & _BY_COLUMNS else "A"
    return f"{first.str}{dimensions}{layout}{flags & (_ALIGNED | _WRITEABLE)}"


def callback(signature: str) -> Callable[[Any], Callback]:
    """Compile a function that C calls, and keep it on disk."""
    return lambda function: Callback(function, signature)


class Callback:
    def __init__(self, function: Any, signature: str) -> None:
        self._function = function
        self._signature = signature

    @functools.cached_property
    def address(self) -> int:
        place = _place(self._function, self._signature)
        loaded = _loaded(place, self._function, address_of)
        return self._compiled(place) if loaded is None else loaded

    def _compiled(self, place: Path | None) -> int:
        # As above: only if it is compiled.
        from numba.core.ccallback import CFunc  # noqa: PLC0415
        from numba.core.sigutils import normalize_signature  # noqa: PLC0415

        types = normalize_signature(self._signature)  # type: ignore[no-untyped-call]
        self._made = _kept(CFunc(self._function, types, {}, {}), self._function)
        self._made.compile()
        _write(place, self._function, self._made._cache.result, self._made.native_name)  # noqa: SLF001
        return int(self._made.address)


def intrinsic(definition: Any) -> Any:
    """Make a function of kernels out of instructions; as Numba's, which is loaded when needed."""
    return _Intrinsic(definition)


class _Intrinsic:
    def __init__(self, definition: Any) -> None:
        self._definition = definition

    @functools.cached_property
    def _numba_type_(self) -> Any:
        # As above.
        from numba.core.registry import cpu_target  # noqa: PLC0415
        from numba.extending import intrinsic as numba_intrinsic  # noqa: PLC0415

        made = numba_intrinsic(self._definition)
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(made)


class _Later:
    """A module of the compiler's, imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ir, types, cgutils = map(_Later, ("llvmlite.ir", "numba.types", "numba.core.cgutils"))


def _kept(compiled: Any, function: Any) -> Any:
    # As above. Numba has no other way to choose what makes a kernel stale.
    from dovetail.numba_cache import Cache  # noqa: PLC0415

    compiled._cache = Cache(function)  # type: ignore[no-untyped-call] # noqa: SLF001
    return compiled


def _place(function: Any, words: str) -> Path | None:
    """Where it is kept for these types."""
    if not POSSIBLE or function.__closure__ is not None:
        return None
    given = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(given) if given else Path(function.__code__.co_filename).parent / "__pycache__"
    digest = hashlib.sha256(words.encode()).hexdigest()[:20]
    return folder / f"{function.__module__}.{function.__qualname__}-{digest}.kernel"


def _loaded(
    place: Path | None, function: Any, load: Callable[[Compiled], _Loaded]
) -> _Loaded | None:
    """What is kept there, if it is fresh; else Numba is asked, which may have to compile."""
    if place is None:
        return None
    try:
        stamp, _, kept = place.read_bytes().partition(b"\n")
        if stamp.decode() != _whole_stamp(function.__code__.co_filename):
            return None
        return load(pickle.loads(kept))  # noqa: S301 - as Numba's own cache
    except (UnfamiliarError, OSError, ValueError, pickle.PickleError, EOFError):
        return None


def _write(place: Path | None, function: Any, made: Any, entry: str) -> None:
    """Keep what Numba has compiled, if it can be loaded; it may have come from its own cache."""
    if place is None:
        return
    others = made.referenced_envs or made._find_referenced_environments()  # noqa: SLF001 - no other
    own = made.environment
    environments = [own, *(one for one in others if one is not own and one.consts)]
    try:
        kept = Compiled(
            function.__module__,
            function.__name__,
            entry,
            made.library._get_compiled_object(),  # noqa: SLF001 - it has no other
            [Environment(one.env_name, list(one.consts)) for one in environments],
        )
        text = pickle.dumps(kept)
        function_of(kept) if entry == made.fndesc.llvm_cpython_wrapper_name else address_of(kept)
        stamp = _whole_stamp(function.__code__.co_filename)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(stamp.encode() + b"\n" + text)
        Path(file.name).replace(place)
    except (UnfamiliarError, OSError, pickle.PickleError, TypeError, AttributeError):
        return  # Numba's cache has it


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
def stamp_of(file: str) -> str:
    """What a module's kernels are made of."""
    digest = hashlib.sha256()
    for source in sorted(sources_of(Path(file))):
        digest.update(_digest(source))
    return digest.hexdigest()


@functools.cache
def _digest(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()


@functools.cache
def _whole_stamp(file: str) -> str:
    return hashlib.sha256(f"{stamp_of(file)} {_maker()}".encode()).hexdigest()


@functools.cache
def _maker() -> str:
    """What else a kernel depends on: the compiler, and the processor it is for."""
    named = [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]
    if not named[0]:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        named += [line for line in text.split("\n\n")[0].splitlines() if _CPU.match(line)]
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    return repr((sys.version, versions, named))
