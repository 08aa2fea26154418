//! `trace`: the file system calls of a process's threads, with what strace does not show: the ranges that cachestat(2) and PAGEMAP_SCAN
//! were asked about and what they said, and links and size of a descriptor that is closed. One JSON object per call.
//!
//! Not a general tracer: only calls that can touch a file. Invariant: the traced process is let go when standard input ends.

mod calls;

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::{BufWriter, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// `ptrace` reports this in rax at the entry of every system call on x86-64.
const ENOSYS: i64 = -38;

type Output = Arc<Mutex<BufWriter<std::fs::File>>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [pid, file] => pid.parse().map_err(|_| format!("{pid}: not a process")).and_then(|pid| trace(pid, file)),
        _ => Err("usage: trace PID FILE\n  writes calls until standard input ends; `ready` when all threads are traced".to_owned()),
    };
    outcome.map_or_else(
        |message| {
            eprintln!("trace: {message}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

#[expect(clippy::disallowed_methods, reason = "a tool without an event loop")]
fn trace(pid: i32, file: &str) -> Result<(), String> {
    let output = std::fs::File::create(file).map_err(|error| format!("{file}: {error}"))?;
    let output: Output = Arc::new(Mutex::new(BufWriter::new(output)));
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| format!("{pid}: {error}"))?;
    for task in tasks.flatten() {
        let Some(tid) = task.file_name().to_str().and_then(|tid| tid.parse().ok()) else {
            continue;
        };
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, options).map_err(|error| format!("cannot trace {tid}: {error}"))?;
        ptrace::interrupt(tid).map_err(|error| format!("cannot trace {tid}: {error}"))?;
    }
    println!("ready");
    end_with_input(Arc::clone(&output));
    follow(pid, &output)
}

/// The kernel lets the traced threads go when the tracer ends.
fn end_with_input(output: Output) {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let flushed = output.lock().is_ok_and(|mut output| output.flush().is_ok());
        std::process::exit(i32::from(!flushed));
    });
}

/// Until the process has ended.
fn follow(pid: i32, output: &Output) -> Result<(), String> {
    let mut entered: HashMap<i32, calls::Entry> = HashMap::new();
    let origin = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|error| error.to_string())?;
    let start = Instant::now();
    loop {
        let (tid, signal) = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(tid)) => {
                let at = (origin + start.elapsed()).as_secs_f64();
                if let Some(line) = step(pid, tid, at, &mut entered) {
                    let mut output = output.lock().map_err(|error| error.to_string())?;
                    writeln!(output, "{line}").map_err(|error| error.to_string())?;
                }
                (tid, None)
            }
            Ok(WaitStatus::PtraceEvent(tid, _, _)) => (tid, None),
            Ok(WaitStatus::Stopped(tid, Signal::SIGTRAP)) => (tid, None),
            Ok(WaitStatus::Stopped(tid, signal)) => (tid, Some(signal)),
            Ok(_) => continue,
            Err(nix::errno::Errno::ECHILD) => {
                return output
                    .lock()
                    .map_err(|error| error.to_string())?
                    .flush()
                    .map_err(|error| error.to_string());
            }
            Err(error) => return Err(error.to_string()),
        };
        // A thread that died meanwhile says so at the next wait.
        let _ = ptrace::syscall(tid, signal);
    }
}

/// One stop at a system call: its entry is remembered, its exit makes a line.
fn step(
    pid: i32,
    tid: Pid,
    at: f64,
    entered: &mut HashMap<i32, calls::Entry>,
) -> Option<serde_json::Value> {
    let registers = ptrace::getregs(tid).ok()?;
    let result = registers.rax.cast_signed();
    match entered.remove(&tid.as_raw()) {
        Some(entry) => entry.leave(pid, tid, result),
        None if result == ENOSYS => {
            let r = &registers;
            let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
            entered.insert(
                tid.as_raw(),
                calls::Entry::new(pid, tid, at, r.orig_rax, arguments),
            );
            None
        }
        // Attached in the middle of a call.
        None => None,
    }
}
