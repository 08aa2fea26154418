// Charts on a canvas: lines, and a heat map. Told apart by colour (Okabe and Ito's, which the colour-blind see), by dashes, and
// by a legend with the numbers.

const LINES_MAX = 8;
// Where a chart begins, behind its scale.
const LEFT = 72;
const COLOURS = {
  light: ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b07d00', '#3a9bd6', '#000000', '#777777'],
  dark: ['#56b4e9', '#e69f00', '#2fc79a', '#e39cc6', '#f0e442', '#7fa8ff', '#ffffff', '#aaaaaa'],
};
const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 3], [1, 3], [6, 2, 1, 2, 1, 2]];
// Cividis: from nothing to much, for every eye.
const HEAT = [[0, 32, 77], [60, 77, 110], [124, 123, 120], [187, 174, 108], [255, 234, 70]];
const isDark = matchMedia('(prefers-color-scheme: dark)');
const colour = (index) => COLOURS[isDark.matches ? 'dark' : 'light'][index % LINES_MAX];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const UNITS = {
  seconds: (v) => v === 0 ? '0' : v < 1e-3 ? `${round(v * 1e6)} µs` : v < 1 ? `${round(v * 1e3)} ms` : `${round(v)} s`,
  share: (v) => `${round(v * 100)} %`,
  number: (v) => scaled(v, 1000, ['', 'k', 'M', 'G', 'T']),
  bytes: (v) => `${scaled(v, 1024, [' ', ' Ki', ' Mi', ' Gi', ' Ti', ' Pi'])}B`,
  rate: (v) => `${scaled(v, 1000, ['', 'k', 'M', 'G', 'T'])}/s`,
  byteRate: (v) => `${scaled(v, 1024, [' ', ' Ki', ' Mi', ' Gi', ' Ti'])}B/s`,
};

const round = (v) => v >= 100 ? Math.round(v) : Number(v.toPrecision(3));

function scaled(v, step, names) {
  let at = 0;
  while (Math.abs(v) >= step && at < names.length - 1) {
    v /= step;
    at += 1;
  }
  return `${round(v)}${names[at]}`;
}

const shown = (unit, v) => v === null || v === undefined ? '–' : UNITS[unit](v);

// A number that is round, and not under the largest.
function roundUp(largest, unit) {
  // What is read at two moments may be a little more than a whole.
  if (unit === 'share' && largest < 1.02) return 1;
  const thousand = unit.startsWith('byte') ? 1024 ** Math.floor(Math.log(largest || 1) / Math.log(1024)) : 1;
  const power = thousand * 10 ** Math.floor(Math.log10((largest || 1) / thousand));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= largest) ?? largest;
}

// A canvas of the size that it has on the screen.
function prepare(canvas) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '14px system-ui, sans-serif';
  return {pen, left: LEFT, right: width - 6, top: 6, bottom: height - 19};
}

const now = () => store.times[store.times.length - 1] ?? 0;
// What is shown: all that there is, from a minute to a quarter of an hour.
const spanMs = () => Math.min(KEPT_MS, Math.max(60000, now() - (store.times[0] ?? 0)));
const xOf = (area, t) => area.right - (now() - t) / spanMs() * (area.right - area.left);

// Which sample is below the pointer.
function sampleAt(canvas, x) {
  const area = {left: LEFT, right: canvas.clientWidth - 6};
  const t = now() - (area.right - x) / (area.right - area.left) * spanMs();
  let nearest = store.times.length - 1;
  store.times.forEach((time, at) => {
    if (Math.abs(time - t) < Math.abs(store.times[nearest] - t)) nearest = at;
  });
  return nearest;
}

function drawTimes(area, cursor) {
  const {pen} = area;
  pen.fillStyle = css('--faint');
  pen.textBaseline = 'bottom';
  const span = spanMs();
  for (const part of [1, 0.5, 0]) {
    pen.textAlign = part === 1 ? 'left' : part === 0 ? 'right' : 'center';
    const seconds = Math.round(span * part / 1000);
    const text = part === 0 ? 'now' : seconds < 120 ? `−${seconds} s` : `−${round(seconds / 60)} min`;
    pen.fillText(text, xOf(area, now() - span * part), area.bottom + 18);
  }
  if (cursor !== null && cursor < store.times.length) drawCursor(area, store.times[cursor]);
}

// A line, and its moment beside it.
function drawCursor(area, t) {
  const {pen} = area;
  const [x, text] = [xOf(area, t), new Date(t).toLocaleTimeString()];
  const [isLeft, width] = [x > (area.left + area.right) / 2, pen.measureText(text).width];
  pen.fillStyle = css('--text');
  pen.fillRect(x, area.top, 1, area.bottom - area.top);
  pen.fillStyle = css('--card');
  pen.fillRect(isLeft ? x - width - 8 : x + 2, area.top, width + 6, 18);
  pen.fillStyle = css('--text');
  pen.textAlign = isLeft ? 'right' : 'left';
  pen.textBaseline = 'top';
  pen.fillText(text, isLeft ? x - 5 : x + 5, area.top + 2);
}

function drawLines(canvas, lines, unit, cursor) {
  const area = prepare(canvas);
  const {pen} = area;
  const largest = lines.reduce((so, {values}) => values.reduce((s, v) => Math.max(s, v ?? 0), so), 0);
  const bound = roundUp(largest, unit);
  const yOf = (v) => area.bottom - Math.min(v / bound, 1) * (area.bottom - area.top);
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  for (const part of [0, 0.5, 1]) {
    pen.fillStyle = css('--grid');
    pen.fillRect(area.left, yOf(part * bound), area.right - area.left, 1);
    pen.fillStyle = css('--faint');
    pen.fillText(shown(unit, part * bound), area.left - 5, yOf(part * bound) + (part === 1 ? 4 : 0));
  }
  lines.forEach(({values}, index) => drawLine(area, values, index, yOf));
  drawTimes(area, cursor);
}

function drawLine(area, values, index, yOf) {
  const {pen} = area;
  pen.strokeStyle = pen.fillStyle = colour(index);
  pen.lineWidth = 1.6;
  pen.setLineDash(DASHES[index % LINES_MAX]);
  pen.beginPath();
  let before = null;
  values.forEach((v, at) => {
    if (v === null) {
      before = null;
      return;
    }
    const [x, y] = [xOf(area, store.times[at]), yOf(v)];
    if (before === null) {
      pen.moveTo(x, y);
      if ((values[at + 1] ?? null) === null) pen.fillRect(x - 1, y - 1, 2, 2);
    } else {
      pen.lineTo(x, y);
    }
    before = v;
  });
  pen.stroke();
  pen.setLineDash([]);
}

// Rows of cells, from 10 µs (dark) to 1 s (bright): a logarithmic scale.
const heat = (v) => v === null ? null : Math.min(1, Math.max(0, (Math.log10(v) + 5) / 5));

function heatColour(part) {
  const place = part * (HEAT.length - 1);
  const [low, high] = [HEAT[Math.floor(place)], HEAT[Math.ceil(place)]];
  const mixed = low.map((c, i) => Math.round(c + (high[i] - c) * (place % 1)));
  return `rgb(${mixed.join(',')})`;
}

function drawHeat(canvas, rows, cursor) {
  const area = prepare(canvas);
  const {pen} = area;
  const height = (area.bottom - area.top) / Math.max(rows.length, 1);
  rows.forEach(({name, values}, row) => {
    const y = area.top + row * height;
    if (height >= 10) {
      pen.fillStyle = css('--faint');
      pen.textAlign = 'right';
      pen.textBaseline = 'middle';
      pen.fillText(name, area.left - 5, y + height / 2);
    }
    values.forEach((v, at) => {
      const part = heat(v);
      if (part === null) return;
      const x = xOf(area, store.times[at] - store.stepMs(at));
      pen.fillStyle = heatColour(part);
      pen.fillRect(x, y, Math.max(xOf(area, store.times[at]) - x, 1), Math.max(height - 1, 1));
    });
  });
  drawTimes(area, cursor);
}
