"""Environments in Python, which a callback from the compiled program steps on the host.

Of this package, neither arguments nor results have their types checked as the program runs: in many
environments a step takes less time than the checks would.
"""
