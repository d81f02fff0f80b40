"""What control says of settings that it cannot start by."""

from __future__ import annotations

import pytest

from dovetail.service import logs, tls
from services.control.main import main
from tests.e2e import shop
from tests.integration.control_kit import new_database, write_pipeline


@pytest.fixture
def environment(stack, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "configure", lambda **_: None)
    with new_database(stack.database_url) as database:
        shop.INT.fill(database)
        monkeypatch.setenv("KAFKA_BOOTSTRAP", stack.bootstrap)
        monkeypatch.setenv("DATABASE_URL", database)
        monkeypatch.setenv("DOVETAIL_PIPELINE", str(write_pipeline(tmp_path)))
        yield monkeypatch


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_SECURITY_PROTOCOL", "hunter2-s3cret"),
        (tls.AUTHORITY, "s3cret"),
        (tls.AUTHORITY, "s3cret" * 1000),
        (tls.AUTHORITY, __file__),
    ],
)
def test_a_setting_that_is_refused_is_one_line_without_its_value(environment, capsys, name, value):
    environment.setenv(name, value)
    assert main() == 2
    told = capsys.readouterr().err
    assert told.startswith("control: ")
    assert told.count("\n") == 1
    assert name in told
    assert value not in told
