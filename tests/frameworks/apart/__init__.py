"""Programs of packages that do not go with the others of ``[test-frameworks]``: each runs with a
folder of its own before the others on its path, see `tests.frameworks.test_apart`."""
