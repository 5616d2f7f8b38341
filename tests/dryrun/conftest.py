"""What several tests of dryrun need."""

import os
from unittest.mock import patch

import pytest


@pytest.fixture(scope="module")
def own_traces(tmp_path_factory):
    """A cache of traces that starts empty: what is asked is traced by the code of today."""
    with pytest.MonkeyPatch.context() as change:
        change.setenv("DRYRUN_CACHE", str(tmp_path_factory.mktemp("traces")))
        yield


@pytest.fixture(autouse=True, scope="module")
def environment():
    """The command silences transformers in each process started later: tests of other files want its warnings."""
    with patch.dict(os.environ):
        yield
