//! How to try a configuration beside the nginx that serves it, how to switch, and how to go back: commands for a shell.
//!
//! Not here: the signals ([`crate::process`], docs/upgrading.md). Invariant: trying changes nothing of nginx's: other
//! addresses, another pid file, other directories of caches.

use std::collections::BTreeSet;
use std::path::Path;

use config::{Directive, Tree};
use serde::Serialize;

/// The directory of the copy.
const COPY: &str = "/tmp/freewheel-try";
/// What is added to a port.
const ADDED: u16 = 10_000;
/// The pid file of nginx where the configuration has none; `nginx -V` says what it is (`--pid-path`).
const DEFAULT_PID: &str = "/run/nginx.pid";

/// The command that finds nginx's prefix; without `--prefix` it is the default one.
const PREFIX: &str = "prefix=$(nginx -V 2>&1 | sed -n 's/.*--prefix=\\([^ ]*\\).*/\\1/p'); \
                      prefix=${prefix:-/usr/local/nginx}";

/// Lines for a shell, with comments.
#[derive(Debug, Serialize)]
pub(super) struct Steps {
    /// Beside nginx.
    pub trial: Vec<String>,
    /// In the place of nginx.
    pub switch: Vec<String>,
    /// Back to nginx.
    pub back: Vec<String>,
}

/// What the commands depend on.
#[derive(Default)]
struct Found {
    ports: BTreeSet<u16>,
    /// Addresses of `listen` without a port, and of sockets.
    others: BTreeSet<String>,
    has_server_without_listen: bool,
    pid: Option<String>,
    caches: BTreeSet<String>,
    has_relative_path: bool,
}

impl Steps {
    /// For a configuration.
    pub(super) fn of(root: &Path, tree: &Tree) -> Self {
        let mut found = Found::default();
        tree.each(&mut |line| found.see(line));
        let pid = found.pid.clone().unwrap_or_else(|| DEFAULT_PID.to_owned());
        Self {
            trial: found.trial(root),
            switch: switch(root, &pid, found.has_relative_path),
            back: back(&pid),
        }
    }
}

impl Found {
    fn see(&mut self, line: &Directive) {
        let Some(first) = line.args.first().map(|word| word.display().into_owned()) else {
            let has_listen = line.children().iter().any(|line| line.name == "listen");
            let is_http = line.children().iter().any(|line| line.name == "location");
            self.has_server_without_listen |= line.name == "server" && is_http && !has_listen;
            return;
        };
        self.has_relative_path |= is_relative(line);
        let name = line.name.display();
        if name == "pid" {
            self.pid = Some(first);
        } else if name.ends_with("_cache_path") {
            self.caches.insert(first);
        } else if name == "listen" {
            let port = first.rsplit(':').next().and_then(|port| port.parse().ok());
            match port {
                Some(port) if !first.starts_with("unix:") => drop(self.ports.insert(port)),
                _ => drop(self.others.insert(first)),
            }
        }
    }

    fn trial(&self, root: &Path) -> Vec<String> {
        let directory = root
            .parent()
            .unwrap_or(Path::new("/"))
            .display()
            .to_string();
        let file = root.file_name().unwrap_or_default().to_string_lossy();
        let mut lines = vec![
            format!("cp -RL {directory} {COPY}"),
            format!("find {COPY} -type f -exec sed -E -i \\"),
        ];
        let mut edit = |edit: String| lines.push(format!("  -e '{edit}' \\"));
        edit(format!("s#{directory}/#{COPY}/#g"));
        // From the highest on, so that no port is changed twice.
        for port in self.ports.iter().rev() {
            let other = other(*port);
            edit(format!(
                "s#(listen[[:space:]]+([^;[:space:]]*:)?){port}([[:space:];])#\\1{other}\\3#g"
            ));
        }
        if self.pid.is_some() {
            edit(format!(
                "s#^([[:space:]]*pid[[:space:]]+)[^;]*#\\1{COPY}.pid#"
            ));
        }
        for (number, cache) in self.caches.iter().enumerate() {
            edit(format!(
                "s#(_cache_path[[:space:]]+)\"?{cache}\"?([[:space:]])#\\1{COPY}.cache{number}\\2#"
            ));
        }
        lines.push("  {} +".to_owned());
        if !self.others.is_empty() {
            let all: Vec<_> = self.others.iter().cloned().collect();
            lines.push(format!(
                "# change by hand: listen {}",
                all.join(", listen ")
            ));
        }
        if self.has_server_without_listen {
            lines.push("# change by hand: a server without \"listen\" is at port 80".to_owned());
        }
        let pid = match self.pid {
            Some(_) => String::new(),
            None => format!(" -g 'pid {COPY}.pid;'"),
        };
        let prefix = match self.has_relative_path {
            true => " -p \"$prefix\"",
            false => "",
        };
        if self.has_relative_path {
            lines.push("# relative paths start at nginx's prefix:".to_owned());
            lines.push(PREFIX.to_owned());
        }
        lines.push("# as root, like nginx; it appends to the same logs:".to_owned());
        let named = format!("-c {COPY}/{file}{prefix}{pid}");
        lines.push(format!("freewheel -t {named}"));
        lines.push(format!("freewheel {named}"));
        lines.extend(self.asking());
        lines.push(format!("freewheel -s quit {named}"));
        lines
    }

    fn asking(&self) -> Option<String> {
        let port = self.ports.iter().find(|port| **port != 443)?;
        let other = other(*port);
        Some(format!(
            "curl -i -H 'Host: example.org' http://127.0.0.1:{other}/"
        ))
    }
}

/// Whether a line has a path that starts at the prefix, which is another one here.
pub(super) fn is_relative(directive: &Directive) -> bool {
    let name = directive.name.display();
    let has_path = ["root", "alias", "access_log", "error_log", "pid"].contains(&&*name)
        || ["_temp_path", "_cache_path", "_store"]
            .iter()
            .any(|end| name.ends_with(end));
    let starts = ["/", "$", "syslog:", "memory:", "off", "on", "stderr"];
    let first = directive.args.first().map(|word| word.display());
    has_path && first.is_some_and(|path| !starts.iter().any(|start| path.starts_with(start)))
}

/// The port in the place of another.
fn other(port: u16) -> u16 {
    port.checked_add(ADDED)
        .unwrap_or_else(|| port.saturating_sub(ADDED))
}

fn switch(root: &Path, pid: &str, has_relative_path: bool) -> Vec<String> {
    let root = root.display();
    let (prefix, started) = match has_relative_path {
        true => (" and -p", " -p $prefix"),
        false => ("", ""),
    };
    vec![
        format!("tr '\\0' ' ' < /proc/$(cat {pid})/cmdline   # nginx must have been started with -c {root}{prefix}"),
        format!(
            "# otherwise \"nginx -s quit\" and \"freewheel -c {root}{started}\" replace it, with a moment in which nothing listens"
        ),
        format!("program=$(readlink /proc/$(cat {pid})/exe)"),
        "cp -p \"$program\" \"$program.nginx\"".to_owned(),
        "install -m 755 \"$(command -v freewheel)\" \"$program.new\" && mv \"$program.new\" \"$program\"".to_owned(),
        format!("kill -USR2 $(cat {pid})          # both serve"),
        format!("kill -WINCH $(cat {pid}.oldbin)  # nginx's workers finish their requests and leave"),
        format!("kill -QUIT $(cat {pid}.oldbin)   # nginx ends"),
    ]
}

fn back(pid: &str) -> Vec<String> {
    vec![
        "# before QUIT:".to_owned(),
        format!("kill -HUP $(cat {pid}.oldbin) && kill -QUIT $(cat {pid})"),
        "# at any time: the same sequence with nginx's program".to_owned(),
        format!("program=$(readlink /proc/$(cat {pid})/exe)"),
        "cp -p \"$program.nginx\" \"$program.new\" && mv \"$program.new\" \"$program\"".to_owned(),
        format!(
            "kill -USR2 $(cat {pid}); sleep 1; kill -WINCH $(cat {pid}.oldbin); kill -QUIT $(cat {pid}.oldbin)"
        ),
    ]
}
