"""Four processes that train together, and what each of them ended with."""
import ctypes
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import time

from faults.harness import CRASHED, RAW

WORLD = 4
LIMIT = 10  # seconds within which all must have ended
NEW_HOST_NAME = 0x04000000  # CLONE_NEWUTS
# What four processes on few cores get done several times a second, with saves and evaluations that take a while.
SETTINGS = ["--train.steps", "1000000", "--train.save_steps", "10", "--train.eval_steps", "20", "--train.eval_batches", "30",
            "--train.keep_checkpoints", "3", "--train.micro_batch", "2", "--train.schedule", "constant", "--train.lr", "0.001"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Rank:
    def __init__(self, number, process, log):
        self.number, self.process, self.log, self.ended = number, process, log, None

    def poll(self):
        if self.ended is None and self.process.poll() is not None:
            self.ended = time.time()
        return self.process.returncode

    def send(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def text(self):
        return self.log.read_text("utf-8", "replace")

    def last_words(self):
        """What it said of its end; an empty text where it said nothing."""
        return self.text().rpartition("tightloop: ")[2].strip() if "tightloop: " in self.text() else ""


class Job:
    """The program, four times. Each has a host name of its own where this user may set one."""

    def __init__(self, bench, arguments, own_arguments=None, own_program=None, own_env=None):
        self.bench, self.ranks = bench, []
        port = free_port()
        for rank in range(WORLD):
            env = dict(bench.env, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port), **(own_env or {}).get(rank, {}))
            bench.number += 1
            log = bench.folder / f"output-{bench.number}.txt"
            command = [(own_program or {}).get(rank, bench.program), *map(str, (own_arguments or {}).get(rank, arguments))]
            with open(log, "wb") as out:
                process = subprocess.Popen(command, cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=subprocess.STDOUT, env=env, preexec_fn=lambda rank=rank: prepare(rank))
            bench.started.append(process)
            self.ranks.append(Rank(rank, process, log))

    def poll(self):
        return [rank.poll() for rank in self.ranks]

    def alive(self):
        return all(code is None for code in self.poll())

    def until(self, condition, seconds):
        """Whether the condition came true while all were at work."""
        end = time.time() + seconds
        while time.time() < end and self.alive():
            if condition():
                return True
            time.sleep(0.002)
        return False

    def wait(self, ranks, seconds):
        """Whether these ended by themselves within so many seconds."""
        end = time.time() + seconds
        while any(rank.poll() is None for rank in ranks) and time.time() < end:
            time.sleep(0.01)
        return all(rank.ended is not None for rank in ranks)

    def others(self, victim):
        return [rank for rank in self.ranks if rank.number != victim]

    def signal(self, number):
        for rank in self.ranks:
            rank.send(number)

    def close(self):
        for rank in self.ranks:
            rank.send(signal.SIGKILL)
            rank.process.wait()

    def judge(self, ranks, since, code, names):
        """(verdict, detail): all of these ended in time, with this code (one of a set: all with the same) and with one
        sentence that has these words."""
        codes = code if isinstance(code, set) else {code}
        self.wait(ranks, since + LIMIT - time.time())
        detail = "; ".join(f"rank {rank.number}: exit {rank.process.returncode}, "
                           + (f"{rank.ended - since:.1f} s" if rank.ended else "still at work") for rank in ranks)
        said = {rank.last_words() for rank in ranks}
        detail += ": " + " | ".join(sorted(words[:240] for words in said))
        if any(rank.ended is None for rank in ranks):
            return "HANG", detail
        if any(rank.process.returncode < 0 or CRASHED.search(rank.text()) for rank in ranks):
            return "CRASH", detail
        if any(not words or RAW.search(words) for words in said):
            return "NO SENTENCE", detail
        ended_with = {rank.process.returncode for rank in ranks}
        if len(said) > 1 or len(ended_with) > 1 or not ended_with <= codes:
            return "OTHER WORDS", detail
        if not all(re.search(word, next(iter(said))) for word in names):
            return "OTHER WORDS", f"{names} is not named; {detail}"
        return "refused", f"{max(rank.ended for rank in ranks) - since:.1f} s: {next(iter(said))[:300]}"


def prepare(rank):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "PIPE", "XFSZ"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    libc, name = ctypes.CDLL(None), b"host-%c" % (ord("a") + rank)
    if libc.unshare(NEW_HOST_NAME) == 0:
        libc.sethostname(name, len(name))


def host_of(rank):
    """As a regular expression: where host names cannot be set, all have the machine's."""
    return f"rank {rank} of {WORLD} \\(host (host-{chr(ord('a') + rank)}|{re.escape(socket.gethostname())})\\)"


def tensor_bytes(checkpoint, count=64):
    """The first bytes of a matrix that every token is multiplied by, as they are in memory."""
    data = (checkpoint / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and len(tensor["shape"]) == 2 and "embed" not in name and tensor["dtype"] == "F32":
            at = 8 + size + tensor["data_offsets"][0]
            return name, data[at:at + count]
    raise ValueError("no matrix in " + str(checkpoint))


def write_nan(pid, pattern):
    """Overwrites the bytes by NaN wherever the process has them; how often it did."""
    nan, found = struct.pack("<f", float("nan")) * (len(pattern) // 4), 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps.read().splitlines():
            ends, rights, _, _, inode = line.split()[:5]
            if not rights.startswith("rw") or inode != "0":
                continue
            low, high = (int(end, 16) for end in ends.split("-"))
            try:
                memory.seek(low)
                content = memory.read(high - low)
            except (OSError, ValueError):
                continue
            at = content.find(pattern)
            while at >= 0:
                memory.seek(low + at)
                memory.write(nan)
                found += 1
                at = content.find(pattern, at + 1)
    return found


def address_space(pid):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
