"""The page of the small repository with a text more on it, and the repository as a built site."""

import built
import pytest
from small_site import build_two

from evidence.site.browser import Host


@pytest.fixture
def problems_of(repository):
    """The problems of a text on the page, with lines counted from its beginning, and nothing else on the page wrong."""

    def found(text):
        begin = repository.add_to_page(text)
        prefix = f"{repository.page}:"
        problems = []
        for problem in repository.page_problems():
            assert problem.startswith(prefix), problem
            line, _, message = problem.removeprefix(prefix).partition(": ")
            problems.append(f"{int(line) - begin + 1}: {message}")
        return problems

    return found


TWO = {}  # built once for the tests of a process: they only read it


@pytest.fixture
def two_machines(request, tmp_path_factory):
    """A small built site with figures of a CPU and a GPU, on a host."""
    if not TWO:
        repository = request.getfixturevalue("repository")
        TWO["site"] = build_two(repository, tmp_path_factory.mktemp("two") / "site")
    with Host(TWO["site"]) as host:
        yield host


@pytest.fixture
def small_tab(two_machines):
    """The overview of the small site in a tab; whatever its console says fails the test."""
    with built.tab() as opened, built.console(opened) as messages:
        opened.goto(two_machines.address)
        yield opened
        assert messages == []
