"""What pip was told holds for uv as well."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
import zipfile

import pytest

from deploy.local.install import environment, flags, pip_settings, settings_of

LISTED = """\
:env:.default-timeout='180'
:env:.index-url='https://env.example/simple'
download.index-url='https://other.example/simple'
global.cert='/etc/own.pem'
global.extra-index-url='\\nhttps://a.example/simple\\nhttps://b.example/simple'
global.index-url='https://file.example/simple'
global.trusted-host='a.example b.example'
install.cert='/etc/newer.pem'
install.no-index='no'
"""


def test_a_variable_overrules_the_section_of_install_and_that_one_the_global_section():
    settings = settings_of(LISTED)
    assert settings["index-url"] == "https://env.example/simple"
    assert settings["cert"] == "/etc/newer.pem"


def test_uv_is_told_where_and_how_pip_would_look():
    passed = environment(settings_of(LISTED), {})
    assert passed == {
        "UV_DEFAULT_INDEX": "https://env.example/simple",
        "UV_EXTRA_INDEX_URL": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "a.example b.example",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/etc/newer.pem",
    }
    assert flags(settings_of(LISTED)) == []


def test_what_the_user_has_set_for_uv_stays():
    own = {"UV_DEFAULT_INDEX": "https://own.example", "SSL_CERT_FILE": "/own.pem"}
    passed = environment(settings_of(LISTED), own)
    assert own.items() <= passed.items()
    assert "UV_DEFAULT_INDEX" not in environment(settings_of(LISTED), {"UV_INDEX_URL": "x"})


def test_folders_that_are_not_there_are_left_out_and_flags_passed_on(tmp_path):
    settings = {"find-links": f"{tmp_path}\n{tmp_path}/no", "no-index": "1", "only-binary": ":all:"}
    assert environment(settings, {}) == {"UV_FIND_LINKS": str(tmp_path)}
    assert flags(settings) == ["--only-binary=:all:", "--no-index"]


@pytest.fixture
def index(tmp_path):
    """A registry of one package, which no other has."""
    name = "dovetail_of_a_test-1.0"
    folder = tmp_path / "index" / "dovetail-of-a-test"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("dovetail_of_a_test.py", "")
        about = "Metadata-Version: 2.1\nName: dovetail-of-a-test\nVersion: 1.0\n"
        wheel.writestr(f"{name}.dist-info/METADATA", about)
        kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", kind)
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "index")
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(
    importlib.util.find_spec("uv") is None, reason="uv is not to be had here: pip made this"
)
def test_uv_installs_from_the_index_that_pips_file_names(index, tmp_path, monkeypatch):
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = {index}\n")
    for variable in list(os.environ):
        if variable.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    environ = {**environment(pip_settings(), os.environ), "UV_CACHE_DIR": str(tmp_path / "cache")}
    uv = [sys.executable, "-m", "uv", "pip", "install", "--target", str(tmp_path / "into")]
    subprocess.run([*uv, "dovetail-of-a-test"], env=environ, cwd=tmp_path, check=True)
    assert (tmp_path / "into" / "dovetail_of_a_test.py").is_file()
