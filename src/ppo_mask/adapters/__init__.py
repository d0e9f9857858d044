"""Adapters for environments: from other libraries to this one, and from this one to them.

Each library has its own module, so that importing one adapter needs no other library. Each library
is an extra, such as ``pip install 'ppo-mask[gymnax]'``.
"""
