#include "train/report/wandb_sink.h"

namespace tightloop {

const char* const kWandbScript = R"python(# Tightloop: hands metrics to Weights & Biases.
import importlib.util, json, os, sys

answers = os.dup(1)
os.dup2(2, 1)  # what wandb prints is no answer
sys.path = [folder for folder in sys.path if folder]  # a folder ./wandb is not the package


def answer(**said):
    os.write(answers, (json.dumps(said) + "\n").encode())


def refuse_without_wandb():
    raise SystemExit(
        f"Weights & Biases needs the Python package wandb, and '{sys.executable}' has none. Install it with "
        f"'{sys.executable} -m pip install wandb', or set wandb.python to a Python that has it."
    )


def begin(start):
    package = importlib.util.find_spec("wandb")
    if package is None or package.origin is None:  # a mere folder of that name, as W&B makes them
        refuse_without_wandb()
    answer(found=True)  # importing it takes seconds, which training does not wait for
    try:
        import wandb
        init = wandb.init
    except (ImportError, AttributeError):
        refuse_without_wandb()
    run = init(resume="allow", settings=wandb.Settings(console="off", silent=True), **start)
    run.define_metric("eval/loss", summary="min,last")
    offline = f"offline, in {os.path.dirname(run.dir)} ('wandb sync' uploads it)"
    answer(url=offline if run.offline else run.url)
    return wandb, run


def serve(messages):
    wandb, run = begin(json.loads(next(messages))["start"])
    samples = []
    for line in messages:
        message = json.loads(line)
        if "finish" in message:
            run.summary.update(message["finish"]["summary"])
            run.finish(exit_code=int(message["finish"]["failed"]))
            return
        row = {name: float(value) for name, value in message.get("numbers", {}).items()}
        for name, of in message.get("histograms", {}).items():
            row[name] = wandb.Histogram(np_histogram=(of["counts"], of["edges"]))
        if "time" in message:
            row["_timestamp"] = message["time"]
        if "sample" in message:
            if samples and samples[0][0] != message["step"]:
                samples = []
            sample = message["sample"]
            samples.append([message["step"]] + [sample.get(key, "") for key in ("kind", "prompt", "text", "reference")])
            row["samples"] = wandb.Table(columns=["step", "kind", "prompt", "text", "reference"], data=samples)
        run.log(row, step=message["step"])
    run.finish(exit_code=1)  # training was killed


try:
    serve(iter(sys.stdin.readline, ""))
    answer(finished=True)
except SystemExit as refusal:
    answer(error=str(refusal))
    sys.exit(1)
except BaseException as failure:
    answer(error=f"Weights & Biases failed: {type(failure).__name__}: {failure}")
    raise
)python";

}  // namespace tightloop
