"""A game of PettingZoo with all that its rules allow. Workers import this, so it imports no JAX."""

import numpy as np
import pettingzoo
from gymnasium import spaces


class Dice(pettingzoo.AECEnv):
    """Each of three players pays who moves; who has too much is out, and any move may end it."""

    metadata = {"name": "dice_v0"}  # noqa: RUF012

    def __init__(self, crash_at=None, sizes=(4, 4, 4)):
        self.possible_agents = ["a", "b", "c"]
        self.sizes = dict(zip(self.possible_agents, sizes, strict=True))
        self.crash_at = crash_at

    def observation_space(self, agent):
        mask = spaces.Box(0, 1, (self.sizes[agent],), np.int8)
        return spaces.Dict(observation=spaces.Box(-99, 99, (4,)), action_mask=mask)

    def action_space(self, agent):
        return spaces.Discrete(self.sizes[agent])

    def reset(self, seed=None, options=None):
        self.random, self.moves = np.random.default_rng(seed), 0
        self.agents = [*self.possible_agents]
        nothing = dict.fromkeys(self.agents, 0.0)
        self.rewards, self._cumulative_rewards, self.money = ({**nothing} for _ in range(3))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "a"
        self.mask = np.int8([1, 1, 0, 0])

    def observe(self, agent):
        money = [self.money[x] for x in self.possible_agents]
        seen = np.array([self.possible_agents.index(agent), *money])
        mask = self.mask if agent == self.agent_selection else np.zeros_like(self.mask)
        return {"observation": seen, "action_mask": mask}

    def step(self, action):
        player = self.agent_selection
        if self.terminations[player] or self.truncations[player]:
            self._was_dead_step(action)
            return
        assert self.mask[action]
        self.moves += 1
        if self.moves == self.crash_at:
            raise RuntimeError("the dice are gone")
        self._cumulative_rewards[player] = 0.0
        self.rewards = {x: 2.0 * action if x == player else -action / 2 for x in self.agents}
        for agent, reward in self.rewards.items():
            self.money[agent] += reward
            ends = self.random.random() < 0.02
            self.terminations = {x: ends or self.money[x] > 8 for x in self.agents}
            self.truncations = dict.fromkeys(self.agents, self.moves == 15)
        self.mask = self.random.permutation(np.int8([1, 1, 0, 0]))
        following = [*self.possible_agents, *self.possible_agents]
        following = following[following.index(player) + 1 :]
        alive = [x for x in following if x in self.agents and not self.terminations[x]]
        self.agent_selection = alive[0] if alive else self.agents[0]
        self._accumulate_rewards()
        self._deads_step_first()
