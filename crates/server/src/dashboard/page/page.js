// The page: tiles, panels, lines of text; and the stream that fills them. What the server tells is set as text, never as markup.

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

function makePanel(spec) {
  const box = element('section', document.getElementById('panels'), 'panel');
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

function paintPanel({spec, box, canvas, legend, none}) {
  const all = spec.lines().filter(({values}) => values.some((v) => v !== null));
  const lines = spec.isHeat ? all : mostMoved(all);
  box.hidden = Boolean(spec.isOptional) && all.length === 0;
  none.hidden = all.length > 0;
  canvas.hidden = all.length === 0;
  legend.replaceChildren();
  if (!all.length) return;
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
}

// Where there are more lines than can be told apart: those that were highest lately, in their order.
function mostMoved(lines) {
  const height = ({values}) => Math.max(...values.slice(-60).map((v) => v ?? 0));
  const highest = [...lines].sort((a, b) => height(b) - height(a)).slice(0, LINES_MAX);
  return lines.filter((line) => highest.includes(line));
}

function paintTiles() {
  const box = document.getElementById('tiles');
  box.replaceChildren();
  for (const [name, value, isBad] of tiles()) {
    const tile = element('div', box, isBad ? 'tile is-bad' : 'tile');
    element('span', tile, '', name);
    element('strong', tile, '', value);
  }
  const version = store.find('freewheel_build_info')[0];
  document.getElementById('version').textContent = version ? version.labels.version : '';
}

function paintLines(id, lines) {
  const list = document.querySelector(`#${id} ol`);
  list.replaceChildren();
  for (const text of [...lines].reverse()) element('li', list, '', text);
}

const panels = PANELS.map(makePanel);
let isDue = false;

function paintSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    paintTiles();
    panels.forEach(paintPanel);
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
