"""What is taken out of a page and its files, and that readers lose nothing by it."""

import re
from pathlib import Path

import material
import pytest

from evidence.site import light


def test_indents_and_blank_lines_go_and_code_stays_to_the_byte():
    html = "<ul>\n\n    <li>a b\n  </ul>\n<pre><code>if x:\n\n    y\n</code></pre>\n  <script>a\n\n  b</script>\n\n<p>c"
    kept = "<ul>\n<li>a b\n</ul>\n<pre><code>if x:\n\n    y\n</code></pre>\n<script>a\n\n  b</script>\n<p>c"
    assert light.without_indents(html) == kept


def test_a_color_that_looks_like_none_goes_and_others_stay():
    html = '<span class="n">x</span> <span class="o">=</span><span class="w"> </span><span class="mi">1</span>'
    assert light.without_plain_colors(html) == 'x = <span class="m">1</span>'


def test_one_color_has_one_name_and_what_follows_in_it_is_one_piece():
    html = '<span class="sa">f</span><span class="s2">&quot;a </span><span class="si">{</span><span class="n">x</span><span class="si">}</span>'
    assert light.without_plain_colors(html) == '<span class="s">f&quot;a {</span>x<span class="s">}</span>'
    two = '<span class="kn">from</span> <span class="nn">a</span> <span class="kn">import</span> <span class="k">as</span>'
    kept = '<span class="k">from</span> <span class="nf">a</span> <span class="k">import as</span>'
    assert light.without_plain_colors(two) == kept
    assert light.without_plain_colors('<span class="kind">a</span><span class="nb">b</span>') == '<span class="kind">a</span><span class="nb">b</span>'


def test_names_that_share_a_color_have_the_same_in_the_theme():
    theme = "".join(path.read_text() for path in Path(material.__file__).parent.glob("templates/assets/stylesheets/main.*.css"))
    rules = re.findall(r"((?:\.highlight \.\w{1,3},?)+)\{color:([^}]+)\}", theme)
    shown = {name: color for names, color in rules for name in re.findall(r"\.highlight \.(\w+)", names)}
    renamed = {kind: light.one_name(kind) for kind in shown if light.one_name(kind) != kind}
    assert len(renamed) > 20 and [kind for kind, name in renamed.items() if shown[kind] != shown[name]] == []
    assert {shown.get(kind) for kind in light.PLAIN} <= {None, shown["n"], shown["o"], shown["p"]}


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
