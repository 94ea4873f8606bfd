"""The command line: arguments into calls, events and errors into lines and an exit status."""
