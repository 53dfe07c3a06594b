"""The losses of a job, from a pipe in place of its loss log: no step is lost when a restart truncates the log."""

import fcntl
import os
import threading
import time


class LossReader:
    """Reads 'step loss' lines and notes the time of each. The thread ends with close()."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path, self.lines, self.broken = path, [], []  # (time, step, loss as text)
        self._pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # a writer, too: no end of file between two trainers
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        rest = b""
        while True:
            data = os.read(self._pipe, 1 << 16)
            now = time.time()
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                words = line.decode(errors="replace").split()
                if words == ["end"]:
                    return
                if len(words) == 2 and words[0].isdigit():
                    self.lines.append((now, int(words[0]), words[1]))
                else:
                    self.broken.append(line)

    def close(self):
        """Returns when all lines that were written before have been read."""
        os.write(self._pipe, b"end\n")
        self._thread.join()
        os.close(self._pipe)
        os.unlink(self.path)


def differences(expected, lines, checkpoint_every):
    """Compares each step of a disturbed run, also those that were made twice, with the undisturbed run, bit by bit.

    expected  step -> loss as text
    lines     (time, step, loss as text), in the order in which they were written
    Returns one sentence for each difference.
    """
    found, last = [], 0
    for _, step, loss in lines:
        if step != last + 1 and (step > last or (step - 1) % checkpoint_every):
            found.append(f"step {step} follows step {last}, and step {step - 1} has no checkpoint")
        if expected.get(step) != loss:
            found.append(f"step {step}: the loss is {loss}, undisturbed {expected.get(step, 'there is none')}")
        last = step
    return found
