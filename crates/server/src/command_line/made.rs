//! Serves a generated configuration: the common part of `freewheel serve` and `freewheel proxy`.
//!
//! Not here: its text. Invariant: it is served in the foreground, by the same code as any other configuration.
#![expect(clippy::disallowed_methods, reason = "before anything is served")]

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use logs::getaddrinfo::Hosts;
use runtime::listen::{Address, Target};

use crate::process::load::Origin;
use crate::process::start::{self, Instead, Options};
use httpcore::handler::Modules;

/// Maximum number of names that are tried for a temporary directory.
const DIRECTORIES_TRIED_MAX: u32 = 1000;

/// Parses the arguments, the word first; `Err`: they end the program, and the reason (or the text of `--help`) was
/// printed.
pub(super) fn arguments<A: clap::Parser>(args: &[OsString]) -> Result<A, ExitCode> {
    arguments_or(args, ExitCode::FAILURE)
}

/// As [`arguments`], for a command whose 1 has another meaning: `wrong` is the status of a call that is wrong.
pub(super) fn arguments_or<A: clap::Parser>(
    args: &[OsString],
    wrong: ExitCode,
) -> Result<A, ExitCode> {
    A::try_parse_from(args).map_err(|error| {
        let _ = error.print();
        if error.use_stderr() {
            wrong
        } else {
            ExitCode::SUCCESS
        }
    })
}

/// Serves until a signal ends it, with a directory of its own for the files that a configuration needs. `configuration`
/// is given the path of the pid file.
pub(super) fn serve(
    configuration: &dyn Fn(&Path) -> Result<String, String>,
    (greeting, dashboard): (String, &Dashboard),
    modules: Modules,
) -> ExitCode {
    let temporary = match private_directory() {
        Ok(temporary) => temporary,
        Err(error) => return refuse(&format!("{}: {error}", std::env::temp_dir().display())),
    };
    let text = match configuration(&temporary.join("freewheel.pid")) {
        Ok(text) => text,
        Err(sentence) => {
            let _ = std::fs::remove_dir(&temporary);
            return refuse(&sentence);
        }
    };
    let mut prefix = temporary.clone().into_os_string();
    prefix.push("/");
    let origin = Origin {
        root: temporary.join("nginx.conf"),
        prefix: prefix.into(),
        globals: None,
    };
    let options = Options {
        origin,
        instead: Some(Instead {
            text: text.into_bytes(),
            greeting,
            listening: dashboard.listening.clone(),
        }),
        error_log: None,
        is_quiet: false,
        modules,
    };
    let code = start::serve(options);
    let _ = std::fs::remove_dir_all(&temporary);
    code
}

/// The access log's destination: readable at a terminal, or as everywhere.
pub(super) fn log() -> &'static str {
    if std::io::stderr().is_terminal() {
        "    log_format readable '$time_local  $status  $request  $body_bytes_sent bytes  $request_time s  $remote_addr';\n    \
         access_log /dev/stderr readable;\n"
    } else {
        "    access_log /dev/stderr;\n"
    }
}

/// The dashboard's address.
#[derive(Debug, Default)]
pub(super) struct Dashboard {
    address: Option<SocketAddr>,
    /// Listens on a port that was chosen, so that no other program gets it before it is served.
    listening: Option<Arc<OwnedFd>>,
}

impl Dashboard {
    /// The address that is wanted; none, if that is `off`; by default a free port of the loopback address.
    pub(super) fn find(wanted: Option<&str>) -> Result<Self, String> {
        match wanted {
            Some("off") => Ok(Self::default()),
            Some(address) => match address.parse() {
                Ok(address) => Ok(Self {
                    address: Some(address),
                    listening: None,
                }),
                Err(_) => Err(format!(
                    "--dashboard: neither off nor an address with a port: {address}"
                )),
            },
            None => {
                let cannot = |error| format!("no port for the dashboard ({error})");
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
                Ok(Self {
                    address: Some(listener.local_addr().map_err(cannot)?),
                    listening: Some(Arc::new(listener.into())),
                })
            }
        }
    }

    /// The text that tells its address.
    pub(super) fn greeting(&self) -> String {
        let line = |address: SocketAddr| format!("Dashboard at http://{address}/\n");
        self.address.map_or_else(String::new, line)
    }

    /// The line for the `server` that it shows, so that responses have figures: statuses, bytes, times.
    pub(super) fn zone(&self) -> &'static str {
        self.address.map_or("", |_| "        status_zone site;\n")
    }

    /// Its `server` block. On a loopback address it answers only requests whose Host is `localhost`, the usual loopback
    /// addresses or its own: a foreign page whose host name resolves to it learns nothing.
    pub(super) fn server(&self) -> String {
        let Some(address) = self.address else {
            return String::new();
        };
        let (others, names) = if address.ip().is_loopback() {
            let own = match address.ip() {
                IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST) => String::new(),
                IpAddr::V4(four) => format!(" {four}"),
                IpAddr::V6(six) => format!(" [{six}]"),
            };
            (
                format!(
                    "\n    server {{\n        listen {address} default_server;\n        return 421;\n    }}\n"
                ),
                format!("        server_name localhost 127.0.0.1 [::1]{own};\n"),
            )
        } else {
            (String::new(), String::new())
        };
        format!(
            "{others}
    server {{
        listen {address};
{names}        access_log off;

        location = / {{ dashboard; }}
        location = /metrics {{ metrics; }}
        location = /status.json {{ status_json; }}
        location / {{ return 404; }}
    }}
"
        )
    }
}

/// The definition of `$dollar`, if one of these words uses it.
pub(super) fn dollar(words: &[&str]) -> &'static str {
    if words.iter().any(|word| word.contains(DOLLAR)) {
        "    # The language has no other way to say a dollar sign.\n    split_clients \"\" $dollar { * \"$\"; }\n\n"
    } else {
        ""
    }
}

/// Makes a new directory; another user's, or a link, is never taken for ours. One with the same process id may be left
/// by a process that was killed. The worker's user may enter it, for its own directories in it (`client_body_temp`).
fn private_directory() -> std::io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let name = format!("freewheel-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match std::fs::DirBuilder::new().mode(0o711).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Err(error) if number == DIRECTORIES_TRIED_MAX => return Err(error),
            Err(_) => number += 1,
        }
    }
}

/// The path of the pid file of a configuration that is kept: in an existing directory that its user can write to.
pub(super) fn lasting_pid() -> PathBuf {
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/freewheel.pid");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(directory) if directory.is_dir() => directory.join("freewheel.pid"),
        _ => std::env::temp_dir().join(format!("freewheel-{uid}.pid")),
    }
}

/// Prints the reason for a refusal.
pub(super) fn refuse(sentence: &str) -> ExitCode {
    eprintln!("freewheel: {sentence}");
    ExitCode::FAILURE
}

/// The URLs to type into a browser.
pub(super) fn urls(listen: &str) -> Result<Vec<String>, String> {
    let target = Target::parse(listen).map_err(|reason| format!("{reason} in \"{listen}\""))?;
    let addresses = target.addresses(&mut Hosts::default().asking());
    let addresses = addresses.map_err(|reason| format!("{reason} in \"{listen}\""))?;
    let url = |address: &Address| match address {
        Address::Inet(inet) if inet.ip().is_unspecified() => {
            format!("http://localhost:{}/", inet.port())
        }
        Address::Inet(inet) => format!("http://{inet}/"),
        Address::Unix(_) => address.to_string(),
    };
    Ok(addresses.iter().map(url).collect())
}

/// The replacement for `$`, which otherwise begins a variable.
const DOLLAR: &str = "${dollar}";

/// A path as a word of a directive that takes variables, quoted where it must be.
pub(super) fn quoted_for_variables(path: &Path) -> Result<String, String> {
    Ok(quoted(path)?.replace('$', DOLLAR))
}

/// A path as a word of a directive that takes no variables, quoted where it must be.
pub(super) fn quoted(path: &Path) -> Result<String, String> {
    let text = path
        .to_str()
        .ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))?;
    let is_plain = |letter: char| {
        letter.is_alphanumeric() || matches!(letter, '/' | '.' | ':' | '[' | ']' | '-' | '_' | '*')
    };
    if text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_is_where_it_is_wanted() {
        let free = Dashboard::find(None).unwrap();
        assert!(
            free.greeting()
                .starts_with("Dashboard at http://127.0.0.1:")
        );
        assert!(free.server().contains("return 421;"));
        let other = TcpListener::bind(free.address.unwrap()).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AddrInUse);
        let third = Dashboard::find(Some("127.0.0.3:9000")).unwrap();
        assert!(third.server().contains(" [::1] 127.0.0.3;"));
        let off = Dashboard::find(Some("off")).unwrap();
        assert!(off.greeting().is_empty() && off.server().is_empty());
        let open = Dashboard::find(Some("0.0.0.0:9000")).unwrap();
        assert!(
            open.server()
                .contains("listen 0.0.0.0:9000;\n        access_log")
        );
        assert!(Dashboard::find(Some("9000")).is_err());
    }
}
