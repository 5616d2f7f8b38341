"""A test that cannot fail, is not collected, or is skipped without a reason is named; a sound one passes."""

from pathlib import Path

import pytest

from evidence.site import checks_of_tests

HEAD = "import pytest\n\n"


@pytest.fixture
def problems_of(tmp_path, monkeypatch):
    """The problems of a file of tests with this code after its imports."""
    monkeypatch.chdir(tmp_path)
    Path("tests").mkdir()
    Path("tests/test_sound.py").write_text("def test_sound():\n    assert len('a') == 1\n")

    def found(code, name="tests/test_page.py"):
        Path(name).write_text(HEAD + code)
        return [str(problem) for problem in checks_of_tests.check()]

    return found


@pytest.mark.parametrize(
    ("code", "line", "what"),
    [
        ("def test_a():\n    x = 1\n", 3, "test_a asserts nothing, so it cannot fail"),
        ("def test_a():\n    1 == 2\n", 3, "test_a asserts nothing, so it cannot fail"),
        ("class TestA:\n    def test_a(self):\n        print()\n", 4, "test_a asserts nothing, so it cannot fail"),
        ("def test_a():\n    assert True\n", 4, "`assert True` holds whatever the code does"),
        ("def test_a():\n    assert (1 == 2, 'no')\n", 4, "`assert (1 == 2, 'no')` holds whatever the code does"),
        ("def test_a(x):\n    assert x == x\n", 4, "`assert x == x` holds whatever the code does"),
        ("def test_a(x):\n    assert x or True\n", 4, "`assert x or True` holds whatever the code does"),
        ("def tset_a():\n    assert 1 == 2\n", 3, "nothing calls tset_a, and pytest does not collect it"),
        ("def _test_a():\n    assert 1 == 2\n", 3, "nothing calls _test_a, and pytest does not collect it"),
        ("class A:\n    def test_a(self):\n        assert 1 == 2\n", 3, "test_a is a test, and pytest reads only classes named Test..."),
        ("def test_a():\n    pytest.skip()\n    assert 1 == 2\n", 4, "pytest.skip without a reason"),
        ("@pytest.mark.skip\ndef test_a():\n    assert 1 == 2\n", 3, "pytest.mark.skip without a reason"),
        ("@pytest.mark.skipif(GPU)\ndef test_a():\n    assert 1 == 2\n", 3, "pytest.mark.skipif without a reason"),
        ("@pytest.mark.xfail(reason='')\ndef test_a():\n    assert 1 == 2\n", 3, "pytest.mark.xfail without a reason"),
        ("x = pytest.importorskip('x')\n", 3, "pytest.importorskip without a reason"),
    ],
)  # fmt: skip
def test_a_fault_of_a_test_is_named(problems_of, code, line, what):
    (problem,) = problems_of(code)
    assert problem.startswith(f"tests/test_page.py:{line}: {what}")


@pytest.mark.parametrize(
    "code",
    [
        "def test_a():\n    with pytest.raises(ValueError):\n        int('a')\n",
        "def test_a(x):\n    torch.testing.assert_close(x, 1)\n",
        "def holds(x):\n    assert x\n\ndef through(x):\n    holds(x)\n\ndef test_a():\n    through(1)\n",
        "@pytest.fixture\ndef run():\n    def call():\n        assert 1 == 2\n    return call\n\ndef test_a(run):\n    run()\n",
        "def test_a(x):\n    assert x() == x()\n",
        "def helper():\n    return 1\n\ndef test_a():\n    assert helper() == 1\n",
        "@pytest.fixture\ndef unused():\n    return 1\n",
        "@pytest.mark.skipif(GPU, reason='needs no GPU')\ndef test_a():\n    assert 1 == 2\n",
        "def test_a():\n    pytest.skip('needs a GPU')\n    assert 1 == 2\n",
    ],
)
def test_a_sound_test_passes(problems_of, code):
    assert problems_of(code) == []


def test_a_test_in_a_file_that_is_not_collected_is_named(problems_of):
    (problem,) = problems_of("def test_a():\n    assert 1 == 2\n", "tests/page_test.py")
    assert problem.startswith("tests/page_test.py:3: test_a is a test, and pytest reads only files named test_*.py")


def test_no_test_at_all_fails(problems_of):
    Path("tests/test_sound.py").unlink()
    (problem,) = problems_of("x = 1\n")
    assert problem.startswith("tests: there is no test")
