from __future__ import annotations

from deploy.local.home import Home
from deploy.local.kernels import kept_in
from deploy.local.processes import Managed
from deploy.local.services import Service


def test_a_service_that_hardly_lives_waits_longer_each_time_and_one_that_lived_does_not(tmp_path):
    process = Managed(Home(tmp_path), "mapper", ["true"])
    service = Service("mapper", "services.mapper.main", "http://127.0.0.1:1", process)
    pauses = []
    for lived in (1, 1, 1, 40, 1, 100):
        service.started_at = 1_000.0
        pauses.append(service.restart_pause(1_000.0 + lived))
    assert pauses == [0.5, 1.0, 2.0, 0.5, 1.0, 0.5]


def test_two_releases_never_share_their_kernels(tmp_path):
    home = Home(tmp_path)
    places = [kept_in(home), *(kept_in(home, tmp_path / name) for name in ("one", "other"))]
    assert len({place["NUMBA_CACHE_DIR"] for place in places}) == len(places)
