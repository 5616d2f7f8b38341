"""Material's style sheet without the rules that no page of the site can meet."""

import pytest

from evidence.site import styles


@pytest.fixture
def slimmed(tmp_path):
    """Slims a style sheet for a site with these pages and this style sheet of ours."""

    def run(css, page="", own=""):
        for name, text in {"a/index.html": page, "assets/stylesheets/main.css": css, "assets/site.css": own}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        styles.slim(tmp_path)
        return (tmp_path / "assets/stylesheets/main.css").read_text()

    return run


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
        (".by-script{b:c}", ".by-script{b:c}"),
        (":root{--taken:url('a;{b}');--other:1px;b:var(--taken)}", ":root{--taken:url('a;{b}');b:var(--taken)}"),
        (':root{--other:url("a)b;c}");--taken:1}a{b:var(--taken)}', ":root{--taken:1}a{b:var(--taken)}"),
        (".tabbed-set>input{b:c}.used{b:c}", ".used{b:c}"),
        (":root{--ours:1}.used--modified:hover{b:c}", ":root{--ours:1}.used--modified:hover{b:c}"),
    ],
)
def test_a_rule_stays_that_an_element_can_meet(slimmed, css, left):
    own = "p { b: var(--ours) } .by-script { b: c }"
    assert slimmed(css, '<p class="used used--modified"></p>', own) == left
