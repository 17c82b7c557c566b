"""Hard tests that take long: `make torture`. A short form of each runs with the tests.

Each ends with a verdict (verdict.py): what was sent, acknowledged, found, lost, and there twice.
"""
