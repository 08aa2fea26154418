//! The groups of directives that the core obeys itself, by name.
//!
//! Not here: those of modules, which are found by their types ([`Location::own`](super::Location::own)).

use std::sync::Arc;

use logs::directives::AccessLog;
use logs::directives::ErrorLog;

use crate::absolute_redirect::Redirects;
use crate::connection::directives::Closing;
use crate::connection::directives::Keepalive;
use crate::connection::directives::Sending;
use crate::connection::post_action::PostAction;
use crate::error_page::ErrorPages;
use crate::files::{Files, StaticFiles};
use crate::path::Root;
use crate::request_body::directives::ClientBody;
use crate::satisfy::Admission;
use crate::server_tokens::Identity;
use crate::subrequest::Subrequests;
use crate::variables::messages::RewriteMessages;

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
