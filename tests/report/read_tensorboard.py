"""What a real TensorBoard shows of a folder, through its own server, as JSON: {run: {scalars, histograms, text}}.

usage: read_tensorboard.py LOGDIR OUTPUT [--load_fast=true|false]
"""
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

logdir, output = sys.argv[1:3]
server = subprocess.Popen(
    [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"] + sys.argv[3:]
    + ["--samples_per_plugin", "scalars=10000,text=1000,histograms=1000", "--reload_interval", "1"],
    stderr=subprocess.PIPE, text=True)


def get(path, **query):
    with urllib.request.urlopen(f"{address}data/{path}?{urllib.parse.urlencode(query)}", timeout=20) as answer:
        return json.load(answer)


try:
    for line in server.stderr:
        if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
            address = match[0]
            break
    plugins = {"scalars": "scalars", "histograms": "histograms", "text": "text"}
    for attempt in range(100):  # it reads the files after it has started to answer
        if get("runs") and get("plugin/scalars/tags"):
            break
        time.sleep(0.2)
    time.sleep(1)
    shown = {}
    for plugin in plugins:
        for run, tags in get(f"plugin/{plugin}/tags").items():
            for tag in tags:
                shown.setdefault(run, {}).setdefault(plugin, {})[tag] = get(f"plugin/{plugin}/{plugin}", run=run, tag=tag)
    with open(output, "w") as file:
        json.dump(shown, file)
finally:
    server.kill()
    server.wait()
