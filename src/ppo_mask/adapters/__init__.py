"""Environments of other libraries, to train on: a file for each library, none of them required."""
