// Models and settings.

const kFields = ['system', 'tools', 'temperature', 'top_p', 'top_k', 'max_tokens', 'seed', 'thinking'];
const kTabs = { chat: { kinds: ['chat', 'text'], setting: 'model' }, translate: { kinds: ['translation'], setting: 'translator' }, losses: { kinds: ['chat', 'text'], setting: 'scorer' } };
let models = [];

const modelsFor = (tab) => models.filter((model) => kTabs[tab].kinds.includes(model.kind));
/** The tools that a text of JSON lists; null: it is none. */
function toolsIn(text) {
  if (!text.trim()) return [];
  try {
    const tools = JSON.parse(text);
    return Array.isArray(tools) ? tools : null;
  } catch {
    return null;
  }
}

/** The model that a tab asks: the one that was chosen, where the server still has it. */
function chosenModel(tab) {
  const fitting = modelsFor(tab);
  return fitting.find((model) => model.id === settings[kTabs[tab].setting]) ?? fitting[0] ?? null;
}

async function loadModels() {
  try {
    const { data } = await askForJson('v1/models');
    models = (Array.isArray(data) ? data : []).filter((one) => isObject(one) && typeof one.id === 'string')
      .map((one) => ({ ...one, kind: ['chat', 'text', 'translation'].includes(one.kind) ? one.kind : 'chat' }));
    showTabs();
    return true;
  } catch (problem) {
    showTabs();
    showProblem(problem, loadModels);
    return false;
  }
}

function showModels() {
  const fitting = modelsFor(settings.tab), chosen = chosenModel(settings.tab), select = byId('model');
  select.replaceChildren(...(fitting.length ? fitting : [{ id: '', name: 'no model' }]).map((model) => element('option', { value: model.id, selected: model === chosen }, model.name ?? model.id)));
  select.disabled = fitting.length < 2;
  const chat = chosenModel('chat'), text = chat?.kind === 'text';
  byId('question').placeholder = text ? 'The beginning of a text' : 'Ask something';
  byId('welcome-help').textContent = text ? 'This model has no chat template: it goes on with the text that you give it.' : 'Answers stay in this browser; nothing is sent but to this server.';
  byId('context').textContent = chat?.max_model_len > 0 ? `Context: ${kNumber.format(chat.max_model_len)} tokens` : '';
  byId('thinking-field').hidden = chat?.thinking === false;
  byId('send').disabled = !chat && !!models.length;
}

function listenToSettings() {
  const dialog = byId('settings'), field = (name) => byId(`set-${name}`);
  const check = (input) => {
    if (input.id === 'set-tools') input.setCustomValidity(toolsIn(input.value) === null ? 'a list of tools, as JSON, is wanted' : '');
    const good = input.validity.valid;
    input.setAttribute('aria-invalid', String(!good));
    const wrong = kFields.map(field).find((one) => one.getAttribute('aria-invalid') === 'true');
    byId('settings-problem').textContent = wrong ? `${wrong.labels[0].firstChild.textContent.trim()}: ${wrong.validationMessage}` : '';
    return good;
  };
  /** What is not valid is not kept: whoever wants to leave is shown it first. */
  const mayClose = () => {
    const wrong = kFields.map(field).find((one) => !check(one));
    if (!wrong) return true;
    if (wrong.closest('details')) wrong.closest('details').open = true;
    wrong.focus();
    return false;
  };
  for (const name of kFields)
    field(name).addEventListener('input', () => {
      if (!check(field(name))) return;
      settings[name] = field(name).value;
      if (!saveSettings()) byId('settings-problem').textContent = 'This browser keeps them only until the page closes.';
    });
  field('key').addEventListener('change', () => { setApiKey(field('key').value.trim()); clearProblem(); loadModels(); });
  byId('settings-open').addEventListener('click', () => {
    for (const name of kFields) { field(name).value = settings[name]; check(field(name)); }
    field('key').value = apiKey();
    dialog.showModal();
  });
  const close = () => { if (mayClose()) dialog.close(); };
  byId('settings-close').addEventListener('click', close);
  dialog.addEventListener('click', (event) => { if (event.target === dialog) close(); });
  dialog.addEventListener('cancel', (event) => { if (!mayClose()) event.preventDefault(); });
  dialog.addEventListener('close', () => talk.views.forEach((view) => view.showFoot()));
  byId('settings-reset').addEventListener('click', () => {
    for (const name of kFields) { settings[name] = kDefaults[name]; field(name).value = settings[name]; check(field(name)); }
    saveSettings();
  });
  byId('model').addEventListener('change', () => {
    settings[kTabs[settings.tab].setting] = byId('model').value;
    saveSettings();
    showModels();
  });
}

/** Tabs for what the models can do; the one that was open last, where there still is such a model. */
function showTabs() {
  const known = Object.keys(kTabs).filter((tab) => modelsFor(tab).length), shown = known.length ? known : ['chat'];
  if (!shown.includes(settings.tab)) settings.tab = shown[0];
  byId('tabs').hidden = shown.length < 2;
  for (const tab of Object.keys(kTabs)) {
    const button = byId(`tab-${tab}`), open = tab === settings.tab;
    button.hidden = !shown.includes(tab);
    button.setAttribute('aria-selected', String(open));
    button.tabIndex = open ? 0 : -1;
    byId(`panel-${tab}`).hidden = !open;
  }
  byId('page').dataset.tab = settings.tab;
  showModels();
}

function listenToTabs() {
  byId('tabs').addEventListener('click', (event) => {
    const tab = event.target.closest('[role="tab"]')?.dataset.tab;
    if (!tab) return;
    settings.tab = tab;
    saveSettings();
    clearProblem();
    showTabs();
  });
  byId('tabs').addEventListener('keydown', (event) => {
    const shown = [...byId('tabs').children].filter((button) => !button.hidden), at = shown.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = shown[(to + shown.length) % shown.length];
    next.click();
    next.focus();
  });
}
