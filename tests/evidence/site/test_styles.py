"""Material's style sheet without the rules that no page of the site can meet."""

import pytest

from evidence.site import styles


@pytest.fixture
def slimmed(tmp_path):
    """Slims a style sheet for a site with this page, this style sheet of ours and this script."""

    def run(css, page="", own="", script=""):
        files = {"a/index.html": page, "assets/stylesheets/main.1.css": css, "assets/site.css": own, "assets/a.js": script}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        styles.slim(tmp_path)
        assert not list(tmp_path.glob("assets/stylesheets/*"))
        left, _, ours = (tmp_path / "assets/site.css").read_text().rpartition("\n")
        assert ours == own
        return left

    return run


PAGE = """<html dir="ltr"><body><a href="x"><b></b></a><ul class="used used--modified"><li><p></p></li></ul>
<br><details class="quiet"><summary></summary></details><p class="last"></p></body></html>"""


@pytest.mark.parametrize(
    ("css", "left"),
    [
        ("a{b:c}.used{b:c}.unused{b:c}", "a{b:c}.used{b:c}"),
        (".used,.unused,.used.unused{b:c}", ".used{b:c}"),
        (".used:not(.unused,.more){b:c}", ".used:not(.unused,.more){b:c}"),
        ("@media print{.unused{b:c}}@media screen{.used{b:c}}", "@media screen{.used{b:c}}"),
        ('@charset "x";.used:before{content:"}.unused{"}', '@charset "x";.used:before{content:"}.unused{"}'),
        ("@keyframes k{0%{b:c}}@font-face{b:c}", "@keyframes k{0%{b:c}}@font-face{b:c}"),
        ("[dir=rtl] .used{b:c}[dir=ltr] .used{b:c}", "[dir=ltr] .used{b:c}"),
        (".by-script{b:c}.used .by-script p{b:c}", ".by-script{b:c}.used .by-script p{b:c}"),
        ("mark{b:c}.used mark{b:c}kbd{b:c}", "mark{b:c}.used mark{b:c}"),
        (":root{--taken:url('a;{b}');--other:1px;b:var(--taken)}", ":root{--taken:url('a;{b}');b:var(--taken)}"),
        (':root{--other:url("a)b;c}");--taken:1}a{b:var(--taken)}', ":root{--taken:1}a{b:var(--taken)}"),
        (".tabbed-set>input{b:c}.used{b:c}", ".used{b:c}"),
        (":root{--ours:1}.used--modified:hover{b:c}", ":root{--ours:1}.used--modified:hover{b:c}"),
        ("ul.used--modified li>p{b:c}ul ul{b:c}p li{b:c}dl{b:c}", "ul.used--modified li>p{b:c}"),
        ("details.used{b:c}.quiet.used{b:c}.quiet[open]>summary:after{b:c}", ".quiet[open]>summary:after{b:c}"),
        ("br p{b:c}details p{b:c}details+p{b:c}.used~.last{b:c}", "details+p{b:c}.used~.last{b:c}"),
        ("a[href]{b:c}a[data-x]{b:c}a[href]:focus b{b:c}*{b:c}", "a[href]{b:c}a[href]:focus b{b:c}*{b:c}"),
    ],
)
def test_a_rule_stays_that_an_element_can_meet(slimmed, css, left):
    script = 'make("mark", { className: "by-script" })'
    assert slimmed(css, PAGE, "p { b: var(--ours) }", script) == left
