"""What Weights & Biases has of the offline runs of a folder, read with its own messages, as JSON: a list, oldest
first. The package has no reader of the files any more: they are logs of LevelDB, blocks of 32 KiB with records of
checksum, length and kind (whole, first, middle, last).

usage: read_wandb.py RUN_FOLDER OUTPUT
"""
import glob
import json
import math
import struct
import sys
import zlib

from wandb.proto import wandb_internal_pb2 as messages

BLOCK, HEADER = 32768, 7


def records(path):
    data = open(path, "rb").read()
    assert data[:4] == b":W&B", data[:8]
    at, parts = HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        checksum, length, kind = struct.unpack("<IHB", data[at:at + HEADER])
        if kind == 0:
            break
        piece = data[at + HEADER:at + HEADER + length]
        if len(piece) < length:  # it is being written
            break
        assert zlib.crc32(piece, zlib.crc32(bytes([kind]))) == checksum, "checksum"
        at += HEADER + length
        parts = piece if kind in (1, 2) else parts + piece
        if kind in (1, 4):
            record = messages.Record()
            record.ParseFromString(parts)
            yield record


def strict(value):
    """Without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: strict(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def named(items):
    return {item.key or "/".join(item.nested_key): strict(json.loads(item.value_json)) for item in items}


runs = []
for path in sorted(glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb")):
    run = {"history": [], "summary": {}, "config": {}}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run" and "id" not in run:
            run.update(id=record.run.run_id, project=record.run.project, name=record.run.display_name,
                       entity=record.run.entity, tags=list(record.run.tags))
            run["config"].update(named(record.run.config.update))
        elif kind == "config":
            run["config"].update(named(record.config.update))
        elif kind == "history":
            run["history"].append(named(record.history.item))
        elif kind == "summary":
            run["summary"].update(named(record.summary.update))
        elif kind == "exit":
            run["exit_code"] = record.exit.exit_code
    runs.append(run)
with open(sys.argv[2], "w") as file:
    json.dump(runs, file)
