//! `index`: finds the file to serve for a directory. nginx-drop-in 17.

use config::{Problem, Scope, Template, Value, Word, directives};
use disk::{Errno, FileKind};
use logs::Level;
use message::Method;

use httpcore::Failure;
use httpcore::files::path::{self, Mapped};
use httpcore::outcome::{Outcome, Target};
use httpcore::request::Request;

use httpcore::files;

/// Maximum number of names of one `index` directive.
pub const NAMES_MAX: usize = 1000;

/// The names to try, in order.
#[derive(Debug, Clone)]
pub struct Names(pub Vec<Template>);

impl Value for Names {
    const SYNTAX: &'static str = "file …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut names = Vec::with_capacity(args.len());
        for (i, word) in args.iter().enumerate() {
            if word.bytes().starts_with(b"/") && i + 1 != args.len() {
                let sentence = "only the last index in \"index\" directive should be absolute";
                scope.warn(word.error(&Problem::new(sentence)));
            }
            if word.bytes().is_empty() {
                return Err(Problem::new("index \"\" in \"index\" directive is invalid").at(i));
            }
            names.push(Template::of_word(word, scope).map_err(|problem| problem.at(i))?);
        }
        Ok(Self(names))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        let names = slot.get_or_insert(Self(Vec::new()));
        names.0.extend(line.0);
        if names.0.len() > NAMES_MAX {
            return Err(Problem::new(format!(
                "more than {NAMES_MAX} index files at one level"
            )));
        }
        Ok(())
    }
}

directives! {
    /// Index files.
    pub struct Index in Location {
        /// Sets the index files of directories, tried in order; they may contain variables. The last may be an absolute
        /// path (`/index.php`), which is an internal redirect.
        index: Names = "index.html", [HTTP | SERVER | LOCATION] 1..;
    }
}

/// Redirects to the first index file that exists; `None` if none does.
pub async fn make(request: &mut Request) -> Option<Outcome> {
    if !matches!(request.method, Method::Get | Method::Head | Method::Post) {
        return None;
    }
    let generation = request.generation.clone();
    let names = &generation
        .settings
        .location(request.location)
        .own::<Index>()
        .index
        .0;
    let mut mapped = Mapped::default();
    let mut is_directory_seen = false;
    for name in names {
        let name = request.evaluate(name);
        if name.starts_with(b"/") {
            return Some(Outcome::Redirect(Target::Uri(
                name,
                request.args.clone().unwrap_or_default(),
            )));
        }
        if let Err(failure) = path::map(request, &mut mapped) {
            return Some(Outcome::Failed(failure));
        }
        let directory = mapped.path.len();
        mapped.path.extend_from_slice(&name);
        match look(request, &mapped.path, directory, &mut is_directory_seen).await {
            Ok(true) => {
                let uri = [&request.uri[..], &name].concat();
                return Some(Outcome::Redirect(Target::Uri(
                    uri.into(),
                    request.args.clone().unwrap_or_default(),
                )));
            }
            Ok(false) => {}
            Err(failure) => return Some(Outcome::Failed(failure)),
        }
    }
    None
}

/// Whether there is a file at `path`; the first that is missing makes sure of its directory.
async fn look(
    request: &Request,
    path: &[u8],
    directory: usize,
    is_directory_seen: &mut bool,
) -> Result<bool, Failure> {
    let access = files::access(request, path)?;
    let disk = &request.client.loop_.disk;
    let Err(error) = files::within(request, || disk.stat(path, &access)).await else {
        return Ok(true);
    };
    match error.errno() {
        Some(Errno::MLINK | Errno::LOOP) => return Err(Failure::new(403)),
        Some(errno @ (Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ACCESS)) => {
            return Err(refused(request, path, errno));
        }
        _ => {}
    }
    if !*is_directory_seen {
        Box::pin(look_at_directory(request, path, directory)).await?;
        *is_directory_seen = true;
    }
    match error.errno() {
        Some(Errno::NOENT) => Ok(false),
        _ => Err(files::failure(request, &error, path)),
    }
}

/// Looks at the directory that is the first `directory` bytes of the path of an index file.
async fn look_at_directory(
    request: &Request,
    file: &[u8],
    directory: usize,
) -> Result<(), Failure> {
    let path = &file[..directory];
    let path = if path.len() > 1 {
        path.strip_suffix(b"/").unwrap_or(path)
    } else {
        path
    };
    let access = files::access(request, path)?;
    let disk = &request.client.loop_.disk;
    match files::within(request, || disk.stat(path, &access)).await {
        Ok(meta) if meta.kind == FileKind::Directory => Ok(()),
        Ok(_) => {
            request.log(Level::Alert, &|out| {
                out.push(b'"');
                out.extend_from_slice(path);
                out.extend_from_slice(b"\" is not a directory");
            });
            Err(Failure::new(500))
        }
        Err(error) => match error.errno() {
            Some(Errno::MLINK | Errno::LOOP) => Err(Failure::new(403)),
            // nginx's line names the file, not the directory.
            Some(errno @ Errno::NOENT) => Err(refused(request, file, errno)),
            Some(Errno::ACCESS) => Ok(()),
            _ => Err(files::failure(request, &error, path)),
        },
    }
}

fn refused(request: &Request, path: &[u8], errno: Errno) -> Failure {
    let is_forbidden = errno == Errno::ACCESS;
    if is_forbidden || request.location().settings.static_files.log_not_found {
        request.log(Level::Error, &|out| {
            out.push(b'"');
            out.extend_from_slice(path);
            out.extend_from_slice(match is_forbidden {
                true => b"\" is forbidden",
                false => b"\" is not found",
            });
            logs::append_os_error(out, &errno.into());
        });
    }
    Failure::new(if is_forbidden { 403 } else { 404 })
}

/// 403 for a directory without an index file or a listing.
#[must_use]
pub fn forbid(request: &Request) -> Outcome {
    if !matches!(request.method, Method::Get | Method::Head | Method::Post) {
        return Outcome::Failed(Failure::new(405));
    }
    let mut mapped = Mapped::default();
    if path::map(request, &mut mapped).is_ok() {
        request.log(Level::Error, &|out| {
            out.extend_from_slice(b"directory index of \"");
            out.extend_from_slice(&mapped.path);
            out.extend_from_slice(b"\" is forbidden");
        });
    }
    Outcome::Failed(Failure::new(403))
}
