"""The line under a guide's title: what to install for the programs of the page."""

import ast
import re
import sys
from functools import cache
from importlib import metadata

import pytest
from built import ROOT, parsed, site_pages, source_of
from packaging.requirements import Requirement

from evidence import notebooks
from evidence.site import install

# Named by the sections that need them: Optimum has an environment of its own, Ray no release for all of our Pythons.
BY_SECTION = {"optimum", "ray"}
OURS = {"dryrun", "evidence"}


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def shown_programs(page):
    text = source_of(page).read_text(encoding="utf-8") if not page.startswith("notebooks/") else ""
    return [name for name in install.INCLUDED.findall(text) if name.endswith(".py")]


def imports(name):
    tree = ast.parse((ROOT / "snippets" / name).read_text(encoding="utf-8"))
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    beside = {path.stem for path in (ROOT / "snippets" / name).parent.glob("*.py")}
    return {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names) - beside


def brought_by(package, seen):
    """The modules of a package and of all that it requires, as they are installed here."""
    if package in seen:
        return
    seen.add(package)
    try:
        required = metadata.requires(package) or []
    except metadata.PackageNotFoundError:  # JAX lies in a folder of its own
        return
    for wanted in map(Requirement, required):
        if not wanted.marker or wanted.marker.evaluate({"extra": ""}):
            brought_by(wanted.name.lower().replace("_", "-"), seen)


@cache
def lines():
    """{page: its line}"""
    found = {page: parsed(page).select_one("article p.install code") for page in site_pages()}
    return {page: line.get_text() for page, line in found.items() if line}


def test_every_package_that_a_program_of_a_guide_imports_is_on_the_line_of_the_guide():
    assert len(lines()) > 15
    for page, line in lines().items():
        seen = set()
        for wanted in line.removeprefix("pip install ").split():
            brought_by(Requirement(wanted).name, seen)
        modules = set().union(*map(imports, shown_programs(page)))
        names = {
            module: {"PIL": "pillow"}.get(module, module.replace("_", "-")) for module in modules - BY_SECTION - OURS
        }
        missing = {module for module, name in names.items() if name not in seen}
        assert not missing, f"{page}: {line} brings no {missing}"


def test_a_guide_with_programs_and_without_the_line_shows_an_install_script_of_its_own():
    for page in site_pages():
        needed = set().union(*map(imports, shown_programs(page))) - BY_SECTION - OURS
        if needed and page not in lines() and source_of(page).name not in ("contribute.md", "other.md"):
            assert re.search(r'--8<-- "\w+/install\w*\.sh', source_of(page).read_text(encoding="utf-8")), page


def test_the_versions_are_those_of_the_tests():
    wanted = {str(Requirement(line.split(" #")[0].strip())) for line in (ROOT / "requirements/test.in").read_text().splitlines()
              if line and not line.startswith(("#", "-r"))}  # fmt: skip
    line = lines()["training/one-gpu/"]
    assert "torch==" in line and "transformers==" in line
    assert set(line.removeprefix("pip install ").split()) <= wanted


def test_a_guide_opens_its_own_notebook_in_colab_where_the_repository_has_an_address():
    for page, notebook in {"training/one-gpu/": "one_gpu", "inference/cpu/": "cpu_inference"}.items():
        links = [link["href"] for link in parsed(page).select("article .verified a[href*=colab]")]
        wanted = [] if notebooks.placeholder() else [f"/notebooks/{notebook}.ipynb"]
        assert [f"/notebooks/{link.partition('/notebooks/')[2]}" for link in links] == wanted, page
        assert (ROOT / "notebooks" / f"{notebook}.ipynb").is_file()


def test_every_colab_link_leads_to_a_notebook_that_is_there():
    links = [link["href"] for page in site_pages() for link in parsed(page).select("a[href*='colab.research']")]
    names = {href.partition("/notebooks/")[2] for href in links}
    assert not names if notebooks.placeholder() else len(names) > 20
    assert not [name for name in names if not (ROOT / "notebooks" / name).is_file()]
