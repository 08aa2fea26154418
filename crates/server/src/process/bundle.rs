//! The bundle: everything that a worker needs to serve a configuration, as one message.
//!
//! The worker opens no configuration file and binds no socket: its texts, sockets, log descriptors and privileges all
//! come from here.
//!
//! Not here: how messages travel ([`super::frame`]). Invariant: a bundle is unpacked equal to what was packed, and the
//! number of descriptors is the sum of those that the body names.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use config::Recorded;
use logs::getaddrinfo::Hosts;
use runtime::listen::Address;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use super::load::Origin;
use super::privileges::Account;
use crate::settings::circumstances::Circumstances;
use crate::settings::named_files::{NamedFiles, Outcome};

/// The message that the master sends to a worker.
#[derive(Debug)]
pub(crate) struct Bundle {
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
    /// The block devices of caches, by path.
    pub devices: Vec<(PathBuf, Arc<OwnedFd>)>,
}

impl Bundle {
    /// The place that the configuration came from.
    #[must_use]
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            prefix: self.prefix.clone(),
            root: self.root.clone(),
            globals: self.globals.clone(),
        }
    }

    /// The message.
    #[must_use]
    pub(crate) fn pack(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        let hosts = self.circumstances.hosts.all();
        let named = self.circumstances.files.all();
        let files = self.texts.files.iter();
        let globs = self.texts.globs.iter();
        let account = self.account.as_ref();
        let body = Body {
            generation: self.generation,
            begun_ns: self.begun_ns,
            prefix: raw(&self.prefix),
            root: raw(&self.root),
            globals: self.globals.as_deref().map(Raw::new),
            is_root: self.circumstances.is_root,
            cores: self.circumstances.cores,
            hosts: hosts
                .iter()
                .map(|(name, all)| (&name[..], all.clone()))
                .collect(),
            named: named
                .iter()
                .map(|(name, outcome)| (&name[..], borrowed(outcome)))
                .collect(),
            files: files
                .map(|(path, text)| (raw(path), Raw::new(text)))
                .collect(),
            globs: globs
                .map(|(pattern, paths)| (raw(pattern), raws(paths)))
                .collect(),
            environment: self
                .texts
                .environment
                .iter()
                .map(|(name, value)| (&name[..], Raw::new(value)))
                .collect(),
            account: account.map(|account| (&account.name[..], account.uid, account.gid)),
            is_daemon: self.is_daemon,
            sockets: self
                .sockets
                .iter()
                .map(|(address, all)| (PackedAddress::of(address), all.len()))
                .collect(),
            error_log: self.error_log.as_deref().map(raw),
            logs: raws(self.logs.iter().map(|(path, _)| path)),
            devices: raws(self.devices.iter().map(|(path, _)| path)),
        };
        let sockets = self.sockets.iter().flat_map(|(_, sockets)| sockets);
        let logs = self.logs.iter().chain(&self.devices);
        let logs = logs.map(|(_, file)| file);
        let body = postcard::to_stdvec(&body).expect("no type of the body refuses a value");
        (body, sockets.chain(logs).map(|fd| fd.as_fd()).collect())
    }

    /// The generation of a bundle that cannot be unpacked for want of its descriptors.
    pub(crate) fn generation_of(body: &[u8]) -> Option<u64> {
        let body: Body<'_> = postcard::from_bytes(body).ok()?;
        Some(body.generation)
    }

    /// The message, read back; `None` when it is not one.
    #[must_use]
    pub(crate) fn unpack(body: &[u8], descriptors: Vec<OwnedFd>) -> Option<Self> {
        let body: Body<'_> = postcard::from_bytes(body).ok()?;
        let mut descriptors = descriptors.into_iter().map(Arc::new);
        let mut sockets = Vec::new();
        for (address, count) in body.sockets {
            let taken: Vec<_> = descriptors.by_ref().take(count).collect();
            if taken.len() != count {
                return None;
            }
            sockets.push((address.address()?, taken));
        }
        let logs = body.logs.into_iter();
        let logs = logs.map(|log| Some((path(log), descriptors.next()?)));
        let logs = logs.collect::<Option<Vec<_>>>()?;
        let devices = body.devices.into_iter();
        let devices = devices.map(|device| Some((path(device), descriptors.next()?)));
        let devices = devices.collect::<Option<Vec<_>>>()?;
        let hosts = body.hosts.into_iter();
        let named = body.named.into_iter();
        let files = body.files.into_iter();
        let globs = body.globs.into_iter();
        Some(Self {
            generation: body.generation,
            begun_ns: body.begun_ns,
            prefix: path(body.prefix),
            root: path(body.root),
            globals: body.globals.map(|globals| globals.to_vec()),
            circumstances: Circumstances {
                is_root: body.is_root,
                cores: body.cores,
                hosts: Hosts::known(hosts.map(|(name, all)| (name.to_owned(), all)).collect()),
                files: NamedFiles::known(
                    named
                        .map(|(name, one)| (name.to_owned(), owned(one)))
                        .collect(),
                ),
            },
            texts: Recorded {
                files: files
                    .map(|(name, text)| (path(name), Bytes::copy_from_slice(text)))
                    .collect(),
                globs: globs
                    .map(|(pattern, all)| (path(pattern), all.into_iter().map(path).collect()))
                    .collect(),
                environment: body
                    .environment
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)))
                    .collect(),
            },
            account: body.account.map(|(name, uid, gid)| Account {
                name: name.to_owned(),
                uid,
                gid,
            }),
            is_daemon: body.is_daemon,
            sockets,
            error_log: body.error_log.map(path),
            logs,
            devices,
        })
    }
}

/// The body of the message: what of a bundle is no descriptor, in the same order. Paths are bytes, not necessarily UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Body<'a> {
    generation: u64,
    begun_ns: u64,
    prefix: &'a Raw,
    root: &'a Raw,
    globals: Option<&'a Raw>,
    is_root: bool,
    cores: usize,
    hosts: Vec<(&'a str, Vec<IpAddr>)>,
    named: Vec<(&'a str, Result<&'a Raw, i32>)>,
    files: Vec<(&'a Raw, &'a Raw)>,
    globs: Vec<(&'a Raw, Vec<&'a Raw>)>,
    environment: Vec<(&'a str, &'a Raw)>,
    account: Option<(&'a str, u32, u32)>,
    is_daemon: bool,
    sockets: Vec<(PackedAddress<'a>, usize)>,
    error_log: Option<&'a Raw>,
    logs: Vec<&'a Raw>,
    devices: Vec<&'a Raw>,
}

/// An address; that of the Internet as text, which has its scope.
#[derive(Serialize, Deserialize)]
enum PackedAddress<'a> {
    Inet(String),
    #[serde(borrow)]
    Unix(&'a Raw),
}

impl<'a> PackedAddress<'a> {
    fn of(address: &'a Address) -> Self {
        match address {
            Address::Inet(address) => Self::Inet(address.to_string()),
            Address::Unix(path) => Self::Unix(raw(path)),
        }
    }

    fn address(self) -> Option<Address> {
        match self {
            Self::Inet(text) => text.parse().ok().map(Address::Inet),
            Self::Unix(name) => Some(Address::Unix(path(name))),
        }
    }
}

fn borrowed(outcome: &Outcome) -> Result<&Raw, i32> {
    outcome.as_deref().map(Raw::new).map_err(|number| *number)
}

fn owned(outcome: Result<&Raw, i32>) -> Outcome {
    outcome.map(|bytes| Arc::from(&bytes[..]))
}

fn raw(path: &Path) -> &Raw {
    Raw::new(path.as_os_str().as_bytes())
}

fn raws<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<&'a Raw> {
    paths.into_iter().map(|path| raw(path)).collect()
}

fn path(bytes: &Raw) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
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
            files: NamedFiles::known(
                [
                    ("/k".to_owned(), Ok(Arc::from(*b"key"))),
                    ("/l".to_owned(), Err(13)),
                ]
                .into(),
            ),
        }
    }

    fn some_texts() -> Recorded {
        let text = Bytes::from_static(b"events {}\xff");
        Recorded {
            files: [("/srv/nginx.conf".into(), text)].into(),
            globs: [("/srv/*.c".into(), vec!["/srv/a.c".into()])].into(),
            environment: [("PORT".to_owned(), Bytes::from_static(b"80"))].into(),
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
            logs: vec![("/srv/error.log".into(), Arc::clone(&socket))],
            devices: vec![("/dev/sdz".into(), socket)],
        };
        let (body, descriptors) = bundle.pack();
        assert_eq!(descriptors.len(), 5);
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
        assert_eq!(back.texts.environment, bundle.texts.environment);
        let read_under = |bundle: &Bundle| {
            let it = &bundle.circumstances;
            (it.is_root, it.cores, it.hosts.all(), it.files.all())
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
        assert_eq!(back.devices[0].0, bundle.devices[0].0);
        assert!(Bundle::unpack(&body[..body.len() - 1], Vec::new()).is_none());
        assert!(Bundle::unpack(&body, Vec::new()).is_none());
    }
}
