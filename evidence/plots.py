"""Plots of notebooks: one look, and the same SVG for the same values. Needs matplotlib, which the notebooks install."""

import matplotlib.pyplot as plt

BLUE, ORANGE, GREEN, PURPLE, GRAY = "#0072b2", "#d55e00", "#009e73", "#9b4f96", "#777777"  # color-blind safe
COLORS = (BLUE, ORANGE, GREEN, PURPLE, GRAY)


def set_up(notebook):
    """Makes plots SVG, in our colors. The notebook's name replaces the random part of SVG ids, so that a diff is short."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats("svg")
    plt.rcParams.update(
        {
            "svg.hashsalt": notebook,
            "axes.prop_cycle": plt.cycler(color=COLORS),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.constrained_layout.use": True,
            "legend.frameon": False,
            "legend.fontsize": "small",
        }
    )


def bars(values, label, baseline=None):
    """Horizontal bars, the first on top, each with its value to two digits: bars({"fp32": 1, "bf16": 2.1}, "speed, x").

    values: {name: number}, or {name: {series: number}} for groups of bars; None leaves a gap.
    label: what the bars show, with its unit. baseline: where to draw a line across all of them.
    """
    groups = {name: given if isinstance(given, dict) else {"": given} for name, given in values.items()}
    series = list(dict.fromkeys(one for group in groups.values() for one in group))
    height = 0.8 / len(series)
    _, axes = plt.subplots(figsize=(7, 0.8 + len(groups) * max(0.34, 0.22 * len(series))))
    for place, one in enumerate(series):
        shift = (place - (len(series) - 1) / 2) * height
        numbers = [group.get(one) for group in groups.values()]
        drawn = axes.barh([row + shift for row in range(len(groups))], [n or 0 for n in numbers], height, label=one)
        axes.bar_label(
            drawn, ["" if n is None else f"{n:.2g}" if abs(n) < 9.95 else f"{n:,.0f}" for n in numbers], padding=3
        )
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(label)
    if baseline is not None:
        axes.axvline(baseline, color=GRAY, linewidth=1, linestyle="--")
    if len(series) > 1:
        axes.legend(loc="best")
    plt.show()
