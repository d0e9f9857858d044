"""Devices: which a run has, and which parts of its arrays each of them holds.

:mod:`~ppo_mask.devices.sharding` splits environments over the devices of a mesh,
:mod:`~ppo_mask.devices.processes` lets several processes train as one, and
:mod:`~ppo_mask.devices.cpu` makes a device of each core. :mod:`~ppo_mask.devices.platforms` says
what to do where JAX finds none.
"""
