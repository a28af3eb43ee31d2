'use strict';
// What scripts of all pages share.

/** An element. Text is always text: nothing that a run wrote is ever read as HTML. */
function element(tag, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'text', 'rect', 'circle', 'title'].includes(tag);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'colour') made.style.setProperty('--c', value || '');
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null));
  return made;
}

/** A button that goes through the colours: as the system has them, and each kind. `choose(theme)`: '', 'dark' or 'light'. */
function themeButton(button, theme = '', choose = () => {}) {
  const words = { '': 'as the system has them', dark: 'dark', light: 'light' };
  const show = () => {
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    button.setAttribute('aria-label', `Colours: ${words[theme]}`);
    button.textContent = theme ? theme[0].toUpperCase() + theme.slice(1) : 'Theme';
  };
  if (!Object.hasOwn(words, theme)) theme = '';
  show();
  button.addEventListener('click', () => {
    // The first press changes something: what the system has comes last.
    const order = matchMedia('(prefers-color-scheme: dark)').matches ? ['', 'light', 'dark'] : ['', 'dark', 'light'];
    theme = order[(order.indexOf(theme) + 1) % 3];
    show();
    choose(theme);
  });
}
