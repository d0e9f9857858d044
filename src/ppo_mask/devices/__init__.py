"""The devices of a run, and the parts of its arrays that each device holds.

:mod:`~ppo_mask.devices.sharding` splits environments over the devices of a mesh,
:mod:`~ppo_mask.devices.processes` lets several processes train as one, and
:mod:`~ppo_mask.devices.cpu` makes each CPU core a device, of those that
:mod:`~ppo_mask.devices.containers` finds. :mod:`~ppo_mask.devices.platforms` raises a one-line
error if JAX finds no device. :mod:`~ppo_mask.devices.interrupts` hears Ctrl+C while the main thread
waits for compiled code.
"""
