"""Loads a compiled kernel from disk without its compiler.

Numba and LLVM take 80 MiB of a process and most of a second, only to find what they compiled
before. That is an object file whose code has one kind of relocation, an address of 64 bits: LLVM's
large code model, in which all is that Numba compiles for x86-64. So linking it is

    sections ──► memory of their own ──► each address added where it belongs ──► executable

What the code calls is in the C library, in Python and in Numba's own extension modules, which are
small and need nothing of the rest. Whatever is not as expected is an `UnfamiliarError`, and Numba
is asked, as it is on any other machine.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib.machinery
import importlib.util
import mmap
import pickle
import platform
import struct
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

POSSIBLE = sys.platform == "linux" and platform.machine() == "x86_64"

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_X86_64, _HEADER_BYTES, _TABLE_AT, _SIZES_AT = 62, 64, 40, 58
_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8
"""Types of sections."""
_WRITABLE, _ALLOCATED = 1, 2
_ADDRESS = 1
"""The relocation R_X86_64_64."""
_UNDEFINED, _COMMON = 0, 0xFFF2
_ENVIRONMENT = "_ZN08NumbaEnv"
_LINE = 64


class UnfamiliarError(Exception):
    """An object file that is not as Numba has written them so far."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Python objects that a function's code takes from a list."""

    name: str
    """Of the variable in which the code has its address."""
    constants: list[Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function for one set of types, as it is kept."""

    module: str
    name: str
    entry: str
    """The symbol that Python, or C, calls."""
    code: bytes
    environments: list[Environment]
    """Its own first, then those with constants of what it calls."""


def function_of(compiled: Compiled) -> Callable[..., Any]:
    """Load what Python calls."""
    program = _linked(compiled)
    made: Callable[..., Any] = _extension("_dynfunc").make_function(
        sys.modules[compiled.module],
        compiled.name,
        "",
        program.entry,
        program.environments[0],
        (program,),
    )
    return made


def address_of(compiled: Compiled) -> int:
    """Load what C calls; it stays as long as the process."""
    program = _linked(compiled)
    _kept_for_good.append(program)
    return program.entry


_kept_for_good: list[_Program] = []


class _Program:
    """An object file in memory, linked."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._sections = self._read_sections()
        self._place()
        self._symbols = self._read_symbols()
        self._relocate()
        if _libc().mprotect(self._start, len(self._memory), mmap.PROT_READ | mmap.PROT_EXEC):
            raise UnfamiliarError("memory cannot be made executable")
        self.environments: list[Any] = []

    def enter(self, environment: Environment) -> None:
        # Of globals only code would make use that Numba cannot compile.
        made = _extension("_dynfunc").Environment({})
        made.consts[:] = environment.constants
        self.environments.append(made)
        if environment.name in self._symbols:
            ctypes.c_void_p.from_address(self._symbols[environment.name]).value = id(made)

    def begin_at(self, entry: str) -> None:
        """Note where the code is entered, and forget all that has only served to link it."""
        if entry not in self._symbols:
            raise UnfamiliarError(f"there is no {entry}")
        self.entry = self._symbols[entry]
        del self._code, self._sections, self._places, self._symbols, self._numbered

    def _read_sections(self) -> list[tuple[int, ...]]:
        code = self._code
        machine = int.from_bytes(code[18:20], "little")
        if code[:5] != b"\x7fELF\x02" or machine != _X86_64:
            raise UnfamiliarError("it is no object file for x86-64")
        table = int.from_bytes(code[_TABLE_AT : _TABLE_AT + 8], "little")
        size, count = struct.unpack_from("<HH", code, _SIZES_AT)
        if size != _SECTION.size:
            raise UnfamiliarError("its sections are of another size")
        return [_SECTION.unpack_from(code, table + size * number) for number in range(count)]

    def _place(self) -> None:
        """Give each section that is needed at run time an address."""
        places, end = [], 0
        for _, _, flags, _, _, size, *_ in self._sections:
            end = -(-end // _LINE) * _LINE
            places.append(end if flags & _ALLOCATED else None)
            if flags & _ALLOCATED:
                end += size
            if flags & _ALLOCATED and flags & _WRITABLE and size:
                raise UnfamiliarError("it has a section to be written to")
        self._memory = mmap.mmap(-1, max(end, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for place, (_, kind, _, _, at, size, *_) in zip(places, self._sections, strict=True):
            if place is not None and kind != _ZEROS:
                self._memory[place : place + size] = self._code[at : at + size]
        self._places = places

    def _read_symbols(self) -> dict[str, int]:
        """Where everything is that has a name; and, in `_numbered`, by its number."""
        found: dict[str, int] = {}
        self._numbered: list[tuple[str, int | None]] = []
        self._variables: list[Any] = []
        for _, kind, _, _, at, size, link, *_ in self._sections:
            if kind != _SYMBOLS:
                continue
            names = self._sections[link][4]
            for start in range(at, at + size, _SYMBOL.size):
                named, _, _, section, value, length = _SYMBOL.unpack_from(self._code, start)
                name = self._code[names + named : self._code.index(0, names + named)].decode()
                address = self._symbol(section, value, length)
                self._numbered.append((name, address))
                if address is not None and name:
                    found[name] = address
        return found

    def _symbol(self, section: int, value: int, length: int) -> int | None:
        if section == _COMMON:  # a variable, which stays writable
            self._variables.append(ctypes.create_string_buffer(length))
            return ctypes.addressof(self._variables[-1])
        if section == _UNDEFINED or section >= len(self._sections):
            return None
        place = self._places[section]
        return None if place is None else self._start + place + value

    def _relocate(self) -> None:
        for _, kind, _, _, at, size, _, target, *_ in self._sections:
            place = self._places[target] if kind == _RELOCATIONS else None
            # Frames are described for who unwinds them, which nobody does.
            if place is None or self._is_frames(target):
                continue
            for start in range(at, at + size, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(self._code, start)
                if info & 0xFFFFFFFF != _ADDRESS:
                    raise UnfamiliarError(f"a relocation of type {info & 0xFFFFFFFF}")
                name, address = self._numbered[info >> 32]
                value = (_foreign(name) if address is None else address) + addend
                struct.pack_into("<Q", self._memory, place + offset, value & (1 << 64) - 1)

    def _is_frames(self, number: int) -> bool:
        (names,) = struct.unpack_from("<H", self._code, _HEADER_BYTES - 2)
        start = self._sections[names][4] + self._sections[number][0]
        return self._code.startswith(b".eh_frame\0", start)


def _linked(compiled: Compiled) -> _Program:
    program = _Program(compiled.code)
    for environment in compiled.environments:
        program.enter(environment)
    program.begin_at(compiled.entry)
    return program


@cache
def _foreign(name: str) -> int:
    """The address of what is elsewhere, as Numba tells it to LLVM."""
    if name == "_Py_NoneStruct":
        return id(None)
    if name == "numba_unpickle":
        return _address(_unpickle_for_c)
    if name.startswith("PyExc_"):  # the class itself, not the variable of C that points to it
        return id(getattr(builtins, name.removeprefix("PyExc_")))
    for prefix, helpers in _helpers():
        address = helpers.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if address is not None:
            return int(address)
    try:
        return _address(getattr(_libc(), name))
    except AttributeError:
        raise UnfamiliarError(f"nobody has {name}") from None


@cache
def _helpers() -> list[tuple[str, dict[str, int]]]:
    runtime = _extension("core.runtime._nrt_python")
    # As Numba does on import; whatever its allocator gave has to go back to the same one.
    runtime.memsys_use_cpython_allocator()
    common = _extension("_helperlib").c_helpers
    return [
        ("numba_", common),
        ("numba_", _extension("_dynfunc").c_helpers),
        ("NRT_", runtime.c_helpers),
        ("", common),
    ]


@cache
def _extension(name: str) -> Any:
    """One of Numba's modules in C, without the package around it, which is all of Numba."""
    loaded = sys.modules.get(f"numba.{name}")
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec("numba")
    if package is None or package.origin is None:
        raise UnfamiliarError("there is no Numba")
    *folders, last = name.split(".")
    finder = importlib.machinery.FileFinder(
        str(Path(package.origin).parent.joinpath(*folders)),
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    )
    spec = finder.find_spec(last)
    if spec is None or spec.loader is None or spec.origin is None:
        raise UnfamiliarError(f"Numba has no {name}")
    # By its full name: if Numba is imported later it gets the same module.
    loader = importlib.machinery.ExtensionFileLoader(f"numba.{name}", spec.origin)
    whole = importlib.util.spec_from_loader(f"numba.{name}", loader, origin=spec.origin)
    if whole is None:
        raise UnfamiliarError(f"Numba's {name} cannot be loaded")
    module = importlib.util.module_from_spec(whole)
    loader.exec_module(module)
    return module


def _unpickle(data: int, size: int, _digest: int) -> Any:
    """Give a kernel an object that it has pickled: an array's class, or what it raises."""
    return _unpickled(ctypes.string_at(data, size))


_UNPICKLE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_unpickle_for_c = _UNPICKLE(_unpickle)


@cache
def _unpickled(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - of a kernel of ours


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _libc() -> Any:
    """Whatever is loaded: the C library, and Python."""
    loaded = ctypes.CDLL(None)
    loaded.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return loaded
