"""Adapts environments of Gymnasium, written in Python, to this library.

https://gymnasium.farama.org

In: an id, or a function that makes an environment. Out: a :class:`GymnasiumEnv`, which works like
any other environment of this library. One callback from the compiled program steps all
environments, in this process or in worker processes.
"""

from ._env import GymnasiumEnv

__all__ = ["GymnasiumEnv"]
