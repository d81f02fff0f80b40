"""Schemathesis against the live OpenAPI: no request breaks it, and every answer is as described."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from services.access.roles import Role
from tests.integration.control_kit import running_control
from tests.integration.test_control_api import CASES, NOT_DESCRIBED, OPEN

NOT_ASKED = {*NOT_DESCRIBED, ("GET", "/v1/events/live")}
EXAMPLES = 5
REFUSED = [401, 403, 404, 405, 409, 413, 422, 429]


@pytest.fixture(scope="module")
def control(stack, tmp_path_factory):
    with running_control(stack, tmp_path_factory.mktemp("control")) as running:
        yield running


@pytest.fixture(scope="module")
def described(control):
    headers = {"Authorization": f"Bearer {control.tokens[Role.ADMIN]}"}
    config = SchemathesisConfig.from_dict(
        {"checks": {"negative_data_rejection": {"expected-statuses": REFUSED}}}
    )
    return schemathesis.openapi.from_url(
        f"{control.url}/openapi.json", headers=headers, config=config
    )


# A stream does not end, and is read in test_control_api.py.
OPERATIONS = [key for key in (*CASES, *OPEN) if key not in NOT_ASKED]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda word: word)
def test_nothing_breaks_the_api_and_every_answer_is_as_described(
    method, path, mode, described, control
):
    operation = described[path][method.lower()]
    # Whether what is asked for is there, or a document is a pipeline, no schema says.
    excluded = [positive_data_acceptance]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def holds(case):
        headers = {"Authorization": f"Bearer {control.tokens[Role.ADMIN]}"}
        case.call_and_validate(headers=headers, timeout=30, excluded_checks=excluded)

    try:
        holds()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # of what takes nothing, nothing can be wrong
