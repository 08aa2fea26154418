//! Unnamed scopes inside a location: the content of an `if` or a `limit_except`.
//!
//! Each becomes a location of its own that only its condition leads to. It inherits like a nested location, and also
//! the directives that make the content, which a nested location does not inherit.

use config::{Directive, Error, Problem, Scope, Word};
use message::{Method, Methods};

use httpcore::route::{LocationId, LocationKind};
use modules::before::rewrite::condition::Condition;
use modules::before::rewrite::{self, Line};

use super::content_source;
use super::locations::{Growing, Level, Outer, Raw};
use crate::settings::locations;
use httpcore::handler;
use httpcore::settings::Exception;

/// Maximum number of scopes of one location.
pub(crate) const SCOPES_MAX: usize = 65_536;

/// The block of a scope as read.
#[derive(Debug, Default)]
pub(crate) struct Block<'a> {
    raw: Raw,
    /// Lines that belong to no module of ours.
    lines: Vec<&'a Directive>,
    place: Option<config::TextPlace>,
}

/// The scopes of one location as read.
#[derive(Debug, Default)]
pub(crate) struct Blocks<'a> {
    ifs: Vec<Block<'a>>,
    exception: Option<(Methods, Block<'a>)>,
}

impl<'a> Block<'a> {
    fn read(directive: &'a Directive, scope: &mut Scope) -> Result<Self, Error> {
        let mut block = Self {
            place: Some(directive.place()),
            ..Self::default()
        };
        for line in directive.children() {
            if !content_source::set(&mut block.raw, line, scope)? {
                block.lines.push(line);
            }
        }
        Ok(block)
    }

    /// Adds the location that stands for the scope inside `outer`, whose own location is `around`.
    fn finish(
        mut self,
        (kind, around): (&LocationKind, LocationId),
        outer: &Outer<'a>,
        is_conditional: bool,
        all: &mut Growing<'_>,
        scope: &mut Scope,
    ) -> Result<LocationId, Error> {
        let has_own_content = inherit_content(&mut self.raw, &outer.raw);
        let own = outer.enter(self.raw, self.lines);
        let outside = &all.locations[around as usize];
        let (name, outer_handler) = (outside.name.clone(), handler::of(outside).cloned());
        let level = Level {
            // A URI of its own could replace nothing here.
            kind: (!has_own_content).then_some(kind),
            name,
            is_internal: false,
            place: self.place,
            outer: Some(around),
        };
        let id = locations::add(level, &own, all, scope)?;
        let location = &mut all.locations[id as usize];
        location.is_conditional = is_conditional;
        if !has_own_content && handler::of(location).is_none() {
            handler::set(&mut location.made, outer_handler);
        }
        Ok(id)
    }
}

impl<'a> Blocks<'a> {
    /// Takes in an `if` of a location, whose lines it joins.
    ///
    /// # Errors
    /// The error, at its place.
    pub(crate) fn read_if(
        &mut self,
        directive: &'a Directive,
        raw: &mut Raw,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let number = self.ifs.len();
        if number == SCOPES_MAX {
            let sentence = format!("more than {SCOPES_MAX} \"if\" in one location");
            return Err(directive.error(&Problem::new(sentence)));
        }
        let condition = condition(directive, scope)?;
        let mut block = Block::read(directive, scope)?;
        let line = Line::If {
            condition,
            inner: std::mem::take(block.raw.rewriting.edit()),
            scope: Some(number),
        };
        self.ifs.push(block);
        rewrite::add(raw.rewriting.edit(), line).map_err(|problem| directive.error(&problem))
    }

    /// Takes in a `limit_except`.
    ///
    /// # Errors
    /// The error, at its place.
    pub(crate) fn read_exception(
        &mut self,
        directive: &'a Directive,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        if self.exception.is_some() {
            return Err(directive.error(&Problem::duplicate()));
        }
        let allowed = methods(&directive.args).map_err(|problem| directive.error(&problem))?;
        self.exception = Some((allowed, Block::read(directive, scope)?));
        Ok(())
    }

    /// Adds the locations that stand for the scopes of `around`, and makes its program.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn finish(
        self,
        (kind, around): (&LocationKind, LocationId),
        outer: &Outer<'a>,
        all: &mut Growing<'_>,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let mut scopes = Vec::with_capacity(self.ifs.len());
        for block in self.ifs {
            scopes.push(block.finish((kind, around), outer, true, all, scope)?);
        }
        if let Some((allowed, block)) = self.exception {
            let location = block.finish((kind, around), outer, false, all, scope)?;
            all.locations[around as usize].exception = Some(Exception { allowed, location });
        }
        let lines = outer.raw.rewriting.get().map_or(&[][..], |lines| lines);
        let program = rewrite::Program::new(lines, &scopes);
        all.locations[around as usize].made.set(program);
        Ok(())
    }
}

/// Takes in an `if` of a server: its lines, and nothing else.
///
/// # Errors
/// The error, at its place.
pub(crate) fn read_server_if(
    directive: &Directive,
    raw: &mut Raw,
    scope: &mut Scope,
) -> Result<(), Error> {
    let condition = condition(directive, scope)?;
    let mut block = Block::read(directive, scope)?;
    let line = Line::If {
        condition,
        inner: std::mem::take(block.raw.rewriting.edit()),
        scope: None,
    };
    rewrite::add(raw.rewriting.edit(), line).map_err(|problem| directive.error(&problem))
}

/// Whether a level has a directive.
macro_rules! says {
    ($raw:ident.$group:ident.$directive:ident) => {
        $raw.$group
            .get()
            .is_some_and(|said| said.$directive.value.is_some())
    };
}

/// Takes over a directive that is not inherited, if the level around has it.
macro_rules! take_over {
    ($raw:ident.$group:ident.$directive:ident, $outer:ident) => {
        if says!($outer.$group.$directive) || says!($raw.$group.$directive) {
            let said = $outer.$group.get().map(|said| said.$directive.clone());
            $raw.$group.edit().$directive = said.unwrap_or_default();
        }
    };
}

/// Takes over the content directives of the location around, unless the scope has content of its own; returns whether
/// it has. Each directive that makes content and is not inherited by nested locations has a line here.
fn inherit_content(raw: &mut Raw, outer: &Raw) -> bool {
    take_over!(raw.status.status_zone, outer);
    if says!(raw.proxy.proxy_pass)
        || says!(raw.fastcgi_pass.fastcgi_pass)
        || says!(raw.uwsgi_pass.uwsgi_pass)
        || says!(raw.scgi_pass.scgi_pass)
        || says!(raw.grpc_pass.grpc_pass)
        || says!(raw.tunnelling.tunnel_pass)
    {
        return true;
    }
    take_over!(raw.proxy.proxy_pass, outer);
    take_over!(raw.fastcgi_pass.fastcgi_pass, outer);
    take_over!(raw.uwsgi_pass.uwsgi_pass, outer);
    take_over!(raw.scgi_pass.scgi_pass, outer);
    take_over!(raw.grpc_pass.grpc_pass, outer);
    take_over!(raw.tunnelling.tunnel_pass, outer);
    raw.status = outer.status.clone();
    raw.empty_gif = outer.empty_gif.clone();
    raw.flv = outer.flv.clone();
    raw.mp4 = outer.mp4.clone();
    false
}

fn condition(directive: &Directive, scope: &mut Scope) -> Result<std::sync::Arc<Condition>, Error> {
    Condition::parse(&directive.args, scope)
        .map(std::sync::Arc::new)
        .map_err(|problem| directive.error(&problem))
}

/// The methods that `limit_except` names; GET means HEAD too.
fn methods(args: &[Word]) -> Result<Methods, Problem> {
    let mut methods = Methods::EMPTY;
    for (at, word) in args.iter().enumerate() {
        let method = Method::find(&word.bytes().to_ascii_uppercase());
        // nginx's list has no more.
        if matches!(method, Method::Other | Method::Connect | Method::Trace) {
            let sentence = format!("invalid method \"{}\"", word.display());
            return Err(Problem::new(sentence).at(at));
        }
        methods = methods.with(method);
        if method == Method::Get {
            methods = methods.with(Method::Head);
        }
    }
    Ok(methods)
}
