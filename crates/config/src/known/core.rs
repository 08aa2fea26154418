//! Directives outside of `http`, `stream` and `mail`: the process, and `events`.
//! Facts only (names, places, numbers of arguments), taken from the tables of nginx 1.31.5; see the parent module.

use super::row::rows;

rows! {
    "core" {
        "daemon": [MAIN] FLAG;
        "debug_points": [MAIN] 1;
        "env": [MAIN] 1;
        "error_log": [MAIN] (1..);
        "include": [MAIN | EVENTS | HTTP | SERVER | LOCATION | SERVER_IF | LOCATION_IF | LIMIT_EXCEPT | UPSTREAM | STREAM | STREAM_SERVER | STREAM_UPSTREAM | MAIL | MAIL_SERVER | LINES] 1;
        "load_module": [MAIN] 1;
        "lock_file": [MAIN] 1 => NO_MUTEX;
        "master_process": [MAIN] FLAG;
        "pcre_jit": [MAIN] FLAG => ALWAYS_JIT;
        "pid": [MAIN] 1;
        "ssl_engine": [MAIN] 1 => NO_ENGINE;
        "ssl_object_cache_inheritable": [MAIN] FLAG => NO_OBJECT_CACHE;
        "thread_pool": [MAIN] (2..=3);
        "timer_resolution": [MAIN] 1;
        "user": [MAIN] (1..=2);
        "worker_cpu_affinity": [MAIN] (1..);
        "worker_priority": [MAIN] 1;
        "worker_processes": [MAIN] 1;
        "worker_rlimit_core": [MAIN] 1;
        "worker_rlimit_nofile": [MAIN] 1;
        "worker_shutdown_timeout": [MAIN] 1;
        "working_directory": [MAIN] 1;
    }
    "devpoll" {
        "devpoll_changes": [EVENTS] 1 => OTHER_SYSTEM;
        "devpoll_events": [EVENTS] 1 => OTHER_SYSTEM;
    }
    "epoll" {
        "epoll_events": [EVENTS] 1 => OWN_EVENTS;
        "worker_aio_requests": [EVENTS] 1 => OWN_EVENTS;
    }
    "eventport" {
        "eventport_events": [EVENTS] 1 => OTHER_SYSTEM;
    }
    "events" {
        "accept_mutex": [EVENTS] FLAG => NO_MUTEX;
        "accept_mutex_delay": [EVENTS] 1 => NO_MUTEX;
        "debug_connection": [EVENTS] 1 => NO_DEBUG;
        "events": [MAIN] 0 block;
        "multi_accept": [EVENTS] FLAG => ACCEPTS_ALL;
        "use": [EVENTS] 1 => EPOLL_ONLY;
        "worker_connections": [EVENTS] 1;
    }
    "google_perftools" {
        "google_perftools_profiles": [MAIN] 1 => NO_PERFTOOLS;
    }
    "http" {
        "http": [MAIN] 0 block;
    }
    "iocp" {
        "acceptex_read": [EVENTS] FLAG => OTHER_SYSTEM;
        "iocp_threads": [EVENTS] 1 => OTHER_SYSTEM;
        "post_acceptex": [EVENTS] 1 => OTHER_SYSTEM;
    }
    "kqueue" {
        "kqueue_changes": [EVENTS] 1 => OTHER_SYSTEM;
        "kqueue_events": [EVENTS] 1 => OTHER_SYSTEM;
    }
    "mail" {
        "mail": [MAIN] 0 block;
    }
    "quic_bpf" {
        "quic_bpf": [MAIN] FLAG;
    }
    "stream" {
        "stream": [MAIN] 0 block;
    }
}
