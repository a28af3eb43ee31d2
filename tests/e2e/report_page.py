"""Reads a report back from a browser: what is plotted is what the run wrote, in light, dark and on a phone.

usage: report_page.py PROGRAM FOLDER     FOLDER has runs/a and runs/b; reports are written to it
Ends with status 77 where there is no Chromium.
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chromium

PANEL = "document.querySelector('[data-panel=\"%s\"]')"
KINDS = ("text", "muted", "bad", "good", "accent", *(f"c{i}" for i in range(8)))


def check(what, is_so, more=""):
    if not is_so:
        sys.exit(f"report_page.py: {what} is not so. {more}")
    print(f"ok  {what}")


def lines(run):
    found = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            pass
    return found


def written(run, metric):
    """Steps and values of a metric, as the file has them."""
    return [(line["global_step"], line[metric]) for line in lines(run) if isinstance(line.get(metric), (int, float))]


def plotted(page, panel, metric, run=None, kind="path.curve:not(.raw)"):
    """The points of a curve, from pixels back to numbers."""
    chosen = f'[data-metric="{metric}"]' + (f'[data-run="{run}"]' if run else "")
    got = page.eval(f"""(() => {{ const svg = ({PANEL % panel}).querySelector('.plot > svg');
        return {{ frame: {{ ...svg.dataset }}, d: svg.querySelector('g{chosen} {kind}').getAttribute('d') }}; }})()""")
    frame = {name: float(value) for name, value in got["frame"].items() if re.fullmatch(r"-?[\d.e+-]+", value)}
    scale, back = (math.log, math.exp) if got["frame"]["scale"] == "log" else (lambda y: y, lambda y: y)
    points = []
    for x, y in re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", got["d"]):
        right = (float(x) - frame["plotLeft"]) / (frame["plotRight"] - frame["plotLeft"])
        up = (frame["plotBottom"] - float(y)) / (frame["plotBottom"] - frame["plotTop"])
        low, high = scale(frame["low"]), scale(frame["high"])
        points.append((frame["left"] + right * (frame["right"] - frame["left"]), back(low + up * (high - low))))
    return points, frame


def same(points, expected, frame, relative=False):
    """Equal to a fiftieth of a pixel of rounding."""
    x_error = 0.02 * (frame["right"] - frame["left"]) / (frame["plotRight"] - frame["plotLeft"]) + 1e-6
    y_error = 0.02 * (frame["high"] - frame["low"]) / (frame["plotBottom"] - frame["plotTop"]) + 1e-6
    if relative:
        y_error = None
    return len(points) == len(expected) and all(
        abs(px - ex) <= x_error and abs(py - ey) <= (y_error if y_error else abs(ey) * 2e-3) for (px, py), (ex, ey) in zip(points, expected))


def moving_average(values, weight):
    total, found = 0.0, []
    for n, value in enumerate(values, 1):
        total = weight * total + (1 - weight) * value
        found.append(total / (1 - weight ** n))
    return found


def luminance(rgb):
    parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrasts(page):
    """Of each colour with the card that it is drawn on."""
    colours = page.eval("""Object.fromEntries(%s.map((name) => {
        const probe = document.createElement('i');
        probe.style.color = `var(--${name})`;
        document.body.append(probe);
        const colour = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        probe.remove();
        return [name, colour]; }))""" % json.dumps(["card", "page", *KINDS]))
    card = luminance(colours["card"])
    ratio = lambda other: (max(card, other) + 0.05) / (min(card, other) + 0.05)
    return card, {name: ratio(luminance(colours[name])) for name in KINDS}


def check_curves(page, run):
    loss = written(run, "training/loss")
    points, frame = plotted(page, "training/loss", "training/loss")
    check("the plotted loss is that of metrics.jsonl", len(loss) > 5 and same(points, loss, frame), f"{points[:3]} {loss[:3]}")
    points, frame = plotted(page, "training/loss", "eval/loss")
    check("so is the held-out loss", same(points, written(run, "eval/loss"), frame))
    points, frame = plotted(page, "training/lr", "training/lr")
    check("so is the learning rate", same(points, written(run, "training/lr"), frame))
    check("a gradient norm that is not a number is marked", page.eval(f"({PANEL % 'training/grad_norm'}).querySelectorAll('.lost-point').length") == 1)

    page.eval(f"({PANEL % 'training/loss'}).querySelector('.chart-head button').click()")
    points, frame = plotted(page, "training/loss", "training/loss")
    check("on a logarithmic axis too", same(points, loss, frame, relative=True), f"{points[:3]} {loss[:3]}")
    page.eval(f"({PANEL % 'training/loss'}).querySelector('.chart-head button').click()")

    page.eval("(() => { const s = document.getElementById('smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input')); })()")
    page.settle()
    points, frame = plotted(page, "training/loss", "training/loss")
    average = moving_average([value for _, value in loss], 0.9)
    check("a smoothed curve is the moving average", same(points, list(zip([s for s, _ in loss], average)), frame))
    points, frame = plotted(page, "training/loss", "training/loss", kind="path.raw")
    check("with the raw one behind it", same(points, loss, frame))
    page.eval("(() => { const s = document.getElementById('smoothing'); s.value = 0; s.dispatchEvent(new Event('input')); })()")
    page.settle()

    rows = page.eval(f"""(() => {{ const panel = {PANEL % 'training/loss'}; panel.querySelectorAll('.chart-head button')[1].click();
        const rows = [...panel.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent));
        panel.querySelectorAll('.chart-head button')[1].click(); return rows; }})()""")
    table = [(int(row[0].replace(",", "")), float(row[1])) for row in rows if row[1]]
    check("the table has the same numbers", len(table) == len(loss) and all(a == b and math.isclose(x, y, rel_tol=1e-6) for (a, x), (b, y) in zip(table, loss)))


def check_zoom(page):
    box = page.eval(f"""(() => {{ const plot = ({PANEL % 'training/loss'}).querySelector('.plot'); plot.scrollIntoView({{ block: 'center' }});
        const rect = plot.getBoundingClientRect(), data = plot.querySelector('svg').dataset;
        return {{ x: rect.left + Number(data.plotLeft), y: rect.top + 80, width: data.plotRight - data.plotLeft, right: Number(data.right), left: Number(data.left) }}; }})()""")
    at = lambda part: box["x"] + part * box["width"]
    page.mouse("mousePressed", at(0.25), box["y"], clickCount=1)
    page.mouse("mouseMoved", at(0.5), box["y"], buttons=1)
    page.mouse("mouseReleased", at(0.75), box["y"], clickCount=1)
    page.settle()
    _, frame = plotted(page, "training/lr", "training/lr")
    quarter = (box["right"] - box["left"]) / 4
    check("dragging zooms all charts", abs(frame["left"] - box["left"] - quarter) < quarter / 10 and abs(frame["right"] - box["right"] + quarter) < quarter / 10, str(frame))
    page.eval("document.getElementById('reset').click()")
    page.eval(f"({PANEL % 'training/loss'}).querySelector('.plot').focus()")
    page.key("ArrowRight")
    check("arrow keys read values aloud", page.eval("document.getElementById('spoken').textContent").startswith("step "))
    page.key("+")
    page.settle()
    check("+ zooms", not page.eval("document.getElementById('reset').disabled"))
    page.key("Escape")
    page.settle()
    check("Escape shows all", page.eval("document.getElementById('reset').disabled"))


def check_axes(page, run):
    loss, axes = written(run, "training/loss"), page.eval("[...document.querySelectorAll('#axis [data-axis]')].map((one) => one.dataset.axis)")
    check("steps, tokens and time can be had", axes == ["step", "tokens", "time"], str(axes))
    page.eval("document.querySelector('#axis [data-axis=tokens]').click()")
    page.settle()
    points, frame = plotted(page, "training/loss", "training/loss")
    check("tokens grow with steps", len(points) == len(loss) and all(a[0] < b[0] for a, b in zip(points, points[1:])) and frame["right"] > 1000)
    page.eval("document.querySelector('#axis [data-axis=step]').click()")
    page.settle()


def check_looks(page):
    for width in (360, 768, 1280):
        page.resize(width, 800)
        page.settle()
        page.wait(f"document.documentElement.scrollWidth <= {width}", 3)
        check(f"nothing is wider than {width} pixels", True)
    page.resize(1280, 900)
    cards = {}
    for scheme in ("light", "dark"):
        page.colours(scheme)
        cards[scheme], found = contrasts(page)
        low = {name: round(ratio, 2) for name, ratio in found.items() if ratio < (3 if name[0] == "c" else 4.5)}
        check(f"colours can be told from the card in {scheme}", not low, str(low))
    check("light is light and dark is dark", cards["light"] > 0.8 and cards["dark"] < 0.05)
    page.colours("light")
    page.eval("document.getElementById('theme').click()")
    check("the button changes the theme", contrasts(page)[0] < 0.05)
    unnamed = page.eval("""[...document.querySelectorAll('button, select, input, [tabindex="0"], svg[role=img]')].filter((one) =>
        !one.getAttribute('aria-label') && !one.textContent.trim() && !one.labels?.length).map((one) => one.outerHTML.slice(0, 80))""")
    check("everything that can be used has a name", not unnamed, str(unnamed))


def check_text(page):
    check("text of a run is text", page.eval("window.stolen === undefined && document.querySelectorAll('main script, main img, #samples b, #events b').length === 0"))
    check("there are two scripts, ours", page.eval("document.scripts.length") == 2)
    check("a sample is shown as it was written", "</script><script>window.stolen = 1</script>" in page.eval("document.getElementById('samples').textContent"))
    check("events are listed", "resumed" in page.eval("document.getElementById('events').textContent"))
    check("and marked", page.eval(f"({PANEL % 'training/loss'}).querySelectorAll('[data-event=resumed]').length") == 1)
    check("broken lines are said", "cannot be read" in page.eval("document.getElementById('notes').textContent"))


def check_several(page, folder):
    page.open((folder / "both.html").as_uri())
    for name in ("a", "b"):
        points, frame = plotted(page, "training/loss", "training/loss", name)
        check(f"run {name} is plotted beside the other", same(points, written(folder / "runs" / name, "training/loss"), frame))
    check("settings that differ are listed", page.eval("[...document.querySelectorAll('#differences [data-key]')].map((row) => row.dataset.key)") != []
          and "train.lr" in page.eval("document.getElementById('differences').textContent"))
    page.eval("document.querySelector('.run input').click()")
    page.settle()
    check("a run can be hidden", page.eval("document.querySelectorAll('[data-panel=\"training/loss\"] g[data-run=a]').length") == 0)


def check_long(page, program, folder):
    """A run of more points than are shown: means are those of all of them. And numbers of an odd size."""
    run, count = folder / "runs" / "long", 6000
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text('train:\n  best_by: "accuracy"\n  steps: 7000\n')
    times = {"perf/forward_time": 0.125, "perf/backward_time": 0.25, "perf/communication": 0.0625}
    with open(run / "metrics.jsonl", "w") as out:
        for step in range(1, count + 1):
            slow = 8 if step % 10 == 0 else 1  # the highest of each stretch is far above its mean
            line = {"global_step": step, "training/loss": 1.0 + step % 7, "perf/step_time": slow * 0.5, "perf/tokens_per_second": 1000} | {name: slow * value for name, value in times.items()}
            if step == 3000:
                line |= {"training/grad_norm": "NaN"}
            if step % 2000 == 0:
                line |= {"training/grad_norm": 0.5, "eval/loss": step / 1000, "eval/accuracy": 0.75 if step == 4000 else 0.25, "memory/host_gib": 1024 + step / 2000, "training/epoch_seconds": 36000, "training/tokens/some": 0.4}
            out.write(json.dumps(line) + "\n")
    subprocess.run([program, "report", str(run)], check=True, stderr=subprocess.DEVNULL)
    page.open((run / "report.html").as_uri())
    parts = page.eval("Object.fromEntries([...document.querySelectorAll('[data-panel=parts] [data-part]')].map((one) => [one.dataset.part, Number(one.dataset.seconds)]))")
    wanted = {"forward": 1.7 * 0.125, "backward": 1.7 * 0.25, "communication": 1.7 * 0.0625, "other": 1.7 * 0.0625}
    check("the parts of a step are means over all steps", parts.keys() == wanted.keys() and all(math.isclose(parts[name], wanted[name], rel_tol=1e-4) for name in wanted), f"{parts} {wanted}")
    page.eval("(() => { const s = document.getElementById('smoothing'); s.value = 0.99; s.dispatchEvent(new Event('input')); })()")
    page.settle()
    points, _ = plotted(page, "perf/forward_time", "perf/step_time")
    check("a smoothed curve runs through the means", abs(points[-1][1] - 0.85) < 0.05, str(points[-1]))
    text = page.eval("document.body.textContent")
    check("the best evaluation is by the setting", "best accuracy 0.75 at step 4,000" in text)
    for shown in ("1027 GiB", "10 h", "40 %"):
        check(f"a number is shown as {shown}", shown in text)
    rows = page.eval(f"""(() => {{ const panel = {PANEL % 'training/grad_norm'}; panel.querySelectorAll('.chart-head button')[1].click();
        return [...panel.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent)); }})()""")
    check("the table has a row for what is not a number", ["3,000", "NaN"] in rows, str(rows))
    check_best_anew(page, program, run)


def check_best_anew(page, program, run):
    """Evaluations before a resume with other held-out data are not compared with those after it."""
    (run / "events.jsonl").write_text(json.dumps({"time": 1, "event": "resumed", "global_step": 4500, "best_after": 4000}) + "\n")
    subprocess.run([program, "report", str(run)], check=True, stderr=subprocess.DEVNULL)
    page.open((run / "report.html").as_uri())
    text = page.eval("document.body.textContent")
    check("the best is looked for anew", "best accuracy 0.25 at step 6,000" in text)


def check_training(page, program, folder):
    """The page follows a training that goes on meanwhile."""
    recipe = pathlib.Path(__file__).resolve().parents[2] / "configs" / "quickstart.yaml"
    tiny = ("--train.device cpu --train.precision fp32 --model.layers 1 --model.width 32 --model.heads 2 --train.micro_batch 8 --tasks.questions 400 "
            "--tasks.held_out 20 --train.logging_steps 5 --train.steps 1000000 --train.eval_steps 0 --run.name followed").split()
    run = folder / "runs" / "followed"
    training = subprocess.Popen([program, "train", str(recipe), *tiny], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = None
    try:
        until = time.time() + 120
        while len(written(run, "training/loss") if (run / "metrics.jsonl").exists() else []) < 2:
            if training.poll() is not None or time.time() > until:
                check("the training begins", False)
            time.sleep(0.2)
        server = subprocess.Popen([program, "report", "--live"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        page.open(server.stdout.readline().strip())
        check("the run that trains is the one that is shown", "followed" in page.eval("document.title"))
        state = "document.querySelector('.run .state').textContent"
        check("it is said to run", page.eval(state) == "running")
        last = lambda: plotted(page, "training/loss", "training/loss")[0][-1][0]
        first = last()
        page.wait(f"Number(document.querySelector('[data-panel=\"training/loss\"] .plot > svg').dataset.right) > {first} + 1", 120)
        check("its curve grows without a reload", last() > first)
        training.send_signal(2)
        check("it stops as if nobody had looked", training.wait(120) == 130)
        page.wait(f"{state} === 'stopped'", 60)
        page.settle()
        points, frame = plotted(page, "training/loss", "training/loss")
        loss = written(run, "training/loss")
        check("in the end the page has its last line", abs(points[-1][0] - loss[-1][0]) <= (frame["right"] - frame["left"]) / 500, f"{points[-1]} {loss[-1]}")
    finally:
        for process in (training, server):
            if process:
                process.kill()


def check_live(page, program, folder):
    run = folder / "runs" / "a"
    server = subprocess.Popen([program, "report", str(run), "--live"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        page.open(server.stdout.readline().strip())
        check("the page is served", page.eval("!document.getElementById('live').hidden"))
        before = len(written(run, "training/loss"))
        with open(run / "metrics.jsonl", "a") as out:
            out.write(json.dumps({"global_step": 1000, "training/loss": 0.125}) + "\n")
        page.wait(f"(document.querySelector('[data-panel=\"training/loss\"] g[data-metric=\"training/loss\"] path').getAttribute('d').match(/[ML]/g) || []).length === {before + 1}")
        points, frame = plotted(page, "training/loss", "training/loss")
        check("a new line is plotted without a reload", same(points, written(run, "training/loss"), frame))
        server.send_signal(2)
        check("Ctrl-C ends it", server.wait(10) == 0)
        page.wait("document.getElementById('live').classList.contains('lost')")
        check("the page says that it is gone", True)
    finally:
        server.kill()


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if not chromium.find():
        print("no Chromium here: apt-get install chromium")
        sys.exit(77)
    with chromium.Page() as page:
        page.colours("light")
        page.open((folder / "runs/a/report.html").as_uri())
        check_curves(page, folder / "runs/a")
        check_zoom(page)
        check_axes(page, folder / "runs/a")
        check_text(page)
        check_looks(page)
        check_several(page, folder)
        check("nothing was asked of a network", all(url.startswith("file://") for url in page.requests), str(page.requests))
        check("no script failed", not page.problems, str(page.problems))
        check_long(page, program, folder)
        check_live(page, program, folder)
        check_training(page, program, folder)


main()
