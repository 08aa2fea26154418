// What is shown: which figures, in which panel, with which unit. A panel whose figures are not there says so, or is not there itself
// (isOptional: what only some configurations have).

const each = (list, labels, values, say = (name) => name) =>
  by(list, ...labels).map(([name, group]) => ({name: say(name), values: values(group)}));

const hasMoved = ({values}) => values.some((v) => v > 0);
// Only the lines that are not 0 all the time; all of them where there is none.
const moved = (lines) => lines.some(hasMoved) ? lines.filter(hasMoved) : lines;

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
    id: 'polls', title: 'Loops: longest poll', what: 'what kept a loop longest at a time', unit: 'seconds', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_poll_seconds'), ['loop'], (g) => most(g.map(longest)), (n) => `loop ${n}`),
  },
  {
    id: 'ticks', title: 'Loops: lateness', what: '99 of 100 ticks of 1 ms were served no later', unit: 'seconds', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_tick_lateness_seconds'), ['loop'], (g) => most(g.map(p99)), (n) => `loop ${n}`),
  },
  {
    id: 'unserved', title: 'Loops: without a processor', what: 'share of the time that they were ready and had none: the machine is too busy',
    unit: 'share', isOptional: true,
    lines: () => each(store.find('freewheel_loop_processor_wait_seconds'), ['loop'], (g) => sum(g.map(perSecond)), (n) => `loop ${n}`),
  },
  {
    id: 'requests', title: 'Requests', what: 'per second', unit: 'rate', none: 'No request has come.',
    lines: () => [
      {name: 'requests', values: sum(store.find('freewheel_loop_requests').map(perSecond))},
      {name: 'new connections', values: sum(store.find('freewheel_loop_accepted_connections').map(perSecond))},
    ],
  },
  {
    id: 'statuses', title: 'Answers: by status', what: 'per second', unit: 'rate', none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_requests'), ['status'], (g) => sum(g.map(perSecond)))
      .filter(({name, values}) => /^[245]/.test(name) || hasMoved({values})),
  },
  {
    id: 'first-byte', title: 'Answers: time to the first byte', what: '99 of 100 began no later', unit: 'seconds',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_first_byte_seconds'), ['zone'], (g) => most(g.map(p99))),
  },
  {
    id: 'total', title: 'Answers: time to the end', what: '99 of 100 had ended by then', unit: 'seconds',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_request_seconds'), ['zone'], (g) => most(g.map(p99))),
  },
  {
    id: 'bytes', title: 'Answers: bytes', what: 'received and sent, per second', unit: 'byteRate',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_bytes'), ['direction'], (g) => sum(g.map(perSecond))),
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
    id: 'threads', title: 'Pools: threads', what: 'share that is busy', unit: 'share', none: 'There is no pool.',
    lines: () => by(store.find('freewheel_pool_threads', {state: 'max'}), 'pool').map(([name, bounds]) => {
      const bound = sum(bounds.map(gauge));
      const busy = store.find('freewheel_pool_threads', {state: 'busy', pool: name});
      return {name: `${name} (of ${last(bound) ?? 0})`, values: share(sum(busy.map(gauge)), bound)};
    }),
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
    id: 'calls', title: 'Disks: calls', what: '99 of 100 took no longer, by what was done', unit: 'seconds', none: 'No disk had to be asked.',
    lines: () => each(store.find('freewheel_disk_call_seconds'), ['operation'], (g) => most(g.map(p99))),
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
    id: 'entries', title: 'Caches: entries', what: 'keys that are known', unit: 'number', none: 'There is no cache.',
    lines: () => each(store.find('freewheel_cache_entries'), ['cache'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'cache-memory', title: 'Caches: memory', what: 'of the index, and what waits to be written', unit: 'bytes', none: 'There is no cache.',
    lines: () => [
      ...each(store.find('freewheel_cache_index_bytes'), ['cache'], (g) => sum(g.map(gauge)), (n) => `${n} index`),
      ...each(store.find('freewheel_cache_unsaved_bytes'), ['cache'], (g) => sum(g.map(gauge)), (n) => `${n} unsaved`),
    ],
  },
  {
    id: 'upstreams', title: 'Upstreams: time to the head', what: '99 of 100 answers began no later', unit: 'seconds',
    none: 'No upstream was asked.',
    lines: () => each(store.find('freewheel_upstream_header_seconds'), ['upstream', 'peer'], (g) => most(g.map(p99))),
  },
  {
    id: 'upstream-requests', title: 'Upstreams: requests', what: 'by outcome, per second', unit: 'rate', none: 'No upstream was asked.',
    lines: () => moved(each(store.find('freewheel_upstream_requests'), ['upstream', 'outcome'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'upstream-now', title: 'Upstreams: at work', what: 'requests that each has now', unit: 'number', none: 'No upstream was asked.',
    lines: () => each(store.find('freewheel_upstream_connections'), ['upstream', 'peer'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'limits', title: 'Limits: refused and delayed', what: 'requests per second, by zone', unit: 'rate', isOptional: true,
    lines: () => each(store.find('freewheel_limit_requests').filter((one) => one.labels.outcome !== 'passed'), ['zone', 'outcome'],
      (g) => sum(g.map(perSecond)), (n) => n.replaceAll('_', ' '))
      .filter(({name, values}) => name.endsWith(' rejected') || hasMoved({values})),
  },
  {
    id: 'limit-zones', title: 'Limits: full', what: 'share of the zone; beyond it keys are forgotten, or refused', unit: 'share', isOptional: true,
    lines: () => by(store.find('freewheel_limit_zone_size_bytes'), 'zone').map(([name, bounds]) => ({
      name,
      values: share(sum(store.find('freewheel_limit_zone_used_bytes', {zone: name}).map(gauge)), sum(bounds.map(gauge))),
    })),
  },
  {
    id: 'handshakes', title: 'TLS: handshakes', what: 'of clients, by how they ended, per second', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_tls_handshakes'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => n.replaceAll('_', ' '))),
  },
  {
    id: 'handshake-steps', title: 'TLS: steps', what: '99 of 100 steps of a handshake took no longer, waiting included', unit: 'seconds', isOptional: true,
    lines: () => each(store.find('freewheel_tls_handshake_step_seconds'), [], (g) => most(g.map(p99)), () => 'steps'),
  },
  {
    id: 'ciphers', title: 'TLS: connections', what: 'by version and cipher suite, per second', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_tls_connections'), ['protocol', 'cipher'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'certificates', title: 'TLS: certificates', what: 'days until each ends', unit: 'number', isOptional: true,
    lines: () => each(store.find('freewheel_tls_certificate_end_seconds'), ['certificate'], (g) => least(g.map(gauge)).map(daysLeft)),
  },
  {
    id: 'streams', title: 'HTTP/2: streams', what: 'requests, per second, and those that are reset', unit: 'rate', isOptional: true,
    lines: () => [
      ...each(store.find('freewheel_http2_streams'), [], (g) => sum(g.map(perSecond)), () => 'streams'),
      ...each(store.find('freewheel_http2_resets'), ['by'], (g) => sum(g.map(perSecond)), (n) => `reset: ${n}`).filter(hasMoved),
    ],
  },
  {
    id: 'goaways', title: 'HTTP/2: connections ended', what: 'by reason, per second; all but “end” are faults of clients', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_http2_goaways'), ['reason'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'compression', title: 'Compression: bytes', what: 'in and out, per second', unit: 'byteRate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_compression_bytes'), ['encoding', 'direction'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'compression-time', title: 'Compression: time', what: 'share of one processor', unit: 'share', isOptional: true,
    lines: () => moved(each(store.find('freewheel_compression_seconds'), ['encoding', 'place'], (g) => sum(g.map(perSecond)),
      (n) => n.replace(' ', ', '))),
  },
  {
    id: 'passwords', title: 'Passwords', what: 'what auth_basic found, per second', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_auth_basic_requests'), ['outcome'], (g) => sum(g.map(perSecond)),
      (n) => n.replaceAll('_', ' '))),
  },
  {
    id: 'password-checks', title: 'Passwords: checks', what: '99 of 100 took no longer, waiting included', unit: 'seconds', isOptional: true,
    lines: () => each(store.find('freewheel_auth_basic_check_seconds'), [], (g) => most(g.map(p99)), () => 'checks'),
  },
  {
    id: 'subrequests', title: 'Sub-requests', what: 'by who asks, and those of them that failed, per second', unit: 'rate', isOptional: true,
    lines: () => [
      ...each(store.find('freewheel_subrequests'), ['kind'], (g) => sum(g.map(perSecond))),
      ...each(store.find('freewheel_subrequests').filter((one) => /^([45]|none)/.test(one.labels.status)), ['kind', 'status'], (g) => sum(g.map(perSecond)))
        .filter(hasMoved),
    ],
  },
  {
    id: 'proxied', title: 'Clients behind proxies', what: 'PROXY protocol and real_ip_header, per second', unit: 'rate', isOptional: true,
    lines: () => moved([
      ...each(store.find('freewheel_proxy_protocol_connections'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => `PROXY ${n}`),
      ...each(store.find('freewheel_real_ip_requests'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => `address ${n}`),
    ]),
  },
  {
    id: 'process-memory', title: 'Worker: memory', what: 'its own, and all in use', unit: 'bytes', none: 'It is not told.',
    lines: () => each(store.find('freewheel_process_memory_bytes').filter((one) => one.labels.kind !== 'virtual'), ['kind'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'memory-held', title: 'Worker: who holds memory', what: 'without the kernel’s cache; other is what nobody is named for', unit: 'bytes', none: 'It is not told.',
    lines: () => [
      ...each(store.find('freewheel_memory_held_bytes'), ['holder'], (g) => sum(g.map(gauge))).filter(hasMoved),
      ...each(store.find('freewheel_memory_budget_bytes'), [], (g) => sum(g.map(gauge)), () => 'budget'),
    ],
  },
  {
    id: 'processors', title: 'Worker: processors', what: 'time of all its threads, as a share of one', unit: 'share', none: 'It is not told.',
    lines: () => each(store.find('freewheel_process_cpu_seconds'), [], (g) => sum(g.map(perSecond)), () => 'all threads'),
  },
];

const DAY = 86400;
const least = (lists) => lists[0].map((_, i) => Math.min(...lists.map((values) => values[i] ?? Infinity)));
const daysLeft = (end) => (Number.isFinite(end) ? Math.max(0, (end - now() / 1000) / DAY) : null);

const last = (values) => values[values.length - 1] ?? null;

// What was refused, failed or left out in the time that is shown, whose place on the page would be easily overlooked.
function losses() {
  const counts = [
    ['jobs refused', 'freewheel_pool_rejected_jobs', {}],
    ['disk errors', 'freewheel_disk_call_errors', {}],
    ['cache troubles', 'freewheel_cache_troubles', {}],
    ['log lines', 'freewheel_log_lines', {outcome: 'dropped'}],
    ['log lines', 'freewheel_log_lines', {outcome: 'failed'}],
  ];
  return counts
    .map(([name, family, labels]) => [name, store.find(family, labels).flatMap(gauge).reduce((s, v) => s + (v ?? 0), 0)])
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${shown('number', count)} ${name}`).join(', ');
}

// [name, text, is it bad] for each number at the top.
function tiles() {
  const lately = (lines) => lines.map((values) => Math.max(...values.slice(-5).map((v) => v ?? 0)));
  const blocked = store.find('freewheel_event_loop_blocked_seconds').map(p99);
  const generation = store.find('freewheel_configuration_generation').map(gauge);
  const took = store.find('freewheel_configuration_load_seconds').map(gauge);
  const started = store.find('freewheel_process_start_time_seconds').map(gauge);
  const failed = sum(store.find('freewheel_zone_requests', {status: '5xx'}).map(perSecond));
  const memory = store.find('freewheel_process_memory_bytes', {kind: 'anonymous'}).map(gauge);
  const descriptors = ['open', 'max'].map((state) => last(sum(store.find('freewheel_process_descriptors', {state}).map(gauge))));
  const out = store.find('freewheel_upstream_peer_failing').filter((one) => last(one.values) > 0).map((one) => one.labels.peer || 'others');
  const lost = losses();
  return [
    ['requests', shown('rate', last(sum(store.find('freewheel_loop_requests').map(perSecond))))],
    ['connections', shown('number', last(sum(store.find('freewheel_loop_connections').map(gauge))))],
    ['blocked, 10 s', shown('seconds', blocked.length ? Math.max(...lately(blocked)) : null)],
    ['5xx, 10 s', failed.length ? shown('rate', Math.max(...lately([failed]))) : '–', failed.slice(-5).some((v) => v > 0)],
    ['stalls, 15 min', shown('number', store.find('freewheel_stalls').flatMap(gauge).reduce((s, v) => s + (v ?? 0), 0))],
    ['jobs that wait', shown('number', last(sum(store.find('freewheel_pool_queue').map(gauge))))],
    ['memory, its own', shown('bytes', last(sum(memory)))],
    ['descriptors', `${shown('number', descriptors[0])} of ${shown('number', descriptors[1])}`, descriptors[0] > 0.9 * descriptors[1]],
    ['peers that fail', out.slice(0, 2).join(', ') + (out.length > 2 ? ` and ${out.length - 2} more` : '') || 'none', out.length > 0],
    ['lost, 15 min', lost || 'nothing', Boolean(lost)],
    ...snapshots(),
    ...certificates(),
    ['configuration', took.length ? `${last(generation[0])}, in ${shown('seconds', last(took[0]))}` : '–'],
    ['up', started.length ? duration(now() / 1000 - last(started[0])) : '–'],
  ];
}

// Where caches have saved their index: how much the oldest of them would not know after a crash.
function snapshots() {
  const ages = store.find('freewheel_cache_snapshot_age_seconds').map((one) => last(one.values)).filter((age) => age !== null);
  return ages.length ? [['index saved', `${duration(Math.max(...ages))} ago`]] : [];
}

// The certificate that ends first.
function certificates() {
  const ends = store.find('freewheel_tls_certificate_end_seconds').map((one) => last(one.values)).filter((end) => end !== null);
  if (!ends.length) return [];
  const days = daysLeft(Math.min(...ends));
  return [['certificate ends', days > 0 ? `in ${Math.floor(days)} d` : 'has ended', days < 14]];
}

function duration(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const [name, size] = units.find(([, each]) => seconds >= each) ?? units[3];
  return `${Math.floor(seconds / size)} ${name}`;
}
