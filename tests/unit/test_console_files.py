"""What the console ships: whole, self-contained, and without a way for text to become markup."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dovetail.pipeline.shape import Algorithm
from services.control.console import FOLDER, console_routes

FILES = sorted(FOLDER.iterdir())
MODULES = [path for path in FILES if path.suffix == ".js"]
PAGE = (FOLDER / "index.html").read_text()


@pytest.fixture(scope="module")
def client():
    app = FastAPI()
    app.include_router(console_routes())
    return TestClient(app)


@pytest.mark.parametrize("path", ["/", *(f"/console/{file.name}" for file in FILES)])
def test_every_file_is_served_guarded_and_once(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "..%2fconsole.py", "%2e%2e/console.py", ""])
def test_nothing_else_is_served(client, name):
    assert client.get(f"/console/{name}").status_code == 404


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere(path):
    found = re.findall(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}", path.read_text())
    assert set(found) <= {"http://www.w3.org"}  # the name of SVG, which nobody asks for


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_text_never_becomes_markup(path):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    )
    assert not re.findall(forbidden, path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_find_what_they_name(path):
    text = path.read_text()
    for name in re.findall(r"from '\./([\w.]+)'", text):
        assert (FOLDER / name).exists(), name
    for identity in re.findall(r"byId\('([\w-]+)'\)", text):
        assert f'id="{identity}"' in PAGE, identity


def test_the_choice_of_algorithms_is_the_engines():
    listed = re.search(r"ALGORITHMS = \[(.*?)\]", (FOLDER / "actions.js").read_text())
    assert listed
    assert set(Algorithm) == set(re.findall(r"'([\w-]+)'", listed[1]))
