// The conversation in view: asking, the answer as it grows, stopping, asking anew.

const byId = (id) => document.getElementById(id);
/** `views` are those of the messages, in their order; the growing answer is in `running` until it is done. */
const talk = { conversation: conversations.create(), views: [], running: null };

/** Sentences of the growing answer, for those who listen: each once, when it is whole. */
const speaker = {
  said: 0,
  begin() { this.said = 0; },
  follow(text, whole) {
    const end = whole ? text.length : Math.max(...['. ', '! ', '? ', '\n'].map((sign) => { const at = text.lastIndexOf(sign); return at < 0 ? 0 : at + sign.length; }));
    if (end > this.said && (whole || end - this.said > 20)) {
      byId('spoken').textContent = text.slice(this.said, end);
      this.said = end;
    }
  },
};

function actionsOf(index) {
  const { messages } = talk.conversation, message = messages[index], last = index === messages.length - 1;
  return {
    edit: message.role === 'user' ? () => talk.views[index].edit((text) => askFrom(index, text)) : null,
    again: last && !talk.running ? again : null,
    result: message.role === 'assistant' && last ? (call, text) => add({ role: 'tool', content: text, tool_call_id: call.id }) : null,
  };
}

/** What can be done with each message changes with what comes after it. */
function showActions() {
  talk.views.forEach((view, i) => { view.actions = actionsOf(i); view.show(false); });
  byId('messages').hidden = !talk.conversation.messages.length && !talk.running;
  byId('welcome').hidden = !byId('messages').hidden;
  showEdge();
}

function openConversation(conversation) {
  stop();
  clearProblem();
  talk.conversation = conversation;
  talk.views = conversation.messages.map((message, i) => new MessageView(message, actionsOf(i)));
  byId('messages').replaceChildren(...talk.views.map((view) => view.root));
  kept.write('open', conversation.id);
  showActions();
  showList();
  scrollDown();
}

function keep() {
  if (!conversations.save(talk.conversation)) say('This browser has no more room: this conversation is lost when the page closes. Export it, or delete others.');
  kept.write('open', talk.conversation.id);
  showList();
}

/** Drops the messages from `index` on. */
function cutTo(index) {
  stop();
  talk.conversation.messages.splice(index);
  talk.views.splice(index).forEach((view) => view.root.remove());
}

function add(message) {
  talk.conversation.messages.push({ reasoning: '', ...message });
  const view = new MessageView(talk.conversation.messages.at(-1), {});
  talk.views.push(view);
  byId('messages').append(view.root);
  keep();
  answer();
}

function askFrom(index, text) {
  cutTo(index);
  add({ role: 'user', content: text });
}
function send(text) {
  stop();
  add({ role: 'user', content: text });
}
/** Another answer in place of the last, or one at all, where an error took it. */
function again() {
  if (talk.running) return;
  const { messages } = talk.conversation;
  if (messages.at(-1)?.role === 'assistant') cutTo(messages.length - 1);
  if (messages.length) answer();
}

/** The body of the request, and where it goes: models without a chat template go on with a text. */
function request() {
  const { messages } = talk.conversation, model = chosenModel('chat');
  const common = { model: model?.id, stream: true, stream_options: { include_usage: true }, ...samplingFields() };
  if (model?.kind === 'text') return ['v1/completions', { ...common, prompt: messages.at(-1).content }];
  const turn = ({ role, content, tool_calls, tool_call_id, ...rest }) => ({ role, content: role === 'assistant' ? partsOf({ content, reasoning: rest.reasoning }).text : content,
    ...(tool_calls?.length ? { tool_calls } : {}), ...(tool_call_id ? { tool_call_id } : {}) });
  return ['v1/chat/completions', { ...common, messages: [...(settings.system ? [{ role: 'system', content: settings.system }] : []), ...messages.map(turn)],
    ...(toolsIn(settings.tools)?.length ? { tools: toolsIn(settings.tools) } : {}),
    ...(settings.thinking ? { chat_template_kwargs: { enable_thinking: settings.thinking === 'on' } } : {}) }];
}

/** Asks for the answer to what is in view, and shows it while it comes. */
async function answer() {
  const { conversation } = talk, [path, body] = request();
  const message = { role: 'assistant', content: '', reasoning: '', model: body.model ?? '', stats: { tokens: 0, counted: true, first: -1, seconds: 0 } };
  const view = new MessageView(message, {}), controller = new AbortController();
  const running = (talk.running = { controller, conversation, message, view });
  conversation.system = path === 'v1/chat/completions' ? settings.system : '';
  clearProblem();
  speaker.begin();
  byId('messages').append(view.root);
  view.show(true);
  showActions();
  showRunning();
  scrollDown();

  const began = performance.now(), since = () => (performance.now() - began) / 1000, { stats } = message;
  let due = false, problem = null;
  const draw = () => {
    due = false;
    if (talk.running !== running) return;
    const bottom = atBottom();
    view.show(true);
    speaker.follow(partsOf(message, true).text, false);
    if (bottom) scrollDown();
  };
  try {
    for await (const event of events(await ask(path, body, controller.signal), controller.signal)) {
      if (talk.running !== running) return;
      const choice = event.choices?.[0], delta = choice && (path === 'v1/completions' ? { content: choice.text } : choice.delta);
      if (addDelta(message, delta)) {
        if (stats.first < 0) stats.first = since();
        stats.seconds = since();
        if (stats.counted) ++stats.tokens;
        if (!stats.thought && !partsOf(message, true).open && partsOf(message, true).thinking) stats.thought = since();
      }
      if (choice?.finish_reason === 'length') message.end = 'length';
      if (event.usage?.completion_tokens >= 0) Object.assign(stats, { tokens: event.usage.completion_tokens, counted: false });
      if (!due) { due = true; requestAnimationFrame(draw); }
    }
  } catch (error) {
    problem = error instanceof ServerError ? error : new ServerError('other', String(error?.message ?? error));
    if (problem.kind === 'stopped') message.end = 'stopped';
    else if (message.content || message.reasoning) message.end = 'cut';
  }
  finish(running, problem);
}

function finish(running, problem) {
  if (talk.running !== running) return;  // it was stopped, and is finished already
  const { message, view } = running, bottom = atBottom();
  talk.running = null;
  if (message.content || message.reasoning || message.tool_calls?.length || !problem) {
    talk.conversation.messages.push(message);
    talk.views.push(view);
  } else view.root.remove();
  showActions();
  speaker.follow(partsOf(message).text, true);
  if (problem && problem.kind !== 'stopped') showProblem(problem);
  if (bottom) scrollDown();
  showRunning();
  keep();
}

function stop() {
  const { running } = talk;
  if (!running) return;
  running.message.end = 'stopped';
  running.controller.abort();
  finish(running, new ServerError('stopped', 'Stopped.'));
}

// Where one reads.
function atBottom() {
  const scroller = byId('scroller');
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
}
function scrollDown() {
  byId('scroller').scrollTop = byId('scroller').scrollHeight;
}
const showEdge = () => { byId('down').hidden = atBottom(); };
