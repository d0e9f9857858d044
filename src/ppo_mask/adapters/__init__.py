"""Environments for other libraries, and environments of other libraries."""
