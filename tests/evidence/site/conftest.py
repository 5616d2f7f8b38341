"""The page of the small repository, with a text more on it."""

import pytest


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
