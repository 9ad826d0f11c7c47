"""What is handed over to another process in tests; on its own, since that process loads it."""

import os
import signal
import sys
import threading


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Panic(BaseException):
    """Like what a library written in Rust raises."""


class Worker:
    """Remembers, and can be made to end, to fail, to write to its standard streams or to ask for too much."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def add(self, number: int) -> list[int]:
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 14:
            bytearray(4 * 2**30)
        if number == 15:
            raise ValueError("not fifteen")
        if number == 16:
            raise Odd(1, 6)
        if number == 17:
            raise Panic
        if number == 18:
            sys.exit(3)
        if number == 19:
            print("to standard output", flush=True)
            print("to standard error", file=sys.stderr, flush=True)
        self.seen.append(number)
        return self.seen

    def hole(self, body: bytes) -> int:
        """Cut the body in many small pieces and keep the last, so that the heap has a hole before it."""
        pieces = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]
        self.kept = pieces[-1]
        return os.getpid()


class Unmovable:
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def add(self, number: int) -> int:
        return number
