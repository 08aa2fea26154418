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
    id: 'first-byte', title: 'Answers: time to the first byte', what: '99 of 100 began no later', unit: 'seconds',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_first_byte_seconds'), ['zone'], (g) => most(g.map(p99))),
  },
  {
    id: 'running', title: 'Requests in progress', what: 'at servers with status_zone', unit: 'number',
    none: 'No server has a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_requests_running'), ['zone'], (g) => sum(g.map(gauge))),
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
    id: 'pool-running', title: 'Pools: running', what: '99 of 100 jobs ran no longer', unit: 'seconds', none: 'No pool has had a job.',
    lines: () => each(store.find('freewheel_pool_running_seconds'), ['pool'], (g) => most(g.map(p99))),
  },
  {
    id: 'memory', title: 'Files: served from memory', what: 'share of what loops asked for', unit: 'share', none: 'No file was asked for.',
    lines: () => {
      // What changes a disk is never answered from memory.
      const all = store.find('freewheel_disk_answers').filter((one) => ['open', 'stat', 'read', 'send', 'readdir'].includes(one.labels.operation));
      const fromMemory = all.filter((one) => ['memory', 'kept'].includes(one.labels.source));
      return by(all, 'operation').map(([name, group]) => ({
        name,
        values: share(sum(fromMemory.filter((one) => group.includes(one)).map(gauge)), sum(group.map(gauge))),
      }));
    },
  },
  {
    id: 'disks', title: 'Disks: latency', what: '99 of 100 calls took no longer', unit: 'seconds', none: 'No disk had to be asked.',
    lines: () => [
      ...each(store.find('freewheel_disk_read_seconds'), ['mount'], (g) => most(g.map(p99)), (n) => `${n} read`),
      ...each(store.find('freewheel_disk_write_seconds'), ['mount'], (g) => most(g.map(p99)), (n) => `${n} write`),
    ],
  },
  {
    id: 'disk-bytes', title: 'Disks: bytes', what: 'per second', unit: 'byteRate', none: 'No disk had to be asked.',
    lines: () => each(store.find('freewheel_disk_bytes'), ['mount', 'direction'], (g) => sum(g.map(perSecond))),
  },
  {
    id: 'hits', title: 'Caches: hits', what: 'share of the answers', unit: 'share', none: 'There is no cache, or nobody has asked it.',
    lines: () => by(store.find('freewheel_cache_requests'), 'cache').map(([name, group]) => {
      const hits = group.filter((one) => /^(hit|stale|updating|revalidated)$/i.test(one.labels.status));
      return {name, values: share(sum(hits.map(gauge)), sum(group.map(gauge)))};
    }),
  },
  {
    id: 'fill', title: 'Caches: full', what: 'share of max_size', unit: 'share', none: 'There is no cache with a max_size.',
    lines: () => by(store.find('freewheel_cache_max_size_bytes'), 'cache').map(([name, bounds]) => ({
      name,
      values: share(sum(store.find('freewheel_cache_size_bytes', {cache: name}).map(gauge)), sum(bounds.map(gauge))),
    })),
  },
  {
    id: 'fetches', title: 'Caches: fetches', what: 'begun, followed and evicted, per second', unit: 'rate', none: 'There is no cache.',
    lines: () => [
      {name: 'fetches', values: sum(store.find('freewheel_cache_fills').map(perSecond))},
      {name: 'followers', values: sum(store.find('freewheel_cache_followers').map(perSecond))},
      {name: 'evictions', values: sum(store.find('freewheel_cache_events', {event: 'evicted'}).map(perSecond))},
    ],
  },
  {
    id: 'upstreams', title: 'Upstreams: time to the head', what: '99 of 100 answers began no later', unit: 'seconds',
    none: 'No upstream was asked.',
    lines: () => each(store.find('freewheel_upstream_header_seconds'), ['upstream', 'peer'], (g) => most(g.map(p99))),
  },
  {
    id: 'upstream-requests', title: 'Upstreams: requests', what: 'by outcome, per second', unit: 'rate', none: 'No upstream was asked.',
    lines: () => each(store.find('freewheel_upstream_requests'), ['upstream', 'outcome'], (g) => sum(g.map(perSecond)))
      .filter(({values}) => values.some((v) => v > 0)),
  },
];

const last = (values) => values[values.length - 1] ?? null;

// [name, text] for each number at the top.
function tiles() {
  const lately = (lines) => lines.map((values) => Math.max(...values.slice(-5).map((v) => v ?? 0)));
  const blocked = store.find('freewheel_event_loop_blocked_seconds').map(p99);
  const generation = store.find('freewheel_configuration_generation').map(gauge);
  const took = store.find('freewheel_configuration_load_seconds').map(gauge);
  const started = store.find('freewheel_process_start_time_seconds').map(gauge);
  return [
    ['requests', shown('rate', last(sum(store.find('freewheel_loop_requests').map(perSecond))))],
    ['connections', shown('number', last(sum(store.find('freewheel_loop_connections').map(gauge))))],
    ['blocked, 10 s', shown('seconds', blocked.length ? Math.max(...lately(blocked)) : null)],
    ['jobs that wait', shown('number', last(sum(store.find('freewheel_pool_queue').map(gauge))))],
    ['configuration', took.length ? `${last(generation[0])}, in ${shown('seconds', last(took[0]))}` : '–'],
    ['up', started.length ? duration(now() / 1000 - last(started[0])) : '–'],
  ];
}

function duration(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const [name, size] = units.find(([, each]) => seconds >= each) ?? units[3];
  return `${Math.floor(seconds / size)} ${name}`;
}
