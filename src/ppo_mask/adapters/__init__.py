"""Adapters in both directions between environments of other libraries and of this one.

Each library has its own module, so that importing one adapter needs no other library. Each library
is an extra, such as ``pip install 'ppo-mask[gymnax]'``.
"""
