// What charts need to know of numbers: axes, ticks, smoothing, words.

const kAxes = [
  { name: 'step', title: 'Steps', words: 'step' },
  { name: 'tokens', title: 'Tokens', words: 'tokens' },
  { name: 'time', title: 'Time', words: 'time of training' },
];

/** The index of the first entry that is not below x. */
function lowerBound(sorted, x) {
  let from = 0, to = sorted.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle] < x) from = middle + 1; else to = middle;
  }
  return from;
}

/** y at x, on straight lines between the points and from (0, 0) to the first. */
function between(xs, ys, x) {
  const at = lowerBound(xs, x);
  if (at === xs.length) return ys[ys.length - 1];
  const [x0, y0] = at === 0 ? [0, 0] : [xs[at - 1], ys[at - 1]];
  return xs[at] === x0 ? ys[at] : y0 + ((ys[at] - y0) * (x - x0)) / (xs[at] - x0);
}

/** Where a step of a run stands on an axis: 'step', 'tokens' or 'time' (seconds). */
function onAxis(run, step, axis) {
  const known = axis === 'tokens' ? run.clock.tokens : axis === 'time' ? run.clock.seconds : null;
  return known && known.length ? between(run.clock.steps, known, step) : step;
}
function axisIsKnown(runs, axis) {
  return axis === 'step' || (runs.length > 0 && runs.every((run) => {
    const known = axis === 'tokens' ? run.clock.tokens : run.clock.seconds;
    return !Object.keys(run.curves).length || (known && known.length > 0);
  }));
}

/** Exponential moving average without the bias of its first values. counts: how many points each value stands for. */
function smoothed(values, weight, counts = null) {
  const usual = counts ? counts.reduce((sum, count) => sum + count, 0) / counts.length : 1;
  let sum = 0, seen = 1;
  return values.map((value, i) => {
    const kept = counts ? weight ** (counts[i] / usual) : weight;
    sum = kept * sum + (1 - kept) * value;
    seen *= kept;
    return sum / (1 - seen);
  });
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
}
const kTimes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

function ticks(low, high, count, axis) {
  if (!(high > low)) return [low];
  let step = niceStep((high - low) / count);
  if (axis === 'time') step = kTimes.find((time) => time >= (high - low) / count) || Math.ceil(step / 86400) * 86400;
  if (axis === 'step' || axis === 'tokens') step = Math.max(1, Math.round(step));
  const inside = () => Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  while (inside() < 3 && (step > 1 || !axis)) step = axis === 'time' || !axis ? step / 2 : Math.max(1, Math.round(niceStep(step * 0.45)));
  return Array.from({ length: inside() }, (_, i) => (Math.ceil(low / step - 1e-9) + i) * step);
}

/** Powers of ten; with 2 and 5 between them where those are few. */
function logTicks(low, high, count) {
  const found = [];
  for (const factors of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]]) {
    found.length = 0;
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
      for (const factor of factors)
        if (factor * 10 ** power >= low * 0.999 && factor * 10 ** power <= high * 1.001) found.push(factor * 10 ** power);
    if (found.length >= 3) break;
  }
  const every = Math.ceil(found.length / count);
  return found.filter((_, i) => i % every === 0);
}

const trimZeros = (text) => (text.includes('.') ? text.replace(/\.?0+$/, '') : text);

/** 1234567: "1.23M". */
function countText(value) {
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e4, 'k']])
    if (size >= unit * 0.9995) return trimZeros((value / (name === 'k' ? 1e3 : unit)).toPrecision(3)) + name;
  return trimZeros(value.toFixed(size < 10 && size % 1 ? 2 : 0));
}

function secondsText(seconds) {
  if (seconds < 60) return trimZeros(seconds.toFixed(seconds < 10 ? 1 : 0)) + ' s';
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return seconds % 60 >= 0.5 && seconds < 600 ? `${Math.floor(seconds / 60)}m ${Math.floor(seconds % 60)}s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours}h ${minutes % 60}m` : `${hours} h`;
  return `${Math.floor(hours / 24)}d` + (hours % 24 ? ` ${hours % 24}h` : '');
}

const wholeText = (value) => Math.round(value).toLocaleString('en-US');
function axisText(value, axis) {
  return axis === 'time' ? secondsText(value) : axis === 'tokens' ? countText(value) : value >= 1e5 ? countText(value) : wholeText(value);
}

/** A value of a metric, to four digits, as its kind is read. */
function valueText(value, kind = '') {
  const size = Math.abs(value);
  if (kind === 'fraction') return trimZeros((value * 100).toPrecision(size < 0.001 ? 2 : 3)) + ' %';
  if (kind === 'count') return countText(value);
  if (kind === 'seconds' && size >= 600) return secondsText(value);
  if (kind === 'seconds') {
    const [unit, name] = size >= 1 || size === 0 ? [1, ' s'] : size >= 1e-3 ? [1e3, ' ms'] : [1e6, ' µs'];
    return trimZeros((value * unit).toPrecision(3)) + name;
  }
  if (kind === 'gib') return trimZeros(size >= 100 ? value.toFixed(0) : value.toPrecision(3)) + ' GiB';
  if (size === 0) return '0';
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return size >= 1000 ? countText(value) : trimZeros(value.toPrecision(4));
}
