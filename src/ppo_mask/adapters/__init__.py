"""Adapters between this library's environments and other libraries, in both directions.

Each library has its own module, so that importing one adapter needs no other library. Each library
is an optional extra: ``pip install 'ppo-mask[gymnax]'``.
"""
