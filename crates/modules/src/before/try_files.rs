//! `try_files`: takes the first of several candidates that exists. nginx-drop-in 18.

use bytes::Bytes;
use config::{Problem, Scope, Template, Value, Word, directives};
use disk::{Errno, FileKind};
use logs::Level;

use httpcore::Failure;
use httpcore::files;
use httpcore::files::path;
use httpcore::outcome::{Outcome, Target};
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::settings::root::Alias;
use httpcore::steps::error_page::split_args;

/// A candidate of `try_files`.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The name, without the slash at its end.
    pub name: Template,
    /// Whether it ended in a slash: then it must be a directory.
    pub is_directory: bool,
}

/// The arguments of `try_files`.
#[derive(Debug, Clone)]
pub struct TryFiles {
    /// The candidates, in order.
    pub candidates: Vec<Candidate>,
    /// The fallback if none of them exists.
    pub last: Last,
}

/// The last argument of `try_files`.
#[derive(Debug, Clone)]
pub enum Last {
    /// `=CODE`.
    Status(u16),
    /// A URI or `@name`.
    Redirect(Template),
}

impl Value for TryFiles {
    const SYNTAX: &'static str = "file … uri | file … =code";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let [files @ .., last] = args else {
            return Err(Problem::argument_count("try_files"));
        };
        let mut candidates = Vec::with_capacity(files.len());
        for (i, word) in files.iter().enumerate() {
            let text = word.bytes();
            let is_directory = text.ends_with(b"/");
            let name = if is_directory {
                text.slice(..text.len() - 1)
            } else {
                text.clone()
            };
            let name =
                Template::parse(&name, &word.place(), scope).map_err(|problem| problem.at(i))?;
            candidates.push(Candidate { name, is_directory });
        }
        let last = match last.bytes().strip_prefix(b"=") {
            Some(code) => {
                let code = config::parse_number(code).filter(|code| *code < 1000);
                let invalid =
                    || Problem::new(format!("invalid code \"{}\"", last.display())).at(files.len());
                match code.ok_or_else(invalid)? as u16 {
                    // As in nginx, where the code 0 is none: a URI.
                    0 => Last::Redirect(Template::of_word(last, scope)?),
                    code => Last::Status(code),
                }
            }
            None => Last::Redirect(Template::of_word(last, scope)?),
        };
        Ok(Self { candidates, last })
    }
}

directives! {
    /// Trying files (try_files).
    pub struct Trying in Location {
        /// Uses the first existing file (a directory, if the name ends in a slash) as the request's URI. If none
        /// exists, redirects internally to the last argument, or responds with its code.
        try_files: Option<TryFiles> = none, [SERVER | LOCATION] 2.., inherit never;
    }
}

/// Whether a location has candidates.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Trying>().try_files.is_some()
}

/// Looks for the candidates; `None` when one was found (or there are none to try).
pub async fn run(request: &mut Request) -> Option<Outcome> {
    let generation = request.generation.clone();
    let location = generation.settings.location(request.location);
    let trying = location.own::<Trying>().try_files.as_ref()?;
    let alias = location.settings.root.alias;
    for candidate in &trying.candidates {
        match look(request, candidate, alias).await {
            Ok(true) => return None,
            Ok(false) => {}
            Err(failure) => return Some(Outcome::Failed(failure)),
        }
    }
    Some(match &trying.last {
        Last::Status(code) => Outcome::Failed(Failure::new(*code)),
        Last::Redirect(target) => {
            let made = request.evaluate(target);
            let target = below_alias(request, target, made, alias);
            if target.starts_with(b"@") {
                Outcome::Redirect(Target::Named(target))
            } else {
                let (uri, args) = split_args(&target);
                request.args.get_or_insert_default();
                Outcome::Redirect(Target::Uri(uri, args))
            }
        }
    })
}

/// The result of a template, without the name of a location with an `alias`. As in nginx, the name is taken off only
/// where the template has variables, and off the last argument too: configurations write the name there twice.
fn below_alias(request: &Request, of: &Template, made: Bytes, alias: Option<Alias>) -> Bytes {
    match alias {
        Some(Alias::Prefix(length))
            if of.literal().is_none()
                && made.starts_with(&request.uri[..length.min(request.uri.len())]) =>
        {
            made.slice(length.min(made.len())..)
        }
        _ => made,
    }
}

/// Whether the candidate exists; if so, it becomes the request's URI.
async fn look(
    request: &mut Request,
    candidate: &Candidate,
    alias: Option<Alias>,
) -> Result<bool, Failure> {
    if alias.is_some() && !request.uri_origin.is_of_location() {
        path::map(request, &mut path::Mapped::default())?;
    }
    let name = request.evaluate(&candidate.name);
    let name = below_alias(request, &candidate.name, name, alias);
    let mut path = Vec::with_capacity(256);
    path::root(request, &mut path);
    path.extend_from_slice(&name);
    let access = files::access(request, &path)?;
    let disk = &request.client.loop_.disk;
    let found = files::within(request, || disk.stat(&path, &access)).await;
    match found {
        Ok(meta) if (meta.kind == FileKind::Directory) == candidate.is_directory => {
            take(request, name, candidate.is_directory, alias);
            Ok(true)
        }
        Ok(_) => Ok(false),
        Err(error) => {
            if let Some(failure) = files::unavailable(request, &error, &path) {
                return Err(failure);
            }
            if !matches!(
                error.errno(),
                Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
            ) {
                files::log_error(request, Level::Crit, &error, &path);
            }
            Ok(false)
        }
    }
}

fn take(request: &mut Request, name: Bytes, is_directory: bool, alias: Option<Alias>) {
    match alias {
        None => request.uri = name,
        Some(Alias::Prefix(length)) => {
            let kept = &request.uri[..length.min(request.uri.len())];
            request.uri = [kept, &name].concat().into();
        }
        Some(Alias::Whole) if !is_directory => {
            request.uri = name;
            request.add_uri_to_alias = true;
        }
        Some(Alias::Whole) => {}
    }
}
