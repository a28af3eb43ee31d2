// Asking the server: requests, streams of answers, and errors as sentences.

class ServerError extends Error {
  /** kind: gone, cut, key, busy, long, stopped, other. `wait`: seconds until it is worth trying again. */
  constructor(kind, message, wait = 0) {
    super(message);
    this.kind = kind;
    this.wait = wait;
  }
}

/** The server's own sentence about an error, where it gave one. */
function errorOf(status, body, retryAfter) {
  const error = isObject(body?.error) ? body.error : {}, said = typeof error.message === 'string' ? error.message : typeof body?.error === 'string' ? body.error : '';
  if (status === 401) return new ServerError('key', apiKey() ? 'The server does not take this key. Enter the right one here, or in Settings.' : 'The server asks for a key. Enter it here, or in Settings.');
  if (status === 429 || status === 503) {
    const wait = Math.max(1, Math.ceil(Number(retryAfter)) || 5);
    return new ServerError('busy', said || (status === 429 ? 'The server has all the questions it can take.' : 'The server is not ready.'), wait);
  }
  if (error.code === 'context_length_exceeded' || status === 413) return new ServerError('long', said || 'This is longer than the model can read.');
  return new ServerError('other', said || `The server answered with an error (${status}).`);
}

/** The response to a request; body: an object for POST, none for GET. What is no answer is thrown. */
async function ask(path, body = null, signal = undefined) {
  const key = apiKey();
  let response;
  try {
    response = await fetch(path, {
      method: body ? 'POST' : 'GET', body: body && JSON.stringify(body), signal, cache: 'no-store', credentials: 'omit', redirect: 'error',
      headers: { ...(body ? { 'Content-Type': 'application/json' } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) },
    });
  } catch (error) {
    throw signal?.aborted ? new ServerError('stopped', 'Stopped.') : new ServerError('gone', `The server at ${location.host} does not answer. Is tightloop serve still running?`);
  }
  if (response.ok) return response;
  throw errorOf(response.status, await response.json().catch(() => null), response.headers.get('Retry-After'));
}

async function askForJson(path, body, signal) {
  const response = await ask(path, body, signal);
  try {
    return await response.json();
  } catch {
    if (signal?.aborted) throw new ServerError('stopped', 'Stopped.');
    throw new ServerError('cut', 'The connection broke off before the answer was there.');
  }
}

/** The objects of a stream of server-sent events, until [DONE]. */
async function* events(response, signal) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = '', data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data:')) { data.push(line.slice(line[5] === ' ' ? 6 : 5)); continue; }
        if (line !== '' || !data.length) continue;  // comments keep a connection alive
        const text = data.join('\n');
        data = [];
        if (text === '[DONE]') return;
        let event;
        try { event = JSON.parse(text); } catch { throw new ServerError('other', 'The server sent something that is no answer.'); }
        if (event.error) throw errorOf(Number(event.error.status) || 500, event, event.error.retry_after);
        yield event;
      }
      if (done) throw new ServerError('cut', 'The connection broke off before the answer was whole.');
    }
  } catch (error) {
    if (error instanceof ServerError) throw error;
    throw signal?.aborted ? new ServerError('stopped', 'Stopped.') : new ServerError('cut', 'The connection broke off before the answer was whole.');
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** What is asked for beside the messages: settings that were left empty are the server's. */
function samplingFields() {
  const fields = {};
  for (const name of ['temperature', 'top_p', 'top_k', 'max_tokens', 'seed'])
    if (settings[name] !== '' && Number.isFinite(Number(settings[name]))) fields[name] = Number(settings[name]);
  return fields;
}

/** What an answer says, and what it thought before: by the server's own field, or between <think> and </think>. `open`: it still thinks. */
function partsOf({ content, reasoning }, growing = false) {
  const begun = content.trimStart(), end = content.indexOf('</think>');
  if (reasoning) return { thinking: reasoning, text: content.trimStart(), open: growing && !content };
  if (growing && begun && '<think>'.startsWith(begun)) return { thinking: '', text: '', open: true };
  if (!begun.startsWith('<think>') && end < 0) return { thinking: '', text: content, open: false };
  // Templates that open the thinking themselves leave the model only its end.
  const from = begun.startsWith('<think>') ? content.indexOf('<think>') + 7 : 0;
  if (end < 0) return { thinking: content.slice(from).trim(), text: '', open: growing };
  return { thinking: content.slice(from, end).trim(), text: content.slice(end + 8).trimStart(), open: false };
}

/** Joins the pieces of a chunk to a message; true where there was something to show. */
function addDelta(message, delta) {
  const { content, reasoning_content, reasoning, tool_calls } = delta ?? {};
  const thought = reasoning_content ?? reasoning;
  if (typeof content === 'string') message.content += content;
  if (typeof thought === 'string') message.reasoning += thought;
  for (const call of Array.isArray(tool_calls) ? tool_calls : []) {
    message.tool_calls ??= [];
    const at = Math.min(call.index ?? Infinity, message.tool_calls.length);
    const whole = (message.tool_calls[at] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
    whole.id ||= call.id ?? '';
    whole.function.name += call.function?.name ?? '';
    whole.function.arguments += call.function?.arguments ?? '';
  }
  return !!(content || thought || tool_calls?.length);
}
