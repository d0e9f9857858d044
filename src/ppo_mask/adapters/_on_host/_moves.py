"""A game of PettingZoo, move by move. Worker processes import this file, so it imports no JAX."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_mask.adapters._on_host._stepper import UnfitError

TURN = "turn"
"""The part of an observation that says whose turn it is: 0 for the agent, n for player n."""


class Moves(gymnasium.Env[Any, Any]):
    """An AEC game in which each step is one move, of the player whose turn it is.

    In each episode, one player is the agent; its seat is sampled. The observation is for the player
    whose turn comes next. The reward is the sum of the agent's rewards since the agent's last move.
    The episode ends when the agent is out.
    """

    def __init__(self, make: Any, **options: Any) -> None:
        self.game = game = make(**options)
        if not hasattr(game, "agent_iter"):
            name = type(game).__name__
            raise UnfitError(
                f"{name} is no AEC game; where all act at once, let one policy play all, as "
                "the recipe for JaxMARL does, or take parallel_to_aec of pettingzoo.utils"
            )
        player, *others = game.possible_agents
        for spaces_of in game.observation_space, game.action_space:
            if any(spaces_of(other) != spaces_of(player) for other in others):
                raise UnfitError(f"the players of {game} must have equal spaces")
        self.metadata = self.game.metadata
        self.render_mode = getattr(self.game.unwrapped, "render_mode", None)
        parts = as_parts(self.game.observation_space(player))
        small: Any = np.int32
        parts[TURN] = spaces.Box(0, 1 + len(others), (), small)
        self.observation_space = spaces.Dict(parts)
        self.action_space = self.game.action_space(player)
        if not isinstance(self.action_space, spaces.Discrete):
            raise UnfitError(f"{game} has actions of {self.action_space}; they must be Discrete")

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Begins a game; the agent or another player has the first turn."""
        super().reset(seed=seed)
        self.game.reset(seed=int(self.np_random.integers(2**31)))
        seats = self.game.agents  # Not all possible agents need take part.
        self._agent = seats[self.np_random.integers(len(seats))]
        return self._go_on()[:2]

    def step(self, action: Any) -> Any:
        """Makes a move of the player whose turn it is."""
        self.game.step(int(action))
        observation, info, is_over = self._go_on()
        reward = self.game._cumulative_rewards.get(self._agent, 0.0)
        terminated, truncated = (
            flags.get(self._agent, False)
            for flags in (self.game.terminations, self.game.truncations)
        )
        terminated = terminated or (is_over and not truncated)  # Some games set no flag.
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """Draws the game."""
        return self.game.render()

    def close(self) -> None:
        """Closes the game."""
        self.game.close()

    def _go_on(self) -> Any:
        """Skips players who are out.

        Returns:
            The next player's observation and info, and whether the agent is out.
        """
        game, agent = self.game, self._agent

        def is_out(player: Any) -> Any:
            return (
                player not in game.agents or game.terminations[player] or game.truncations[player]
            )

        while not (is_over := is_out(agent)) and is_out(game.agent_selection):
            game.step(None)  # As PettingZoo wants it.
        player = agent if is_over else game.agent_selection
        parts = as_parts(game.observe(player))
        is_other = player != agent
        parts[TURN] = np.int32(is_other and 1 + game.possible_agents.index(player))
        return parts, game.infos.get(player, {}), is_over


def as_parts(observation: Any) -> Any:
    """Returns a new dict with the parts of an observation, or of its space, by name."""
    is_dict = isinstance(observation, (dict, spaces.Dict))
    return dict(observation.items()) if is_dict else {"observation": observation}
