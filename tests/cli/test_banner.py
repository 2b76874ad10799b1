"""What `toolkit serve` says once everything is up."""

from serving.config import ServeConfig
from serving.launcher import FirstAnswer
from serving.service import Service
from toolkit.cli.progress import banner


def test_a_store_that_fails_at_the_start_is_in_the_banner_with_what_that_means(tmp_path) -> None:
    """Not in a log alone; and without its password."""
    config = ServeConfig.model_validate(
        {
            "storage": {"url": "s3://bucket/prefix", "images": True},
            "access": {"shared_cache_url": "redis://me:secret@10.0.0.5:6379/0"},
        }
    )
    service = Service(
        config=config, engines=(), gateway_url="http://127.0.0.1:1", model_name="m", started_at=0
    )

    def told(**stores: str) -> str:
        named = {name.replace("_", " "): how for name, how in stores.items()}
        return banner(service, tmp_path, FirstAnswer(0.1), 1.0, named)

    failing = told(object_store="fails: GenericError", shared_cache="unknown")
    assert "s3://bucket/prefix   FAILS (GenericError): requests go on without it" in failing
    assert "waits in the spool; see" in failing
    assert "redis://***@10.0.0.5:6379/0   has not answered yet: requests go on without it" in failing
    assert "secret" not in failing
    working = told(object_store="works", shared_cache="works")
    assert "s3://bucket/prefix\n" in working
    assert "go on without" not in working
