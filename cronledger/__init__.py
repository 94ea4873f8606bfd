"""Run cron on several machines, each job once."""

__version__ = "0.1.0"
