"""Environments of other libraries, and ours for them: a file for each, none of them required."""
