// Translation: a text line by line, beside what the model makes of it.

const translating = { controller: null, shown: '' };

async function translate() {
  const text = byId('source').value.replace(/\r\n?/g, '\n').replace(/\n$/, ''), lines = text.split('\n');
  const model = chosenModel('translate'), width = Math.max(1, Math.round(Number(byId('beam').value)) || 5);
  translating.controller?.abort();
  if (!text.trim() || !model) return;
  const controller = (translating.controller = new AbortController());
  clearProblem();
  byId('translate').textContent = 'Stop';
  byId('translations').setAttribute('aria-busy', 'true');
  try {
    const answer = await askForJson('translate', { model: model.id, text: lines, beam: width, nbest: Math.min(3, width) }, controller.signal);
    showTranslations(lines, Array.isArray(answer?.translations) ? answer.translations : []);
  } catch (problem) {
    if (problem.kind !== 'stopped') showProblem(problem, translate);
  }
  if (translating.controller !== controller) return;
  translating.controller = null;
  byId('translate').textContent = 'Translate';
  byId('translations').setAttribute('aria-busy', 'false');
}

function showTranslations(lines, found) {
  const scoreText = (score) => (Number.isFinite(score) ? score.toFixed(2) : '');
  translating.shown = found.map((one) => String(one?.text ?? '')).join('\n');
  const cell = (one) => {
    const others = Array.isArray(one?.others) ? one.others : [];
    return [element('p', {}, String(one?.text ?? '')), others.length ? element('details', {}, element('summary', {}, `${others.length} more`),
      element('ol', {}, others.map((other) => element('li', {}, String(other.text), ' ', element('span', { class: 'help' }, scoreText(other.score)))))) : null,
      one?.cut ? element('p', { class: 'help' }, 'Only the beginning: the line is longer than what the model reads') : null];
  };
  byId('translations').replaceChildren(element('table', {},
    element('caption', { class: 'unseen' }, 'Translations'),
    element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'Text'), element('th', { scope: 'col' }, 'Translation'), element('th', { scope: 'col', class: 'right', title: 'What the beam search ranks by: higher is better' }, 'Score'))),
    element('tbody', {}, lines.map((line, i) => element('tr', {}, element('td', { 'data-label': 'Text' }, line), element('td', { 'data-label': 'Translation' }, cell(found[i])),
      element('td', { class: 'right', 'data-label': 'Score' }, line.trim() ? scoreText(found[i]?.score) : ''))))));
  byId('translations').hidden = false;
  byId('translations-copy').hidden = false;
}

function listenToTranslation() {
  byId('translate').addEventListener('click', () => (translating.controller ? translating.controller.abort() : translate()));
  byId('beam').value = settings.beam;
  byId('beam').addEventListener('change', () => { settings.beam = byId('beam').value; saveSettings(); });
  byId('source').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); translate(); }
  });
  byId('translations-copy').append(copyButton(() => translating.shown, 'Copy the translations'));
}
