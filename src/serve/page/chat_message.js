// One message of a conversation: what it says, what it thought, which tools it calls, and what it took.

const kNumber = new Intl.NumberFormat('en');
const secondsText = (seconds) => (seconds < 10 ? seconds.toFixed(2) : seconds.toFixed(0)) + ' s';

/** "132 tokens · 41.2 tokens/s · first after 0.18 s". The rate is that from the question to the last token: a browser may see many tokens at one moment. */
function statsText({ stats }) {
  if (!stats?.tokens) return '';
  const { tokens, counted, first, seconds } = stats, rate = tokens / seconds;
  const words = [`${counted ? 'about ' : ''}${kNumber.format(tokens)} token${tokens === 1 ? '' : 's'}`];
  if (Number.isFinite(rate)) words.push(`${rate < 100 ? rate.toFixed(1) : kNumber.format(Math.round(rate))} tokens/s`);
  if (first >= 0) words.push(`first after ${secondsText(first)}`);
  return words.join(' · ');
}

const kEnds = {
  length: 'Cut off: as many tokens as were asked for, or as fit',
  stopped: 'Stopped by you',
  cut: 'Broken off',
};

function prettyArguments(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

/** actions: {edit, again, result}, each of the message; null where it cannot be done. */
class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    const mine = message.role === 'user';
    this.thinkingText = element('div', { class: 'prose' });
    this.thinkingTitle = element('summary', {}, 'Thinking');
    this.thinking = element('details', { class: 'thinking', hidden: true }, this.thinkingTitle, this.thinkingText);
    this.text = element('div', { class: mine ? 'plain' : 'prose' });
    this.calls = element('div', { class: 'calls', hidden: true });
    this.waiting = element('p', { class: 'waiting', hidden: true }, element('span', { class: 'unseen' }, 'Waiting for the first token'));
    this.note = element('span', { class: 'note', hidden: true });
    this.stats = element('span', { class: 'stats' });
    this.buttons = element('span', { class: 'buttons' });
    this.root = element('article', { class: `message ${message.role}`, 'aria-label': mine ? 'You' : message.role === 'tool' ? 'Result of a tool' : message.model || 'The model' },
      element('h2', { class: 'unseen' }, mine ? 'You' : message.role === 'tool' ? 'Result of a tool' : 'Answer'),
      this.thinking, this.text, this.waiting, this.calls, element('footer', {}, this.buttons, this.note, this.stats));
    this.show(false);
  }

  /** What the message says now; `growing`: more of it is to come. */
  show(growing) {
    const { message } = this;
    if (message.role !== 'assistant') this.text.textContent = message.content;
    else {
      const { thinking, text, open } = partsOf(message, growing);
      this.thinking.hidden = !thinking;
      if (thinking) {
        const took = message.stats?.thought;
        const title = open ? 'Thinking …' : took ? `Thought for ${secondsText(took)}` : 'Thoughts';
        if (this.thinkingTitle.textContent !== title) this.thinkingTitle.textContent = title;
        showMarkdown(this.thinkingText, thinking);
      }
      showMarkdown(this.text, text);
      this.waiting.hidden = !growing || !!text || !!message.tool_calls?.length;
      this.waiting.classList.toggle('thinks', open);
      this.showCalls(growing);
    }
    this.root.setAttribute('aria-busy', String(growing));
    this.root.classList.toggle('growing', growing);
    if (!growing) this.showFoot();
  }

  showCalls(growing) {
    const calls = (this.message.tool_calls ?? []).filter((call) => isObject(call?.function));
    this.calls.hidden = !calls.length;
    const source = JSON.stringify([calls, growing]);
    if (!calls.length || this.calls.source === source) return;
    this.calls.source = source;
    this.calls.replaceChildren(...calls.map((call) => element('details', { class: 'call', open: true },
      element('summary', {}, 'Calls ', element('code', {}, String(call.function.name))),
      element('pre', { tabindex: '0', role: 'region', 'aria-label': 'Arguments' }, element('code', {}, prettyArguments(String(call.function.arguments)))),
      !growing && this.actions.result ? this.resultForm(call) : null)));
  }

  /** The page runs no tools: what one gave back is typed in. */
  resultForm(call) {
    const area = element('textarea', { rows: 2, 'aria-label': `What ${call.function.name} gave back`, placeholder: 'What it gave back' });
    return element('div', { class: 'result' }, area, element('button', { type: 'button', onclick: () => this.actions.result(call, area.value) }, 'Send the result'));
  }

  showFoot() {
    const { message, actions } = this, mine = message.role === 'user';
    const { thinking, text } = partsOf(message), lone = message.role === 'assistant' && thinking && !text.trim() && !message.tool_calls?.length;
    this.note.textContent = [lone ? 'No answer behind the thought' : '', kEnds[message.end] ?? ''].filter(Boolean).join('. ');
    this.note.hidden = !this.note.textContent;
    this.stats.textContent = statsText(message);
    const button = (name, help, action) => (action ? element('button', { type: 'button', class: 'quiet', title: help, onclick: action }, name) : null);
    this.buttons.replaceChildren(...[
      message.content ? copyButton(() => (mine ? message.content : partsOf(message).text), mine ? 'Copy the question' : 'Copy the answer') : null,
      button('Edit', 'Ask something else here; what follows is dropped', actions.edit),
      message.role === 'assistant' ? button('Regenerate', settings.seed === '' ? 'Another answer in place of this one' : 'With a seed the same answer comes again', actions.again)
        : button('Try again', 'Ask for an answer: there is none yet', actions.again),
    ].filter(Boolean));
  }

  /** A field in place of the text; `done(text)` when it is sent. */
  edit(done) {
    const area = element('textarea', { class: 'edited', 'aria-label': 'Edit the question', rows: 3 });
    area.value = this.message.content;
    const close = () => { form.replaceWith(this.text); this.showFoot(); this.buttons.querySelector('button')?.focus(); };
    const send = () => { if (area.value.trim()) done(area.value); };
    const form = element('div', { class: 'editing' }, area, element('div', { class: 'row' },
      element('button', { type: 'button', class: 'main', onclick: send }, 'Ask again'), element('button', { type: 'button', onclick: close }, 'Cancel'),
      element('span', { class: 'help' }, 'What follows is dropped')));
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { event.stopPropagation(); close(); }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    this.text.replaceWith(form);
    this.buttons.replaceChildren();
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
