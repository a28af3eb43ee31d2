// Which charts a report has: those that every run has, in the order in which one reads them, then whatever else is there.

const kColours = Array.from({ length: 8 }, (_, i) => `var(--c${i})`);
const kParts = [
  ['perf/forward_time', 'forward'], ['perf/backward_time', 'backward'], ['perf/update_time', 'update'],
  ['perf/data_time', 'waiting for data'], ['perf/idle_time', 'waiting for the host'], ['perf/communication', 'communication'],
];

// names: metrics, with what they are called there. under: all metrics below a name. each: a chart for each of them.
const kPanels = [
  { section: 'Learning', title: 'Loss', wide: true, names: [['training/loss', 'training'], ['eval/loss', 'held-out']], help: 'Mean over supervised tokens' },
  { section: 'Learning', title: 'Loss by source', under: 'training/loss/' },
  { section: 'Learning', title: 'Bits per byte', names: [['training/bits_per_byte', 'training'], ['eval/bits_per_byte', 'held-out']] },
  { section: 'Learning', title: 'Translation quality', names: [['eval/bleu', 'BLEU'], ['eval/chrf', 'chrF']], help: 'Of held-out pairs' },
  { section: 'Learning', title: 'Accuracy', kind: 'fraction', names: [['training/accuracy', 'training'], ['eval/accuracy', 'held-out']], help: 'Tokens whose top prediction was right' },
  { section: 'Learning', title: 'Accuracy by source', kind: 'fraction', under: 'training/accuracy/' },
  { section: 'Learning', title: 'Learning rate', names: [['training/lr', 'all']], under: 'training/lr/' },
  { section: 'Learning', title: 'Gradient norm', names: [['training/grad_norm', 'norm']], help: 'Before clipping' },
  { section: 'Speed', title: 'Throughput', kind: 'count', names: [['perf/tokens_per_second', 'tokens per second']], help: 'Tokens per second' },
  { section: 'Speed', title: 'MFU', kind: 'fraction', names: [['perf/mfu', 'MFU']], help: "The model's FLOPs as a fraction of the device's peak" },
  { section: 'Speed', title: 'Step time', kind: 'seconds', names: [...kParts, ['perf/step_time', 'whole step']], help: 'Seconds a step, and its parts' },
  { section: 'Speed', title: 'Data wait', kind: 'fraction', names: [['perf/data_wait', 'data wait']], help: 'Fraction of the time that steps waited for data' },
  { section: 'Memory and device', title: 'Memory', kind: 'gib', under: 'memory/', cut: /_gib$/, help: 'GiB' },
  { section: 'Memory and device', each: 'device/' },
];
const kKinds = [[/_gib$/, 'gib'], [/(_time|seconds|communication)$/, 'seconds'], [/(utilization|mfu|data_wait|accuracy)$|^training\/(tokens|accuracy)\//, 'fraction'], [/(flops|tokens|syncs)/, 'count']];

/** Metrics of all runs, in name order; layers in number order. */
function metricNames(runs) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.curves)));
  return [...names].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
}

/** power_watts: "Power watts". */
const titleOf = (name) => (name.startsWith('gpu_') ? 'GPU ' + name.slice(4) : name[0].toUpperCase() + name.slice(1)).replaceAll('_', ' ');

function helpOf(data, name) {
  const parent = name.replace(/\/[^/]*$/, ''), help = data.metrics[name] || data.metrics[`${parent}/<source>`] || data.metrics[parent] || '';
  return help && help[0].toUpperCase() + help.slice(1);
}

/** named: [[metric, label], ...]. One run: a colour for each curve. Several: a colour for each run, dashes for curves. */
function makePanel(data, runs, given, named) {
  const series = [], ramp = named.length > 8;
  const kind = given.kind ?? (kKinds.find(([pattern]) => pattern.test(named[0][0].replace(/\/\d+$/, ''))) || [])[1];
  runs.forEach((run, r) => named.forEach(([metric, label], m) => {
    const curve = Object.hasOwn(run.curves, metric) ? run.curves[metric] : null;
    if (!curve) return;
    const part = named.length > 1 ? m / (named.length - 1) : 0;
    series.push({
      run, metric, steps: curve.steps, values: curve.values, means: curve.means, counts: curve.counts, notFinite: curve.not_finite || [],
      label: runs.length === 1 ? label : named.length === 1 ? run.name : `${run.name}, ${label}`,
      colour: runs.length > 1 ? run.colour : ramp ? `hsl(${Math.round(250 - 215 * part)} 62% 52%)` : kColours[m % kColours.length],
      dash: ramp || runs.length === 1 ? (m >= kColours.length && !ramp ? kDashes[1] : '') : kDashes[m % kDashes.length],
      opacity: ramp && runs.length > 1 ? 0.35 + 0.65 * part : null,
    });
  }));
  return { id: named.map(([metric]) => metric)[0], title: given.title, help: given.help ?? helpOf(data, named[0][0]), kind, wide: given.wide, section: given.section, ramp, series };
}

function panelsOf(data, runs) {
  const names = metricNames(runs), used = new Set(['perf/flops_per_token', 'perf/flops_per_token_counted', 'training/epoch', 'syncs']);
  const panels = [];
  const add = (given, named) => {
    const present = named.filter(([metric]) => names.includes(metric));
    present.forEach(([metric]) => used.add(metric));
    if (present.length) panels.push(makePanel(data, runs, given, present));
  };
  for (const given of kPanels) {
    const below = names.filter((name) => given.under && name.startsWith(given.under)).map((name) => [name, name.slice(given.under.length).replace(given.cut || /$^/, '').replaceAll('_', ' ')]);
    add(given, [...(given.names || []), ...below]);
    if (given.each) for (const name of names.filter((one) => one.startsWith(given.each))) add({ ...given, title: titleOf(name.slice(given.each.length)) }, [[name, name]]);
  }
  const groups = new Map();
  for (const name of names.filter((one) => !used.has(one))) {
    const parts = name.split('/'), deep = parts.length > 2;
    const group = deep ? parts.slice(0, -1).join('/') : name;
    if (!groups.has(group)) groups.set(group, []);
    const layer = /^\d+$/.test(parts.at(-1)) ? `layer ${parts.at(-1)}` : parts.at(-1);
    groups.get(group).push([name, deep ? layer : name]);
  }
  for (const [group, named] of groups) add({ section: 'More metrics', title: group }, named);
  for (const name of ['training/epoch', 'perf/flops_per_token', 'perf/flops_per_token_counted', 'syncs']) add({ section: 'More metrics', title: name }, [[name, name]]);
  return panels;
}

/** Where the time of a step goes, by run: means over the steps that are shown. */
function partsOf(run, view) {
  const mean = (metric) => {
    const curve = Object.hasOwn(run.curves, metric) ? run.curves[metric] : null;
    if (!curve) return 0;
    let sum = 0, points = 0;
    curve.steps.forEach((step, i) => {
      const x = onAxis(run, step, view.axis), count = curve.counts ? curve.counts[i] : 1;
      if (view.zoom && (x < view.zoom[0] || x > view.zoom[1])) return;
      sum += count * (curve.means || curve.values)[i];
      points += count;
    });
    return points ? sum / points : 0;
  };
  const parts = kParts.map(([metric, label], i) => ({ label, seconds: mean(metric), colour: kColours[i] })).filter((part) => part.seconds > 0);
  const step = mean('perf/step_time'), wait = step * mean('perf/data_wait');
  const other = step - parts.reduce((sum, part) => sum + part.seconds, 0);
  if (parts.length) return other > step / 200 ? [...parts, { label: 'other', seconds: other, colour: kColours[7] }] : parts;
  return step ? [{ label: 'computing', seconds: step - wait, colour: kColours[0] }, { label: 'waiting for data', seconds: wait, colour: kColours[3] }] : [];
}
