"""The whole application, for those that look at all commands, such as the documentation."""

from batchplan.cli.commands import application

app = application()
