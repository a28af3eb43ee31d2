// The loss of each token of a text, as a heat map: one hue that gets darker, for all kinds of colour vision.

const kHottest = 8;  // nats: a probability of 1 in 3,000. Fixed, so that texts can be compared
const kSteps = [0, 2, 4, 6, 8];
const scoring = { controller: null, tokens: [], shown: [] };

async function score() {
  const text = byId('scored').value, model = chosenModel('losses');
  scoring.controller?.abort();
  if (!text || !model) return;
  const controller = (scoring.controller = new AbortController());
  clearProblem();
  byId('score').textContent = 'Stop';
  byId('heat').setAttribute('aria-busy', 'true');
  try {
    showLosses(await askForJson('v1/score', { model: model.id, text }, controller.signal));
  } catch (problem) {
    if (problem.kind !== 'stopped') showProblem(problem, score);
  }
  if (scoring.controller !== controller) return;
  scoring.controller = null;
  byId('score').textContent = 'Show losses';
  byId('heat').setAttribute('aria-busy', 'false');
}

/** Tokens that are parts of one character stand together: {text, tokens}; all others alone. */
function byCharacter(tokens) {
  const shown = [];
  let bytes = [];
  for (const token of tokens) {
    const parts = Array.isArray(token.bytes) ? token.bytes : null;
    if (!parts || !bytes.length) shown.push({ text: String(token.text), tokens: [] });
    shown.at(-1).tokens.push(token);
    bytes = parts ? [...bytes, ...parts] : [];
    if (!parts) continue;
    shown.at(-1).text = new TextDecoder().decode(new Uint8Array(bytes));
    if (!shown.at(-1).text.includes('\ufffd')) bytes = [];
  }
  return shown.map((one) => { const known = one.tokens.map(({ loss }) => loss).filter(Number.isFinite); return { ...one, loss: known.length ? known.reduce((sum, loss) => sum + loss) : null }; });
}

/** Spaces and ends of lines, so that they can be seen; what has no text of its own is a dot. */
const visible = (text) => (text === '' ? '·' : text.replaceAll('\n', '⏎\n').replaceAll('\t', '⇥\t'));
const quoted = (text) => `“${String(text).replaceAll('\n', '⏎').replaceAll('\t', '⇥').replaceAll(' ', '␣')}”`;

function percentText(loss) {
  const percent = Math.exp(-loss) * 100;
  return `${percent >= 10 ? percent.toFixed(0) : percent >= 0.01 ? percent.toPrecision(2) : 'under 0.01'} %`;
}

function showLosses({ tokens, mean_loss, bits_per_byte }) {
  scoring.tokens = Array.isArray(tokens) ? tokens : [];
  const tile = (name, value, help) => element('div', {}, element('dt', { title: help }, name), element('dd', {}, value));
  byId('loss-numbers').replaceChildren(
    tile('Tokens', kNumber.format(scoring.tokens.length), 'Pieces that the tokenizer makes of the text'),
    tile('Mean loss', Number.isFinite(mean_loss) ? mean_loss.toFixed(3) : '–', 'Nats for each token'),
    tile('Perplexity', Number.isFinite(mean_loss) ? Math.exp(mean_loss).toPrecision(3) : '–', 'e to the mean loss: among so many tokens the model seems to choose'),
    tile('Bits per byte', Number.isFinite(bits_per_byte) ? bits_per_byte.toFixed(3) : '–', 'Can be compared between tokenizers'));
  scoring.shown = byCharacter(scoring.tokens);
  byId('heat').replaceChildren(...scoring.shown.map(({ text, loss }, i) => {
    const known = Number.isFinite(loss), made = element('span', { class: known ? 'token' : 'token unknown', id: `token-${i}`, role: 'option', 'aria-selected': 'false', 'data-at': i, 'aria-label': describe(i) }, visible(text));
    if (known) made.style.setProperty('--heat', `${((Math.max(0, Math.min(loss, kHottest)) / kHottest) * 100).toFixed(1)}%`);
    return made;
  }));
  byId('losses-result').hidden = false;
  hideTip();
}

const lossesText = (tokens) => tokens.map(({ loss }) => (Number.isFinite(loss) ? loss.toFixed(3) : 'none')).join(' + ');

function describe(i) {
  const { text, tokens } = scoring.shown[i], { id, loss, rank, best } = tokens[0];
  if (tokens.length > 1) return `${quoted(text)}, ${tokens.length} tokens, ids ${tokens.map((one) => one.id).join(', ')}: losses ${lossesText(tokens)}`;
  if (!Number.isFinite(loss)) return `${quoted(text)}, id ${id}: nothing stands before it, so there is no loss`;
  return `${quoted(text)}, id ${id}: loss ${loss.toFixed(3)}, probability ${percentText(loss)}, ${rank === 1 ? 'the likeliest' : `rank ${kNumber.format(rank)}, likeliest ${quoted(best)}`}`;
}

function showTip(i) {
  const token = byId('heat').children[i], { text, tokens } = scoring.shown[i], { id, loss, rank, best } = tokens[0], tip = byId('tip');
  const line = (name, value) => element('div', {}, name, element('b', {}, value));
  byId('heat').querySelector('[aria-selected="true"]')?.setAttribute('aria-selected', 'false');
  token.setAttribute('aria-selected', 'true');
  byId('heat').setAttribute('aria-activedescendant', token.id);
  if (tokens.length > 1) tip.replaceChildren(line(`${tokens.length} tokens`, quoted(text)), line('Ids', tokens.map((one) => one.id).join(', ')), line('Losses', lossesText(tokens)));
  else tip.replaceChildren(line('Token', quoted(text)), line('Id', String(id)),
    ...(Number.isFinite(loss) ? [line('Loss', loss.toFixed(3)), line('Probability', percentText(loss)), line('Rank', kNumber.format(rank)), line('Likeliest', quoted(best))] : [line('Loss', 'none: nothing before it')]));
  tip.hidden = false;
  const around = byId('heat').getBoundingClientRect(), box = token.getClientRects()[0] ?? around;
  tip.style.left = `${Math.max(0, Math.min(box.left - around.left, around.width - tip.offsetWidth))}px`;
  const below = box.bottom + 6 + tip.offsetHeight <= innerHeight;
  tip.style.top = `${(below ? box.bottom + 6 : box.top - 6 - tip.offsetHeight) - around.top}px`;
}
function hideTip() {
  byId('tip').hidden = true;
  byId('heat').removeAttribute('aria-activedescendant');
  byId('heat').querySelector('[aria-selected="true"]')?.setAttribute('aria-selected', 'false');
}

function listenToLosses() {
  const heat = byId('heat'), at = () => Number(heat.querySelector('[aria-selected="true"]')?.dataset.at ?? -1);
  byId('score').addEventListener('click', () => (scoring.controller ? scoring.controller.abort() : score()));
  byId('scored').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); score(); }
  });
  const point = (event) => { const i = event.target.closest('.token')?.dataset.at; if (i !== undefined) showTip(Number(i)); };
  heat.addEventListener('pointerover', point);
  heat.addEventListener('click', point);
  heat.addEventListener('pointerleave', () => { if (document.activeElement !== heat) hideTip(); });
  heat.addEventListener('focus', () => { if (at() < 0 && scoring.shown.length) showTip(0); });
  heat.addEventListener('blur', hideTip);
  heat.addEventListener('keydown', (event) => {
    const last = scoring.shown.length - 1, to = { ArrowRight: at() + 1, ArrowDown: at() + 1, ArrowLeft: at() - 1, ArrowUp: at() - 1, Home: 0, End: last, PageDown: at() + 20, PageUp: at() - 20 }[event.key];
    if (event.key === 'Escape') hideTip();
    if (to === undefined || last < 0) return;
    event.preventDefault();
    showTip(Math.max(0, Math.min(to, last)));
    heat.children[at()].scrollIntoView({ block: 'nearest' });
  });
  byId('legend').replaceChildren(...kSteps.map((loss) => {
    const made = element('span', { class: 'token' }, loss === kHottest ? `${loss} and more` : String(loss));
    made.style.setProperty('--heat', `${(loss / kHottest) * 100}%`);
    return made;
  }));
}
