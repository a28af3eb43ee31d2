// What went wrong, in the conversation; and short notes at the lower edge.

let countdown = 0;

function clearProblem() {
  clearInterval(countdown);
  byId('problem').replaceChildren();
  byId('problem').hidden = true;
}

const kAdvice = {
  long: 'Begin a new conversation, edit an earlier question, or ask for fewer tokens.',
  gone: 'The conversation is kept in this browser.',
  cut: 'What had come is kept.',
};

/** The field for a key; `done()` when one was given. */
function keyForm(done) {
  const field = element('input', { type: 'password', autocomplete: 'off', 'aria-label': 'Key of the server', placeholder: 'Key' });
  const use = () => { if (field.value.trim()) { setApiKey(field.value.trim()); done(); } };
  field.addEventListener('keydown', (event) => { if (event.key === 'Enter') { event.preventDefault(); use(); } });
  return [field, element('button', { type: 'button', class: 'main', onclick: use }, 'Use this key')];
}

/** Says what went wrong and offers what helps. `retry` is what to do again. */
function showProblem(problem, retry = again) {
  clearProblem();
  const words = element('p', {}, problem.message), advice = element('p', { class: 'help' }, kAdvice[problem.kind] ?? '');
  const row = element('div', { class: 'row' });
  const tryAgain = element('button', { type: 'button', onclick: () => { clearProblem(); retry(); } }, 'Try again');
  if (problem.kind === 'key') row.append(...keyForm(async () => { clearProblem(); if (await loadModels() && retry !== loadModels) retry(); }));
  else if (problem.kind === 'long') row.append(element('button', { type: 'button', onclick: newConversation }, 'New conversation'));
  else row.append(tryAgain);
  if (problem.kind === 'busy') {
    const until = Date.now() + problem.wait * 1000;
    const tell = () => {
      const left = Math.ceil((until - Date.now()) / 1000);
      advice.textContent = left > 0 ? `Try again in ${left} s.` : 'It is worth trying again now.';
      if (left <= 0) clearInterval(countdown);
    };
    countdown = setInterval(tell, 500);
    tell();
  }
  // Where one looks: above the question, or below the button that was pressed.
  if (settings.tab === 'chat') document.querySelector('.composer').before(byId('problem'));
  else document.querySelector(`#panel-${settings.tab} > .row`).after(byId('problem'));
  byId('problem').append(words, advice, row);
  byId('problem').hidden = false;
  byId('problem').scrollIntoView({ block: 'nearest' });
  if (problem.kind === 'key') row.querySelector('input').focus();
}

let noteEnds = 0;
/** A note for a while; `undo`, where it can be taken back. */
function say(text, undo = null) {
  const note = byId('note'), hide = () => { note.hidden = true; note.replaceChildren(); };
  clearTimeout(noteEnds);
  note.replaceChildren(element('span', {}, text), ...(undo ? [element('button', { type: 'button', onclick: () => { hide(); undo(); } }, 'Undo')] : []),
    element('button', { type: 'button', 'aria-label': 'Close this note', onclick: hide }, '×'));
  note.hidden = false;
  noteEnds = setTimeout(hide, undo ? 12000 : 8000);
}
