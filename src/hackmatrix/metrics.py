"""What a HackMatrix run logs beside the learner's own metrics."""

from hackmatrix.actions import FIRST_PROGRAM, SIPHON_ACTION
from hackmatrix.rules.rewards import COMPONENTS
from ppo_mask.training import Metric

METRICS: dict[str, Metric] = {
    **{
        name: Metric(lambda action, info, name=name: info[name])
        for name in (f"reward/{component}" for component in COMPONENTS)
    },
    "actions/move_frac": Metric(lambda action, info: action < SIPHON_ACTION),
    "actions/siphon_frac": Metric(lambda action, info: action == SIPHON_ACTION),
    "actions/program_frac": Metric(lambda action, info: action >= FIRST_PROGRAM),
    "stats/mean_stage": Metric(lambda action, info: info["stage"], over="episodes"),
    "stats/highest_stage": Metric(
        lambda action, info: info["stage"], over="episodes", reduce="max"
    ),
    "stats/win_rate": Metric(lambda action, info: info["won"], over="episodes"),
}
"""Means per step of the 15 reward components and of the kinds of action; stages and wins of the
episodes that ended."""
