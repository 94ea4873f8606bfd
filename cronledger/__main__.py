"""The one way in. A plain `tick` or `work` goes straight to it, without typer; all else goes to typer."""

import errno
import gc
import os
import signal
import sys
import time
from contextlib import suppress
from types import TracebackType


def main() -> int:
    """Run the command line; returns the exit status."""
    _put_in_order()
    from cronledger.clock import elapsed

    # The minute is that of the start, not of the moment when all is imported: read before anything else, and only once.
    read = (time.time(), elapsed())
    # Collecting garbage while modules are imported finds none, and is a tenth of what a tick costs.
    gc.disable()
    from cronledger.cli.options import TICK, WORK, read_plainly

    command, *arguments = sys.argv[1:] or ["--help"]
    if command == "tick" and (values := read_plainly(arguments, TICK)) is not None:
        from cronledger.cli.tick import tick

        # All is written and closed: taking the interpreter apart would be another tenth.
        os._exit(tick(values, *read))
    if command == "work" and (values := read_plainly(arguments, WORK)) is not None:
        from cronledger.cli.working import work

        os._exit(work(values))
    from cronledger.cli.app import run_app

    gc.enable()
    return run_app(*read)


def _admit(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A defect of ours as one line, or a node that lacks what Python needs. The text might hold the DSN: left out."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace is not None else "?"
    said = f"internal error: {kind.__name__} in {place}; please report it"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        said = "no file descriptor or memory is left on this node (ulimit -n, ulimit -v)"
    with suppress(OSError):  # stderr may be full
        os.write(2, f"cronledger: {said}\n".encode())


def _put_in_order() -> None:
    """Undo what a caller may have left behind, for this process and the commands it starts."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # first: else Python says KeyboardInterrupt, with a traceback
    sys.excepthook = _admit
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # Else the database's socket would get this number, and a command would write into it.
            os.open(os.devnull, os.O_RDWR)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
