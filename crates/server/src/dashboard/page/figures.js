// The figures on one line below what is wrong.

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

// [name, text] for each of them.
function figures() {
  const generation = store.find('freewheel_configuration_generation').map(gauge);
  const took = store.find('freewheel_configuration_load_seconds').map(gauge);
  const started = store.find('freewheel_process_start_time_seconds').map(gauge);
  const memory = store.find('freewheel_process_memory_bytes', {kind: 'anonymous'}).map(gauge);
  const descriptors = ['open', 'max'].map((state) => last(sum(store.find('freewheel_process_descriptors', {state}).map(gauge))));
  const stalls = store.find('freewheel_stalls').flatMap(gauge).reduce((s, v) => s + (v ?? 0), 0);
  return [
    ['requests', shown('rate', last(sum(store.find('freewheel_loop_requests').map(perSecond))))],
    ['connections', shown('number', last(sum(store.find('freewheel_loop_connections').map(gauge))))],
    ['stalls, 15 min', shown('number', stalls)],
    ['lost, 15 min', losses() || 'nothing'],
    ['memory', shown('bytes', last(sum(memory)))],
    ['descriptors', `${shown('number', descriptors[0])} of ${shown('number', descriptors[1])}`],
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
  return [['certificate ends', days > 0 ? `in ${Math.floor(days)} d` : 'has ended']];
}

function duration(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const [name, size] = units.find(([, each]) => seconds >= each) ?? units[3];
  return `${Math.floor(seconds / size)} ${name}`;
}
