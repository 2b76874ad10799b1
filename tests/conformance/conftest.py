"""The same tests for the stand-in pair and for the real one."""

from collections.abc import Iterator

import pytest

from tests.conformance.engines import Pair, simulated
from tests.live.service import Running


# For the package, not the session: other tests count this process's children.
@pytest.fixture(scope="package")
def simulated_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with simulated(tmp_path_factory.mktemp("simulated")) as pair:
        yield pair


@pytest.fixture(scope="package", params=["simulated", pytest.param("real", marks=pytest.mark.engine)])
def pair(request: pytest.FixtureRequest) -> Pair:
    """The pair under test; the real one is the live tests' own service, asked behind its gateway's back."""
    if request.param == "simulated":
        made: Pair = request.getfixturevalue("simulated_pair")
        return made
    running: Running = request.getfixturevalue("running")
    prefill, decode = running.engine("prefill-0"), running.engine("decode-0")
    return Pair(prefill.url, decode.url, prefill.bootstrap_port, running.service.model_name, simulated=False)
