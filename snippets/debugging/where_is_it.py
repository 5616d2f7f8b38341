"""A run that stands still says where: every thread's stack goes to stderr, and the run goes on waiting."""
import faulthandler
import signal
import threading
import time

# --8<-- [start:arm]
faulthandler.dump_traceback_later(timeout=2, repeat=False, exit=False)  # in a real run: 600
faulthandler.register(signal.SIGUSR1, all_threads=True)  # and whenever you send it: kill -USR1 PID
# --8<-- [end:arm]


def wait_for_a_rank_that_never_comes(seconds):
    threading.Event().wait(seconds)


if __name__ == "__main__":
    begun = time.monotonic()
    wait_for_a_rank_that_never_comes(4)
    # --8<-- [start:disarm]
    faulthandler.cancel_dump_traceback_later()  # at the end of a step: then only a step that takes too long is shown
    # --8<-- [end:disarm]
    print(f"went on after {time.monotonic() - begun:.0f} s")
