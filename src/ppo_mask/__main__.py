"""``python -m ppo_mask``: the program ``ppo-mask``."""

from ppo_mask.runner.commands import of_any_run

if __name__ == "__main__":
    raise SystemExit(of_any_run())
