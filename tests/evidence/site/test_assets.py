"""Our scripts and style sheet lose their comments, and nothing else."""

import pytest

from evidence.site import assets


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "assets"
    made.mkdir()
    return made


def test_a_style_sheet_loses_its_comments_and_keeps_its_rules(folder):
    (folder / "site.css").write_text("/* why */\na b { c: d e;\n  f: g }\n@media print { h { i: j } }\n")
    assets.pack(folder.parent)
    assert (folder / "site.css").read_text() == "a b{c:d e;f:g}@media print{h{i:j}}"


def test_the_scripts_of_every_page_become_one_without_their_comments(folder):
    (folder / "a.js").write_text('// why\n{\n  const x = "https://a  b" // which\n}\n')
    (folder / "b.js").write_text("{\n  // how\n\n  const x = 2\n}\n")
    assets.join_scripts(folder.parent, ["assets/a.js", "assets/b.js"])
    assets.pack(folder.parent)
    assert (folder / "site.js").read_text() == '{const x="https://a  b"}\n{const x=2}'
