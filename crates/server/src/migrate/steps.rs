//! How to try a configuration beside the nginx that serves it, how to switch, and how to go back: commands for a shell.
//!
//! Not here: the signals ([`crate::process`], docs/upgrading.md). Invariant: trying changes nothing of nginx's: other
//! addresses, another pid file, other directories of caches, temporary files and certificates, which are in a new directory that
//! only its user can write; and nginx's user, so that no directory is given to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use config::{Directive, Tree};
use serde::Serialize;

/// The command that makes the directory of the trial. Workers of another user reach the files below it.
const DIRECTORY: &str = "try=$(mktemp -d /tmp/freewheel-try.XXXXXX) && chmod 711 \"$try\" && \\";
/// The command that removes it once the server has ended.
const REMOVAL: &str =
    "while kill -0 \"$(cat \"$try/pid\")\"; do sleep 1; done 2>/dev/null; rm -r \"$try\"";
/// What is added to a port, at least.
const ADDED: u16 = 10_000;
/// The lowest port in the place of another.
const PORT_MIN: u16 = 1024;
/// The command that finds nginx's prefix; without `--prefix` it is the default one.
const PREFIX: &str = "prefix=$(nginx -V 2>&1 | sed -n 's/.*--prefix=\\([^ ]*\\).*/\\1/p'); \
                      prefix=${prefix:-/usr/local/nginx}";
/// The command that finds nginx's pid file where the configuration has none. A relative path starts at the prefix.
const PID: &str = "pid=$(nginx -V 2>&1 | sed -n 's/.*--pid-path=\\([^ ]*\\).*/\\1/p'); pid=${pid:-logs/nginx.pid}; \
                   case $pid in /*) ;; *) pid=$prefix/$pid ;; esac";
/// The command that finds nginx's user where the configuration has none.
const USER: &str =
    "user=$(nginx -V 2>&1 | sed -n 's/.*--user=\\([^ ]*\\).*/\\1/p'); user=${user:-nobody}";

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
    has_user: bool,
    caches: BTreeSet<String>,
    /// Directories of temporary files, and of certificates that are ordered.
    temporary: BTreeSet<String>,
    states: BTreeSet<String>,
    orders_certificates: bool,
    has_relative_path: bool,
}

impl Steps {
    /// For a configuration.
    pub(super) fn of(root: &Path, tree: &Tree) -> Self {
        let mut found = Found::default();
        tree.each(&mut |line| found.see(line));
        let pid = pid(found.pid.as_deref());
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
        } else if name == "user" {
            self.has_user = true;
        } else if name.ends_with("_cache_path") {
            self.caches.insert(first);
        } else if name.ends_with("_temp_path") {
            self.temporary.insert(first);
        } else if name == "state_path" && first != "off" {
            self.states.insert(first);
        } else if name == "acme_issuer" {
            self.orders_certificates = true;
        } else if name == "listen" {
            let port = first.rsplit(':').next().and_then(|port| port.parse().ok());
            match port {
                Some(port) if !first.starts_with("unix:") => drop(self.ports.insert(port)),
                _ => drop(self.others.insert(first)),
            }
        }
    }

    fn trial(&self, root: &Path) -> Vec<String> {
        let directory = root.parent().unwrap_or(Path::new("/"));
        let directory = directory.display().to_string();
        let file = root.file_name().unwrap_or_default().to_string_lossy();
        let mut lines = vec![
            DIRECTORY.to_owned(),
            format!("cp -RL {} \"$try/nginx\" && \\", quoted(&directory)),
            "find \"$try/nginx\" -type f -exec sed -E -i \\".to_owned(),
        ];
        let edits = self.edits(&directory).into_iter();
        lines.extend(edits.map(|edit| format!("  -e {edit} \\")));
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
        if self.orders_certificates {
            lines.push("# change by hand: the \"uri\" of \"acme_issuer\", to that of a staging directory; orders of the trial count, too".to_owned());
        }
        let prefix = match self.has_relative_path {
            true => " -p \"$prefix\"",
            false => "",
        };
        if self.has_relative_path {
            lines.push("# relative paths start at nginx's prefix:".to_owned());
            lines.push(PREFIX.to_owned());
        }
        if !self.has_user {
            lines.push("# as nginx's user, whose the directories stay:".to_owned());
            lines.push(USER.to_owned());
        }
        lines.push("# as root, like nginx; it appends to the same logs:".to_owned());
        let globals = self.globals();
        let named = format!("-c \"$try/nginx\"/{}{prefix}{globals}", quoted(&file));
        lines.push(format!("freewheel -t {named}"));
        lines.push(format!("freewheel {named}"));
        lines.extend(self.asking());
        lines.push(format!("freewheel -s quit {named}"));
        lines.push(REMOVAL.to_owned());
        lines
    }

    /// The arguments for what the configuration does not have.
    fn globals(&self) -> &'static str {
        match (self.pid.is_some(), self.has_user) {
            (true, true) => "",
            (false, true) => " -g \"pid $try/pid;\"",
            (true, false) => " -g \"user $user $(id -gn \"$user\");\"",
            (false, false) => " -g \"pid $try/pid; user $user $(id -gn \"$user\");\"",
        }
    }

    /// The edits of the copy, as words of a shell.
    fn edits(&self, directory: &str) -> Vec<String> {
        let mut edits = vec![edit(
            &format!("s#{}/#", pattern(directory)),
            "\"$try/nginx\"",
            "/#g",
        )];
        for (port, other) in self.other_ports() {
            let listen = "s#(listen[[:space:]]+([^;[:space:]]*:)?)";
            let whole = format!("{listen}{port}([[:space:];])#\\1{other}\\3#g");
            edits.push(format!("'{whole}'"));
        }
        if self.pid.is_some() {
            let found = "s#((^|[;}])[[:space:]]*pid[[:space:]]+)[^;]*#\\1";
            edits.push(edit(found, "\"$try\"", "/pid#"));
        }
        for (name, paths, own) in [
            ("_cache_path", &self.caches, "cache"),
            ("_temp_path", &self.temporary, "temp"),
            ("state_path", &self.states, "state"),
        ] {
            for (number, path) in paths.iter().enumerate() {
                let path = pattern(path);
                let found = format!("s#({name}[[:space:]]+)[\"']?{path}[\"']?([[:space:];])#\\1");
                edits.push(edit(&found, "\"$try\"", &format!("/{own}{number}\\2#g")));
            }
        }
        edits
    }

    /// The port in the place of each: none of the configuration's, which nginx has, and each once. A port for which there
    /// is none stays.
    fn other_ports(&self) -> BTreeMap<u16, u16> {
        let mut others = BTreeMap::new();
        let mut taken = self.ports.clone();
        for port in &self.ports {
            let after = (0..=u16::MAX).map(|more| port.wrapping_add(ADDED).wrapping_add(more));
            let mut free = after.filter(|other| *other >= PORT_MIN && !taken.contains(other));
            if let Some(other) = free.next() {
                taken.insert(other);
                others.insert(*port, other);
            }
        }
        others
    }

    fn asking(&self) -> Option<String> {
        let others = self.other_ports();
        let (_, other) = others.iter().find(|(port, _)| **port != 443)?;
        Some(format!(
            "curl -i -H 'Host: example.org' http://127.0.0.1:{other}/"
        ))
    }
}

/// An edit as a word of a shell: texts as they are, around one that the shell expands.
fn edit(before: &str, expanded: &str, after: &str) -> String {
    format!("{}{expanded}'{after}'", in_quotes(before))
}

/// A text as a word of a shell, in quotes where it needs them.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    match text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => in_quotes(text),
    }
}

fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A text as an extended regular expression of `sed`, between `#`.
fn pattern(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if r".[\*^$+?(){}|#".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Whether a line has a path that starts at the prefix, which is another one here.
pub(super) fn is_relative(directive: &Directive) -> bool {
    let name = directive.name.display();
    let has_path = ["root", "alias", "access_log", "error_log", "pid"].contains(&&*name)
        || ["_temp_path", "_cache_path", "_store"]
            .iter()
            .any(|end| name.ends_with(end));
    let is_elsewhere = |path: &str| {
        let starts = ["/", "$", "syslog:", "memory:"];
        ["off", "on", "stderr"].contains(&path)
            || starts.iter().any(|start| path.starts_with(start))
    };
    let first = directive.args.first().map(|word| word.display());
    has_path && first.is_some_and(|path| !is_elsewhere(&path))
}

/// The commands that name nginx's pid file.
fn pid(configured: Option<&str>) -> Vec<String> {
    match configured {
        Some(path) if path.starts_with('/') => vec![format!("pid={}", quoted(path))],
        Some(path) => vec![PREFIX.to_owned(), format!("pid=$prefix/{}", quoted(path))],
        None => vec![PREFIX.to_owned(), PID.to_owned()],
    }
}

fn switch(root: &Path, pid: &[String], has_relative_path: bool) -> Vec<String> {
    let root = root.display();
    let (prefix, started) = match has_relative_path {
        true => (" and -p", " -p $prefix"),
        false => ("", ""),
    };
    let mut lines = pid.to_vec();
    lines.push(format!(
        r#"tr '\0' ' ' < "/proc/$(cat "$pid")/cmdline"   # nginx must have been started with -c {root}{prefix}"#
    ));
    lines.push(format!(
        "# otherwise \"nginx -s quit\" and \"freewheel -c {root}{started}\" replace it, with a moment in which nothing listens"
    ));
    let commands = [
        r#"program=$(readlink "/proc/$(cat "$pid")/exe") && cp -p "$program" "$program.nginx" && \"#,
        r#"install -m 755 "$(command -v freewheel)" "$program.new" && mv "$program.new" "$program" && \"#,
        r#"kill -USR2 "$(cat "$pid")"          # both serve"#,
        r#"kill -WINCH "$(cat "$pid.oldbin")"  # nginx's workers finish their requests and leave"#,
        r#"kill -QUIT "$(cat "$pid.oldbin")"   # nginx ends"#,
    ];
    lines.extend(commands.map(str::to_owned));
    lines
}

fn back(pid: &[String]) -> Vec<String> {
    let commands = [
        "# before QUIT:",
        r#"kill -HUP "$(cat "$pid.oldbin")" && kill -QUIT "$(cat "$pid")""#,
        "# at any time: the same sequence with nginx's program",
        r#"program=$(readlink "/proc/$(cat "$pid")/exe") && \"#,
        r#"cp -p "$program.nginx" "$program.new" && mv "$program.new" "$program" && \"#,
        r#"kill -USR2 "$(cat "$pid")" && sleep 1 && kill -WINCH "$(cat "$pid.oldbin")" && kill -QUIT "$(cat "$pid.oldbin")""#,
    ];
    let mut lines = pid.to_vec();
    lines.extend(commands.map(str::to_owned));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(ports: &[u16]) -> Vec<u16> {
        let found = Found {
            ports: ports.iter().copied().collect(),
            ..Found::default()
        };
        found.other_ports().into_values().collect()
    }

    #[test]
    fn no_port_of_the_trial_is_one_of_the_configuration() {
        assert_eq!(others(&[80, 443]), [10_080, 10_443]);
        assert_eq!(others(&[80, 10_080]), [10_081, 20_080]);
        assert_eq!(others(&[50_000, 60_000]), [60_001, 4464]);
        assert_eq!(others(&[55_600, 55_601]), [1024, 1025]);
    }

    fn steps(text: &str) -> Steps {
        let tree = config::parse_bytes(text.as_bytes()).unwrap();
        Steps::of(Path::new("/etc/nginx/nginx.conf"), &tree)
    }

    #[test]
    fn words_that_begin_as_others_are_relative_paths() {
        let is_relative = |line: &str| {
            let tree = config::parse_bytes(line.as_bytes()).unwrap();
            super::is_relative(&tree.directives[0])
        };
        for line in ["root online/html;", "access_log office.log;", "pid run/x;"] {
            assert!(is_relative(line), "{line}");
        }
        for line in [
            "proxy_store on;",
            "access_log off;",
            "error_log stderr;",
            "root $document;",
            "access_log syslog:server=a;",
        ] {
            assert!(!is_relative(line), "{line}");
        }
    }

    #[test]
    fn the_pid_file_is_where_nginx_has_it() {
        let lines = |text| {
            let steps = steps(text);
            assert_eq!(steps.switch[..1], steps.back[..1]);
            steps.switch.join("\n")
        };
        let named = lines("pid logs/nginx.pid;");
        assert!(
            named.starts_with("prefix=$(nginx -V ")
                && named.contains("\npid=$prefix/logs/nginx.pid\n")
        );
        assert!(lines("pid '/run/a b';").starts_with("pid='/run/a b'\ntr "));
        let default = lines("events {}");
        assert!(default.starts_with("prefix=$(nginx -V ") && default.contains("--pid-path="));
        assert!(!default.contains("/run/nginx.pid"));
    }

    #[test]
    fn the_trial_has_nginx_s_user() {
        let calls = |text| {
            let trial = steps(text).trial.join("\n");
            (
                trial.matches(" -g \"user $user ").count(),
                trial.contains("user=$(nginx -V "),
            )
        };
        assert_eq!(calls("pid /run/x;"), (3, true));
        assert_eq!(calls("pid /run/x; user www-data;"), (0, false));
    }

    #[test]
    fn paths_are_words_of_the_shell_and_patterns_of_sed() {
        assert_eq!(quoted("/etc/nginx"), "/etc/nginx");
        assert_eq!(quoted("/it's here"), r"'/it'\''s here'");
        assert_eq!(pattern("/a.b#c"), r"/a\.b\#c");
    }
}
