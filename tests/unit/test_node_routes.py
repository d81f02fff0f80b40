"""What a fused node offers keeps the role that each of its parts asks for."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from services.access.gate import Gate, Rules
from services.access.roles import Role, Who, needs
from services.node.routes import Offered


class Known:
    """One token, of a sender."""

    def known(self, token):
        return None

    def find(self, token):
        return Who("till", Role.SEND) if token == "till" else None


class Offers:
    def __init__(self, path, role):
        self._path, self._role = path, role

    def routes(self):
        router = APIRouter()

        @router.get(self._path)
        @needs(self._role)
        def answer():
            return {}

        return router


def test_a_sender_may_send_and_see_nothing_of_what_the_phases_hold():
    routes = Offered(None, Offers("/events", Role.SEND), Offers("/cache", Role.INSPECT)).routes()
    app = FastAPI()
    app.include_router(routes)
    app.add_middleware(Gate, known=Known(), rules=Rules(routes.routes))
    client = TestClient(app, headers={"Authorization": "Bearer till"})
    assert client.get("/events").status_code == 200
    assert client.get("/cache").status_code == 403
