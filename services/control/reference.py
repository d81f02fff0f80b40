"""The API described: for machines at `/openapi.json`, for people at `/docs`, by Swagger UI.

Swagger UI's files are served from here as well: a control service need not have the internet.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, HTTPException, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from services.access.gate import OPEN_PATHS
from services.access.roles import needed_by

if TYPE_CHECKING:
    from fastapi import FastAPI

_FOLDER = "/docs/"
_SCRIPT = "swagger-ui-bundle.js"
_STYLE = "swagger-ui.css"
_ICON = "favicon-32x32.png"
_TYPES = {_SCRIPT: "text/javascript", _STYLE: "text/css", _ICON: "image/png"}


def reference_routes(app: FastAPI) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/openapi.json")
    def openapi() -> dict[str, Any]:
        return described(app)

    @router.get("/docs", response_class=Response)
    def docs() -> Response:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title=app.title,
            swagger_js_url=_FOLDER + _SCRIPT,
            swagger_css_url=_FOLDER + _STYLE,
            swagger_favicon_url=_FOLDER + _ICON,
        )

    @router.get(_FOLDER + "{file}", response_class=Response)
    def part(file: str) -> Response:
        if file not in _TYPES:
            raise HTTPException(404, f"the reference has no file {file!r}; its page is at /docs")
        content = (files("fastapi_swagger.resources") / file).read_bytes()
        return Response(content, media_type=_TYPES[file])

    return router


def _name_role(path: dict[str, Any], route: APIRoute) -> None:
    for method in route.methods or ():
        operation = path[method.lower()]
        if route.path in OPEN_PATHS:
            operation["security"] = []
            continue
        role = str(needed_by(route.endpoint, method))
        operation["security"] = [{"token": [role]}, {}]
        told = operation.get("description") or operation["summary"]
        operation["description"] = f"{told}\n\nNeeds the role `{role}`."


def described(app: FastAPI) -> dict[str, Any]:
    """The API for machines, with the tokens that it takes, and their roles."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schema.setdefault("components", {})["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"}
        }
        schema["security"] = [{"token": []}, {}]
        for route in app.state.routes:
            if isinstance(route, APIRoute) and route.path_format in schema["paths"]:
                _name_role(schema["paths"][route.path_format], route)
        app.openapi_schema = schema
    return app.openapi_schema
