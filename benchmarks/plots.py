"""Plots measurements."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Measurement


def plot(path: Path, found: Sequence[Measurement]) -> None:
    """Plots the rates; the file's suffix gives the format.

    The left plot shows rates over the number of environments, for subjects that were measured with
    several numbers. The right plot compares all subjects at the most frequent number.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    colors = {name: f"C{n % 10}" for n, name in enumerate(dict.fromkeys(x.subject for x in found))}
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    over, beside = figure.subplots(1, 2, width_ratios=(1.3, 1))
    several = _over_numbers(over, found, colors)
    _side_by_side(beside, found, colors)
    devices = dict.fromkeys((x.devices == 1, device(x)) for x in found)
    handles = [Line2D([], [], color=colors[name], label=name) for name in several]
    handles += [Line2D([], [], color="0.4", label=x, **_style(alone)) for alone, x in devices]
    figure.legend(handles=handles, frameon=False, fontsize=8, ncols=8, loc="outside upper center")
    for axes in (over, beside):
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def device(each: Any) -> str:
    """Names the devices of a measurement or a ratio."""
    return f"{each.devices} x {each.device}"


def _style(alone: bool) -> dict[str, Any]:
    """The line's style: hollow markers and dashes for one device."""
    fill = {"markerfacecolor": "white"} if alone else {}
    return {"marker": "o", "markersize": 4, "linestyle": "--" if alone else "-", **fill}


def _over_numbers(
    axes: Any, found: Sequence[Measurement], colors: dict[str, str]
) -> dict[str, None]:
    """Plots rates over the number of environments; returns the names of the plotted subjects."""
    several: dict[str, None] = {}
    for subject, where in dict.fromkeys((x.subject, device(x)) for x in found):
        of_it = (x for x in found if (x.subject, device(x)) == (subject, where))
        line = sorted(of_it, key=lambda x: x.num_envs)
        if len({each.num_envs for each in line}) < 2:
            continue
        several[subject] = None
        style = _style(line[0].devices == 1)
        numbers, rates = [x.num_envs for x in line], [x.rate for x in line]
        axes.errorbar(numbers, rates, _beyond(line), color=colors[subject], **style)
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="environments", ylabel="environment steps per second")
    numbers = sorted({x.num_envs for x in found if x.subject in several})
    # Labels of adjacent numbers would overlap.
    apart = zip(numbers, [0, *numbers], strict=False)
    axes.set_xticks([n for n, before in apart if n > 2 * before])
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return several


def _side_by_side(axes: Any, found: Sequence[Measurement], colors: dict[str, str]) -> None:
    ((number, _),) = Counter(x.num_envs for x in found).most_common(1)
    here = sorted((x for x in found if x.num_envs == number), key=lambda x: x.rate)
    names = list(dict.fromkeys(x.subject for x in reversed(here)))[::-1]
    for each in here:
        style = _style(each.devices == 1) | {"linestyle": "none"}
        place, color = names.index(each.subject), colors[each.subject]
        axes.errorbar([each.rate], [place], xerr=_beyond([each]), color=color, **style)
    axes.set_yticks(range(len(names)), names)
    axes.set(xscale="log", xlabel=f"the same, {number:,} environments")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _beyond(line: Sequence[Measurement]) -> list[list[float]]:
    """Error bars from the median rate down to the slowest run and up to the fastest run."""
    return [[x.rate - x.rates[0] for x in line], [x.rates[-1] - x.rate for x in line]]
