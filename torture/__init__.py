"""Hard tests that take long: `make torture`. A short form of each runs with the tests."""
