//! Diagnoses a failed start: the process that has the port, the directory that does not exist, the rights that are
//! missing.
//!
//! Not here: the failure itself. Invariant: nothing is examined before something fails, and only the master examines
//! it.
#![expect(clippy::disallowed_methods, reason = "no loop runs in the master")]

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use runtime::listen::Address;
use runtime::listen::bind::BindError;
use socket2::{Domain, SockAddr, Socket, Type};

use super::sockets::Sockets;

/// Maximum number of lines that are read of a table of the kernel's sockets.
const SOCKETS_MAX: usize = 1_000_000;
/// Maximum number of processes, and of descriptors of each, that are examined.
const PROCESSES_MAX: usize = 100_000;
const DESCRIPTORS_MAX: usize = 100_000;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// The kernel's setting for the ports that only root may bind, and the default where it is missing.
const UNPRIVILEGED_PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
const UNPRIVILEGED_PORT: u16 = 1024;

/// A hint for an address that cannot be bound, by a server that has these sockets.
#[must_use]
pub(crate) fn about_address(failed: &BindError, own: &Sockets) -> Option<String> {
    let BindError::Bind { address, error } = failed else {
        return None;
    };
    if failed.is_in_use() {
        return Some(about_use(address, own));
    }
    match (error.kind(), address) {
        (ErrorKind::PermissionDenied, Address::Inet(inet)) if inet.port() < first_free_port() => {
            Some(format!(
                "ports below {} are for root: start as root, let \"listen\" name another port such as 8080, or allow it to the \
             program: setcap cap_net_bind_service=+ep {}",
                first_free_port(),
                std::env::current_exe()
                    .unwrap_or_else(|_| "freewheel".into())
                    .display()
            ))
        }
        (ErrorKind::PermissionDenied | ErrorKind::NotFound, Address::Unix(path)) => {
            about_path(path, error)
        }
        (ErrorKind::AddrNotAvailable, Address::Inet(inet)) => Some(format!(
            "no interface of this machine has the address {}",
            inet.ip()
        )),
        _ => None,
    }
}

/// The same for an address that is in use.
fn about_use(address: &Address, own: &Sockets) -> String {
    if let Some(holder) = holder(address, &own.inodes()) {
        return format!(
            "{holder} listens on {address}: stop it, or let \"listen\" name another port"
        );
    }
    match address {
        Address::Inet(inet) => match own.in_the_way_of(*inet) {
            Some(ours) => format!(
                "this server itself listens on {ours}: an address and its wildcard cannot change places in a reload; \
                 stop the server and start it again"
            ),
            None => {
                format!("another process listens on {address}: `ss -ltnp` run by root tells which")
            }
        },
        Address::Unix(path) => about_socket_file(path).unwrap_or_else(|| {
            format!("another process listens on {address}: `ss -lxp` run by root tells which")
        }),
    }
}

/// A hint for a file that has the name of a unix socket. `None`: a process listens there.
fn about_socket_file(path: &Path) -> Option<String> {
    let kind = std::fs::symlink_metadata(path).ok()?.file_type();
    if !kind.is_socket() {
        return Some(format!(
            "\"{}\" is there and no socket: let \"listen\" name another path",
            path.display()
        ));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None).ok()?;
    let refused = socket.connect(&SockAddr::unix(path).ok()?).err()?;
    (refused.kind() == ErrorKind::ConnectionRefused).then(|| {
        format!(
            "nothing listens there, the file is left over from a server that was killed: remove it (rm \"{}\")",
            path.display()
        )
    })
}

/// A hint for a file that cannot be opened, or a directory that cannot be made.
#[must_use]
pub(crate) fn about_path(path: &Path, error: &io::Error) -> Option<String> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())?;
    match error.kind() {
        ErrorKind::NotFound if !parent.exists() => Some(format!(
            "there is no directory \"{0}\": mkdir -p \"{0}\"",
            parent.display()
        )),
        ErrorKind::PermissionDenied => Some(format!(
            "the user {} may not write there: start as root, or choose another place (-p for all, -e and \"error_log\" for the log, \
             \"pid\" for the pid file)",
            user()
        )),
        ErrorKind::IsADirectory => Some("a directory has this name: name a file in it".to_owned()),
        _ => None,
    }
}

/// The same for one of nginx's sentences, `open() "PATH" failed (2: No such file or directory)`.
#[must_use]
pub(crate) fn about_sentence(sentence: &str) -> Option<String> {
    let (call, rest) = sentence.split_once("() \"")?;
    let (path, rest) = rest.split_once("\" failed (")?;
    let (number, _) = rest.split_once(':')?;
    let error = io::Error::from_raw_os_error(number.parse().ok()?);
    let is_known = matches!(call, "open" | "mkdir") || call.ends_with(": open");
    about_path(Path::new(path), &error).filter(|_| is_known)
}

fn user() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

fn first_free_port() -> u16 {
    let text = std::fs::read_to_string(UNPRIVILEGED_PORTS).unwrap_or_default();
    text.trim().parse().unwrap_or(UNPRIVILEGED_PORT)
}

/// The process that listens on an address, on another socket than these: `process 123 (nginx)`. `None`: it is another user's, or has
/// ended, or there is none.
fn holder(address: &Address, own: &HashSet<u64>) -> Option<String> {
    let mut inodes = match address {
        Address::Inet(inet) => listening(*inet),
        Address::Unix(path) => of_path(path),
    };
    inodes.retain(|inode| !inode.parse::<u64>().is_ok_and(|inode| own.contains(&inode)));
    if inodes.is_empty() {
        return None;
    }
    let links: Vec<String> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .take(PROCESSES_MAX);
    for process in processes {
        let name = process.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if number != std::process::id() && has_one(&process.path(), &links) {
            let command = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {number} ({})", command.trim_end()));
        }
    }
    None
}

/// Whether a process has one of these sockets.
fn has_one(process: &Path, links: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors
        .flatten()
        .take(DESCRIPTORS_MAX)
        .any(|descriptor| {
            let link = std::fs::read_link(descriptor.path());
            link.is_ok_and(|link| {
                links
                    .iter()
                    .any(|wanted| link.as_os_str() == wanted.as_str())
            })
        })
}

/// The inodes of the sockets that listen on the port of an address.
fn listening(address: SocketAddr) -> Vec<String> {
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        found.extend(
            text.lines()
                .skip(1)
                .take(SOCKETS_MAX)
                .filter_map(|line| inode(line, address)),
        );
    }
    found
}

/// The inode of a line of `/proc/net/tcp` (proc(5)), if that socket listens on the port, of this address or of all.
fn inode(line: &str, address: SocketAddr) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (host, port) = local.rsplit_once(':')?;
    let is_port = u16::from_str_radix(port, 16).ok()? == address.port();
    let is_any = address.ip().is_unspecified() || host.bytes().all(|digit| digit == b'0');
    let meets = is_port && *state == LISTENING && (is_any || host == written(address));
    meets.then(|| (*inode).to_owned())
}

/// An address as the kernel writes it there: words of 32 bits in the order of this machine.
fn written(address: SocketAddr) -> String {
    let octets = match address {
        SocketAddr::V4(inet) => inet.ip().octets().to_vec(),
        SocketAddr::V6(inet) => inet.ip().octets().to_vec(),
    };
    let word = |four: &[u8]| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    octets
        .chunks_exact(4)
        .map(|four| format!("{:08X}", word(four)))
        .collect()
}

/// The inodes of the sockets that are bound to a path.
fn of_path(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(7).is_some_and(|name| Path::new(name) == path);
        fields
            .get(6)
            .filter(|_| is_it)
            .map(|inode| (*inode).to_owned())
    };
    text.lines()
        .skip(1)
        .take(SOCKETS_MAX)
        .filter_map(inode)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_kernel_are_understood() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0 100 0 0 10 0";
        let inode = |address: &str| inode(line, address.parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(inode("127.0.0.1:8080").as_deref(), Some("31337"));
        }
        assert_eq!(inode("0.0.0.0:8080").as_deref(), Some("31337"));
        assert_eq!(inode("127.0.0.2:8080"), None);
        assert_eq!(inode("127.0.0.1:8081"), None);
    }

    #[test]
    fn sentences_of_files_are_understood() {
        let hint =
            about_sentence("open() \"/nonexistent/a/b.log\" failed (2: No such file or directory)");
        assert_eq!(
            hint.as_deref(),
            Some("there is no directory \"/nonexistent/a\": mkdir -p \"/nonexistent/a\"")
        );
        assert_eq!(
            about_sentence("no \"events\" section in configuration"),
            None
        );
    }
}
