"""The application with all commands, as the documentation and the tests need it."""

from batchplan.cli.commands import application

app = application()
