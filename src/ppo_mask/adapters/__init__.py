"""Environments of other libraries for this one, and this one's for other libraries.

A module for each library, so that importing one needs no other. A library is an extra, such as
``pip install 'ppo-mask[gymnax]'``.
"""
