"""The name that a job gets from its command."""

import pytest

from cronledger.crontab.names import name_after, unique


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --all >/dev/null 2>&1", "backup"),
        ("cd / && run-parts --report /etc/cron.hourly", "cron.hourly"),
        ("test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )", "cron.daily"),
        ('[ "$(date +%u)" = 1 ] && report', "report"),
        ("A=1 B='x y' /srv/app/run.py", "run"),
        ("nice -n 19 ionice -c 3 flock -n /tmp/lock timeout -k 5 60 /usr/bin/python3.11 -m app.jobs", "app.jobs"),
        ("flock -n /tmp/lock -c 'cd /srv && php artisan schedule:run'", "schedule:run"),
        ("bash -lc 'bundle exec rake db:clean'", "db:clean"),
        ("sudo -u www env LANG=C /usr/bin/perl -w report.pl", "report"),
        ("php -d memory_limit=-1 /var/www/cron.php", "cron"),
        ("$HOME/bin/sync", "sync"),
        (">/tmp/log prune", "prune"),
        ("for i in 1 2; do send; done", "send"),
        ("cd /srv", "cd"),
        ("echo it's", "echo"),
        ("./ünïcode", "n-code"),
        ("漢字", "job"),
        ("\\", "job"),
        ("env " * 5000 + "x", "env"),
        ("x" * 200, "x" * 128),
    ],
)
def test_a_job_is_named_after_the_program_it_is_about(command: str, name: str) -> None:
    """What only surrounds the work (folders, tests, interpreters, locks) is skipped."""
    assert name_after(command) == name


def test_names_are_told_apart_whatever_their_case() -> None:
    """Two jobs of one name are none: a number is added, within the length that a name may have."""
    long = "y" * 128
    names = ["x", "X", "x-2", "x", long, long]
    assert unique(names) == ["x", "X-2", "x-2-2", "x-3", long, "y" * 126 + "-2"]
