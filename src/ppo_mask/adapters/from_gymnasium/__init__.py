"""Environments of Gymnasium, written in Python, for this library.

https://gymnasium.farama.org

In: an id, or a function that makes an environment. Out: a :class:`GymnasiumEnv`, on which all of
this library works. They are stepped in this process or in workers, all by one call out of the
compiled program.
"""

from ._env import GymnasiumEnv, HostState

__all__ = ["GymnasiumEnv", "HostState"]
