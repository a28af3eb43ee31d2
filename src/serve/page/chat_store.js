// What the page remembers in this browser: settings and conversations in localStorage, the key for as long as the tab is open.

const kDefaults = { model: '', translator: '', scorer: '', system: '', tools: '', temperature: '', top_p: '', top_k: '', max_tokens: '', seed: '', thinking: '', theme: '', tab: 'chat', beam: '5' };

/** One kind of storage; where the browser has none, what is written lasts as long as the page. */
class Store {
  constructor(open) {
    this.memory = new Map();
    try { this.kept = open(); } catch { this.kept = null; }
  }

  read(name, otherwise) {
    try {
      const text = this.memory.get(name) ?? this.kept?.getItem(`tightloop.${name}`);
      return text == null ? otherwise : JSON.parse(text);
    } catch {
      return otherwise;
    }
  }

  /** False: it is not kept beyond this page, because there is no room. */
  write(name, value) {
    const text = JSON.stringify(value);
    try {
      this.kept.setItem(`tightloop.${name}`, text);
      this.memory.delete(name);
      return true;
    } catch {
      this.memory.set(name, text);
      return false;
    }
  }

  remove(name) {
    this.memory.delete(name);
    try { this.kept?.removeItem(`tightloop.${name}`); } catch { /* nothing to remove */ }
  }
}

const kept = new Store(() => window.localStorage), session = new Store(() => window.sessionStorage);
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

const settings = { ...kDefaults };
{
  const found = kept.read('settings', {});
  for (const name of Object.keys(kDefaults)) if (typeof found?.[name] === 'string') settings[name] = found[name];
}
function saveSettings() { return kept.write('settings', settings); }

const apiKey = () => session.read('key', '');
const setApiKey = (key) => (key ? session.write('key', key) : session.remove('key'));

/** Conversations: a list of {id, title, changed}, newest first, and each under its own name, so that one answer does not write all. */
const conversations = {
  list() {
    const found = kept.read('conversations', []);
    return Array.isArray(found) ? found.filter((one) => isObject(one) && typeof one.id === 'string') : [];
  },

  create() {
    return { id: `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`, title: '', changed: 0, system: '', messages: [] };
  },

  load(id) {
    const found = kept.read(`conversation.${id}`, null);
    if (!isObject(found) || !Array.isArray(found.messages)) return null;
    const text = (value) => (typeof value === 'string' ? value : '');
    return { ...this.create(), id, title: text(found.title), changed: Number(found.changed) || 0, system: text(found.system),
      messages: found.messages.filter(isObject).map((one) => ({ ...one, role: ['assistant', 'tool'].includes(one.role) ? one.role : 'user', content: text(one.content), reasoning: text(one.reasoning) })) };
  },

  /** False: there is no room for it. */
  save(conversation) {
    const { id, messages } = conversation;
    if (!messages.length) return true;
    conversation.changed = Date.now();
    conversation.title = titleOf(messages[0].content);
    const whole = kept.write(`conversation.${id}`, conversation);
    return kept.write('conversations', [{ id, title: conversation.title, changed: conversation.changed }, ...this.list().filter((one) => one.id !== id)]) && whole;
  },

  remove(id) {
    kept.remove(`conversation.${id}`);
    kept.write('conversations', this.list().filter((one) => one.id !== id));
  },
};

function titleOf(text) {
  const line = text.trim().split('\n')[0].trim();
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line || 'Conversation';
}

/** A conversation as training reads it: one line, {"messages": [...]}. Thinking stays where the model put it. */
function trainingLine({ system, messages }) {
  const turn = ({ role, content, reasoning, tool_calls, tool_call_id }) => ({ role, content, ...(tool_call_id ? { tool_call_id } : {}), ...(reasoning ? { reasoning_content: reasoning } : {}), ...(tool_calls?.length ? { tool_calls } : {}) });
  return JSON.stringify({ messages: [...(system ? [{ role: 'system', content: system }] : []), ...messages.map(turn)] });
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: 'application/jsonl' }));
  element('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
