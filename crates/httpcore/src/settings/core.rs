//! The groups of directives that the core obeys itself, by name.
//!
//! Not here: those of modules, which are found by their types ([`Location::own`](super::Location::own)).

use std::sync::Arc;

use logs::directives::AccessLog;
use logs::directives::ErrorLog;

use super::admission::Admission;
use super::connections::{Closing, Keepalive, Sending};
use super::error_pages::ErrorPages;
use super::files::{Files, StaticFiles};
use super::post_action::PostAction;
use super::redirects::Redirects;
use super::request_body::ClientBody;
use super::rewrite_messages::RewriteMessages;
use super::root::Root;
use super::server_tokens::Identity;
use super::subrequests::Subrequests;
use super::types::Types;

/// What a location says to the core.
#[derive(Debug, Clone)]
pub struct CoreSettings {
    /// [`Root`].
    pub root: Arc<Root>,
    /// [`Types`].
    pub types: Arc<Types>,
    /// [`Files`].
    pub files: Arc<Files>,
    /// [`StaticFiles`].
    pub static_files: Arc<StaticFiles>,
    /// [`ErrorPages`].
    pub error_pages: Arc<ErrorPages>,
    /// [`ClientBody`].
    pub client_body: Arc<ClientBody>,
    /// [`Keepalive`].
    pub keepalive: Arc<Keepalive>,
    /// [`Sending`].
    pub sending: Arc<Sending>,
    /// [`Closing`].
    pub closing: Arc<Closing>,
    /// [`PostAction`].
    pub post_action: Arc<PostAction>,
    /// [`AccessLog`].
    pub access_log: Arc<AccessLog>,
    /// [`ErrorLog`].
    pub error_log: Arc<ErrorLog>,
    /// [`Redirects`].
    pub redirects: Arc<Redirects>,
    /// [`Identity`].
    pub identity: Arc<Identity>,
    /// [`Subrequests`].
    pub subrequests: Arc<Subrequests>,
    /// [`RewriteMessages`].
    pub rewrite_messages: Arc<RewriteMessages>,
    /// [`Admission`].
    pub admission: Arc<Admission>,
}
