"""The web console: one page on `/`, and its files under `/console/`.

Plain HTML, CSS and ES modules, read once when the service starts. Nothing comes from elsewhere: the
Content-Security-Policy allows this origin alone, and no text is ever taken for markup, as events
are shown that anybody may have sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

FOLDER = Path(__file__).with_name("console")
PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked for each time and answered with 304: a new version is seen at once.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def console_routes() -> APIRouter:
    app = APIRouter(include_in_schema=False)
    files = {path.name: _read(path) for path in FOLDER.iterdir() if path.suffix in _TYPES}

    @app.get("/")
    def page(request: Request) -> Response:
        return _answer(files[PAGE], request)

    @app.get("/console/{name}")
    def file(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404, f"the console has no file {name!r}; its page is at /")
        return _answer(files[name], request)

    return app


def _read(path: Path) -> _File:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, _TYPES[path.suffix], etag)


def _answer(file: _File, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": file.etag}
    known = [tag.strip().removeprefix("W/") for tag in _tags(request)]
    if file.etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _tags(request: Request) -> list[str]:
    return request.headers.get("if-none-match", "").split(",")
