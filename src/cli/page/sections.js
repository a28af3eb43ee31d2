// What stands around the charts: the runs, events, samples, settings, the machine.

const kDateFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const dateText = (seconds) => (seconds > 0 ? kDateFormat.format(new Date(seconds * 1000)) : '');
const lastOf = (run, metric) => (Object.hasOwn(run.curves, metric) && run.curves[metric].values.length ? run.curves[metric].values.at(-1) : null);

function section(id, title, ...content) {
  document.getElementById(id).replaceChildren(...(content.length ? [element('h2', {}, title), ...content] : []));
}

function tile(name, value, more) {
  return value == null ? null : element('div', {}, element('dt', {}, name), element('dd', {}, value, more ? element('small', {}, more) : null));
}

/** The best one, by train.best_by: "0.1811 at step 450", "accuracy 0.412 at step 450". */
function bestEvaluation(run) {
  const by = (run.settings['train.best_by'] ?? 'loss').replaceAll('"', ''), metric = `eval/${by}`;  // a text of YAML
  const curve = Object.hasOwn(run.curves, metric) ? run.curves[metric] : null;
  if (!curve || !curve.values.length) return '';
  // Evaluations on other held-out data, before a resume that said so, are not compared.
  const counts = (at) => Number.isFinite(curve.values[at]) && curve.steps[at] > (run.best_after ?? -1);
  const better = (one, other) => (by === 'loss' ? curve.values[one] < curve.values[other] : curve.values[one] > curve.values[other]);
  let at = -1;
  for (let i = 0; i < curve.values.length; ++i) if (counts(i) && (at < 0 || better(i, at))) at = i;
  if (at < 0) return '';
  return `best ${by === 'loss' ? '' : by + ' '}${valueText(curve.values[at])} at step ${wholeText(curve.steps[at])}`;
}

function runCard(run, several, view, redraw) {
  const done = run.steps ? Math.min(1, run.step / run.steps) : 0;
  const loss = lastOf(run, 'training/loss'), best = bestEvaluation(run), held = lastOf(run, 'eval/loss'), mfu = lastOf(run, 'perf/mfu');
  const speed = lastOf(run, 'perf/tokens_per_second'), seconds = run.clock.seconds?.at(-1), tokens = run.clock.tokens?.at(-1), memory = lastOf(run, 'memory/peak_gib');
  const left = run.state === 'running' && seconds && run.step && run.steps > run.step ? (seconds / run.step) * (run.steps - run.step) : 0;
  const name = [element('span', { class: 'swatch', 'aria-hidden': 'true' }), element('h3', {}, run.name)];
  const box = element('input', { type: 'checkbox', 'aria-label': `Show ${run.name}`, checked: !view.hidden.has(run.name), onchange: () => {
    if (box.checked) view.hidden.delete(run.name); else view.hidden.add(run.name);
    redraw();
  } });
  return element('article', { class: 'card run', colour: run.colour, 'data-run': run.name },
    element('div', { class: 'run-head' }, several ? element('label', {}, box, name) : name,
      element('span', { class: `state ${run.state}`, title: run.state_help }, run.state),
      element('span', { class: 'help' }, [run.model, run.machine?.device].filter((text) => typeof text === 'string').join(' · '))),
    element('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Steps done', 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': Math.round(done * 100) }, (() => {
      const bar = element('div');
      bar.style.width = `${done * 100}%`;
      return bar;
    })()),
    element('dl', { class: 'tiles' },
      tile('Step', wholeText(run.step), run.steps ? `of ${wholeText(run.steps)}` : 'so far'),
      tile('Training loss', loss == null ? null : valueText(loss)),
      tile('Held-out loss', held == null ? null : valueText(held), best),
      tile('Tokens per second', speed == null ? null : countText(speed)),
      tile('MFU', mfu == null ? null : valueText(mfu, 'fraction')),
      tile('Peak memory', memory ? valueText(memory, 'gib') : null),
      tile('Tokens', tokens == null ? null : countText(tokens)),
      tile('Trained for', seconds == null ? null : secondsText(seconds), left ? `about ${secondsText(left)} left` : '')));
}

function showRuns(data, view, redraw) {
  document.getElementById('runs').replaceChildren(...data.runs.map((run) => runCard(run, data.runs.length > 1, view, redraw)));
  const notes = data.runs.flatMap((run) => run.notes.map((note) => (data.runs.length > 1 ? `${run.name}: ${note}` : note)));
  document.getElementById('notes').replaceChildren(...(notes.length ? [element('ul', { class: 'notes' }, notes.map((note) => element('li', {}, note)))] : []));
}

/** The bar of a step's time, by run. */
function partsCard(runs, view) {
  const shown = runs.filter((run) => !view.hidden.has(run.name)).map((run) => [run, partsOf(run, view)]).filter(([, parts]) => parts.length);
  if (!shown.length) return null;
  const several = runs.length > 1;
  const wholeOf = (parts) => parts.reduce((sum, part) => sum + part.seconds, 0);
  const text = (part, whole) => `${part.label} ${valueText(part.seconds, 'seconds')} (${part.seconds < whole / 200 ? 'under 1' : Math.round((part.seconds / whole) * 100)} %)`;
  return element('article', { class: 'card chart', 'data-panel': 'parts' },
    element('h3', {}, 'Where a step’s time goes'),
    element('p', { class: 'help' }, view.zoom ? 'Mean over the steps that are shown' : 'Mean over all steps'),
    element('div', { class: 'parts' }, shown.map(([run, parts]) => {
      const whole = wholeOf(parts);
      return element('div', {}, several ? element('p', { class: 'help' }, `${run.name}, ${valueText(whole, 'seconds')}`) : null,
        element('div', { class: 'stack', role: 'img', 'aria-label': parts.map((part) => text(part, whole)).join(', ') }, parts.map((part) => {
          const bar = element('div', { colour: part.colour, title: text(part, whole), 'data-part': part.label, 'data-seconds': part.seconds });
          bar.style.flexGrow = part.seconds / whole;
          return bar;
        })));
    })),
    // Of several runs the legend has names alone: a bar says its numbers where it is pointed at.
    element('ul', { class: 'legend' }, shown[0][1].map((part) => element('li', {}, element('span', { class: 'swatch', colour: part.colour, 'aria-hidden': 'true' }), several ? part.label : text(part, wholeOf(shown[0][1]))))));
}

function showEvents(data, view) {
  const runs = data.runs.filter((run) => !view.hidden.has(run.name)), several = data.runs.length > 1;
  const all = runs.flatMap((run) => run.events.map((event) => ({ ...event, run }))).sort((a, b) => b.time - a.time);
  const kinds = [...new Set(all.map((event) => event.event))].sort();
  if (!all.length) return section('events', 'Events', element('p', { class: 'empty' }, element('strong', {}, 'No events'), 'Starts, saves, skipped steps and stops of a run are listed here.'));
  const counts = new Map(kinds.map((kind) => [kind, all.filter((event) => event.event === kind).length]));
  const body = element('tbody');
  const fill = () => {
    const shown = all.filter((event) => !view.eventKind || event.event === view.eventKind).slice(0, 300);
    body.replaceChildren(...shown.map((event) => element('tr', {},
      element('td', { class: 'number' }, wholeText(event.step)),
      element('td', { class: 'kind' + (kBadEvents.includes(event.event) ? ' bad' : '') }, event.event.replaceAll('_', ' ')),
      several ? element('td', {}, event.run.name) : null,
      element('td', {}, event.text), element('td', { class: 'muted' }, dateText(event.time)))));
  };
  const pick = element('select', { 'aria-label': 'Which events', onchange: () => { view.eventKind = pick.value; fill(); } },
    element('option', { value: '' }, `all (${all.length})`),
    kinds.map((kind) => element('option', { value: kind, selected: view.eventKind === kind }, `${kind.replaceAll('_', ' ')} (${counts.get(kind)})`)));
  fill();
  section('events', 'Events', element('div', { class: 'pick' }, pick, all.length > 300 ? element('span', { class: 'help' }, 'The newest 300 of a kind are listed.') : null),
    element('div', { class: 'scroll card', tabindex: '0', role: 'region', 'aria-label': 'Events' }, element('table', {},
      element('thead', {}, element('tr', {}, ['step', 'event', several ? 'run' : null, 'what', 'when'].filter(Boolean).map((name) => element('th', { scope: 'col', class: name === 'step' ? 'number' : null }, name)))), body)));
}

function showSamples(data, view) {
  const runs = data.runs.filter((run) => !view.hidden.has(run.name));
  const steps = [...new Set(runs.flatMap((run) => run.samples.map((sample) => sample.step)))].sort((a, b) => a - b);
  if (!steps.length) return section('samples', 'Samples', element('p', { class: 'empty' }, element('strong', {}, 'No samples'), 'What the model writes during training is shown here, step by step.'));
  const cards = element('div', { class: 'grid' }), label = element('output');
  const slider = element('input', { type: 'range', min: 0, max: steps.length - 1, 'aria-label': 'Step of the samples', oninput: () => { view.sampleStep = Number(slider.value) === steps.length - 1 ? null : steps[slider.value]; fill(); } });
  const fill = () => {
    const at = view.sampleStep == null ? steps.length - 1 : Math.max(0, steps.indexOf(view.sampleStep));
    slider.value = at;
    label.textContent = `step ${wholeText(steps[at])}`;
    slider.setAttribute('aria-valuetext', label.textContent);
    cards.replaceChildren(...runs.flatMap((run) => run.samples.filter((sample) => sample.step === steps[at]).map((sample) => element('article', { class: 'card', colour: run.colour },
      element('div', { class: 'sample-head' }, data.runs.length > 1 ? [element('span', { class: 'swatch', 'aria-hidden': 'true' }), run.name, ' · '] : null, sample.kind || 'sample'),
      element('p', { class: 'sample' }, element('span', { class: 'prompt' }, sample.prompt || ''), sample.kind === 'continuation' ? '' : '\n', element('span', { class: 'said' }, sample.text || '')),
      sample.reference != null ? element('p', { class: 'sample' }, element('span', { class: 'prompt' }, `Reference: ${sample.reference}`)) : null))));
  };
  fill();
  section('samples', 'Samples', element('div', { class: 'pick' }, slider, label), cards);
}

function settingsTable(runs, keys) {
  return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Settings' }, element('table', {},
    element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'setting'), runs.map((run) => element('th', { scope: 'col' }, runs.length > 1 ? run.name : 'value')))),
    element('tbody', {}, keys.map((key) => element('tr', { 'data-key': key }, element('th', { scope: 'row' }, key), runs.map((run) => element('td', { class: 'value' }, Object.hasOwn(run.settings, key) ? run.settings[key] : '(absent)')))))));
}

function showSettings(data) {
  const { runs } = data;
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].sort();
  if (!keys.length) return section('settings', 'Settings', element('p', { class: 'empty' }, element('strong', {}, 'No settings'), 'config.yaml of the run has none that can be read.'));
  const different = keys.filter((key) => new Set(runs.map((run) => run.settings[key])).size > 1);
  const all = element('details', {}, element('summary', {}, `All ${keys.length} settings`));
  all.addEventListener('toggle', () => {
    if (all.open && all.children.length === 1) {
      const table = settingsTable(runs, keys);
      const search = element('input', { type: 'search', placeholder: 'Find a setting', 'aria-label': 'Find a setting', oninput: () => {
        for (const row of table.querySelectorAll('tbody tr')) row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase());
      } });
      all.append(element('div', { class: 'pick' }, search), table);
    }
  });
  const differences = runs.length < 2 ? null : element('div', { id: 'differences' },
    element('p', { class: 'help' }, different.length ? `${different.length} of ${keys.length} settings differ between these runs.` : 'All settings are equal.'),
    different.length ? settingsTable(runs, different) : null);
  section('settings', 'Settings', element('div', { class: 'card' }, differences, all));
}

function showMachine(data) {
  const flat = (value, name = '') => (value && typeof value === 'object' && !Array.isArray(value)
    ? Object.entries(value).flatMap(([key, part]) => flat(part, name ? `${name} ${key}` : key)) : [[name, Array.isArray(value) ? value.join(', ') : String(value)]]);
  const cards = data.runs.filter((run) => run.machine).map((run) => element('article', { class: 'card' },
    data.runs.length > 1 ? element('h3', {}, run.name) : null,
    element('table', {}, element('tbody', {}, [...flat(run.machine), ...(run.holder ? [['trained now by', run.holder]] : []), ['folder', run.folder]].filter(([, value]) => value).map(([name, value]) =>
      element('tr', {}, element('th', { scope: 'row' }, name.replaceAll('_', ' ')), element('td', {}, value)))))));
  section('machine', 'Machine', ...(cards.length ? [element('div', { class: 'grid' }, cards)] : []));
}
