"""What is handed over to another process in tests; on its own, since that process loads it."""

import os
import signal
import threading


class Worker:
    """Remembers, and can be made to end or to ask for too much."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def add(self, number: int) -> list[int]:
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 14:
            bytearray(4 * 2**30)
        if number == 15:
            raise ValueError("not fifteen")
        self.seen.append(number)
        return self.seen


class Unmovable:
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def add(self, number: int) -> int:
        return number
