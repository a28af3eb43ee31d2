// What a reader does with a chart: pointing, dragging, keys.

Object.assign(Chart.prototype, {
  listen() {
    const { plot } = this;
    let from = null;
    const place = (event) => event.clientX - plot.getBoundingClientRect().left;
    const within = (at) => Math.max(this.frame.box.left, Math.min(this.frame.box.right, at));
    plot.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !this.frame) return;
      from = within(place(event));
      if (event.pointerType === 'mouse') plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener('pointermove', (event) => {
      if (!this.frame) return;
      const to = within(place(event));
      this.point(this.valueAt(to));
      if (from !== null && Math.abs(to - from) > 4) {
        const { box } = this.frame;
        this.cursor.append(element('rect', { class: 'selection', x: Math.min(from, to), width: Math.abs(to - from), y: box.top, height: box.bottom - box.top }));
      }
    });
    plot.addEventListener('pointerup', (event) => {
      if (from !== null && this.frame) this.select(from, within(place(event)));
      from = null;
    });
    plot.addEventListener('pointercancel', () => { from = null; });
    plot.addEventListener('pointerleave', () => from === null && this.leave());
    plot.addEventListener('dblclick', () => this.zoomTo(null));
    plot.addEventListener('blur', () => this.leave());
    plot.addEventListener('keydown', (event) => this.key(event));
  },

  valueAt(pixel) {
    const { box, range } = this.frame;
    return range.left + ((pixel - box.left) / (box.right - box.left)) * (range.right - range.left);
  },
  select(from, to) {
    if (Math.abs(to - from) < 6) return;
    this.zoomTo([this.valueAt(Math.min(from, to)), this.valueAt(Math.max(from, to))]);
  },
  zoomTo(zoom) {
    this.view.zoom = zoom;
    this.redraw();
  },
  leave() {
    this.tip.hidden = true;
    this.at = null;
    if (this.cursor) this.cursor.replaceChildren();
  },

  /** Shows the points nearest to x on the axis. Gives what it says. */
  point(value) {
    const { box, x, y, range } = this.frame;
    this.cursor.replaceChildren();
    let at = null;
    for (const one of this.visible)
      for (const i of [lowerBound(one.xs, value) - 1, lowerBound(one.xs, value)])
        if (one.xs[i] >= range.left && one.xs[i] <= range.right && (at === null || Math.abs(one.xs[i] - value) < Math.abs(at - value))) at = one.xs[i];
    if (at === null) return '';
    this.at = at;
    const rows = [], words = [];
    for (const one of this.visible) {
      const right = lowerBound(one.xs, at);
      const i = [right - 1, right].filter((j) => j in one.xs).sort((a, b) => Math.abs(one.xs[a] - at) - Math.abs(one.xs[b] - at))[0];
      if (i === undefined || Math.abs(one.xs[i] - at) > (range.right - range.left) * 0.05) continue;
      if (rows.length < 9) rows.push(element('div', {}, element('i', { colour: one.colour }), element('span', {}, one.label), element('b', {}, valueText(one.values[i], this.panel.kind))));
      words.push(`${one.label} ${valueText(one.values[i], this.panel.kind)}`);
      if (!this.log || one.ys[i] > 0) this.cursor.append(element('circle', { class: 'dot', r: 3.5, cx: x(one.xs[i]), cy: y(one.ys[i]), colour: one.colour }));
    }
    this.cursor.prepend(element('line', { class: 'cross', x1: x(at), x2: x(at), y1: box.top, y2: box.bottom }));
    const title = this.view.axis === 'step' ? `step ${wholeText(at)}` : this.view.axis === 'tokens' ? `${countText(at)} tokens` : secondsText(at);
    this.tip.replaceChildren(element('div', {}, title), ...rows);
    this.tip.hidden = false;
    const free = this.plot.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(free, x(at) > free - 16 ? x(at) - this.tip.offsetWidth - 12 : x(at) + 12))}px`;
    this.tip.style.top = `${box.top + 4}px`;
    return `${title}: ${words.slice(0, 9).join(', ')}`;
  },

  key(event) {
    if (!this.frame) return;
    const { range } = this.frame;
    const all = [...new Set(this.visible.flatMap((one) => one.xs))].filter((x) => x >= range.left && x <= range.right).sort((a, b) => a - b);
    const now = this.at == null ? -1 : lowerBound(all, this.at);
    const page = Math.max(1, Math.round(all.length / 20));
    const moves = { ArrowLeft: now < 0 ? all.length - 1 : now - 1, ArrowRight: now + 1, PageUp: now - page, PageDown: now + page, Home: 0, End: all.length - 1 };
    if (event.key in moves && all.length) {
      document.getElementById('spoken').textContent = this.point(all[Math.max(0, Math.min(all.length - 1, moves[event.key]))]);
    } else if (event.key === '+' || event.key === '-') {
      const middle = this.at ?? (range.left + range.right) / 2, half = ((range.right - range.left) / 2) * (event.key === '+' ? 0.5 : 2);
      this.zoomTo(event.key === '-' && !this.view.zoom ? null : [Math.max(0, middle - half), middle + half]);
    } else if (event.key === 'Escape') {
      this.leave();
      this.zoomTo(null);
    } else {
      return;
    }
    event.preventDefault();
  },
});
