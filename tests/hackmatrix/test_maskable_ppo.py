"""sb3-contrib's MaskablePPO on the game, as the example trains it."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "maskable_ppo.py"
STEPS = 20_000


@pytest.mark.optimized
def test_it_trains_without_one_invalid_action(capsys):
    pytest.importorskip(
        "sb3_contrib", reason="needs sb3-contrib and torch, which are large (extra sb3)"
    )
    infos = []

    def watch(variables, _):
        infos.extend(variables["infos"])
        return True

    runpy.run_path(str(EXAMPLE))["main"](["--steps", str(STEPS)], watch)
    assert len(infos) >= STEPS
    assert not any(info["invalid_action"] for info in infos)
    assert sum("episode" in info for info in infos) > 100
    shown = capsys.readouterr().out
    assert "ep_rew_mean" in shown
    assert "one game: return" in shown
