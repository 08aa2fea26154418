//! `gzip_static`, `brotli_static`, `zstd_static`: precompressed files (`FILE.gz`, `FILE.br`, `FILE.zst`).
//!
//! The order of preference is zstd, brotli, gzip, as for compression on the fly. The last two directives are those of
//! the modules ngx_brotli and zstd-nginx-module.

use std::rc::Rc;

use bytes::Bytes;
use config::directives;
use disk::{Errno, FileKind, OpenFile};
use message::Method;

use crate::after::compression::accept::Accepting;
use crate::after::compression::{Coding, GzipTest, accept};
use httpcore::files::path::{self, Mapped};
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;

use super::static_files;
use httpcore::files;

config::choices! {
    /// When a compressed file is sent.
    pub enum Use {
        /// Never.
        Off = "off",
        /// To clients that accept it.
        On = "on",
        /// To every client.
        Always = "always",
    }
}

directives! {
    /// Precompressed files.
    pub struct Precompressed in Location {
        /// Sends `FILE.gz` instead of `FILE`, if it exists, to clients that accept gzip (`on`) or to all (`always`).
        gzip_static: Use = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sends `FILE.br` instead of `FILE`, if it exists, to clients that accept `br` (`on`) or to all (`always`).
        brotli_static: Use = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sends `FILE.zst` instead of `FILE`, if it exists, to clients that accept `zstd` (`on`) or to all (`always`).
        zstd_static: Use = "off", [HTTP | SERVER | LOCATION] 1;
    }
}

impl Precompressed {
    /// Is a compressed file ever sent?
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.in_order().iter().any(|(_, _, when)| *when != Use::Off)
    }

    fn in_order(&self) -> [(Coding, &'static [u8], Use); 3] {
        [
            (Coding::Zstd, b".zst", self.zstd_static),
            (Coding::Brotli, b".br", self.brotli_static),
            (Coding::Gzip, b".gz", self.gzip_static),
        ]
    }
}

/// Whether the location has precompressed files.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Precompressed>().is_on()
}

/// The result of the search for a compressed file.
#[derive(Default)]
pub struct PrecompressedFile {
    /// The response with a compressed file that the client accepts.
    pub answer: Option<Outcome>,
    /// Whether another client may get a compressed file: for `Vary`.
    pub varies: bool,
}

/// Looks for a compressed file.
pub async fn make(request: &Request) -> PrecompressedFile {
    let mut found = PrecompressedFile::default();
    if !matches!(request.method, Method::Get | Method::Head) {
        return found;
    }
    let settings = request.location().groups();
    for (coding, suffix, when) in settings.own::<Precompressed>().in_order() {
        if when == Use::Off {
            continue;
        }
        let is_taken = when == Use::Always
            || match coding {
                Coding::Gzip => GzipTest::takes_before(request),
                other => accept::takes(request, other),
            };
        if !is_taken && !settings.own::<Accepting>().gzip_vary {
            continue;
        }
        let mut mapped = Mapped::default();
        if path::map(request, &mut mapped).is_err() {
            return found;
        }
        mapped.path.extend_from_slice(suffix);
        let file = match open(request, &mapped).await {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(failed) => {
                found.answer = Some(failed);
                return found;
            }
        };
        found.varies |= when == Use::On && settings.own::<Accepting>().gzip_vary;
        if is_taken {
            found.answer = Some(answer(request, &file, &mapped, coding, found.varies).await);
            return found;
        }
    }
    found
}

/// The file, if there is one.
async fn open(request: &Request, mapped: &Mapped) -> Result<Option<Rc<OpenFile>>, Outcome> {
    let access = files::access(request, &mapped.path).map_err(Outcome::Failed)?;
    let disk = &request.client.loop_.disk;
    match files::within(request, || disk.open(&mapped.path, &access)).await {
        Ok(file) => Ok((file.meta().kind == FileKind::File).then_some(file)),
        Err(error @ disk::Error::Late(_)) => {
            let failure = files::failure(request, &error, &mapped.path);
            Err(Outcome::Failed(failure))
        }
        Err(error) => {
            let is_missing = matches!(
                error.errno(),
                Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
            );
            if !is_missing {
                let _logged = files::failure(request, &error, &mapped.path);
            }
            Ok(None)
        }
    }
}

async fn answer(
    request: &Request,
    file: &Rc<OpenFile>,
    mapped: &Mapped,
    coding: Coding,
    varies: bool,
) -> Outcome {
    match static_files::of_file(request, file, mapped).await {
        Ok(mut response) => {
            response.content_encoding = Some(Bytes::from_static(coding.name().as_bytes()));
            response.vary_accept_encoding |= varies;
            Outcome::Answer(response)
        }
        Err(failure) => Outcome::Failed(failure),
    }
}
