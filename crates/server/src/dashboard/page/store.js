// What the server has told: series, and their numbers sample by sample.
'use strict';

const KEPT_MS = 15 * 60 * 1000;

// Labels whose values are names of the configuration, or of the machine.
const NAMES = ['zone', 'pool', 'cache', 'upstream', 'peer', 'mount', 'device', 'certificate', 'loop'];
const hasName = (one, wanted) => !wanted || NAMES.some((label) => one.labels[label]?.toLowerCase().includes(wanted));

const store = {
  series: [],   // {name, kind, labels, values}: a value for each of `times`
  times: [],    // milliseconds since 1970
  leftOut: 0,   // series that the server adds up, or does not send
  errors: [],
  stalls: [],
  wanted: '',   // what is searched for, in small letters

  clear() {
    this.series = [];
    this.times = [];
    this.errors = [];
    this.stalls = [];
  },

  // A place that had another series is that one's no more.
  addSeries(list) {
    for (const [place, name, kind, labels] of list) {
      this.series[place] = {name, kind, labels, values: new Array(this.times.length).fill(null)};
    }
  },

  addSample({t, out, v}) {
    // The server's clock was set back: what lies in its future is not the past.
    if (t <= this.times[this.times.length - 1]) this.forget();
    this.times.push(t);
    this.leftOut = out;
    this.series.forEach((one, place) => one.values.push(v[place] ?? null));
    while (this.times[0] < t - KEPT_MS) {
      this.times.shift();
      this.series.forEach((one) => one.values.shift());
    }
  },

  forget() {
    this.times = [];
    this.series.forEach((one) => { one.values = []; });
  },

  addLines(list, lines) {
    list.push(...lines);
    list.splice(0, list.length - 64);
  },

  // All series of a family.
  all(name) {
    return this.series.filter((one) => one && one.name === name);
  },

  // The series of a family whose labels are these; while a name is searched for, only those that have it.
  find(name, labels = {}) {
    return this.all(name).filter((one) => hasName(one, this.wanted) &&
      Object.entries(labels).every(([label, value]) => one.labels[label] === value));
  },

  // Milliseconds between a sample and the one before it.
  stepMs(at) {
    return at > 0 ? this.times[at] - this.times[at - 1] : 2000;
  },
};

// From series to what is drawn: arrays of one number (or null) for each sample.

const gauge = (one) => one.values;
const perSecond = (one) => one.values.map((v, at) => v === null ? null : v * 1000 / store.stepMs(at));
const column = (index) => (one) => one.values.map((v) => Array.isArray(v) ? v[index] / 1e6 : null);
const p99 = column(2);
const longest = column(3);

// The sum, or another way to make one of several, at each sample.
function together(arrays, join = (a, b) => a + b) {
  return store.times.map((_, at) => {
    const there = arrays.map((array) => array[at]).filter((v) => v !== null && v !== undefined);
    return there.length ? there.reduce(join) : null;
  });
}

const sum = (arrays) => together(arrays);
const most = (arrays) => together(arrays, (a, b) => Math.max(a, b));
const share = (part, whole) => whole.map((w, at) => w ? (part[at] ?? 0) / w : null);

// One line for each value of a label: [name, series of that value]. What is counted or added up together has no name of its own.
function by(list, ...labels) {
  const groups = new Map();
  for (const one of list) {
    const values = labels.map((label) => one.labels[label]);
    if (values[0] === '') values[0] = 'others';
    const key = values.filter((value) => value !== '').join(' ');
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups].sort(([a], [b]) => a.localeCompare(b, 'en', {numeric: true}));
}
