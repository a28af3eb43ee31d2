// The list of conversations: choosing, deleting, taking them along.

const kDay = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' }), kClock = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const whenText = (time) => { const date = new Date(time); return date.toDateString() === new Date().toDateString() ? kClock.format(date) : kDay.format(date); };

function showList() {
  const list = conversations.list(), open = talk.conversation.id;
  byId('list').replaceChildren(...list.map((one) => element('li', {},
    element('button', { type: 'button', class: 'open', 'aria-current': one.id === open ? 'true' : null, onclick: () => choose(one.id) },
      element('span', { class: 'name' }, String(one.title)), element('span', { class: 'help' }, whenText(one.changed))),
    element('button', { type: 'button', class: 'quiet delete', 'aria-label': `Delete “${one.title}”`, title: 'Delete', onclick: () => deleteConversation(one.id) }, '×'))));
  byId('list-empty').hidden = !!list.length;
  byId('export').disabled = !talk.conversation.messages.length;
  byId('export-all').disabled = !list.length;
}

function choose(id) {
  const found = conversations.load(id);
  if (!found) { conversations.remove(id); showList(); return; }
  openConversation(found);
  closeSide();
  byId('question').focus();
}

function newConversation() {
  openConversation(conversations.create());
  closeSide();
  byId('question').focus();
}

function deleteConversation(id) {
  const gone = id === talk.conversation.id ? talk.conversation : conversations.load(id), at = conversations.list().findIndex((one) => one.id === id);
  if (id === talk.conversation.id) openConversation(conversations.create());
  conversations.remove(id);
  showList();
  (byId('list').querySelectorAll('.delete')[Math.max(0, at - 1)] ?? byId('new')).focus();
  if (gone) say(`Deleted “${gone.title}”.`, () => { conversations.save(gone); showList(); });
}

function exportThis() {
  download(`${fileName(talk.conversation)}.jsonl`, `${trainingLine(talk.conversation)}\n`);
}
function exportAll() {
  const all = conversations.list().map((one) => conversations.load(one.id)).filter((one) => one?.messages.length);
  download('conversations.jsonl', all.map((one) => `${trainingLine(one)}\n`).join(''));
}
const fileName = ({ title }) => title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) || 'conversation';

// On a narrow screen the list lies over the page.
const narrow = matchMedia('(max-width: 860px)');
function openSide() {
  byId('side').classList.add('open');
  byId('shade').hidden = false;
  byId('page').inert = true;
  byId('side-open').setAttribute('aria-expanded', 'true');
  byId('new').focus();
}
function closeSide() {
  if (!byId('side').classList.contains('open')) return;
  byId('side').classList.remove('open');
  byId('shade').hidden = true;
  byId('page').inert = false;
  byId('side-open').setAttribute('aria-expanded', 'false');
  byId('side-open').focus();
}
