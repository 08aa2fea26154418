// The page: what is wrong, figures, charts, lines of text; and the stream that fills them. What the server tells is set as text, never as markup.

const AGAIN_MS = 5000;
// The server speaks every 2 s: one that does not for so long has gone, or stands still.
const SILENCE_MS = 10000;
// Samples that the keys for pages go.
const PAGE = 30;
let cursor = null;

function element(tag, parent, className = '', text = '') {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  parent.append(made);
  return made;
}

function sampleOfLine(index) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const line = document.createElementNS(svg.namespaceURI, 'line');
  svg.setAttribute('viewBox', '0 0 28 10');
  svg.setAttribute('aria-hidden', 'true');
  const attributes = {x1: 0, y1: 5, x2: 28, y2: 5, stroke: colour(index), 'stroke-width': 2.5};
  for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, value);
  line.setAttribute('stroke-dasharray', DASHES[index % LINES_MAX].join(' '));
  svg.append(line);
  return svg;
}

// The chart of a spec: one of the six, or one of a section's.
function makePanel(spec) {
  const parent = document.querySelector(`[data-panels="${spec.section}"]`);
  const box = element('section', parent, 'panel');
  box.id = `panel-${spec.id}`;
  const title = element('h2', box, '', `${spec.title} `);
  element('small', title, '', spec.what);
  const canvas = element('canvas', box);
  canvas.setAttribute('role', 'img');
  canvas.tabIndex = 0;
  const legend = element('ul', box, 'legend');
  const none = element('p', box, 'none', spec.none ?? '');
  const follow = (event) => {
    cursor = sampleAt(canvas, event.offsetX);
    paintSoon();
  };
  const leave = () => {
    cursor = null;
    paintSoon();
  };
  canvas.addEventListener('pointermove', follow);
  canvas.addEventListener('pointerdown', follow);
  canvas.addEventListener('pointerleave', leave);
  canvas.addEventListener('blur', leave);
  canvas.addEventListener('keydown', (event) => {
    if (!moveCursor(event.key)) return;
    event.preventDefault();
    paintSoon();
  });
  return {spec, box, canvas, legend, none};
}

// What the pointer does, by keys. Is it one of them?
function moveCursor(key) {
  const end = store.times.length - 1;
  const from = cursor ?? end;
  const to = {ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - PAGE, PageDown: from + PAGE, Home: 0, End: end, Escape: null}[key];
  if (to === undefined) return false;
  cursor = to === null ? null : Math.max(0, Math.min(end, to));
  return true;
}

// Returns whether there is anything to be seen.
function paintPanel({spec, box, canvas, legend, none}, isOpen) {
  const all = spec.lines().filter(({values}) => values.some((v) => v !== null));
  box.hidden = (Boolean(spec.isOptional) || store.wanted !== '') && all.length === 0;
  if (box.hidden || !isOpen) return !box.hidden;
  const lines = spec.isHeat ? all : mostMoved(all);
  none.hidden = all.length > 0;
  canvas.hidden = all.length === 0;
  legend.replaceChildren();
  if (!all.length) return true;
  if (spec.isHeat) drawHeat(canvas, lines, cursor);
  else drawLines(canvas, lines, spec.unit, cursor);
  const at = cursor ?? store.times.length - 1;
  lines.slice(0, LINES_MAX).forEach(({name, values}, index) => {
    const item = element('li', legend);
    if (!spec.isHeat) item.append(sampleOfLine(index));
    element('span', item, 'name', name);
    element('strong', item, '', shown(spec.unit, values[at]));
  });
  if (all.length > LINES_MAX) element('li', legend, '', `and ${all.length - LINES_MAX} more`);
  canvas.setAttribute('aria-label', `${spec.title}: ${legend.textContent}`);
  return true;
}

// Where there are more lines than can be told apart: those that were highest lately, in their order.
function mostMoved(lines) {
  const height = ({values}) => Math.max(...values.slice(-60).map((v) => v ?? 0));
  const highest = [...lines].sort((a, b) => height(b) - height(a)).slice(0, LINES_MAX);
  return lines.filter((line) => highest.includes(line));
}

function paintWrong(found) {
  const box = document.getElementById('wrong');
  const lines = told(found);
  const isWell = lines.length === 0;
  box.classList.toggle('is-well', isWell);
  const heading = isWell ? (store.times.length > 1 ? 'Nothing is wrong.' : 'No figures yet.') :
    lines.length === 1 ? 'One thing is wrong.' : `${lines.length} things are wrong.`;
  box.querySelector('h2').textContent = heading;
  const list = box.querySelector('ol');
  list.replaceChildren();
  for (const {rule, text, sinceMs} of lines) {
    const item = element('li', list, rule.severity);
    const link = element('a', item, '', text[0].toUpperCase() + text.slice(1));
    link.href = `#section-${rule.section}`;
    link.addEventListener('click', () => { document.getElementById(`section-${rule.section}`).open = true; });
    const since = sinceMs > 0 ? `, for ${duration(sinceMs / 1000)}` : '';
    element('small', item, '', ` ${rule.severity}${since}. ${rule.description}`);
  }
}

function paintFigures() {
  const box = document.getElementById('figures');
  box.replaceChildren();
  for (const [name, value] of figures()) {
    const pair = element('div', box);
    element('dt', pair, '', name);
    element('dd', pair, '', value);
  }
  const version = store.all('freewheel_build_info')[0];
  document.getElementById('version').textContent = version ? version.labels.version : '';
}

function makeSection({id, title, sum}) {
  const box = element('details', document.getElementById('sections'));
  box.id = `section-${id}`;
  const summary = element('summary', box);
  element('h2', summary, '', title);
  const mark = element('span', summary, 'mark');
  const figure = element('span', summary, 'figure');
  const inner = element('div', box, 'panels');
  inner.dataset.panels = id;
  box.addEventListener('toggle', paintSoon);
  return {id, box, mark, figure, sum};
}

// All are open while a name is searched for; then they are again as they were.
function openForSearch(box) {
  const isSearch = store.wanted !== '';
  if (isSearch === 'was' in box.dataset) return;
  if (isSearch) {
    box.dataset.was = box.open;
    box.open = true;
  } else {
    box.open = box.dataset.was === 'true';
    delete box.dataset.was;
  }
}

function paintSections(found) {
  for (const {id, box, mark, figure, sum} of sections) {
    const own = panels.filter(({spec}) => spec.section === id);
    openForSearch(box);
    box.hidden = own.map((panel) => paintPanel(panel, box.open)).filter((is) => is).length === 0;
    const wrong = found.filter(({rule}) => rule.section === id).length;
    mark.textContent = wrong ? `⚠ ${wrong}` : '';
    figure.textContent = sum();
  }
}

// The names that there are, for the search.
function paintNames() {
  const names = new Set(store.series.flatMap((one) => NAMES.slice(0, -1).map((label) => one.labels[label])).filter((name) => name));
  const list = document.getElementById('names');
  if (list.children.length === names.size) return;
  list.replaceChildren();
  for (const name of [...names].sort()) element('option', list).value = name;
}

function paintLines(id, lines) {
  const list = document.querySelector(`#${id} ol`);
  list.replaceChildren();
  for (const text of [...lines].reverse()) element('li', list, '', text);
}

const sections = SECTIONS.map(makeSection);
const panels = PANELS.map(makePanel);
const search = document.getElementById('search');
search.addEventListener('input', paintSoon);
let isDue = false;
// What was found wrong, and in which sample.
let [found, foundAt] = [[], null];

function paintSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    if (foundAt !== now()) [found, foundAt] = [troubles(), now()];
    store.wanted = '';
    paintWrong(found);
    paintFigures();
    paintNames();
    store.wanted = search.value.trim().toLowerCase();
    const seen = panels.filter(({spec}) => spec.section === 'now').filter((panel) => paintPanel(panel, true));
    paintSections(found);
    const isFound = seen.length > 0 || sections.some(({box}) => !box.hidden);
    document.getElementById('nothing').hidden = isFound || store.wanted === '';
    store.wanted = '';
  });
}

function say(text, isBad) {
  const state = document.getElementById('state');
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle('is-bad', isBad);
}

function toldStall({at, seconds, task, connection, phase, operation, request, ...rest}) {
  const whose = connection ? `${task} *${connection}` : task;
  const what = [whose, phase, operation, request && `request: "${request}"`].filter((text) => text).join(', ');
  return `${new Date(at * 1000).toLocaleTimeString()} loop ${rest.loop} was kept for ${shown('seconds', seconds)} by ${what}`;
}

let stream = null;
let heard = 0;

function listen() {
  stream?.close();
  stream = new EventSource(`${location.pathname}?stream`);
  const own = stream;
  heard = performance.now();
  const on = (name, obey) => own.addEventListener(name, (event) => {
    heard = performance.now();
    obey(JSON.parse(event.data));
  });
  on('begin', () => store.clear());
  on('series', (list) => store.addSeries(list));
  on('sample', (sample) => {
    store.addSample(sample);
    const more = store.leftOut ? `; ${store.leftOut} series too many are shown together` : '';
    say(`live${more}`, false);
    paintSoon();
  });
  on('errors', (lines) => {
    store.addLines(store.errors, lines.map(([, text]) => text));
    paintLines('errors', store.errors);
  });
  on('stalls', (stalls) => {
    store.addLines(store.stalls, stalls.map(toldStall));
    paintLines('stalls', store.stalls);
  });
  own.addEventListener('error', () => {
    if (own.readyState === EventSource.CLOSED) {
      say('refused: too many dashboards are open, or it is not allowed; asking again', true);
      setTimeout(() => own === stream && listen(), AGAIN_MS);
    } else {
      say('the server cannot be reached; asking again', true);
    }
  });
}

// A server that stands still, and one that was cut off, end no stream.
function watch() {
  if (performance.now() - heard <= SILENCE_MS) return;
  say(`the server has said nothing for ${SILENCE_MS / 1000} s (this is old); asking again`, true);
  listen();
}

isDark.addEventListener('change', paintSoon);
addEventListener('resize', paintSoon);
listen();
setInterval(watch, 1000);
