//! Black-box tests of the program, by subject. Each describes behaviour that nginx has too, unless it says otherwise:
//! `FREEWHEEL_TEST_BINARY=/path/to/nginx cargo test -p blackbox` tries it there.

mod autoindex;
mod cache;
mod conditional;
mod connections;
mod dashboard;
mod errors;
mod faults;
mod figures;
mod fills;
mod freshness;
mod headers;
mod host;
mod listen;
mod locations;
mod logs;
mod map;
mod panics;
mod process;
mod proxy;
mod proxy_answers;
mod proxy_store;
mod purge;
mod ranges;
mod ready_files;
mod request_body;
mod request_line;
mod slice;
mod static_files;
mod subrequests;
mod timeouts;
mod try_files;
mod upstreams;
mod variables;
mod wrong_configurations;
