// What is wrong now, by the alert rules. (`ALERTS` is alerts.json, of which the rules for Prometheus are made, too.)
//
// The page looks at a shorter time than Prometheus, so that it shows what begins: a minute, and 10 s for what must stand still.

const LOOKED_MS = 60000;
const STILL_MS = 10000;
const TEN_MINUTES_MS = 600000;
// A p99 is too high if it was in this share of the samples that had values.
const OFTEN = 0.25;
// Rules that hold for more series than these are told together.
const TOLD_MAX = 3;

const fits = (labels, where = {}) => Object.entries(where).every(([name, values]) => values.includes(labels[name]));

// The first sample of the time that is looked at.
function firstOf(at, ms) {
  let first = at;
  while (first > 0 && store.times[at] - store.times[first - 1] < ms) first -= 1;
  return first;
}

const added = (group, first, at) => group.reduce((s, one) => {
  for (let i = first; i <= at; i += 1) s += Array.isArray(one.values[i]) ? one.values[i][0] : one.values[i] ?? 0;
  return s;
}, 0);
const valueAt = (group, at) => {
  const there = group.map((one) => one.values[at]).filter((v) => v !== null && v !== undefined);
  return there.length ? there.reduce((a, b) => a + b) : null;
};

// The figure of a test for one group of series; null: there is none.
function figureAt(test, group, at) {
  const part = group.filter((one) => fits(one.labels, test.where));
  const first = firstOf(at, test.ended ? STILL_MS : test.increase ? TEN_MINUTES_MS : LOOKED_MS);
  const seconds = Math.max(store.times[at] - store.times[first] + store.stepMs(first), 2000) / 1000;
  if (test.rate && test.share) {
    const whole = added(group, first, at);
    return whole ? added(part, first, at) / whole : null;
  }
  if (test.rate) return added(part, first, at) / seconds;
  if (test.ended) return store.times[at] - store.times[0] < STILL_MS ? null : added(part, first, at) / seconds;
  if (test.increase) return added(part, first, at);
  if (test.until) return valueAt(part, at) === null ? null : valueAt(part, at) - store.times[at] / 1000;
  if (test.p99) {
    const columns = part.map(p99);
    const samples = [];
    for (let i = first; i <= at; i += 1) samples.push(...columns.map((c) => c[i]).filter((v) => v !== null && v !== undefined));
    samples.sort((a, b) => b - a);
    return samples.length ? samples[Math.min(samples.length - 1, Math.floor(samples.length * OFTEN))] : null;
  }
  if (test.value && test.of) {
    const labels = part[0]?.labels ?? {};
    const whole = store.all(test.of.family).filter((one) => fits(one.labels, test.of.where) &&
      (test.by ?? []).every((label) => one.labels[label] === labels[label]));
    const [a, b] = [valueAt(part, at), valueAt(whole, at)];
    return a !== null && b ? a / b : null;
  }
  return test.value ? valueAt(part, at) : null;
}

function holdsAt(test, group, at) {
  const v = figureAt(test, group, at);
  if (v === null) return false;
  return 'over' in test ? v > test.over : 'under' in test ? v < test.under : v === test.is;
}

// The groups of series that a test looks at, one by one: [labels, series].
function groupsOf(test) {
  const all = store.all(test.rate ?? test.increase ?? test.p99 ?? test.value ?? test.until ?? test.ended ?? test.changes)
    .filter((one) => test.share || fits(one.labels, test.where));
  const groups = new Map();
  for (const one of all) {
    const labels = test.by ? Object.fromEntries(test.by.map((label) => [label, one.labels[label]])) : one.labels;
    const key = JSON.stringify(labels);
    groups.set(key, [labels, [...(groups.get(key)?.[1] ?? []), one]]);
  }
  return [...groups.values()];
}

// Everything that is wrong now: {rule, labels, sentence, sinceMs}, the worst first.
function troubles() {
  const at = store.times.length - 1;
  if (at < 1) return [];
  const found = [];
  for (const rule of ALERTS) {
    const [first, ...others] = rule.all;
    // A worker that has died has taken its figures along: Prometheus sees that.
    if (first.changes) continue;
    for (const [labels, group] of groupsOf(first)) {
      const beside = others.map((test) => [test, groupsOf(test).find(([other]) => JSON.stringify(other) === JSON.stringify(labels))?.[1] ?? []]);
      const holds = (i) => [[first, group], ...beside].every(([test, series]) => holdsAt(test, series, i));
      if (!holds(at)) continue;
      let from = at;
      while (from > 0 && holds(from - 1)) from -= 1;
      const value = figureAt(first, group, at);
      const sentence = rule.summary.replace(/\{(\w+)(:duration)?\}/g, (_, name, isTime) => isTime ? duration(value) : labels[name] || 'others');
      found.push({rule, labels, sentence, sinceMs: store.times[at] - store.times[from]});
    }
  }
  const weight = ({rule, sinceMs}) => (rule.severity === 'critical' ? KEPT_MS : 0) + sinceMs;
  return found.sort((a, b) => weight(b) - weight(a));
}

// The same rule for many zones is one line.
function told(found) {
  const rules = [...new Set(found.map(({rule}) => rule))];
  return rules.map((rule) => {
    const own = found.filter((one) => one.rule === rule);
    const more = own.length - TOLD_MAX;
    const sentences = own.slice(0, TOLD_MAX).map(({sentence}) => sentence).join('; ');
    return {rule, text: sentences + (more > 0 ? `; and ${more} more` : ''), sinceMs: Math.max(...own.map(({sinceMs}) => sinceMs))};
  });
}
