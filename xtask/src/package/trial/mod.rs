//! The Debian package on a bare Debian 12 with systemd: installed, started by its unit, reloaded, upgraded under load, removed,
//! purged. The machine is a container (systemd-nspawn) with a network of its own, so that ports are its own, too.
//!
//! Invariant: what is said to have passed was seen in that machine; the first thing that is not as it must be ends the trial.

mod image;
mod listing;
mod load;
mod machine;

use super::{Order, make, size, tools};
use load::{Load, get};
use machine::Machine;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long anything may take in the machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long requests are sent before and behind what is tried under load.
const AROUND: Duration = Duration::from_secs(2);
/// The title of the page that the package brings.
const PAGE: &str = "<!DOCTYPE html>";
/// A server beside the package's, by which a reload is seen.
const BESIDE: &str = "server { listen 127.0.0.1:81; return 200 beside; }
proxy_cache_path /var/cache/freewheel/trial keys_zone=trial:1m;
server { listen 127.0.0.1:82; location / { proxy_pass http://127.0.0.1:81; proxy_cache trial; proxy_cache_valid 10m; } }
";
const BROKEN: &str = "server { listen 127.0.0.1:81; no_such_directive on; }\n";

/// Runs the trial.
pub fn run(order: &Order, base: Option<PathBuf>) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("needs root: it starts a machine in a container".to_owned());
    }
    for (name, package) in [
        ("debootstrap", "debootstrap"),
        ("systemd-nspawn", "systemd-container"),
    ] {
        tools::find(name).ok_or(format!("{name} is missing: it is in the package {package}"))?;
    }
    let first = package(order, "1", order.profile.clone())?;
    let second = package(order, "2", order.own_profile())?;
    let base = match base {
        Some(base) => base,
        None => machine::base(&order.output.join("debian"))?,
    };
    let mut machine = Machine::start(&base)?;
    let mut steps = Steps::default();
    installed(&machine, &mut steps, &first)?;
    reloaded(&machine, &mut steps)?;
    upgraded(&machine, &mut steps, &second)?;
    refused(&machine, &mut steps, &first)?;
    removed(&machine, &mut steps)?;
    image::run(order, &machine)?;
    machine.end();
    println!(
        "passed: {} s in the machine",
        steps.begin.elapsed().as_secs()
    );
    Ok(())
}

/// The package of a revision; only the first has its program made.
fn package(order: &Order, revision: &str, profile: Option<PathBuf>) -> Result<PathBuf, String> {
    let order = Order {
        project: order.project.clone(),
        output: order.output.clone(),
        formats: vec!["deb".to_owned()],
        binary: order.binary.clone(),
        is_quick: order.is_quick,
        profile,
        revision: revision.to_owned(),
        epoch: order.epoch,
        version: order.version.clone(),
    };
    let files = make(&order)?;
    let ending = format!("-{revision}_");
    let file = files.into_iter().find(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("freewheel_") && name.contains(&ending)
    });
    file.ok_or_else(|| "no Debian package was made".to_owned())
}

/// What has passed, with the time that it took.
struct Steps {
    begin: Instant,
    /// The files and users before the package came.
    before: Vec<String>,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            before: Vec::new(),
        }
    }
}

impl Steps {
    fn tell(&self, since: Instant, text: &str) {
        println!("{:>6.1} s  {text}", since.elapsed().as_secs_f64());
    }
}

fn installed(machine: &Machine, steps: &mut Steps, package: &Path) -> Result<(), String> {
    steps.before = listing::of(&machine.root)?;
    let start = Instant::now();
    machine.copy(package, "/root/first.deb")?;
    machine.run("dpkg -i /root/first.deb")?;
    steps.tell(start, &format!("installed ({} bytes)", size(package)?));
    let start = Instant::now();
    machine.until("the server runs", "systemctl is-active -q freewheel")?;
    machine.until(
        "the service is enabled",
        "systemctl is-enabled -q freewheel",
    )?;
    serves(machine, 80, PAGE)?;
    let user =
        machine.run("ps -o user= -p $(cat /proc/$(cat /run/freewheel.pid)/task/*/children)")?;
    match user.trim() {
        "freewhe+" | "freewheel" => {}
        other => return Err(format!("the worker runs as {other:?}")),
    }
    let size = machine.run(
        "du -bcs $(dpkg -L freewheel | while read f; do [ -f $f ] && echo $f; done) | tail -1",
    )?;
    let size = size.split_whitespace().next().unwrap_or("?").to_owned();
    steps.tell(
        start,
        &format!("serves as its unit says ({size} bytes installed)"),
    );
    let journal = machine.run("journalctl -u freewheel -o cat --no-pager")?;
    for bad in ["[alert]", "[crit]", "[emerg]", "freewheel:"] {
        if journal.contains(bad) {
            return Err(format!("the journal says:\n{journal}"));
        }
    }
    Ok(())
}

fn reloaded(machine: &Machine, steps: &mut Steps) -> Result<(), String> {
    let start = Instant::now();
    let load = Load::start(machine.process);
    machine.write("/etc/freewheel/conf.d/beside.conf", BESIDE)?;
    machine.run("systemctl reload freewheel")?;
    serves(machine, 81, "beside")?;
    machine.write("/etc/freewheel/conf.d/beside.conf", BROKEN)?;
    if machine.run("systemctl reload freewheel").is_ok() {
        return Err("a reload with an error in the configuration succeeded".to_owned());
    }
    serves(machine, 81, "beside")?;
    machine.write("/etc/freewheel/conf.d/beside.conf", BESIDE)?;
    serves(machine, 82, "beside")?;
    let stored = "find /var/cache/freewheel/trial -type f | grep -q .";
    machine.until("a response is stored", stored)?;
    let answered = load.end()?;
    steps.tell(
        start,
        &format!(
            "reloaded; refused with an error; a response stored ({answered} requests, 0 lost)"
        ),
    );
    let start = Instant::now();
    machine.run("logrotate -f /etc/logrotate.d/freewheel")?;
    machine.until(
        "the log is another file",
        "test -s /var/log/freewheel/access.log.1",
    )?;
    serves(machine, 80, PAGE)?;
    machine.until(
        "lines come into the new log",
        "test -s /var/log/freewheel/access.log",
    )?;
    steps.tell(start, "logs rotated");
    Ok(())
}

/// The process that systemd takes for the service's.
fn main_process(machine: &Machine) -> Result<String, String> {
    let text = machine.run("systemctl show -p MainPID --value freewheel")?;
    Ok(text.trim().to_owned())
}

fn upgraded(machine: &Machine, steps: &mut Steps, package: &Path) -> Result<(), String> {
    let old = main_process(machine)?;
    machine.copy(package, "/root/second.deb")?;
    let load = Load::start(machine.process);
    std::thread::sleep(AROUND);
    let start = Instant::now();
    let said = machine.run("dpkg -i /root/second.deb")?;
    let took = start.elapsed();
    let gone = format!("! test -d /proc/{old}");
    machine.until("the old master has gone", &gone)?;
    std::thread::sleep(AROUND);
    let answered = load.end()?;
    let new = main_process(machine)?;
    let file = machine.run("cat /run/freewheel.pid")?;
    if new == old || new != file.trim() {
        return Err(format!(
            "the service's process is {new}, it was {old}; the pid file says {file}; dpkg said:\n{said}"
        ));
    }
    machine.run("systemctl is-active -q freewheel")?;
    let restarts = machine.run("systemctl show -p NRestarts --value freewheel")?;
    if restarts.trim() != "0" {
        return Err(format!("systemd has started it {} times", restarts.trim()));
    }
    steps.tell(
        start,
        &format!(
            "upgraded under load: dpkg {:.1} s, process {old} became {new}; {answered} requests, 0 lost",
            took.as_secs_f64()
        ),
    );
    Ok(())
}

/// A version that refuses the configuration does not take the place of the one that runs.
fn refused(machine: &Machine, steps: &mut Steps, package: &Path) -> Result<(), String> {
    let start = Instant::now();
    let old = main_process(machine)?;
    machine.write("/etc/freewheel/conf.d/beside.conf", BROKEN)?;
    let size = size(package)?;
    let said = machine.run("dpkg -i --force-downgrade /root/first.deb")?;
    if !said.contains("the running server goes on") || main_process(machine)? != old || size == 0 {
        return Err(format!(
            "an upgrade with a configuration that is refused:\n{said}"
        ));
    }
    serves(machine, 80, PAGE)?;
    machine.write("/etc/freewheel/conf.d/beside.conf", BESIDE)?;
    machine.run("/usr/lib/freewheel/upgrade")?;
    machine.until("the old master has gone", &format!("! test -d /proc/{old}"))?;
    serves(machine, 81, "beside")?;
    steps.tell(
        start,
        "not upgraded while the configuration has an error; by hand afterwards",
    );
    Ok(())
}

fn removed(machine: &Machine, steps: &mut Steps) -> Result<(), String> {
    let start = Instant::now();
    machine.run("dpkg -r freewheel")?;
    if machine.run("systemctl is-active -q freewheel").is_ok() {
        return Err("the service runs though the package is removed".to_owned());
    }
    machine.until("no process is left", "! pgrep -x freewheel")?;
    machine.run("test -e /etc/freewheel/freewheel.conf && test -d /var/log/freewheel")?;
    steps.tell(start, "removed; the configuration and the logs are there");
    let start = Instant::now();
    machine.run("dpkg --purge freewheel && rm /root/*.deb")?;
    let after = listing::of(&machine.root)?;
    let new: Vec<&String> = after
        .iter()
        .filter(|line| !steps.before.contains(line))
        .collect();
    let lost: Vec<&String> = steps
        .before
        .iter()
        .filter(|line| !after.contains(line))
        .collect();
    if !new.is_empty() || !lost.is_empty() {
        return Err(format!("left behind: {new:#?}; missing: {lost:#?}"));
    }
    steps.tell(
        start,
        &format!(
            "purged: the {} files and users are those from before",
            after.len()
        ),
    );
    Ok(())
}

/// Waits until a port answers with a text.
fn serves(machine: &Machine, port: u16, text: &str) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = get(machine.process, port);
        match answer {
            Ok(body) if body.contains(text) => return Ok(()),
            other if Instant::now() > deadline => {
                return Err(format!("port {port} answers {other:?}, not {text:?}"));
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
