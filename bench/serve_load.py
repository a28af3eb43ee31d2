#!/usr/bin/env python3
"""Load for `tightloop serve`: clients that ask for texts of random lengths, of which some go away in the middle and
some read slowly. Every whole answer must equal the one that the server gives when it is asked alone. Prints times to
the first token and between tokens, and memory of the server.

usage: serve_load.py URL [--clients 64] [--seconds 10] [--pid PID] [--key KEY_FILE]
Python's own library is all it needs. Ends with status 1 where an answer was wrong or an error came.
"""
import argparse
import http.client
import json
import random
import socket
import sys
import threading
import time
import urllib.parse


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return float("nan")


class Load:
    def __init__(self, options):
        self.options = options
        where = urllib.parse.urlsplit(options.url)
        self.host, self.port = where.hostname, where.port or 80
        self.headers = {"Content-Type": "application/json"}
        if options.key:
            with open(options.key) as file:
                self.headers["Authorization"] = "Bearer " + file.read().strip()
        self.model = options.model or self.get("/v1/models")["data"][0]["id"]
        self.lock = threading.Lock()
        self.first, self.between, self.faults = [], [], []
        self.counts = {"whole": 0, "left": 0, "slow": 0, "busy": 0, "tokens": 0}
        self.until = 0.0

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=120)

    def get(self, path):
        connection = self.connect()
        connection.request("GET", path, headers=self.headers)
        return json.loads(connection.getresponse().read())

    def body(self, kind, stream):
        """One of a few dozen requests, so that each has an answer to compare with."""
        body = {"model": self.model, "prompt": "Hello there " * (1 + kind % 5) + str(kind),
                "max_tokens": 1 + (kind * 37) % self.options.tokens, "ignore_eos": True, "stream": stream}
        if kind % 2:
            body.update(temperature=1.0, top_p=0.9, seed=kind)
        else:
            body.update(temperature=0)
        return body

    def alone(self, kind):
        connection = self.connect()
        connection.request("POST", "/v1/completions", json.dumps(self.body(kind, False)), self.headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            sys.exit(f"serve_load.py: {answer}")
        return answer["choices"][0]["text"]

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def ask(self, kind, rng):
        leaves = rng.random() < 0.15
        slow = not leaves and rng.random() < 0.05
        connection, began = self.connect(), time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(self.body(kind, True)), self.headers)
        response = connection.getresponse()
        if response.status == 429:
            response.read()
            with self.lock:
                self.counts["busy"] += 1
            return time.sleep(0.2)
        if response.status != 200:
            return self.fault(f"status {response.status}: {response.read()[:300]}")
        text, last, done, gaps, first = "", None, False, [], None
        for line in response:
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            if line.startswith(b"data: [DONE]"):
                done = True
                break
            piece = json.loads(line[6:])
            if "error" in piece:
                return self.fault(f"in a stream: {piece['error']['message']}")
            text += piece["choices"][0]["text"]
            if first is None:
                first = now - began
            else:
                gaps.append(now - last)
            last = now
            if leaves and rng.random() < 0.3:
                if connection.sock:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                connection.close()
                with self.lock:
                    self.counts["left"] += 1
                return None
            if slow:
                time.sleep(0.02)
        connection.close()
        if not done:
            return self.fault("a stream ended in the middle")
        if text != self.expected[kind]:
            return self.fault(f"request {kind}: {text[:80]!r} is not {self.expected[kind][:80]!r}")
        with self.lock:
            self.counts["slow" if slow else "whole"] += 1
            self.counts["tokens"] += self.body(kind, False)["max_tokens"]
            if not slow:
                self.first.append(first)
                self.between.extend(gaps)
        return None

    def client(self, number):
        rng = random.Random(number)
        while time.monotonic() < self.until:
            try:
                self.ask(rng.randrange(self.options.kinds), rng)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.fault(f"{type(error).__name__}: {error}")

    def run(self):
        self.expected = [self.alone(kind) for kind in range(self.options.kinds)]
        before = resident_mib(self.options.pid) if self.options.pid else 0.0
        self.until = time.monotonic() + self.options.seconds
        began, middle = time.monotonic(), 0.0
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(self.options.clients)]
        for thread in threads:
            thread.start()
        time.sleep(self.options.seconds / 2)
        if self.options.pid:
            middle = resident_mib(self.options.pid)
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        ms = {name: [round(1000 * percentile(values, share), 2) for share in (0.5, 0.99)]
              for name, values in (("first_token", self.first), ("between_tokens", self.between))}
        result = {"clients": self.options.clients, "seconds": round(took, 1), **self.counts,
                  "tokens_per_second": round(self.counts["tokens"] / took, 1),
                  "first_token_ms_p50_p99": ms["first_token"], "between_tokens_ms_p50_p99": ms["between_tokens"],
                  "faults": len(self.faults)}
        if self.options.pid:
            result["resident_mib"] = [round(value) for value in (before, middle, resident_mib(self.options.pid))]
        print(json.dumps(result))
        for fault in self.faults[:10]:
            print(fault, file=sys.stderr)
        return 1 if self.faults or self.counts["whole"] == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--kinds", type=int, default=24, help="different requests")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--pid", type=int, help="the server's process, to watch its memory")
    parser.add_argument("--key", help="a file with the API key")
    sys.exit(Load(parser.parse_args()).run())


main()
