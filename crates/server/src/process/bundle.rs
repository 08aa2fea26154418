//! The bundle: everything that a worker needs to serve a configuration, as one message.
//!
//! The worker opens no configuration file and binds no socket: its texts, sockets, log descriptors and privileges all
//! come from here.
//!
//! Not here: how messages travel ([`super::frame`]). Invariant: a bundle is unpacked equal to what was packed, and the
//! number of descriptors is the sum of those that the body names.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use config::Recorded;
use logs::getaddrinfo::Hosts;
use runtime::listen::Address;

use super::circumstances::Circumstances;
use super::frame::{Reader, Writer};
use super::load::Origin;
use super::privileges::Account;

/// The message that the master sends to a worker.
#[derive(Debug)]
pub struct Bundle {
    /// Serial number of the configuration in this master, from 1.
    pub generation: u64,
    /// Time of the request for it, in nanoseconds of CLOCK_MONOTONIC.
    pub begun_ns: u64,
    /// The prefix (`-p`), ending in a slash.
    pub prefix: PathBuf,
    /// The first configuration file.
    pub root: PathBuf,
    /// The argument of `-g`.
    pub globals: Option<Vec<u8>>,
    /// The surroundings that the texts were read under.
    pub circumstances: Circumstances,
    /// The texts of all files, and the matches of the patterns of `include`.
    pub texts: Recorded,
    /// The worker's user; `None`: the master's.
    pub account: Option<Account>,
    /// Whether the master went into the background.
    pub is_daemon: bool,
    /// The listening sockets of each address.
    pub sockets: Vec<(Address, Vec<Arc<OwnedFd>>)>,
    /// The error log unless the configuration names one (`-e`); `None` is stderr.
    pub error_log: Option<PathBuf>,
    /// Logs that the master opened, by path.
    pub logs: Vec<(PathBuf, Arc<OwnedFd>)>,
}

impl Bundle {
    /// The place that the configuration came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin {
            prefix: self.prefix.clone(),
            root: self.root.clone(),
            globals: self.globals.clone(),
        }
    }

    /// The message.
    #[must_use]
    pub fn pack(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        let mut out = Writer::default();
        let mut descriptors = Vec::new();
        out.number(self.generation);
        out.number(self.begun_ns);
        put_path(&mut out, &self.prefix);
        put_path(&mut out, &self.root);
        out.number(u64::from(self.globals.is_some()));
        out.bytes(self.globals.as_deref().unwrap_or_default());
        put_circumstances(&mut out, &self.circumstances);
        put_texts(&mut out, &self.texts);
        out.number(u64::from(self.account.is_some()));
        if let Some(account) = &self.account {
            out.bytes(account.name.as_bytes());
            out.number(account.uid.into());
            out.number(account.gid.into());
        }
        out.number(u64::from(self.is_daemon));
        out.number(self.sockets.len() as u64);
        for (address, sockets) in &self.sockets {
            out.number(u64::from(address.unix_path().is_some()));
            match address {
                Address::Inet(inet) => out.bytes(inet.to_string().as_bytes()),
                Address::Unix(path) => put_path(&mut out, path),
            }
            out.number(sockets.len() as u64);
            descriptors.extend(sockets.iter().map(|socket| socket.as_fd()));
        }
        out.number(u64::from(self.error_log.is_some()));
        put_path(&mut out, self.error_log.as_deref().unwrap_or(Path::new("")));
        out.number(self.logs.len() as u64);
        for (path, log) in &self.logs {
            put_path(&mut out, path);
            descriptors.push(log.as_fd());
        }
        (out.0, descriptors)
    }

    /// The message, read back; `None` when it is not one.
    #[must_use]
    pub fn unpack(body: &[u8], descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut from = Reader(body);
        let mut descriptors = descriptors.into_iter();
        let generation = from.number()?;
        let begun_ns = from.number()?;
        let prefix = path(&mut from)?;
        let root = path(&mut from)?;
        let has_globals = from.number()? != 0;
        let globals = Some(from.bytes()?.to_vec()).filter(|_| has_globals);
        let circumstances = circumstances(&mut from)?;
        let texts = texts(&mut from)?;
        let account = match from.number()? {
            0 => None,
            _ => Some(Account {
                name: String::from_utf8(from.bytes()?.to_vec()).ok()?,
                uid: u32::try_from(from.number()?).ok()?,
                gid: u32::try_from(from.number()?).ok()?,
            }),
        };
        let is_daemon = from.number()? != 0;
        let mut sockets = Vec::new();
        for _ in 0..from.count()? {
            let is_unix = from.number()? != 0;
            let name = from.bytes()?;
            let address = if is_unix {
                Address::Unix(PathBuf::from(OsStr::from_bytes(name)))
            } else {
                Address::Inet(std::str::from_utf8(name).ok()?.parse().ok()?)
            };
            let count = from.count()?;
            let taken: Vec<_> = descriptors.by_ref().take(count).map(Arc::new).collect();
            if taken.len() != count {
                return None;
            }
            sockets.push((address, taken));
        }
        let has_error_log = from.number()? != 0;
        let error_log = Some(path(&mut from)?).filter(|_| has_error_log);
        let mut logs = Vec::new();
        for _ in 0..from.count()? {
            logs.push((path(&mut from)?, Arc::new(descriptors.next()?)));
        }
        Some(Self {
            generation,
            begun_ns,
            prefix,
            root,
            globals,
            circumstances,
            texts,
            account,
            is_daemon,
            sockets,
            error_log,
            logs,
        })
    }
}

fn put_path(out: &mut Writer, path: &Path) {
    out.bytes(path.as_os_str().as_bytes());
}

fn path(from: &mut Reader<'_>) -> Option<PathBuf> {
    from.bytes()
        .map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)))
}

fn put_circumstances(out: &mut Writer, circumstances: &Circumstances) {
    out.number(u64::from(circumstances.is_root));
    out.number(circumstances.cores as u64);
    let hosts = circumstances.hosts.all();
    out.number(hosts.len() as u64);
    for (name, addresses) in hosts {
        out.bytes(name.as_bytes());
        out.number(addresses.len() as u64);
        for address in addresses {
            out.bytes(address.to_string().as_bytes());
        }
    }
}

fn circumstances(from: &mut Reader<'_>) -> Option<Circumstances> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let is_root = from.number()? != 0;
    let cores = usize::try_from(from.number()?).ok()?;
    let mut hosts = BTreeMap::new();
    for _ in 0..from.count()? {
        let name = text(from.bytes()?)?;
        let count = from.count()?;
        let addresses = (0..count).map(|_| text(from.bytes()?)?.parse().ok());
        hosts.insert(name, addresses.collect::<Option<Vec<_>>>()?);
    }
    Some(Circumstances {
        is_root,
        cores,
        hosts: Hosts::known(hosts),
    })
}

fn put_texts(out: &mut Writer, texts: &Recorded) {
    out.number(texts.files.len() as u64);
    for (path, bytes) in &texts.files {
        put_path(out, path);
        out.bytes(bytes);
    }
    out.number(texts.globs.len() as u64);
    for (pattern, paths) in &texts.globs {
        put_path(out, pattern);
        out.number(paths.len() as u64);
        for path in paths {
            put_path(out, path);
        }
    }
}

fn texts(from: &mut Reader<'_>) -> Option<Recorded> {
    let mut texts = Recorded {
        files: HashMap::new(),
        globs: HashMap::new(),
    };
    for _ in 0..from.count()? {
        let path = path(from)?;
        texts
            .files
            .insert(path, Bytes::copy_from_slice(from.bytes()?));
    }
    for _ in 0..from.count()? {
        let pattern = path(from)?;
        let count = from.count()?;
        let paths = (0..count).map(|_| path(from)).collect::<Option<Vec<_>>>()?;
        texts.globs.insert(pattern, paths);
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_circumstances() -> Circumstances {
        let addresses = ["::1", "10.0.0.1"].map(|text| text.parse().unwrap());
        Circumstances {
            is_root: true,
            cores: 5,
            hosts: Hosts::known([("a".to_owned(), addresses.to_vec())].into()),
        }
    }

    fn some_texts() -> Recorded {
        let text = Bytes::from_static(b"events {}\xff");
        Recorded {
            files: [("/srv/nginx.conf".into(), text)].into(),
            globs: [("/srv/*.c".into(), vec!["/srv/a.c".into()])].into(),
        }
    }

    #[test]
    fn a_bundle_comes_back_equal() {
        let (read, _write) = std::io::pipe().unwrap();
        let socket: Arc<OwnedFd> = Arc::new(read.into());
        let bundle = Bundle {
            generation: 3,
            begun_ns: 7,
            prefix: "/srv/".into(),
            root: "/srv/nginx.conf".into(),
            globals: Some(b"pid x;".to_vec()),
            circumstances: some_circumstances(),
            texts: some_texts(),
            account: Some(Account {
                name: "nobody".to_owned(),
                uid: 65534,
                gid: 65534,
            }),
            is_daemon: true,
            sockets: vec![
                (
                    Address::Inet("[::1]:80".parse().unwrap()),
                    vec![Arc::clone(&socket), Arc::clone(&socket)],
                ),
                (Address::Unix("/tmp/s".into()), vec![Arc::clone(&socket)]),
            ],
            error_log: Some("/srv/e".into()),
            logs: vec![("/srv/error.log".into(), socket)],
        };
        let (body, descriptors) = bundle.pack();
        assert_eq!(descriptors.len(), 4);
        let owned: Vec<OwnedFd> = descriptors
            .iter()
            .map(|fd| fd.try_clone_to_owned().unwrap())
            .collect();
        let back = Bundle::unpack(&body, owned).unwrap();
        assert_eq!(
            (back.generation, back.begun_ns, &back.prefix, &back.root),
            (3, 7, &bundle.prefix, &bundle.root)
        );
        assert_eq!(
            (&back.globals, &back.account, back.is_daemon),
            (&bundle.globals, &bundle.account, true)
        );
        assert_eq!(
            (&back.texts.files, &back.texts.globs),
            (&bundle.texts.files, &bundle.texts.globs)
        );
        let read_under = |bundle: &Bundle| {
            let it = &bundle.circumstances;
            (it.is_root, it.cores, it.hosts.all())
        };
        assert_eq!(read_under(&back), read_under(&bundle));
        let shape = |bundle: &Bundle| -> Vec<_> {
            bundle
                .sockets
                .iter()
                .map(|(address, sockets)| (address.clone(), sockets.len()))
                .collect()
        };
        assert_eq!(shape(&back), shape(&bundle));
        assert_eq!(back.error_log, bundle.error_log);
        assert_eq!(back.logs[0].0, bundle.logs[0].0);
        assert!(Bundle::unpack(&body[..body.len() - 1], Vec::new()).is_none());
        assert!(Bundle::unpack(&body, Vec::new()).is_none());
    }
}
