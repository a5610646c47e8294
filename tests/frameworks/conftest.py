"""These tests need the packages of the extra ``test-frameworks``; only runs that name this folder,
as `make test-frameworks` does, collect them."""


def pytest_ignore_collect(config):
    return None if any("frameworks" in argument for argument in config.args) else True
