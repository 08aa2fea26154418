//! The objects of the protocol (RFC 8555, 7.1; RFC 9773, 4.2), as far as they are used here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::error::Problem;

/// The directory (RFC 8555, 7.1.1).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Directory {
    pub(crate) new_nonce: String,
    pub(crate) new_account: String,
    pub(crate) new_order: String,
    /// RFC 9773.
    pub(crate) renewal_info: Option<String>,
    #[serde(default)]
    pub(crate) meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) terms_of_service: Option<String>,
    pub(crate) external_account_required: bool,
    pub(crate) profiles: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewAccount<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terms_of_service_agreed: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) contact: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) external_account_binding: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Account {
    pub(crate) status: String,
}

/// A name or an address, as the protocol says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedIdentifier {
    /// `dns` or `ip`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name.
    pub value: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct NewOrder<'a> {
    pub(crate) identifiers: Vec<NamedIdentifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<&'a str>,
}

/// The status of an order, an authorization or a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pending,
    Ready,
    Processing,
    Valid,
    Invalid,
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OrderState {
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) authorizations: Vec<String>,
    #[serde(default)]
    pub(crate) finalize: String,
    pub(crate) certificate: Option<String>,
    pub(crate) error: Option<Problem>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Authorization {
    pub(crate) identifier: NamedIdentifier,
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) challenges: Vec<OfferedChallenge>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OfferedChallenge {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) token: String,
    pub(crate) error: Option<Problem>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RenewalInfo {
    pub(crate) suggested_window: Window,
    #[serde(rename = "explanationURL")]
    pub(crate) explanation_url: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Window {
    /// A time (RFC 3339).
    pub(crate) start: String,
    pub(crate) end: String,
}

impl Window {
    /// Its two ends, in seconds since 1970; `None`: they are no times.
    pub(crate) fn seconds(&self) -> Option<(i64, i64)> {
        let second = |text: &str| {
            text.parse::<jiff::Timestamp>()
                .ok()
                .map(|time| time.as_second())
        };
        Some((second(&self.start)?, second(&self.end)?))
    }
}
