// One chart: an SVG with axes, curves, marks of events, a crosshair, zoom by dragging, and its numbers as a table.

const kShapes = {  // of marks, around (0, 0): told apart without colour
  resumed: 'M-4,-5 L5,0 L-4,5 Z',
  rolled_back: 'M4,-5 L-5,0 L4,5 Z',
  spike: 'M-5,4 L0,-5 L5,4 Z',
  skipped: 'M-5,-3 L-3,-5 L0,-2 L3,-5 L5,-3 L2,0 L5,3 L3,5 L0,2 L-3,5 L-5,3 L-2,0 Z',
  stopped: 'M-4,-4 H4 V4 H-4 Z',
  failed: 'M0,-6 L6,0 L0,6 L-6,0 Z',
  save_failed: 'M0,-6 L6,0 L0,6 L-6,0 Z',
  saved: 'M-3,0 L3,0 L0,-5 Z',
};
const kBadEvents = ['spike', 'skipped', 'rolled_back', 'failed', 'save_failed'];
const kDashes = ['', '7 4', '2 3', '9 3 2 3', '4 4', '1 4'];

class Chart {
  constructor(view, redraw) {
    this.view = view;
    this.redraw = redraw;
    this.log = false;
    this.asTable = false;
    this.title = element('h3');
    this.help = element('p', { class: 'help' });
    this.logButton = element('button', { type: 'button', 'aria-pressed': 'false', title: 'Logarithmic vertical axis', onclick: () => this.toggle('log') }, 'log');
    this.tableButton = element('button', { type: 'button', 'aria-pressed': 'false', title: 'The numbers of this chart', onclick: () => this.toggle('asTable') }, 'table');
    this.legend = element('ul', { class: 'legend' });
    this.svg = element('svg', { role: 'img' });
    this.tip = element('div', { class: 'tip', hidden: true });
    this.plot = element('div', { class: 'plot', tabindex: '0', role: 'group' }, this.svg, this.tip);
    this.table = element('div', { class: 'scroll', tabindex: '0', role: 'region', hidden: true });
    this.root = element('article', { class: 'card chart' },
      element('div', { class: 'chart-head' }, element('div', {}, this.title, this.help), this.logButton, this.tableButton),
      this.legend, this.plot, this.table);
    this.listen();
    new ResizeObserver(() => this.plot.clientWidth !== this.drawnWidth && this.draw()).observe(this.plot);
  }

  /** panel: {id, title, help, kind, wide, ramp, series: [{run, label, colour, dash, steps, values, notFinite}]} */
  show(panel) {
    this.panel = panel;
    this.root.dataset.panel = panel.id;
    this.root.classList.toggle('wide', !!panel.wide);
    this.title.textContent = panel.title;
    this.help.textContent = panel.help || '';
    this.plot.setAttribute('aria-label', `${panel.title}. Arrow keys read the values, + and - zoom, Escape shows all.`);
    this.svg.setAttribute('aria-label', `${panel.title}: ${panel.series.map((one) => `${one.label} ${one.values.length ? 'last ' + valueText(one.values.at(-1), panel.kind) : 'without a number'}`).slice(0, 8).join('; ')}`);
    this.table.setAttribute('aria-label', `Numbers of ${panel.title}`);
    this.draw();
  }

  toggle(what) {
    this[what] = !this[what];
    this.logButton.setAttribute('aria-pressed', this.log);
    this.tableButton.setAttribute('aria-pressed', this.asTable);
    this.plot.hidden = this.asTable;
    this.table.hidden = !this.asTable;
    this.draw();
  }

  draw() {
    if (!this.panel) return;
    this.visible = this.panel.series.filter((one) => !this.view.hidden.has(one.run.name));
    this.drawLegend();
    this.tip.hidden = true;
    if (this.asTable) this.drawTable(); else if (this.plot.clientWidth) this.drawPlot();
  }

  drawLegend() {
    const { series, ramp } = this.panel;
    const named = this.visible.length > 1 || series.length > 1;
    const shown = ramp && this.visible.length > 2 ? [this.visible[0], this.visible.at(-1)] : this.visible;
    this.legend.replaceChildren(...(named ? shown : []).map((one) => element('li', {},
      element('svg', { width: 22, height: 8, 'aria-hidden': 'true' }, element('line', { x1: 1, x2: 21, y1: 4, y2: 4, class: 'curve', colour: one.colour, 'stroke-dasharray': one.dash, opacity: one.opacity })),
      one.label)));
  }

  /** x of every point, and what is drawn: smoothed where that is asked for and there is enough to smooth. */
  prepare() {
    const { axis, smoothing } = this.view;
    for (const one of this.visible) {
      one.xs = one.steps.map((step) => onAxis(one.run, step, axis));
      one.smooth = smoothing > 0 && one.values.length > 5;
      one.ys = one.smooth ? smoothed(one.means || one.values, smoothing, one.counts) : one.values;
    }
  }

  ranges() {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const one of this.visible) {
      if (one.xs.length) left = Math.min(left, one.xs[0]), right = Math.max(right, one.xs.at(-1));
      for (const [step] of one.notFinite) left = Math.min(left, onAxis(one.run, step, this.view.axis)), right = Math.max(right, onAxis(one.run, step, this.view.axis));
    }
    if (this.view.zoom) [left, right] = this.view.zoom;
    for (const one of this.visible)
      for (let i = 0; i < one.xs.length; ++i)
        if (one.xs[i] >= left && one.xs[i] <= right)
          for (const y of one.smooth ? [one.values[i], one.ys[i]] : [one.values[i]])
            if (!this.log || y > 0) low = Math.min(low, y), high = Math.max(high, y);
    if (!(right >= left)) [left, right] = [0, 1];
    if (right === left) [left, right] = [left - 0.5, right + 0.5];
    if (!(high >= low)) [low, high] = this.log ? [0.1, 1] : [0, 1];
    if (this.log) {
      const room = low === high ? 1.3 : (high / low) ** 0.06;
      return { left, right, low: low / room, high: high * room };
    }
    const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.07;
    const fromZero = low >= 0 && (low - room < 0 || low < high * 0.25);
    return { left, right, low: fromZero ? 0 : low - room, high: high + room };
  }

  drawPlot() {
    this.prepare();
    const width = (this.drawnWidth = this.plot.clientWidth), height = this.panel.wide && width > 600 ? 300 : 208;
    const box = { left: 48, right: width - 64, top: 16, bottom: height - 30 };
    const range = this.ranges();
    const scale = this.log ? Math.log : (y) => y;
    const x = (value) => box.left + ((value - range.left) / (range.right - range.left)) * (box.right - box.left);
    const y = (value) => box.bottom - ((scale(value) - scale(range.low)) / (scale(range.high) - scale(range.low))) * (box.bottom - box.top);
    this.frame = { box, range, x, y };
    const svg = this.svg;
    svg.replaceChildren();
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('height', height);
    // For whoever reads the picture back: what its corners stand for.
    Object.assign(svg.dataset, { ...range, plotLeft: box.left, plotRight: box.right, plotTop: box.top, plotBottom: box.bottom, scale: this.log ? 'log' : 'linear', axis: this.view.axis });
    const { axis } = this.view;
    const few = Math.max(3, Math.floor((box.right - box.left) / (axis === 'time' ? 92 : 76)));
    for (const value of this.log ? logTicks(range.low, range.high, 6) : ticks(range.low, range.high, 5))
      svg.append(element('line', { class: 'rule', x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
        element('text', { x: box.left - 7, y: y(value) + 4, 'text-anchor': 'end' }, valueText(Math.abs(value) < (range.high - range.low) * 1e-9 ? 0 : value, this.panel.kind)));
    for (const value of ticks(range.left, range.right, few, axis))
      svg.append(element('text', { x: x(value), y: height - 6, 'text-anchor': 'middle' }, axisText(value, axis)));
    if (!this.visible.some((one) => one.xs.length || one.notFinite.length))
      svg.append(element('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle' }, this.panel.series.length ? 'The runs that have it are hidden' : 'No number yet'));
    if (this.view.marks) this.drawMarks();
    this.visible.forEach((one) => this.drawCurve(one));
    this.drawEnds();
    this.cursor = element('g');
    svg.append(this.cursor);
  }

  path(one, values) {
    const { range, x, y } = this.frame;
    const from = Math.max(0, lowerBound(one.xs, range.left) - 1), to = Math.min(one.xs.length, lowerBound(one.xs, range.right) + 1);
    let text = '', pen = 'M';
    for (let i = from; i < to; ++i) {
      if (this.log && !(values[i] > 0)) { pen = 'M'; continue; }
      text += `${pen}${x(one.xs[i]).toFixed(2)},${y(values[i]).toFixed(2)}`;
      pen = 'L';
    }
    return text;
  }

  drawCurve(one) {
    const { box, range, x } = this.frame;
    const group = element('g', { colour: one.colour, opacity: one.opacity, 'data-series': one.label, 'data-metric': one.metric, 'data-run': one.run.name });
    // A drawing of its own cuts off what is outside of a zoom.
    const clip = element('svg', { x: box.left - 4, width: box.right - box.left + 8, height: box.bottom + 4, viewBox: `${box.left - 4} 0 ${box.right - box.left + 8} ${box.bottom + 4}` });
    clip.style.overflow = 'hidden';
    if (one.smooth) group.append(element('path', { class: 'curve raw', d: this.path(one, one.values) }));
    group.append(element('path', { class: 'curve', d: this.path(one, one.ys), 'stroke-dasharray': one.dash }));
    if (one.xs.length < 25 && !this.panel.ramp)
      one.xs.forEach((value, i) => (!this.log || one.ys[i] > 0) && group.append(element('circle', { class: 'dot', r: 3, cx: x(value), cy: this.frame.y(one.ys[i]) })));
    for (const [step, what] of one.notFinite) {
      const at = onAxis(one.run, step, this.view.axis);
      if (at < range.left || at > range.right) continue;
      group.append(element('path', { class: 'lost-point', d: `M${x(at) - 4},${box.top - 4} l8,8 m0,-8 l-8,8` }, element('title', {}, `${one.label} is ${what} at step ${wholeText(step)}`)));
    }
    clip.append(group);
    this.svg.append(clip);
  }

  /** The last visible value of each curve at its end, moved apart; of the outermost two where there are many. */
  drawEnds() {
    const { box, range, y } = this.frame;
    const ends = [];
    for (const one of this.visible) {
      const last = Math.min(one.xs.length, lowerBound(one.xs, range.right * (1 + 1e-12))) - 1;
      const at = last + 1 < one.xs.length && one.xs[last + 1] <= range.right ? last + 1 : last;
      if (at >= 0 && one.xs[at] >= range.left && (!this.log || one.ys[at] > 0)) ends.push({ one, value: one.ys[at], y: y(one.ys[at]) });
    }
    ends.sort((a, b) => a.y - b.y);
    const shown = ends.length > 6 ? [ends[0], ends.at(-1)] : ends;
    shown.forEach((end, i) => { end.at = i ? Math.max(end.y, shown[i - 1].at + 13) : end.y; });
    for (let i = shown.length - 1, below = box.bottom + 4; i >= 0; below = shown[i].at - 13, --i) shown[i].at = Math.min(shown[i].at, below);
    for (const end of shown)
      this.svg.append(element('line', { class: 'curve end', colour: end.one.colour, x1: box.right + 5, x2: box.right + 5, y1: end.at - 4, y2: end.at + 4 }),
        element('text', { class: 'end', x: box.right + 10, y: end.at + 4 }, valueText(end.value, this.panel.kind)));
  }

  drawMarks() {
    const { box, range, x } = this.frame;
    const runs = new Set(this.visible.map((one) => one.run));
    for (const run of runs) {
      const last = {};
      for (const event of run.events) {
        const shape = kShapes[event.event], at = x(onAxis(run, event.step, this.view.axis));
        if (!shape || at < box.left - 1 || at > box.right + 1 || Math.abs(at - last[event.event]) < 4) continue;
        last[event.event] = at;
        const saved = event.event === 'saved';
        const colour = runs.size > 1 ? run.colour : null;
        this.svg.append(element('g', { class: 'mark' + (kBadEvents.includes(event.event) ? ' bad' : ''), colour, 'data-event': event.event },
          saved ? null : element('line', { x1: at, x2: at, y1: box.top, y2: box.bottom }),
          element('path', { d: shape, transform: `translate(${at},${saved ? box.bottom + 7 : box.top - 6})` }),
          element('title', {}, `step ${wholeText(event.step)}: ${event.event.replace('_', ' ')}${event.text ? ', ' + event.text : ''}`)));
      }
    }
  }

  drawTable() {
    const steps = [...new Set(this.visible.flatMap((one) => [...one.steps, ...one.notFinite.map(([step]) => step)]))].sort((a, b) => a - b);
    const maps = this.visible.map((one) => new Map([...one.notFinite, ...one.steps.map((step, i) => [step, one.values[i]])]));
    const cell = (value) => element('td', { class: 'number' }, value == null ? '' : typeof value === 'number' ? String(value) : value);
    this.table.replaceChildren(element('table', {},
      element('caption', { class: 'unseen' }, this.panel.title),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col', class: 'number' }, 'step'), this.visible.map((one) => element('th', { scope: 'col', class: 'number' }, one.label)))),
      element('tbody', {}, steps.map((step) => element('tr', {}, element('th', { scope: 'row', class: 'number' }, wholeText(step)), maps.map((map) => cell(map.get(step))))))));
  }
}
