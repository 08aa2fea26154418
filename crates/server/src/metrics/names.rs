//! The families of figures: their names, types, units, labels and descriptions.
//!
//! Invariant: names are those of OpenMetrics, with the unit at the end; a counter's is listed without `_total`, which
//! its samples have.

/// What a family's numbers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows.
    Counter,
    /// Is as it is.
    Gauge,
    /// Counts times in buckets.
    Histogram,
}

impl Kind {
    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What there is to know of a family.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What its numbers do.
    pub kind: Kind,
    /// `seconds`, `bytes`, or nothing.
    pub unit: &'static str,
    /// The labels of its samples.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

/// Declares the families: the enum, and what is known of each.
macro_rules! families {
    ($($Id:ident $Kind:ident $name:literal $unit:literal [$($label:literal),*] $help:literal;)*) => {
        /// A family of figures.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Family {
            $(#[doc = $help] $Id,)*
        }

        /// All families, in the order in which they are shown.
        pub const ALL: &[About] = &[$(About {
            name: $name,
            kind: Kind::$Kind,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
        },)*];
    };
}

families! {
    BuildInfo Gauge "freewheel_build_info" "" ["version"] "Always 1; the version is in the label.";
    ProcessStart Gauge "freewheel_process_start_time_seconds" "seconds" [] "When the worker began to count, in seconds since 1970.";
    Generation Gauge "freewheel_configuration_generation" "" [] "The number of the configuration that is served; grows with each reload.";
    Configured Gauge "freewheel_configuration_loaded_timestamp_seconds" "seconds" [] "Since when it is served, in seconds since 1970.";
    ConfigurationTook Gauge "freewheel_configuration_load_seconds" "seconds" [] "How long it took to be served by the last loop: since the master began to read it, or since the worker was started with it.";
    ProcessMemory Gauge "freewheel_process_memory_bytes" "bytes" ["kind"] "Memory of the worker: anonymous (its own), resident (in use), virtual (addresses).";
    MemoryHeld Gauge "freewheel_memory_held_bytes" "bytes" ["holder"] "Memory of the worker that is not the kernel's cache, by who holds it; other is what nobody is named for.";
    MemoryBudget Gauge "freewheel_memory_budget_bytes" "bytes" [] "What that may be (memory_budget); over it, copies and the like are given up, and requests are served.";
    MemoryLimit Gauge "freewheel_memory_limit_bytes" "bytes" [] "The least limit of the worker's control groups, of the process and of the machine.";
    MemoryLevel Gauge "freewheel_memory_scarcity" "" [] "How scarce memory is: 0 not at all; 1 copies are given up, 2 idle buffers, 3 large windows of followers, 4 files that are kept open, 5 storing what is fetched, 6 taking connections at any speed.";
    MemoryScarce Counter "freewheel_memory_scarce" "" ["step"] "How often each of these began.";
    MemoryKills Counter "freewheel_memory_kills" "" [] "Processes of the worker's control group that the kernel killed for want of memory while it watched.";
    ProcessDescriptors Gauge "freewheel_process_descriptors" "" ["state"] "Descriptors of the worker: open, and the most that there may be (max).";
    ProcessThreads Gauge "freewheel_process_threads" "" [] "Threads of the worker.";
    ProcessCpu Counter "freewheel_process_cpu_seconds" "seconds" [] "Processor time of the worker.";
    LoopBusy Counter "freewheel_loop_busy_seconds" "seconds" ["loop"] "Time that a loop spent in its tasks; its rate is the busy share.";
    LoopUnserved Counter "freewheel_loop_processor_wait_seconds" "seconds" ["loop"] "Time that a loop was ready and had no processor, since the machine had other things to do: what is blocked then is no fault of a request. Missing where the kernel does not tell.";
    LoopBlocked Histogram "freewheel_event_loop_blocked_seconds" "seconds" ["loop"] "From the moment a loop got an event to the start of the task that handles it.";
    LoopPoll Histogram "freewheel_loop_poll_seconds" "seconds" ["loop"] "How long the loop's tasks kept it at a time.";
    LoopTick Histogram "freewheel_loop_tick_lateness_seconds" "seconds" ["loop"] "How late a tick of one millisecond was served: at the end of the turn into which it fell, at once where the loop slept (counted when it wakes).";
    LoopLongest Gauge "freewheel_loop_longest_poll_seconds" "seconds" ["loop", "task"] "The longest of these so far, and what kind of task it was.";
    LoopRunning Gauge "freewheel_loop_current_poll_seconds" "seconds" ["loop"] "How long the task that keeps the loop now has done so; 0: none does. Its time is not yet in the others, but in the busy time.";
    LoopConnections Gauge "freewheel_loop_connections" "" ["loop", "state"] "Connections of clients: reading a request, writing an answer, waiting for a request.";
    LoopAccepted Counter "freewheel_loop_accepted_connections" "" ["loop"] "Connections that a loop's sockets accepted.";
    LoopRequests Counter "freewheel_loop_requests" "" ["loop"] "Requests whose head was read.";
    Stalls Counter "freewheel_stalls" "" [] "Polls that kept a loop for longer than stall_threshold; status_json names the last ones.";
    ProcessorWaits Counter "freewheel_processor_waits" "" [] "Polls that took longer than stall_threshold only since their loop was ready and had no processor.";
    ZoneRequests Counter "freewheel_zone_requests" "" ["zone", "status"] "Requests that have ended, by class of status, where status_zone says so.";
    ZoneRunning Gauge "freewheel_zone_requests_running" "" ["zone"] "Requests that have begun at a server of the zone and not ended; missing where only locations count in it.";
    ZoneBytes Counter "freewheel_zone_bytes" "bytes" ["zone", "direction"] "Bytes of these: received from clients, sent to them.";
    ZoneFirstByte Histogram "freewheel_zone_first_byte_seconds" "seconds" ["zone"] "From a request's coming to the first byte of its answer.";
    ZoneTotal Histogram "freewheel_zone_request_seconds" "seconds" ["zone"] "From a request's coming to its end.";
    PoolThreads Gauge "freewheel_pool_threads" "" ["pool", "state"] "Threads of a pool: the most that there may be (max), started, busy.";
    PoolQueue Gauge "freewheel_pool_queue" "" ["pool", "lane"] "Jobs that wait in a pool.";
    PoolWaiting Histogram "freewheel_pool_waiting_seconds" "seconds" ["pool"] "How long jobs waited in a pool's queue.";
    PoolRunning Histogram "freewheel_pool_running_seconds" "seconds" ["pool"] "How long jobs ran in a pool.";
    PoolRejected Counter "freewheel_pool_rejected_jobs" "" ["pool"] "Jobs that were refused since the queue was full.";
    DiskAnswers Counter "freewheel_disk_answers" "" ["operation", "source"] "Operations of the loops: answered from what the kernel has in memory, from what was kept open (kept), by a pool, refused by a full pool.";
    DiskWaited Counter "freewheel_disk_waited_seconds" "seconds" ["operation"] "How long callers waited for pools, in queue and at work.";
    DiskCalls Histogram "freewheel_disk_call_seconds" "seconds" ["operation"] "How long calls took that may wait for a disk, each in a pool's thread.";
    DiskCallErrors Counter "freewheel_disk_call_errors" "" ["operation"] "Of these, calls that failed since a disk is in trouble (EIO, ENOSPC and the like).";
    DiskReads Histogram "freewheel_disk_read_seconds" "seconds" ["device", "mount"] "How long opening, reading and sending from a disk took.";
    DiskWrites Histogram "freewheel_disk_write_seconds" "seconds" ["device", "mount"] "How long writing to a disk took.";
    DiskBytes Counter "freewheel_disk_bytes" "bytes" ["device", "mount", "direction"] "Bytes read from a disk by pools, and written to it.";
    DiskErrors Counter "freewheel_disk_errors" "" ["device", "mount"] "Calls that failed since the disk is in trouble.";
    CacheRequests Counter "freewheel_cache_requests" "" ["cache", "status"] "Answers by what the cache did for them ($upstream_cache_status).";
    CacheSize Gauge "freewheel_cache_size_bytes" "bytes" ["cache"] "What a cache takes on its disk, reserved room included.";
    CacheMax Gauge "freewheel_cache_max_size_bytes" "bytes" ["cache"] "What it may take at most (max_size); missing without a bound.";
    CacheEntries Gauge "freewheel_cache_entries" "" ["cache"] "Keys that a cache knows.";
    CacheIndex Gauge "freewheel_cache_index_bytes" "bytes" ["cache"] "Memory of a cache's index.";
    CacheFills Counter "freewheel_cache_fills" "" ["cache"] "Fetches from the origin that were begun.";
    CacheFilling Gauge "freewheel_cache_fills_running" "" ["cache"] "Fetches that others may follow now.";
    CacheFollowers Counter "freewheel_cache_followers" "" ["cache"] "Requests that followed the fetch of another one.";
    CacheEvents Counter "freewheel_cache_events" "" ["cache", "event"] "Entries stored, evicted, purged, found damaged; answers not stored since there was no room (shed) or the disk was behind (passed).";
    CacheUnsaved Gauge "freewheel_cache_unsaved_bytes" "bytes" ["cache"] "Bytes that wait to be written.";
    CacheTroubles Counter "freewheel_cache_troubles" "" ["cache"] "How often a cache's disk did something wrong.";
    CacheSnapshot Gauge "freewheel_cache_snapshot_age_seconds" "seconds" ["cache"] "How old the saved index is; missing where there is none.";
    PeerRequests Counter "freewheel_upstream_requests" "" ["upstream", "peer", "outcome"] "Requests to a peer: answered (its head came, whatever became of the body), answered but not wanted (proxy_next_upstream), failed, abandoned (nobody waited for the head any more). Those of upstreams whose names came from requests are together, without names.";
    PeerHeader Histogram "freewheel_upstream_header_seconds" "seconds" ["upstream", "peer"] "Until the head of an answer had come, in whole milliseconds.";
    PeerResponse Histogram "freewheel_upstream_response_seconds" "seconds" ["upstream", "peer"] "Until all of an answer had come, in whole milliseconds.";
    PeerConnections Gauge "freewheel_upstream_connections" "" ["upstream", "peer"] "Requests that a peer has now.";
    PeerOpened Counter "freewheel_upstream_opened_connections" "" ["upstream", "peer"] "Connections that were opened to a peer; the other requests came over ones that were kept.";
    PeerFailing Gauge "freewheel_upstream_peer_failing" "" ["upstream", "peer"] "1: a peer failed too often and is not asked for its fail_timeout (max_fails); else 0.";
    Limited Counter "freewheel_limit_requests" "" ["kind", "zone", "outcome"] "What zones of limit_req and limit_conn said to requests, as $limit_req_status and $limit_conn_status: in the zone that refused a request or has it wait longest; in the others that let it pass, as passed.";
    LimitKeys Gauge "freewheel_limit_zone_keys" "" ["kind", "zone"] "Keys that a zone of a limit knows.";
    LimitUsed Gauge "freewheel_limit_zone_used_bytes" "bytes" ["kind", "zone"] "What they take of the zone.";
    LimitSize Gauge "freewheel_limit_zone_size_bytes" "bytes" ["kind", "zone"] "What they may take at most.";
    LimitForgotten Counter "freewheel_limit_zone_forgotten_keys" "" ["kind", "zone"] "Keys that were forgotten before their time since a zone of limit_req was full: who has them is limited no more.";
    Compressed Counter "freewheel_compression_responses" "" ["encoding"] "Answers that began to be compressed, or decompressed (gunzip).";
    CompressionBytes Counter "freewheel_compression_bytes" "bytes" ["encoding", "direction"] "Bytes of these, as they came in and went out.";
    CompressionTook Counter "freewheel_compression_seconds" "seconds" ["encoding", "place"] "Time that it took on a loop, which codes only little at a time, and processor time in the pool named cpu.";
    Passwords Counter "freewheel_auth_basic_requests" "" ["outcome"] "What auth_basic found: a password that was right, or remembered as right; none, of no known user, wrong; or the file had no form that can be read (unreadable), or it could not be asked (failed).";
    PasswordChecks Histogram "freewheel_auth_basic_check_seconds" "seconds" [] "How long it took to check a password that was not remembered: until it was its turn, in the pool's queue, and at work.";
    AuthDelayed Counter "freewheel_auth_delayed_requests" "" [] "Refusals that auth_delay held back.";
    Subrequests Counter "freewheel_subrequests" "" ["kind", "status"] "Sub-requests and those of post_action, by class of the status of the answer; none: closed without one, or there was no connection left for a mirror.";
    ProxyProtocol Counter "freewheel_proxy_protocol_connections" "" ["outcome"] "What connections with the PROXY protocol began with: its header (read), something else (broken), nothing in time (missing).";
    RealIp Counter "freewheel_real_ip_requests" "" ["outcome"] "Requests of whom a trusted proxy (set_real_ip_from) named the client: replaced, or what it said is no address (invalid).";
    LogLines Counter "freewheel_log_lines" "" ["outcome"] "Lines of all logs: written, dropped since there was no room, failed to be written.";
    LogBytes Counter "freewheel_log_bytes" "bytes" [] "Bytes of the lines that were written, before compression.";
}

impl Family {
    /// What is known of it.
    #[must_use]
    pub fn about(self) -> &'static About {
        &ALL[self as usize]
    }
}

/// The page of the manual that lists them.
#[must_use]
pub fn document() -> String {
    use std::fmt::Write as _;
    let mut page = format!(
        "{}\n# Metrics\n\nWhat [`metrics`](reference/metrics-and-status-pages.md) and [`status_json`](reference/metrics-and-status-pages.md) show. As text for Prometheus a \
         counter's samples end with `_total`, those of a histogram with `_bucket` (label `le`), `_sum` and `_count`; times are in \
         seconds. Labels come from the configuration or from lists in the code, never from a request. What to do about them: \
         [watching a server](watching.md).\n\n\
         | name | kind | labels | what it tells |\n|---|---|---|---|\n",
        config::manual::GENERATED
    );
    for about in ALL {
        let labels: Vec<String> = about.labels.iter().map(|l| format!("`{l}`")).collect();
        let total = if about.kind == Kind::Counter {
            "_total"
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "| `{}{total}` | {} | {} | {} |",
            about.name,
            about.kind.name(),
            labels.join(", "),
            about.help
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_unit_and_begin_with_ours() {
        for about in ALL {
            assert!(about.name.starts_with("freewheel_"), "{}", about.name);
            assert!(about.name.ends_with(about.unit), "{}", about.name);
            assert!(!about.name.ends_with("_total"), "{}", about.name);
            assert!(about.help.ends_with('.'), "{}", about.name);
            assert!(about.kind != Kind::Histogram || about.unit == "seconds");
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(about.name.chars().all(is_plain), "{}", about.name);
        }
    }

    #[test]
    fn no_name_stands_twice_or_is_another_s_sample() {
        for (index, about) in ALL.iter().enumerate() {
            for other in &ALL[index + 1..] {
                assert_ne!(about.name, other.name);
            }
            for suffix in ["_total", "_bucket", "_sum", "_count", "_info"] {
                let sample = format!("{}{suffix}", about.name);
                assert!(ALL.iter().all(|other| other.name != sample));
            }
        }
    }
}
