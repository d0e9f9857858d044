"""Steps environments that can be drawn, for the command ``watch``."""

import contextlib
from typing import Any, no_type_check

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters.from_gymnasium._stepper import Stepper, make_arrays


@no_type_check
class _Drawn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps the picture of the state in which its last episode ended."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._begun = False
        self._last = None

    def reset(self, **options: Any) -> Any:
        """Draws the old episode before a new one begins."""
        if self._begun:
            self._last = self.draw(False)
        self._begun = True
        return self.env.reset(**options)

    def draw(self, ended: Any) -> Any:
        """Draws the state, or the one in which the last episode ended."""
        if ended:
            return self._last
        return None if self.env.render_mode is None else self.env.render()


@no_type_check
class DrawnStepper(Stepper):
    """A ``Stepper`` in this process, whose environments have the layout's ``render_mode``.

    If the function that makes an environment takes no argument ``render_mode``, the environment has
    the mode, or none, that the function gives.
    """

    def __init__(self, make: Any, layout: Any) -> None:
        def make_drawn() -> Any:
            if layout["render_mode"]:
                with contextlib.suppress(TypeError):
                    return _Drawn(make(render_mode=layout["render_mode"]))
            return _Drawn(make())

        super().__init__(make_drawn, layout, make_arrays(layout), 0, layout["num_envs"])

    def draw(self, row: Any, ended: Any) -> Any:
        """Draws an environment, or what it showed when its last episode ended."""
        return self._envs[row].draw(ended)
