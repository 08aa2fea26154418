// What is shown: which figures, in which panel, with which unit. A panel whose figures are not there says so, or is not there itself
// (isOptional: what only some configurations have).

const each = (list, labels, values, say = (name) => name) =>
  by(list, ...labels).map(([name, group]) => ({name: say(name), values: values(group)}));

const hasMoved = ({values}) => values.some((v) => v > 0);
// Only the lines that are not 0 all the time; all of them where there is none.
const moved = (lines) => lines.some(hasMoved) ? lines.filter(hasMoved) : lines;

const PANELS = [
  {
    id: 'requests', section: 'now', title: 'Requests', what: 'and answers by status, per second', unit: 'rate', none: 'No request has come.',
    lines: () => [
      {name: 'requests', values: sum(store.find('freewheel_loop_requests').map(perSecond))},
      ...each(store.find('freewheel_zone_requests'), ['status'], (g) => sum(g.map(perSecond)))
        .filter((line) => /^[245]/.test(line.name) && hasMoved(line)),
    ],
  },
  {
    id: 'latency', section: 'now', title: 'Latency', what: 'of an answer, to its end', unit: 'seconds',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => ['freewheel_zone_request_seconds'].map((name) => store.find(name)).flatMap((all) => [
      {name: 'median', values: weighted(all, 1)},
      {name: '99 of 100', values: most(all.map(p99))},
    ]),
  },
  {
    id: 'blocked', section: 'now', title: 'Event loops: blocked', what: '99 of 100 events; dark 10 µs, bright 1 s',
    unit: 'seconds', isHeat: true, none: 'No loop has had an event.',
    lines: () => each(store.find('freewheel_event_loop_blocked_seconds'), ['loop'], (g) => most(g.map(p99)), (n) => `loop ${n}`),
  },
  {
    id: 'queue', section: 'now', title: 'Pools: queue', what: 'jobs that wait for a thread', unit: 'number', none: 'There is no pool.',
    lines: () => moved(each(store.find('freewheel_pool_queue'), ['pool', 'lane'], (g) => sum(g.map(gauge)))),
  },
  {
    id: 'hits', section: 'now', title: 'Caches: hits', what: 'share of the answers', unit: 'share', none: 'There is no cache, or no request came to it.',
    lines: () => by(store.find('freewheel_cache_requests'), 'cache').map(([name, group]) => {
      const hits = group.filter((one) => /^(hit|stale|updating|revalidated)$/i.test(one.labels.status));
      return {name, values: share(sum(hits.map(gauge)), sum(group.map(gauge)))};
    }),
  },
  {
    id: 'bytes', section: 'now', title: 'Bytes', what: 'to clients, and of the disks, per second', unit: 'byteRate', none: 'No byte was sent.',
    lines: () => [
      ...each(store.find('freewheel_zone_bytes'), ['direction'], (g) => sum(g.map(perSecond))),
      ...each(store.find('freewheel_disk_bytes'), ['direction'], (g) => sum(g.map(perSecond)), (n) => `disk: ${n}`),
    ],
  },
  {
    id: 'statuses', section: 'requests', title: 'Answers: by status', what: 'per second', unit: 'rate', none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_requests'), ['status'], (g) => sum(g.map(perSecond)))
      .filter(({name, values}) => /^[245]/.test(name) || hasMoved({values})),
  },
  {
    id: 'first-byte', section: 'requests', title: 'Answers: time to the first byte', what: '99 of 100 began no later', unit: 'seconds',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_first_byte_seconds'), ['zone'], (g) => most(g.map(p99))),
  },
  {
    id: 'total', section: 'requests', title: 'Answers: time to the end', what: '99 of 100 had ended by then', unit: 'seconds',
    none: 'No request has ended in a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_request_seconds'), ['zone'], (g) => most(g.map(p99))),
  },
  {
    id: 'running', section: 'requests', title: 'Requests in progress', what: 'at servers with status_zone', unit: 'number',
    none: 'No server has a zone (status_zone).',
    lines: () => each(store.find('freewheel_zone_requests_running'), ['zone'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'connections', section: 'requests', title: 'Connections', what: 'of clients', unit: 'number', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_connections'), ['state'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'subrequests', section: 'requests', title: 'Sub-requests', what: 'by what asks, and those of them that failed, per second', unit: 'rate', isOptional: true,
    lines: () => [
      ...each(store.find('freewheel_subrequests'), ['kind'], (g) => sum(g.map(perSecond))),
      ...each(store.find('freewheel_subrequests').filter((one) => /^([45]|none)/.test(one.labels.status)), ['kind', 'status'], (g) => sum(g.map(perSecond)))
        .filter(hasMoved),
    ],
  },
  {
    id: 'proxied', section: 'requests', title: 'Clients behind proxies', what: 'PROXY protocol and real_ip_header, per second', unit: 'rate', isOptional: true,
    lines: () => moved([
      ...each(store.find('freewheel_proxy_protocol_connections'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => `PROXY ${n}`),
      ...each(store.find('freewheel_real_ip_requests'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => `address ${n}`),
    ]),
  },
  {
    id: 'streams', section: 'requests', title: 'HTTP/2: streams', what: 'requests, per second, and those that are reset', unit: 'rate', isOptional: true,
    lines: () => [
      ...each(store.find('freewheel_http2_streams'), [], (g) => sum(g.map(perSecond)), () => 'streams'),
      ...each(store.find('freewheel_http2_resets'), ['by'], (g) => sum(g.map(perSecond)), (n) => `reset: ${n}`).filter(hasMoved),
    ],
  },
  {
    id: 'goaways', section: 'requests', title: 'HTTP/2: connections ended', what: 'by reason, per second; all but “end” are faults of clients', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_http2_goaways'), ['reason'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'compression', section: 'requests', title: 'Compression: bytes', what: 'in and out, per second', unit: 'byteRate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_compression_bytes'), ['encoding', 'direction'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'compression-time', section: 'requests', title: 'Compression: time', what: 'share of one processor', unit: 'share', isOptional: true,
    lines: () => moved(each(store.find('freewheel_compression_seconds'), ['encoding', 'place'], (g) => sum(g.map(perSecond)),
      (n) => n.replace(' ', ', '))),
  },
  {
    id: 'busy', section: 'loops', title: 'Busy', what: 'share of the time', unit: 'share', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_busy_seconds'), ['loop'], (g) => sum(g.map(perSecond)), (n) => `loop ${n}`),
  },
  {
    id: 'polls', section: 'loops', title: 'Longest poll', what: 'what kept a loop longest at a time', unit: 'seconds', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_poll_seconds'), ['loop'], (g) => most(g.map(longest)), (n) => `loop ${n}`),
  },
  {
    id: 'ticks', section: 'loops', title: 'Lateness', what: '99 of 100 ticks of 1 ms were served no later', unit: 'seconds', none: 'No loop runs.',
    lines: () => each(store.find('freewheel_loop_tick_lateness_seconds'), ['loop'], (g) => most(g.map(p99)), (n) => `loop ${n}`),
  },
  {
    id: 'unserved', section: 'loops', title: 'Without a processor', what: 'share of the time that they were ready and had none: the machine is too busy',
    unit: 'share', isOptional: true,
    lines: () => each(store.find('freewheel_loop_processor_wait_seconds'), ['loop'], (g) => sum(g.map(perSecond)), (n) => `loop ${n}`),
  },
  {
    id: 'wait', section: 'pools', title: 'Wait', what: '99 of 100 jobs waited no longer', unit: 'seconds', none: 'No pool has had a job.',
    lines: () => each(store.find('freewheel_pool_waiting_seconds'), ['pool'], (g) => most(g.map(p99))),
  },
  {
    id: 'threads', section: 'pools', title: 'Threads', what: 'share that is busy', unit: 'share', none: 'There is no pool.',
    lines: () => by(store.find('freewheel_pool_threads', {state: 'max'}), 'pool').map(([name, bounds]) => {
      const bound = sum(bounds.map(gauge));
      const busy = store.find('freewheel_pool_threads', {state: 'busy', pool: name});
      return {name: `${name} (of ${last(bound) ?? 0})`, values: share(sum(busy.map(gauge)), bound)};
    }),
  },
  {
    id: 'pool-running', section: 'pools', title: 'Running', what: '99 of 100 jobs ran no longer', unit: 'seconds', none: 'No pool has had a job.',
    lines: () => each(store.find('freewheel_pool_running_seconds'), ['pool'], (g) => most(g.map(p99))),
  },
  {
    id: 'memory', section: 'disks', title: 'Files: served from memory', what: 'share of what loops asked for', unit: 'share', none: 'No file was asked for.',
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
    id: 'disks', section: 'disks', title: 'Latency', what: '99 of 100 calls took no longer', unit: 'seconds', none: 'No disk had to be asked.',
    lines: () => [
      ...each(store.find('freewheel_disk_read_seconds'), ['mount'], (g) => most(g.map(p99)), (n) => `${n} read`),
      ...each(store.find('freewheel_disk_write_seconds'), ['mount'], (g) => most(g.map(p99)), (n) => `${n} write`),
    ],
  },
  {
    id: 'calls', section: 'disks', title: 'Calls', what: '99 of 100 took no longer, by what was done', unit: 'seconds', none: 'No disk had to be asked.',
    lines: () => each(store.find('freewheel_disk_call_seconds'), ['operation'], (g) => most(g.map(p99))),
  },
  {
    id: 'disk-bytes', section: 'disks', title: 'Bytes', what: 'per second', unit: 'byteRate', none: 'No disk had to be asked.',
    lines: () => each(store.find('freewheel_disk_bytes'), ['mount', 'direction'], (g) => sum(g.map(perSecond))),
  },
  {
    id: 'fill', section: 'caches', title: 'Full', what: 'share of max_size', unit: 'share', none: 'There is no cache with a max_size.',
    lines: () => by(store.find('freewheel_cache_max_size_bytes'), 'cache').map(([name, bounds]) => ({
      name,
      values: share(sum(store.find('freewheel_cache_size_bytes', {cache: name}).map(gauge)), sum(bounds.map(gauge))),
    })),
  },
  {
    id: 'fetches', section: 'caches', title: 'Fetches', what: 'begun, followed and evicted, per second', unit: 'rate', none: 'There is no cache.',
    lines: () => [
      {name: 'fetches', values: sum(store.find('freewheel_cache_fills').map(perSecond))},
      {name: 'followers', values: sum(store.find('freewheel_cache_followers').map(perSecond))},
      {name: 'evictions', values: sum(store.find('freewheel_cache_events', {event: 'evicted'}).map(perSecond))},
    ],
  },
  {
    id: 'cache-disks', section: 'caches', title: 'Disks', what: '0 well, 1 slow, 2 failing, 3 out; the log has the reasons', unit: 'number', none: 'There is no cache.',
    lines: () => [
      ...each(store.find('freewheel_cache_disk_state'), ['cache', 'disk'], (g) => most(g.map(gauge))),
      ...moved(each(store.find('freewheel_cache_disk_write_state'), ['cache', 'disk'], (g) => most(g.map(gauge)), (n) => `${n} not written`)),
    ],
  },
  {
    id: 'past-disks', section: 'caches', title: 'Past disks', what: 'answered without the disk, raced by the origin and won by it, per second', unit: 'rate', isOptional: true,
    lines: () => moved([
      {name: 'past a disk', values: sum(store.find('freewheel_cache_past_disk').map(perSecond))},
      ...each(store.find('freewheel_cache_hedges'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => `races ${n}`),
      ...each(store.find('freewheel_cache_takeovers'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => `broken off, ${n}`),
    ]),
  },
  {
    id: 'entries', section: 'caches', title: 'Entries', what: 'keys that are known', unit: 'number', none: 'There is no cache.',
    lines: () => each(store.find('freewheel_cache_entries'), ['cache'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'cache-memory', section: 'caches', title: 'Memory', what: 'of the index, and what waits to be written', unit: 'bytes', none: 'There is no cache.',
    lines: () => [
      ...each(store.find('freewheel_cache_index_bytes'), ['cache'], (g) => sum(g.map(gauge)), (n) => `${n} index`),
      ...each(store.find('freewheel_cache_unsaved_bytes'), ['cache'], (g) => sum(g.map(gauge)), (n) => `${n} unsaved`),
    ],
  },
  {
    id: 'upstreams', section: 'upstreams', title: 'Time to the head', what: '99 of 100 answers began no later', unit: 'seconds',
    none: 'No upstream was asked.',
    lines: () => each(store.find('freewheel_upstream_header_seconds'), ['upstream', 'peer'], (g) => most(g.map(p99))),
  },
  {
    id: 'upstream-requests', section: 'upstreams', title: 'Requests', what: 'by outcome, per second', unit: 'rate', none: 'No upstream was asked.',
    lines: () => moved(each(store.find('freewheel_upstream_requests'), ['upstream', 'outcome'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'upstream-now', section: 'upstreams', title: 'At work', what: 'requests that each has now', unit: 'number', none: 'No upstream was asked.',
    lines: () => each(store.find('freewheel_upstream_connections'), ['upstream', 'peer'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'handshakes', section: 'tls', title: 'Handshakes', what: 'of clients, by how they ended, per second', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_tls_handshakes'), ['outcome'], (g) => sum(g.map(perSecond)), (n) => n.replaceAll('_', ' '))),
  },
  {
    id: 'handshake-steps', section: 'tls', title: 'Steps', what: '99 of 100 steps of a handshake took no longer, waiting included', unit: 'seconds', isOptional: true,
    lines: () => each(store.find('freewheel_tls_handshake_step_seconds'), [], (g) => most(g.map(p99)), () => 'steps'),
  },
  {
    id: 'ciphers', section: 'tls', title: 'Connections', what: 'by version and cipher suite, per second', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_tls_connections'), ['protocol', 'cipher'], (g) => sum(g.map(perSecond)))),
  },
  {
    id: 'certificates', section: 'tls', title: 'Certificates', what: 'days until each ends', unit: 'number', isOptional: true,
    lines: () => each(store.find('freewheel_tls_certificate_end_seconds'), ['certificate'], (g) => least(g.map(gauge)).map(daysLeft)),
  },
  {
    id: 'limits', section: 'limits', title: 'Refused and delayed', what: 'requests per second, by zone', unit: 'rate', isOptional: true,
    lines: () => each(store.find('freewheel_limit_requests').filter((one) => one.labels.outcome !== 'passed'), ['zone', 'outcome'],
      (g) => sum(g.map(perSecond)), (n) => n.replaceAll('_', ' '))
      .filter(({name, values}) => name.endsWith(' rejected') || hasMoved({values})),
  },
  {
    id: 'limit-zones', section: 'limits', title: 'Full', what: 'share of the zone; beyond it keys are forgotten, or refused', unit: 'share', isOptional: true,
    lines: () => by(store.find('freewheel_limit_zone_size_bytes'), 'zone').map(([name, bounds]) => ({
      name,
      values: share(sum(store.find('freewheel_limit_zone_used_bytes', {zone: name}).map(gauge)), sum(bounds.map(gauge))),
    })),
  },
  {
    id: 'passwords', section: 'limits', title: 'Passwords', what: 'what auth_basic found, per second', unit: 'rate', isOptional: true,
    lines: () => moved(each(store.find('freewheel_auth_basic_requests'), ['outcome'], (g) => sum(g.map(perSecond)),
      (n) => n.replaceAll('_', ' '))),
  },
  {
    id: 'password-checks', section: 'limits', title: 'Passwords: checks', what: '99 of 100 took no longer, waiting included', unit: 'seconds', isOptional: true,
    lines: () => each(store.find('freewheel_auth_basic_check_seconds'), [], (g) => most(g.map(p99)), () => 'checks'),
  },
  {
    id: 'process-memory', section: 'worker', title: 'Memory', what: 'its own, and all in use', unit: 'bytes', none: 'It is not told.',
    lines: () => each(store.find('freewheel_process_memory_bytes').filter((one) => one.labels.kind !== 'virtual'), ['kind'], (g) => sum(g.map(gauge))),
  },
  {
    id: 'memory-held', section: 'worker', title: 'Holders of memory', what: 'without the kernel’s cache; other has no account', unit: 'bytes', none: 'It is not told.',
    lines: () => [
      ...each(store.find('freewheel_memory_held_bytes'), ['holder'], (g) => sum(g.map(gauge))).filter(hasMoved),
      ...each(store.find('freewheel_memory_budget_bytes'), [], (g) => sum(g.map(gauge)), () => 'budget'),
    ],
  },
  {
    id: 'processors', section: 'worker', title: 'Processors', what: 'time of all its threads, as a share of one', unit: 'share', none: 'It is not told.',
    lines: () => each(store.find('freewheel_process_cpu_seconds'), [], (g) => sum(g.map(perSecond)), () => 'all threads'),
  },
];

const SECTIONS = [
  {id: 'requests', title: 'Requests', sum: () => `${shown('number', last(sum(store.find('freewheel_zone_requests_running').map(gauge))))} in progress`},
  {id: 'loops', title: 'Event loops', sum: () => `busiest ${shown('share', highest(store.find('freewheel_loop_busy_seconds').map(perSecond)))}`},
  {id: 'pools', title: 'Pools', sum: () => `wait ${shown('seconds', highest(store.find('freewheel_pool_waiting_seconds').map(p99)))}`},
  {id: 'disks', title: 'Disks and files', sum: () => `read ${shown('seconds', highest(store.find('freewheel_disk_read_seconds').map(p99)))}`},
  {id: 'caches', title: 'Caches', sum: () => `${shown('number', last(sum(store.find('freewheel_cache_entries').map(gauge))))} entries`},
  {id: 'upstreams', title: 'Upstreams', sum: () => `first byte ${shown('seconds', highest(store.find('freewheel_upstream_header_seconds').map(p99)))}`},
  {id: 'tls', title: 'TLS', sum: () => `${shown('rate', last(sum(store.find('freewheel_tls_handshakes').map(perSecond))))} handshakes`},
  {id: 'limits', title: 'Limits and passwords', sum: () => `${shown('rate', last(sum(store.find('freewheel_limit_requests')
    .filter((one) => one.labels.outcome === 'rejected').map(perSecond))))} refused`},
  {id: 'worker', title: 'Worker', sum: () => `memory ${shown('bytes', last(sum(store.find('freewheel_process_memory_bytes', {kind: 'anonymous'}).map(gauge))))}`},
];

// The highest of the lines in the last sample.
const highest = (lines) => last(most(lines));
// The mean of a column of histograms, each weighted by its number of values.
const weighted = (all, index) => store.times.map((_, at) => {
  const there = all.map((one) => one.values[at]).filter(Array.isArray);
  const count = there.reduce((s, v) => s + v[0], 0);
  return count ? there.reduce((s, v) => s + v[0] * v[index], 0) / count / 1e6 : null;
});

const DAY = 86400;
const least = (lists) => lists[0].map((_, i) => Math.min(...lists.map((values) => values[i] ?? Infinity)));
const daysLeft = (end) => (Number.isFinite(end) ? Math.max(0, (end - now() / 1000) / DAY) : null);

const last = (values) => values[values.length - 1] ?? null;

