// Markdown to elements, block by block. While an answer grows, blocks that have not changed stay as they are: selections, scrolled
// code and open buttons survive.

const kDeepest = 12;  // lists and quotes within each other; what is deeper is text
const kList = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t](.*))?$/;

/** A button that copies what `text()` says. */
function copyButton(text, label = 'Copy') {
  const button = element('button', { type: 'button', class: 'quiet', 'aria-label': label, onclick: async () => {
    const done = await copyText(text());
    button.textContent = done ? 'Copied' : 'Not allowed';
    setTimeout(() => { button.textContent = 'Copy'; }, 1600);
  } }, 'Copy');
  return button;
}

/** Also where a page without https is not trusted with the clipboard. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement, area = element('textarea', { class: 'unseen', 'aria-hidden': 'true' });
    area.value = text;
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    focused?.focus();
    return done;
  }
}

/** A line without its first `columns` of white space. */
function unindented(line, columns) {
  let at = 0, column = 0;
  while (column < columns && (line[at] === ' ' || line[at] === '\t')) column += line[at++] === '\t' ? 4 : 1;
  return line.slice(at);
}
const expanded = (line) => (line.startsWith('\t') || line.startsWith(' \t') ? line.replace(/^[ \t]+/, (space) => space.replaceAll('\t', '    ')) : line);
const isBlank = (line) => line.trim() === '';

function isRule(line) {
  const bare = line.replaceAll(' ', '');
  return /^ {0,3}[-*_]/.test(line) && bare.length > 2 && [...bare].every((c) => c === bare[0]);
}

function cellsOf(line) {
  const cells = line.trim().replace(/^\|/, '').split(/(?<!\\)\|/);
  if (cells.length > 1 && cells.at(-1).trim() === '') cells.pop();
  return cells.map((cell) => cell.trim().replaceAll('\\|', '|'));
}
/** How each column stands; null: the line is not what follows the head of a table. */
function alignments(line) {
  if (!line.includes('-') || !line.includes('|')) return null;
  const cells = cellsOf(line);
  return cells.every((cell) => /^:?-+:?$/.test(cell)) ? cells.map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left')) : null;
}
function beginsTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes('|')) return null;
  const columns = alignments(lines[at + 1]);
  return columns && columns.length === cellsOf(lines[at]).length ? columns : null;
}

const fenceOf = (line) => /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$/.exec(line);
const interruptsParagraph = (lines, at, depth) => fenceOf(lines[at]) || /^ {0,3}#{1,6}(?: |$)/.test(lines[at]) || isRule(lines[at])
  || (depth < kDeepest && (/^ {0,3}>/.test(lines[at]) || /^ {0,3}(?:[-*+]|1[.)]) \s*\S/.test(lines[at]))) || beginsTable(lines, at);

function fencedBlock(lines, at, [, indent, fence, info]) {
  let end = at + 1;
  const closes = (line) => /^ {0,3}(`+|~+)\s*$/.exec(line)?.[1].startsWith(fence);
  while (end < lines.length && !closes(lines[end])) ++end;
  const code = lines.slice(at + 1, end).map((line) => unindented(line, indent.length)).join('\n'), language = info.trim().split(/\s/)[0];
  return { end: end + 1, make: () => codeBlock(code, language), update: (old) => { if (!old.update) return false; old.update(code, language); return true; } };
}

function codeBlock(code, language) {
  const name = element('span'), text = element('code'), made = element('figure', { class: 'code' },
    element('figcaption', {}, name, copyButton(() => text.textContent, 'Copy the code')), element('pre', { tabindex: '0', role: 'region', 'aria-label': 'Code' }, text));
  made.update = (newCode, newLanguage) => {
    name.textContent = newLanguage || 'code';
    // What is there stays: a selection in it, too.
    if (text.firstChild && newCode.startsWith(text.textContent)) text.firstChild.appendData(newCode.slice(text.textContent.length)); else text.textContent = newCode;
  };
  made.update(code, language);
  return made;
}

function headingBlock(at, level, text) {
  let words = text.trim(), end = words.length;
  while (end > 0 && words[end - 1] === '#') --end;
  if (end < words.length && (end === 0 || words[end - 1] === ' ')) words = words.slice(0, end).trimEnd();
  return { end: at + 1, make: () => element(`h${Math.min(6, level + 2)}`, { class: `level${level}` }, inlineNodes(words)) };
}

function quoteBlock(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) ++end;
  const inner = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ''));
  return { end, make: () => element('blockquote', {}, blockNodes(inner, depth + 1)) };
}

function tableBlock(lines, at, columns) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|') && !isBlank(lines[end])) ++end;
  const cells = (tag, line) => { const texts = cellsOf(line); return columns.map((align, i) => element(tag, { class: align, scope: tag === 'th' ? 'col' : null }, inlineNodes(texts[i] ?? ''))); };
  return { end, make: () => element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table' }, element('table', {},
    element('thead', {}, element('tr', {}, cells('th', lines[at]))), element('tbody', {}, lines.slice(at + 2, end).map((line) => element('tr', {}, cells('td', line)))))) };
}

function listBlock(lines, at, depth) {
  const [, indent, marker] = kList.exec(lines[at]), kind = /\d/.test(marker) ? marker.at(-1) : marker;
  const items = [];
  let loose = false, blank = 0, i = at, end = at;
  const join = (line) => { items.at(-1).push(...Array(blank).fill(''), line); };  // blank lines count when something follows
  for (; i < lines.length; ++i) {
    const line = expanded(lines[i]);
    if (isBlank(line)) { ++blank; continue; }
    const spaces = line.length - line.trimStart().length, own = kList.exec(line);
    const sameList = own && spaces < indent.length + 2 && (/\d/.test(own[2]) ? own[2].at(-1) : own[2]) === kind && !isRule(line);
    if (sameList) {
      loose ||= blank > 0 && items.length > 0;
      items.push([(own[3] ?? '').trimStart()]);
    } else if (spaces >= indent.length + 2) {
      // Anything below the mark's text belongs to the item, also where a model indents by less than the mark is wide.
      loose ||= blank > 0 && spaces <= indent.length + marker.length + 1 && !kList.test(line.trimStart());
      join(unindented(lines[i], indent.length + Math.min(spaces - indent.length, marker.length + 1)));
    } else if (blank || interruptsParagraph(lines, i, depth) || own) break;
    else join(line);
    blank = 0;
    end = i + 1;
  }
  const start = parseInt(marker, 10);
  return { end, make: () => element(Number.isNaN(start) ? 'ul' : 'ol', Number.isNaN(start) || start === 1 ? {} : { start }, items.map((item) => listItem(item, loose, depth))) };
}

function listItem(lines, loose, depth) {
  const task = /^\[([ xX])\] /.exec(lines[0]);
  const nodes = blockNodes(task ? [lines[0].slice(4), ...lines.slice(1)] : lines, depth + 1, !loose);
  return element('li', task ? { class: 'task' } : {}, task ? element('span', { role: 'img', 'aria-label': task[1] === ' ' ? 'to do' : 'done' }, task[1] === ' ' ? '☐ ' : '☑ ') : null, nodes);
}

function paragraphBlock(lines, at, depth, bare) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interruptsParagraph(lines, end, depth)) ++end;
  const text = lines.slice(at, end).map((line) => line.trimStart()).join('\n').trimEnd();
  return { end, make: () => (bare ? element('span', {}, inlineNodes(text)) : element('p', {}, inlineNodes(text))) };
}

/** The blocks of lines: {source, make, update}. `bare`: paragraphs without room around them, as in short lists. */
function blocksOf(lines, depth = 0, bare = false) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    const line = expanded(lines[at]);
    if (isBlank(line)) { ++at; continue; }
    const fence = fenceOf(line), heading = /^ {0,3}(#{1,6})(?:[ \t]([^]*))?$/.exec(line), columns = beginsTable(lines, at);
    let block;
    if (fence) block = fencedBlock(lines, at, fence);
    else if (heading) block = headingBlock(at, heading[1].length, heading[2] ?? '');
    else if (isRule(line)) block = { end: at + 1, make: () => element('hr') };
    else if (columns) block = tableBlock(lines, at, columns);
    else if (depth < kDeepest && /^ {0,3}>/.test(line)) block = quoteBlock(lines, at, depth);
    else if (depth < kDeepest && kList.test(line)) block = listBlock(lines, at, depth);
    else block = paragraphBlock(lines, at, depth, bare);
    blocks.push({ ...block, source: lines.slice(at, block.end).join('\n') });
    at = block.end;
  }
  return blocks;
}
const blockNodes = (lines, depth, bare = false) => blocksOf(lines, depth, bare).map((block) => block.make());

/** Shows markdown in `root`, and touches only what has changed since it did so last. */
function showMarkdown(root, text) {
  const blocks = blocksOf(text.replace(/\r\n?/g, '\n').split('\n'));
  blocks.forEach((block, i) => {
    const old = root.children[i];
    if (old && old.source === block.source) return;
    if (old && block.update?.(old)) { old.source = block.source; return; }
    const fresh = block.make();
    fresh.source = block.source;
    if (old) old.replaceWith(fresh); else root.append(fresh);
  });
  while (root.children.length > blocks.length) root.lastElementChild.remove();
}
