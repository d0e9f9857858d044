"""Environments of Gymnasium, written in Python as people write them, with masks.

Workers import this, so it imports no JAX.
"""

import copy
import os

import gymnasium
import numpy as np
from gymnasium import spaces


class _Shown(gymnasium.Env):
    """Shows what to name, drawn anew after each action."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self._draw()
        return self.state, {}

    def _go_on(self, reward):
        self.steps += 1
        self._draw()
        return self.state, reward, False, self.steps >= self.length, {}


class Invalid(_Shown):
    """Like sb3-contrib's InvalidActionEnvDiscrete: name the number shown; some are invalid."""

    def __init__(self, dim=20, invalid=10, length=100):
        self.observation_space = spaces.Discrete(dim)
        self.action_space = spaces.Discrete(dim)
        self.invalid, self.length = invalid, length

    def step(self, action):
        assert self.allowed[action]
        reward = float(action == self.state)
        return self._go_on(reward)

    def _draw(self):
        dim = int(self.action_space.n)
        self.state = int(self.np_random.integers(dim))
        self.allowed = np.ones(dim, bool)
        others = np.delete(np.arange(dim), self.state)
        self.allowed[self.np_random.choice(others, self.invalid, replace=False)] = False

    def action_masks(self):
        return self.allowed


class InvalidParts(_Shown):
    """Like sb3-contrib's InvalidActionEnvMultiDiscrete: name the numbers shown, one for each part.

    In each part one number is invalid; the masks are one row.
    """

    def __init__(self, dims=(4, 3, 3), start=None, length=9):
        self.dims = np.array(dims)
        self.observation_space = spaces.MultiDiscrete(self.dims)
        self.action_space = spaces.MultiDiscrete(self.dims, start=start)
        self.length = length

    def step(self, action):
        assert self.action_space.contains(action)
        numbers = (action - self.action_space.start).reshape(-1)
        assert (numbers != self.invalid.reshape(-1)).all()
        reward = float((numbers == self.state.reshape(-1)).mean())
        return self._go_on(reward)

    def _draw(self):
        self.state = self.np_random.integers(self.dims)
        self.invalid = (self.state + self.np_random.integers(1, self.dims)) % self.dims

    def action_masks(self):
        dims, invalid = self.dims.reshape(-1), self.invalid.reshape(-1)
        return np.concatenate([np.arange(n) != i for n, i in zip(dims, invalid, strict=True)])


class Climb(gymnasium.Env):
    """A card game for one: each card played must be higher than the last.

    There are two of each card from 1 to 9, of which up to four are in the hand. A card played gives
    a point. Action 4 begins a new pile, for two points, and ends the game where nothing is left.
    Playing the lowest card that fits is best but for the end.
    """

    HAND = 4

    def __init__(self, crash_at=None):
        self.observation_space = spaces.Dict(
            {
                "hand": spaces.MultiDiscrete([10] * self.HAND),
                "top": spaces.Discrete(10),
                "left": spaces.Box(0, 1, (1,), np.float64),
            }
        )
        self.action_space = spaces.Discrete(self.HAND + 1)
        self.crash_at = crash_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.deck = self.np_random.permutation(np.repeat(np.arange(1, 10), 2)).tolist()
        self.hand = sorted(self.deck.pop() for _ in range(self.HAND))
        self.top, self.moves = 0, 0
        return self._look(), {"cards": 18}

    def step(self, action):
        self.moves += 1
        if self.moves == self.crash_at:
            raise RuntimeError("the table\nfell over")
        if not self._fitting()[action]:
            raise ValueError(f"card {action} cannot be played")
        if action == self.HAND:
            self.top, reward = 0, -2
        else:
            self.top, reward = self.hand[action], 1  # An int, as people write it.
            self.hand[action] = self.deck.pop() if self.deck else 0
            self.hand.sort()
        over = not any(self.hand)
        cards = len(self.deck) + np.count_nonzero(self.hand)
        return self._look(), reward, over, False, {"cards": cards, "text": "ignored"}

    def _look(self):
        left = np.array([len(self.deck) / 14])
        return {"hand": np.array(self.hand), "top": self.top, "left": left}

    def action_masks(self):
        return self._fitting()

    def _fitting(self):
        return np.array([*(card > self.top for card in self.hand), self.top > 0])


class InInfo(gymnasium.Wrapper):
    """The same game with its mask in its info only, or the list of what it allows."""

    def __init__(self, env, name="action_mask", convert=np.int8):
        super().__init__(env)
        self.name, self.convert = name, convert

    def reset(self, **options):
        return self._with_mask(*self.env.reset(**options))

    def step(self, action):
        return self._with_mask(*self.env.step(action))

    def _with_mask(self, *returned):
        *others, info = returned
        return *others, info | {self.name: self.convert(self.env.action_masks())}

    def legal(self):
        return set(np.flatnonzero(self.env.action_masks()))

    def get_wrapper_attr(self, name):
        if name == "action_masks":
            raise AttributeError(name)
        return super().get_wrapper_attr(name)


class InObservation(gymnasium.Env):
    """A game of three moves with its mask in its observation, as PettingZoo and RLlib have it."""

    def __init__(self, dtype=np.int8):
        self.observation_space = spaces.Dict(
            observations=spaces.Discrete(4), action_mask=spaces.Box(0, 1, (3,), dtype)
        )
        self.action_space = spaces.Discrete(3)
        self.dtype = dtype

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.moves = 0
        return self._look(), {}

    def step(self, action):
        assert self.allowed()[action]
        self.moves += 1
        return self._look(), 1.0, self.moves == 3, False, {}

    def allowed(self):
        return np.arange(3) != self.moves

    def _look(self):
        return {"observations": self.moves, "action_mask": self.allowed().astype(self.dtype)}


class Spaces(gymnasium.Env):
    """Shows a sample of a space in every step."""

    def __init__(self, space, actions=3, start=0, masked=True):
        self.observation_space = copy.deepcopy(space)
        self.action_space = spaces.Discrete(actions, start=start)
        if masked:
            self.action_masks = lambda: np.ones(actions, bool)

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), np.float64(action), False, False, {}


class Wrong(Climb):
    """Does one thing wrong in its third move."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        if what == "make":
            raise OSError("no such table")

    def reset(self, **options):
        if self.what == "reset":
            raise RuntimeError("no cards")
        return super().reset(**options)

    def step(self, action):
        given = look, reward, terminated, truncated, info = super().step(action)
        if self.moves < 3:
            return given
        if self.what == "die":
            os._exit(7)
        if self.what == "exit":
            raise SystemExit("bye")
        wrong = {
            "shape": (look | {"left": np.zeros(2)}, *given[1:]),
            "kind": (look | {"top": 0.5}, *given[1:]),
            "large": (look | {"top": 2**33 + 7}, *given[1:]),
            "none": None,
            "four": (look, reward, terminated, info),
            "info": (*given[:4], ["cards"]),
            "reward": (look, np.array([1.0]), *given[2:]),
            "no reward": (look, None, *given[2:]),
            "flags": (look, reward, np.array([terminated]), truncated, info),
        }
        return wrong.get(self.what, given)

    def close(self):
        if self.what == "close":
            raise RuntimeError("stuck")

    def action_masks(self):
        mask = super().action_masks()
        if getattr(self, "moves", 0) < 3:
            return mask
        if self.what == "numpy":
            return np.concatenate([mask, np.ones((2, 2), bool)])
        wrong = {
            "nothing": mask & False,
            "length": mask[1:],
            "list": [1, 5],
            "no list": [],
            "ragged": [[True, False], [True]],
            "floats": mask * 0.5,
        }
        return wrong.get(self.what, mask)


gymnasium.register(
    "Picture-v0",
    entry_point=lambda actions=3: Spaces(spaces.Box(0, 255, (8, 8, 3), np.uint8), actions),
)
gymnasium.register("Climb-v0", entry_point="python_games:Climb", max_episode_steps=40)
gymnasium.register("Crash-v0", entry_point="python_games:Climb", kwargs={"crash_at": 7})


class Drawn(gymnasium.Env):
    """Counts its steps, and draws the count."""

    metadata = {"render_modes": ["human", "ansi", "rgb_array"]}  # noqa: RUF012
    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode, self.count = render_mode, 9

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.count, {}

    def step(self, action):
        self.count += 1
        return self.count, 1.0, self.count == 3, False, {}

    def render(self):
        if self.render_mode == "ansi":
            return f"count {self.count}"
        return np.full((2, 2, 3), self.count, np.uint8)
