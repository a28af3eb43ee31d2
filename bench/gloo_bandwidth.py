#!/usr/bin/env python3
"""Step times of several processes over a network of limited bandwidth, measured and simulated.

  bench/gloo_bandwidth.py [--program build/tightloop] [--worlds 2,4,8] [--mbit 100,300,1000] [--steps 30] [-- SETTINGS]

Each process has a network namespace of its own, joined to the others by a switch in one more; a token bucket (tc tbf)
limits what it sends. Needs root, iproute2 and nothing of the machine's own network: namespaces and addresses are made
here and removed again. Training is Gloo's, on the CPU, of a small model on made-up questions.

For each number of processes a run without limit measures how long each computes, with as many of them at work as
later. 'tightloop fit --world' simulates the step from these times and from the link's speed, which a TCP stream in both
directions measures; and once more from how long the limited run itself computed, which holds what the network's threads
take of shared cores: what is off then is the schedule of the buckets or the link. Prints milliseconds, medians over the
second half of the steps: the step measured, simulated by both, and the ratios; computing by both, and the network's
time; the time in which the first process was sending (a trace of its namespace's counters) and in which it waited for
gradients (metrics.jsonl); what part was hidden, by these two and by both simulations.
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREFIX = f"tlnet{os.getpid()}"
PORT = 29555
# Two ends that send and receive a second's worth of bytes at once, as a ring does: prints bytes a second.
STREAM = """
import socket, sys, threading, time
server, total = sys.argv[1] == "server", int(sys.argv[2])
if server:
    link = socket.create_server(("10.77.0.1", 29556)).accept()[0]
else:
    for attempt in range(100):
        try: link = socket.create_connection(("10.77.0.1", 29556)); break
        except OSError: time.sleep(0.05)
begin = time.time()
sender = threading.Thread(target=link.sendall, args=(bytes(total),))
sender.start()
left = total
while left > 0: left -= len(link.recv(1 << 18))
sender.join()
print(total / (time.time() - begin))
"""
RECIPE = """
data: {source: tasks, seq_len: 64, rows: stream}
tokenizer: {vocab_size: 512}
model: {family: gpt2, layers: 6, width: 192, heads: 4, context: 64}
train: {micro_batch: 2, device: cpu, precision: fp32, logging_steps: 1, eval_steps: 0, save_steps: 0, save_minutes: 0,
        threads: 1, loss_extract_interval: 1}
log: {detail_steps: 1, tensorboard: false, dataset_metrics_steps: 0, memory_steps: 0}
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Net:
    """Namespaces PREFIX-0, -1, ... and a switch that joins them."""

    def __init__(self, world):
        self.world, self.names = world, []
        self.add("hub")
        ip("-n", self.name("hub"), "link", "add", "switch", "type", "bridge")
        ip("-n", self.name("hub"), "link", "set", "switch", "up")
        for rank in range(world):
            self.add(rank)
            port = f"port{rank}"
            ip("-n", self.name("hub"), "link", "add", port, "type", "veth", "peer", "name", "net0", "netns",
               self.name(rank))
            ip("-n", self.name("hub"), "link", "set", port, "master", "switch", "up")
            ip("-n", self.name(rank), "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "net0")
            # Large frames: at 1,500 bytes cutting them up takes the cores from what is measured.
            ip("-n", self.name("hub"), "link", "set", port, "mtu", "9000")
            ip("-n", self.name(rank), "link", "set", "net0", "mtu", "9000")
            for device in "lo", "net0":
                ip("-n", self.name(rank), "link", "set", device, "up")

    def name(self, which):
        return f"{PREFIX}-{which}"

    def add(self, which):
        ip("netns", "add", self.name(which))
        self.names.append(self.name(which))

    def limit(self, mbit):
        for rank in range(self.world):
            tc = ["tc", "-n", self.name(rank), "qdisc"]
            subprocess.run([*tc, "del", "dev", "net0", "root"], stderr=subprocess.DEVNULL)
            if mbit:
                burst = max(16, int(mbit * 1e6 / 8 * 0.001 / 1024))  # a millisecond of it
                subprocess.run([*tc, "add", "dev", "net0", "root", "tbf", "rate", f"{mbit}mbit", "burst", f"{burst}kb",
                                "latency", "100ms"], check=True)

    def bytes_a_second(self, mbit):
        """What TCP gets out of a limited link with traffic in both directions: acknowledgements and headers take the rest."""
        ends = [subprocess.Popen(["ip", "netns", "exec", self.name(rank), sys.executable, "-c", STREAM, role,
                                  str(int(mbit * 1e6 / 8))], stdout=subprocess.PIPE, text=True)
                for rank, role in enumerate(["server", "client"])]
        return min(float(end.communicate()[0]) for end in ends)

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


class Trace:
    """When a process sent: its namespace's counter of sent bytes, read every few milliseconds."""

    def __init__(self, pid):
        self.file, self.samples, self.stopped = f"/proc/{pid}/net/dev", [], threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.stopped.wait(0.004):
            try:
                line = next(line for line in open(self.file) if line.lstrip().startswith("net0:"))
            except (OSError, StopIteration):
                continue
            self.samples.append((time.time(), int(line.split()[9])))

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def busy(self, begin, end, bytes_per_second):
        """Seconds between two times in which it sent, at a tenth of the limit at least."""
        inside = [sample for sample in self.samples if begin <= sample[0] <= end]
        return sum(b[0] - a[0] for a, b in zip(inside, inside[1:])
                   if (b[1] - a[1]) / (b[0] - a[0]) > 0.1 * bytes_per_second)


def train(net, program, recipe, folder, name, steps, settings):
    processes = []
    for rank in range(net.world):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(net.world),
                           MASTER_ADDR="10.77.0.1", MASTER_PORT=str(PORT), GLOO_SOCKET_IFNAME="net0", OMP_NUM_THREADS="1")
        command = ["ip", "netns", "exec", net.name(rank), str(program), "train", str(recipe), "--run.dir", str(folder),
                   "--run.name", name, "--overwrite", "--train.steps", str(steps), *settings]
        output = open(folder / f"{name}-{rank}.txt", "w")
        processes.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output))
    trace = Trace(processes[0].pid)
    codes = [process.wait() for process in processes]
    trace.stop()
    if any(codes):
        sys.exit(f"gloo_bandwidth.py: processes ended with {codes}:\n" + (folder / f"{name}-0.txt").read_text()[-2000:])
    return trace


def metrics(folder, name):
    """Medians over the second half of a run's steps, in milliseconds."""
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    found = {}
    for key in "step_time", "forward_time", "backward_time", "update_time", "communication", "data_time", "idle_time":
        values = [line["perf/" + key] for line in lines if "perf/" + key in line]
        values = values[len(values) // 2:]
        found[key] = 1e3 * statistics.median(values) if values else 0.0
    trained = [line["time"] for line in lines if "training/loss" in line]
    found["steps"], found["begin"], found["end"] = (len(trained) - 1) // 2, trained[len(trained) // 2], trained[-1]
    return found


def simulated(program, recipe, folder, run, world, bytes_a_second, latency_us, settings):
    command = [str(program), "fit", str(recipe), "--world", str(world), "--link", "100gbe", "--gpus-per-node", "1",
               "--gbit", str(bytes_a_second * 8 / 1e9), "--latency-us", str(latency_us), "--run", str(folder / run),
               "--json", *settings]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["together"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tightloop")
    parser.add_argument("--worlds", default="2,4,8")
    parser.add_argument("--mbit", default="100,300,1000")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--latency-us", type=float, default=100)
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    parser.add_argument("settings", nargs="*", help="of the training, after --")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("gloo_bandwidth.py: network namespaces need root.")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gloo_bandwidth."))
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE)
    program, rows = options.program.resolve(), []
    print(f"{'':>23} {'computing of a free run':^36} {'computing of the same run':^36}")
    told_of = f"{'simulated':>10} {'ratio':>6} {'compute':>9} {'hidden':>7}"
    print(f"{'world':>5} {'Mb/s':>6} {'measured':>10} {told_of}  {told_of}  {'network':>9} {'sending':>9} {'waited':>9} "
          f"{'hidden':>7}", flush=True)
    try:
        for world in map(int, options.worlds.split(",")):
            net = Net(world)
            try:
                free = f"free-{world}"
                train(net, program, recipe, folder, free, options.steps, options.settings)
                for mbit in map(float, options.mbit.split(",")):
                    net.limit(mbit)
                    link = net.bytes_a_second(mbit)
                    name = f"limited-{world}-{mbit:g}"
                    trace = train(net, program, recipe, folder, name, options.steps, options.settings)
                    seen = metrics(folder, name)
                    told, own = (simulated(program, recipe, folder, run, world, link, options.latency_us, options.settings)
                                 for run in (free, name))
                    busy = 1e3 * trace.busy(seen["begin"], seen["end"], mbit * 1e6 / 8) / max(1, seen["steps"])
                    hidden = 1 - seen["communication"] / busy if busy else 0
                    rows.append({"world": world, "mbit": mbit, "link": link, "measured": seen, "free": metrics(folder, free),
                                 "busy_ms": busy, "hidden": hidden, "simulated": told, "simulated_of_same_run": own})
                    by_both = "  ".join(f"{one['step_ms']:>10.1f} {one['step_ms'] / seen['step_time']:>6.3f} "
                                        f"{one['compute_ms']:>9.1f} {100 * one['hidden']:>6.1f}%" for one in (told, own))
                    print(f"{world:>5} {mbit:>6g} {seen['step_time']:>10.1f} {by_both}  {told['communication_ms']:>9.1f} "
                          f"{busy:>9.1f} {seen['communication']:>9.1f} {100 * hidden:>6.1f}%", flush=True)
            finally:
                net.close()
    finally:
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
