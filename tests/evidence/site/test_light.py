"""What is taken out of a page and its files, and that readers lose nothing by it."""

import pytest

from evidence.site import light


def test_indents_and_blank_lines_go_and_code_stays_to_the_byte():
    html = "<ul>\n\n    <li>a b\n  </ul>\n<pre><code>if x:\n\n    y\n</code></pre>\n  <script>a\n\n  b</script>\n\n<p>c"
    kept = "<ul>\n<li>a b\n</ul>\n<pre><code>if x:\n\n    y\n</code></pre>\n<script>a\n\n  b</script>\n<p>c"
    assert light.without_indents(html) == kept


def test_a_color_that_looks_like_none_goes_and_others_stay():
    html = '<span class="n">x</span> <span class="o">=</span><span class="w"> </span><span class="mi">1</span>'
    assert light.without_plain_colors(html) == 'x = <span class="mi">1</span>'


@pytest.fixture
def assets(tmp_path):
    folder = tmp_path / "assets"
    folder.mkdir()
    return folder


def test_a_style_sheet_loses_its_comments_and_keeps_its_rules(assets):
    (assets / "site.css").write_text("/* why */\na b { c: d e;\n  f: g }\n@media print { h { i: j } }\n")
    light.pack(assets.parent)
    assert (assets / "site.css").read_text() == "a b{c:d e;f:g}@media print{h{i:j}}"


def test_the_scripts_of_every_page_become_one_without_their_comments(assets):
    (assets / "a.js").write_text('// why\n{\n  const x = "https://a  b" // which\n}\n')
    (assets / "b.js").write_text("{\n  // how\n\n  const x = 2\n}\n")
    light.join_scripts(assets.parent, ["assets/a.js", "assets/b.js"])
    light.pack(assets.parent)
    assert (assets / "site.js").read_text() == '{const x="https://a  b"}\n{const x=2}'
