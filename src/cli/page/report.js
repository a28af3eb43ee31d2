// The page: its data, its controls, and new data while a run goes on.

const view = { axis: 'step', smoothing: 0, zoom: null, marks: true, hidden: new Set(), eventKind: '', sampleStep: null };
const charts = new Map();  // by panel
let data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);

function drawCharts() {
  for (const chart of charts.values()) chart.draw();
  const parts = document.querySelector('[data-panel="parts"]'), fresh = partsCard(data.runs, view);
  if (parts && fresh) parts.replaceWith(fresh);
  byId('reset').disabled = !view.zoom;
}

/** Once for many changes in a row: a slider that is being moved. */
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawCharts(); });
}

function showCharts() {
  const panels = panelsOf(data, data.runs), root = byId('charts');
  if (!panels.length) {
    root.replaceChildren(element('h2', {}, 'Curves'), element('p', { class: 'empty' }, element('strong', {}, 'No numbers yet'), 'Curves appear when the run has written its first line of metrics.jsonl.'));
    charts.clear();
    return;
  }
  const sections = new Map();
  for (const panel of panels) {
    if (!sections.has(panel.section)) sections.set(panel.section, []);
    if (!charts.has(panel.id)) charts.set(panel.id, new Chart(view, redraw));
    sections.get(panel.section).push(charts.get(panel.id).root);
    if (panel.title === 'Throughput') sections.get(panel.section).push(partsCard(data.runs, view));
  }
  // Nothing is taken out and put back while it has the focus.
  const wanted = [...sections].map(([title, cards]) => `${title}:${cards.filter(Boolean).length}`).join();
  if (root.dataset.wanted !== wanted) {
    root.replaceChildren(...[...sections].flatMap(([title, cards]) => [element('h2', {}, title), element('div', { class: 'grid' }, cards)]));
    root.dataset.wanted = wanted;
  }
  for (const panel of panels) charts.get(panel.id).show(panel);
}

function showAxes() {
  const known = kAxes.filter((axis) => axisIsKnown(data.runs, axis.name));
  if (!known.some((axis) => axis.name === view.axis)) view.axis = 'step';
  const buttons = known.map((axis, i) => element('button', {
    type: 'button', role: 'radio', 'aria-checked': String(axis.name === view.axis), tabindex: axis.name === view.axis ? '0' : '-1', 'data-axis': axis.name,
    onclick: () => { view.axis = axis.name; view.zoom = null; showAxes(); byId('axis').querySelector('[tabindex="0"]').focus(); drawCharts(); },
    onkeydown: (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      buttons[(i + move + buttons.length) % buttons.length].click();
    },
  }, axis.title));
  byId('axis').replaceChildren(...buttons);
}

function showFooter() {
  const cut = data.runs.some((run) => Object.values(run.curves).some((curve) => curve.points > curve.values.length));
  byId('footer').replaceChildren(element('p', {}, `Made ${dateText(data.made)} by Tightloop ${data.version}. `,
    cut ? `Curves of more than ${wholeText(data.most_points)} points are thinned: of each stretch the lowest and the highest value are kept, so spikes stay. ` : '',
    'Time is that of the steps shown, without pauses; tokens are counted from the throughput.'));
}

function showAll() {
  data.runs.forEach((run, i) => { run.colour = kColours[i % kColours.length]; });
  const title = data.runs.length === 1 ? data.runs[0].name : `${data.runs.length} runs`;
  byId('title').textContent = title;
  document.title = `${data.runs.map((run) => run.name).join(', ')} · Training report`;
  showAxes();
  const changed = () => { drawCharts(); showEvents(data, view); showSamples(data, view); };
  showRuns(data, view, changed);
  showCharts();
  showEvents(data, view);
  showSamples(data, view);
  showSettings(data);
  showMachine(data);
  showFooter();
}

function listen() {
  const smoothing = byId('smoothing');
  smoothing.addEventListener('input', () => {
    view.smoothing = Number(smoothing.value);
    byId('smoothing-value').textContent = smoothing.value;
    redraw();
  });
  byId('marks').addEventListener('change', () => { view.marks = byId('marks').checked; redraw(); });
  byId('reset').addEventListener('click', () => { view.zoom = null; drawCharts(); });
  themeButton(byId('theme'));
}

/** While `tightloop report --live` serves the page: its data again, every few seconds. */
async function follow() {
  const live = byId('live');
  live.hidden = false;
  live.textContent = 'live';
  for (;;) {
    const running = data.runs.some((run) => ['running', 'elsewhere'].includes(run.state));
    await new Promise((resume) => setTimeout(resume, running ? 2000 : 5000));
    if (document.hidden) continue;
    try {
      const answer = await fetch(`data.json?${data.revision}`, { cache: 'no-store' });
      if (!answer.ok) throw new Error(answer.statusText);
      live.classList.remove('lost');
      live.textContent = running ? 'live' : 'live, nothing trains now';
      if (answer.status === 204) continue;  // nothing is new
      // What a reader has open stays open; a chart under the pointer is drawn anew at its next move.
      const fresh = await answer.json();
      const open = [...document.querySelectorAll('#settings details')].some((one) => one.open);
      data = fresh;
      showAll();
      if (open) document.querySelector('#settings details').open = true;
    } catch {
      live.classList.add('lost');
      live.textContent = 'connection lost, trying again';
    }
  }
}

listen();
showAll();
if (data.live) follow();
