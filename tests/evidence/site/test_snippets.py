"""Code on a page is a snippet of a file that is there; nothing else passes for code."""

import pytest


def test_code_that_is_no_snippet_is_refused(problems_of):
    assert problems_of("Text.\n\n```python\nimport torch\n```") == [
        "4: a code block that is not a snippet: import torch. "
        'Fix: put it into snippets/ and include it: --8<-- "guide/file:region"'
    ]


@pytest.mark.parametrize("fence", ["```", "~~~", "````python", "``` text", "    ```bash", "> ```yaml"])
def test_no_kind_of_fence_is_overlooked(problems_of, fence):
    indent = fence[: len(fence) - len(fence.lstrip(" >"))]
    end = indent + "`" * fence.count("`") + "~" * fence.count("~")
    (problem,) = problems_of(f"{fence}\n{indent}x = 1\n{end}")
    assert problem.startswith("2: a code block that is not a snippet")


def test_code_after_an_included_snippet_is_refused(problems_of):
    (problem,) = problems_of('```python\n--8<-- "guide/step.py"\nmore = 1\n```')
    assert problem.startswith("3: a code block that is not a snippet: more = 1")


def test_a_snippet_that_is_gone_gets_the_nearest_name(problems_of):
    assert problems_of('```python\n--8<-- "guide/stp.py"\n```') == [
        "2: there is no snippet guide/stp.py (did you mean guide/step.py?). Fix: add snippets/guide/stp.py, or correct the name"
    ]


def test_a_folder_is_no_snippet(problems_of):
    (problem,) = problems_of('```python\n--8<-- "guide"\n```')
    assert problem.startswith("2: there is no snippet guide")


def test_a_region_that_is_gone_gets_the_nearest_name(repository):
    repository.snippet.write_text(repository.snippet.read_text().replace(":step]", ":steps]"))
    line = repository.page.read_text().split("--8<--")[0].count("\n") + 1
    assert repository.page_problems() == [
        f"{repository.page}:{line}: snippet guide/step.py has no region step (did you mean steps?). "
        "Fix: correct the name, or mark it in snippets/guide/step.py with --8<-- [start:step] and --8<-- [end:step]"
    ]


def test_a_region_without_an_end_is_refused(repository):
    repository.edit(repository.snippet, "# --8<-- [end:step]\n", "")
    (problem,) = repository.page_problems()
    assert "region step of snippet guide/step.py begins and has no end. Fix" in problem


def test_a_snippet_that_no_page_includes_is_named(repository):
    repository.snippet.with_name("other.py").write_text("print()\n")
    assert repository.page_problems() == [
        "snippets/guide/other.py: no page includes this snippet. Fix: include it, or delete it"
    ]


def test_a_message_that_no_page_shows_is_named_with_its_line(repository):
    regions = "--8<-- [start:{0}]\nValueError: {0}\n--8<-- [end:{0}]\n"
    repository.snippet.with_name("messages.txt").write_text(regions.format("shown") + regions.format("other"))
    repository.add_to_page('```text\n--8<-- "guide/messages.txt:shown"\n```')
    assert repository.page_problems() == [
        "snippets/guide/messages.txt:4: no page shows the message other. Fix: include it, or delete it"
    ]


def test_a_block_without_an_end_does_not_hide_the_rest_of_the_page(problems_of):
    (problem,) = problems_of('```python\n--8<-- "guide/step.py"\n\nIt takes 12 GiB.')
    assert problem == "1: this block has no end. Fix: close it by a fence as long as the first"


def test_a_longer_fence_holds_a_shorter_one(repository, problems_of):
    repository.snippet.with_name("block.txt").write_text("```table\n```\n")
    assert problems_of('````text\n--8<-- "guide/block.txt"\n````') == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Text.\n\n    import torch\n    x = 1", 3),
        ("Text.\n\n\timport torch", 3),
        ("- Item.\n\n        import torch", 3),
        ("!!! note\n\n        import torch", 3),
        ("Text.\n\n    import torch\n\nText.\n\n    more()", 3),
    ],
)
def test_indented_code_is_named_where_it_begins(problems_of, text, line):
    found = problems_of(text)
    assert found[0].startswith(f"{line}: an indented code block that is not a snippet: import torch. Fix: put it into")
    assert len(found) == text.count("\n\n    ") + text.count("\n\n\t")


@pytest.mark.parametrize(
    "text",
    [
        "- Item.\n\n    Its second paragraph.\n\n    - An item of it.\n\n        Its second paragraph.",
        "1. Item.\n\n    Text.",
        "!!! note\n    Text.\n\n    More text.",
        '??? question "Why?"\n    Text.\n\n    More.',
        '=== "Trainer"\n\n    Text.\n\n    ```python\n    --8<-- "guide/step.py"\n    ```',
        "Text,\n    which goes on.",
    ],
)
def test_indented_prose_passes(problems_of, text):
    assert problems_of(text) == []


@pytest.mark.parametrize("tag", ["pre", "code", "PRE"])
def test_code_as_html_is_named(problems_of, tag):
    (problem,) = problems_of(f"Text.\n\n<{tag}>import torch</{tag}>")
    assert problem.startswith(f"3: <{tag}> in a page. Fix: put it into snippets/")


def test_html_in_inline_code_passes(problems_of):
    assert problems_of("A `<pre>` is no snippet.") == []
