// Markup within a paragraph: emphasis, code, links. Each function gives nodes, and what a model wrote goes into text nodes alone.

const kSpecial = /[\\`*_~[\]!<&\nh]/g;
const kEntities = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&nbsp;': '\u00a0' };
const kLongestParagraph = 20000;  // beyond it markup is shown as it was written: a page must not hang on what a model repeats

/** Where a link may lead: the web or a mail program; null: nowhere. Never javascript:, data: or a path on this server. */
function safeAddress(address) {
  try {
    const { protocol, href } = new URL(address);
    return ['http:', 'https:', 'mailto:'].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

function link(address, content) {
  return element('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow', title: address }, content);
}

/** Which runs of backticks there are, so that an opening one finds its end without looking at the rest again and again. */
function backtickRuns(text) {
  const runs = new Map();  // length: places, in order
  for (const { 0: run, index } of text.matchAll(/`+/g)) {
    if (!runs.has(run.length)) runs.set(run.length, []);
    runs.get(run.length).push(index);
  }
  return runs;
}

/** The end of a bare address: signs that belong to the sentence around it are cut off. */
function trimmedAddress(address) {
  let open = 0;
  for (const c of address) open += c === '(' ? 1 : c === ')' ? -1 : 0;
  let end = address.length;
  for (; end > 0; --end) {
    const c = address[end - 1];
    if (c === ')' && open < 0) ++open;
    else if (!'.,;:!?\'"*_~]}'.includes(c)) break;
  }
  return address.slice(0, end);
}

/** "(address "title")" that begins at `from`: the address and where it ends; null: it is none. */
function linkTarget(text, from) {
  const found = /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\([^\s()]{0,2000}\)){0,2000}))(?:\s{1,9}(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?\s{0,9}\)/y;
  found.lastIndex = from;
  const match = found.exec(text);
  return match && { address: (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, '$1'), end: found.lastIndex };
}

const asNodes = (pieces) => pieces.map((piece) => piece.node ?? document.createTextNode(piece.mark ? piece.mark.repeat(piece.count) : piece.text));

/** Opening and closing marks of emphasis, from `from` on, become elements: the rules of CommonMark. */
function pairMarks(pieces, from) {
  const none = new Map();  // kind of closing mark: before this place nothing opens it
  for (let c = from; c < pieces.length; ++c) {
    const closing = pieces[c];
    while (closing.mark && closing.closes && closing.count) {
      const kind = `${closing.mark}${closing.opens}${closing.count % 3}`;
      let o = c - 1;
      for (const last = none.get(kind) ?? from; o >= last; --o) {
        const { mark, opens, closes, count } = pieces[o];
        if (mark !== closing.mark || !opens || !count) continue;
        const ambiguous = (closes || closing.opens) && (count + closing.count) % 3 === 0 && (count % 3 || closing.count % 3);
        if (!ambiguous) break;
      }
      if (o < (none.get(kind) ?? from)) { none.set(kind, c); break; }
      const opening = pieces[o], taken = Math.min(2, opening.count, closing.count);
      const inner = asNodes(pieces.slice(o + 1, c).filter((piece) => piece.count !== 0));
      const made = { node: element(closing.mark === '~' ? 's' : taken === 2 ? 'strong' : 'em', {}, inner) };
      opening.count -= taken;
      closing.count -= taken;
      pieces.splice(o + 1, c - o - 1, made);
      c = o + 2;
      for (const [known, at] of none) none.set(known, Math.min(at, c));
    }
  }
}

function markAt(text, i, count) {
  const c = text[i], before = text[i - 1] ?? ' ', after = text[i + count] ?? ' ';
  const word = /[\p{L}\p{N}]/u;
  const opens = !/\s/.test(after) && (c !== '_' || !word.test(before)), closes = !/\s/.test(before) && (c !== '_' || !word.test(after));
  return c === '~' && count !== 2 ? { text: c.repeat(count) } : { mark: c, count, opens, closes };
}

/** A bracket that closes: a link of the pieces since the one that opened. Gives where to go on, or 0 where there is none. */
function closeBracket(pieces, brackets, text, i) {
  const at = brackets.pop();
  if (at === undefined) return 0;
  const target = text[i + 1] === '(' ? linkTarget(text, i + 1) : null, address = target && safeAddress(target.address);
  if (!address) return 0;  // shown as it was written, so that nobody is led astray
  pairMarks(pieces, at + 1);
  const image = pieces[at].text === '![', inner = asNodes(pieces.splice(at).slice(1).filter((piece) => piece.count !== 0));
  pieces.push({ node: link(address, image ? ['picture: ', ...inner] : inner.length ? inner : [address]) });
  // No link within a link: brackets that are open now close nothing but pictures around it.
  brackets.length = 0;
  return target.end;
}

/** The nodes of a paragraph's text. */
function inlineNodes(text) {
  if (text.length > kLongestParagraph) return [document.createTextNode(text)];
  const pieces = [], brackets = [], runs = backtickRuns(text);
  const say = (words) => {
    const last = pieces.at(-1);
    if (last?.text !== undefined && !last.opens) last.text += words; else pieces.push({ text: words });
  };
  let i = 0;
  while (i < text.length) {
    kSpecial.lastIndex = i;
    const next = kSpecial.exec(text)?.index ?? text.length;
    if (next > i) { say(text.slice(i, next)); i = next; continue; }
    const c = text[i];
    let match;
    const here = (pattern) => { pattern.lastIndex = i; match = pattern.exec(text); return match; };
    if (c === '\n') {
      if (pieces.at(-1)?.text) pieces.at(-1).text = pieces.at(-1).text.trimEnd();
      pieces.push({ node: element('br') });
      i += 1;
    } else if (c === '\\' && here(/\\([!-/:-@[-`{-~\n])/y)) {
      if (match[1] === '\n') pieces.push({ node: element('br') }); else say(match[1]);
      i += 2;
    } else if (c === '`' && here(/`+/y)) {
      const length = match[0].length, places = runs.get(length) ?? [];  // none: a part of a run that was escaped
      while (places[0] <= i) places.shift();
      const end = places[0];
      if (end === undefined) { say(match[0]); i += length; continue; }
      const code = text.slice(i + length, end).replaceAll('\n', ' ');
      const bare = code.length > 2 && code.startsWith(' ') && code.endsWith(' ') && code.trim() ? code.slice(1, -1) : code;
      pieces.push({ node: element('code', {}, bare) });
      i = end + length;
    } else if ((c === '*' || c === '_' || c === '~') && here(/\*+|_+|~+/y)) {
      pieces.push(markAt(text, i, match[0].length));
      i += match[0].length;
    } else if (c === '[' || (c === '!' && text[i + 1] === '[')) {
      brackets.push(pieces.length);
      pieces.push({ text: c === '!' ? '![' : '[', opens: true });
      i += c === '!' ? 2 : 1;
    } else if (c === ']') {
      const end = closeBracket(pieces, brackets, text, i);
      if (end) i = end; else { say(']'); i += 1; }
    } else if (c === '<' && here(/<br ?\/?>/iy)) {
      pieces.push({ node: element('br') });
      i += match[0].length;
    } else if (c === '<' && here(/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y) && safeAddress(match[1])) {
      pieces.push({ node: link(safeAddress(match[1]), match[1]) });
      i += match[0].length;
    } else if (c === 'h' && !/[\p{L}\p{N}]/u.test(text[i - 1] ?? ' ') && !brackets.length && here(/https?:\/\/[^\s<>"`]{1,2000}/y) && safeAddress(trimmedAddress(match[0]))) {
      const address = trimmedAddress(match[0]);
      pieces.push({ node: link(safeAddress(address), address) });
      i += address.length;
    } else if (c === '&' && here(/&(?:amp|lt|gt|quot|nbsp|#39);/y)) {
      say(kEntities[match[0]]);
      i += match[0].length;
    } else {
      say(c);
      i += 1;
    }
  }
  pairMarks(pieces, 0);
  return asNodes(pieces.filter((piece) => piece.count !== 0));
}
