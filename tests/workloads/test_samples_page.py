"""docs/samples.md says what samples.jsonl holds."""

from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.record import FIELDS, unsent
from workloads.report.page import PAGE, samples_page


def test_the_page_is_what_the_code_says():
    """Run `python -m workloads.report.page` after a change of the record."""
    assert PAGE.read_text(encoding="utf-8") == samples_page()


def test_a_line_has_exactly_the_documented_keys():
    """A key that is not documented, or documented and not written, is a broken promise."""
    planned = PlannedRequest(0, 0.0, WorkloadClass.TEXT_ONLY, SloClass.BATCH, "x", (), 1)

    assert list(unsent(planned, 1.0).to_dict()) == list(FIELDS)
