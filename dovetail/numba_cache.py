"""Numba's cache of compiled kernels, with our own notion of what makes one stale."""

from __future__ import annotations

from typing import Any

from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from dovetail.kernels import stamp_of


class _Stamped:
    _py_file: str

    def get_source_stamp(self) -> str:
        return stamp_of(self._py_file)


class _Given(_Stamped, UserProvidedCacheLocator):
    """In NUMBA_CACHE_DIR."""


class _InTree(_Stamped, InTreeCacheLocator):
    """Beside the module, in __pycache__."""


class _UserWide(_Stamped, UserWideCacheLocator):
    """In the user's own cache: the module's folder cannot be written to."""


class _Results(CompileResultCacheImpl):
    _locator_classes = [_Given, _InTree, _UserWide]  # noqa: RUF012


class Cache(FunctionCache):
    _impl_class = _Results
    result: Any = None
    """What was loaded or saved last."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self.result = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return self.result

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        self.result = data
