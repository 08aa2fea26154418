// What is shown: which figures, in which panel, with which unit. A panel whose figures are not there says so.

const each = (list, labels, values, say = (name) => name) =>
  by(list, ...labels).map(([name, group]) => ({name: say(name), values: values(group)}));

const PANELS = [
  {
    id: 'blocked', title: 'Loops: blocked', what: '99 of 100 events waited no longer; dark 10 µs, bright 1 s',
    unit: 'seconds', isHeat: true, none: 'No loop has had an event.',
    lines: () => each(store.find('freewheel_event_loop_blocked_seconds'), ['loop'], (g) => most(g.map(p99)), (n) => `loop ${n}`),
  },
  {
    id: 'busy', title: 'Loops: busy', what: 'share of the time', unit: 'share', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_busy_seconds'), ['loop'], (g) => sum(g.map(perSecond)), (n) => `loop ${n}`),
  },
  {
    id: 'requests', title: 'Requests', what: 'per second', unit: 'rate', none: 'No request has come.',
    lines: () => [
      {name: 'requests', values: sum(store.find('freewheel_loop_requests').map(perSecond))},
      {name: 'new connections', values: sum(store.find('freewheel_loop_accepted_connections').map(perSecond))},
    ],
  },
  {
    id: 'connections', title: 'Connections', what: 'of clients', unit: 'number', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_connections'), ['state'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'queue', title: 'Pools: queue', what: 'jobs that wait', unit: 'number', none: 'There is no pool.',
    lines: () => each(store.find('freewheel_pool_queue'), ['pool', 'lane'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'wait', title: 'Pools: wait', what: '99 of 100 jobs waited no longer', unit: 'seconds', none: 'No pool has had a job.',
    lines: () => each(store.find('freewheel_pool_waiting_seconds'), ['pool'], (g) => most(g.map(p99))),
  },
  {
    id: 'threads', title: 'Pools: threads', what: 'busy', unit: 'number', none: 'There is no pool.',
    lines: () => each(store.find('freewheel_pool_threads', {state: 'busy'}), ['pool'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'running', title: 'Pools: running', what: '99 of 100 jobs ran no longer', unit: 'seconds', none: 'No pool has had a job.',
    lines: () => each(store.find('freewheel_pool_running_seconds'), ['pool'], (g) => most(g.map(p99))),
  },
];

const last = (values) => values[values.length - 1] ?? null;

// [name, text] for each number at the top.
function tiles() {
  const lately = (lines) => lines.map((values) => Math.max(...values.slice(-5).map((v) => v ?? 0)));
  const blocked = store.find('freewheel_event_loop_blocked_seconds').map(p99);
  const generation = store.find('freewheel_configuration_generation').map(gauge);
  const started = store.find('freewheel_process_start_time_seconds').map(gauge);
  return [
    ['requests', shown('rate', last(sum(store.find('freewheel_loop_requests').map(perSecond))))],
    ['connections', shown('number', last(sum(store.find('freewheel_loop_connections').map(gauge))))],
    ['blocked, 10 s', shown('seconds', blocked.length ? Math.max(...lately(blocked)) : null)],
    ['jobs that wait', shown('number', last(sum(store.find('freewheel_pool_queue').map(gauge))))],
    ['configuration', started.length ? `${last(generation[0])}, up ${duration(now() / 1000 - last(started[0]))}` : '–'],
  ];
}

function duration(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const [name, size] = units.find(([, each]) => seconds >= each) ?? units[3];
  return `${Math.floor(seconds / size)} ${name}`;
}
