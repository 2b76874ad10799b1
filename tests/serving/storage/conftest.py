"""One S3 server for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.serving.storage.weed import Weed


@pytest.fixture(scope="package")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    server = Weed(tmp_path_factory.mktemp("weed") / "s3")
    server.start()
    yield server
    server.kill()
