// The page begins here: the composer, keys, the theme, and what was open when it was closed.

function showRunning() {
  const running = !!talk.running;
  byId('send').hidden = running;
  byId('stop').hidden = !running;
}

/** As high as what is in it, up to what the style allows. */
function fitHeight(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + 2}px`;
}

function submit() {
  const question = byId('question'), text = question.value;
  if (!text.trim() || talk.running || byId('send').disabled) return;
  question.value = '';
  fitHeight(question);
  send(text);
}

function listenToComposer() {
  const question = byId('question');
  question.addEventListener('input', () => fitHeight(question));
  question.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  byId('send').addEventListener('click', submit);
  byId('stop').addEventListener('click', () => { stop(); question.focus(); });
  byId('new').addEventListener('click', newConversation);
  byId('export').addEventListener('click', exportThis);
  byId('export-all').addEventListener('click', exportAll);
  byId('side-open').addEventListener('click', openSide);
  byId('side-close').addEventListener('click', closeSide);
  byId('shade').addEventListener('click', closeSide);
  narrow.addEventListener('change', closeSide);
  byId('down').addEventListener('click', () => { scrollDown(); question.focus(); });
  byId('scroller').addEventListener('scroll', showEdge, { passive: true });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || document.querySelector('dialog[open]')) return;
    if (byId('side').classList.contains('open')) closeSide();
    else if (settings.tab === 'chat' && talk.running) { stop(); question.focus(); }
    else { translating.controller?.abort(); scoring.controller?.abort(); }
  });
  // What has come of an answer is kept when the page closes; other tabs may have written meanwhile.
  window.addEventListener('pagehide', stop);
  window.addEventListener('storage', showList);
}

themeButton(byId('theme'), settings.theme, (theme) => { settings.theme = theme; saveSettings(); });
listenToTabs();
listenToSettings();
listenToComposer();
listenToTranslation();
listenToLosses();
openConversation(conversations.load(kept.read('open', '')) ?? conversations.create());
showTabs();
loadModels();
byId('question').focus();
