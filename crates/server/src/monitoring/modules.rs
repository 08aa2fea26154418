//! The modules that have metrics, in the order in which these are shown.
//!
//! To add the metrics of a module, add its line.

use crate::after::{addition, compression, slice, ssi};
use crate::before::{auth_basic, auth_request, mirror, real_ip};
use crate::connection::{post_action, proxy_protocol};
use crate::limits;
use crate::module_metrics::ModuleMetrics;
use crate::satisfy;
use crate::subrequest;

/// All of them.
pub(super) static MODULES: &[&ModuleMetrics] = &[
    &limits::metrics::METRICS,
    &compression::METRICS,
    &auth_basic::METRICS,
    &satisfy::METRICS,
    &subrequest::METRICS,
    &auth_request::METRICS,
    &mirror::METRICS,
    &slice::METRICS,
    &addition::METRICS,
    &ssi::METRICS,
    &post_action::METRICS,
    &proxy_protocol::METRICS,
    &real_ip::METRICS,
];
