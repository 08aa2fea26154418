//! Whether a stored response may be used for a request.

use super::{RequestControl, Rules};
use crate::lifetime::{Lifetime, Reuse};
use message::date::Seconds;

/// How the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFailure {
    /// No connection, a lost one, a timeout, or an invalid response.
    Connection,
    /// It responded with this status.
    Status(u16),
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseDecision {
    /// The stored response.
    Use,
    /// The origin's response, or the stored one after revalidation.
    Ask,
    /// 504: only a stored response was wanted, and there is no usable one (`only-if-cached`; RFC 9111, 5.2.1.7).
    Refuse,
}

impl Rules {
    /// Is it fresh (RFC 9111, 4.2)?
    #[must_use]
    pub fn is_fresh(&self, lifetime: &Lifetime, now: Seconds) -> bool {
        let end = lifetime
            .expires
            .saturating_sub(i64::from(self.ends_on_time));
        lifetime.reuse != Reuse::Revalidate && now <= end
    }

    /// May it be used while it is being updated? `is_wanted`: `proxy_cache_use_stale updating`.
    #[must_use]
    pub fn may_use_while_updating(
        &self,
        lifetime: &Lifetime,
        now: Seconds,
        is_wanted: bool,
    ) -> bool {
        self.may_be_stale(lifetime) && (is_wanted || lifetime.is_within_updating(now))
    }

    /// May it be used in place of a failure? `is_wanted`: `proxy_cache_use_stale` names the failure.
    #[must_use]
    pub fn may_cover(
        &self,
        lifetime: &Lifetime,
        now: Seconds,
        failure: OriginFailure,
        is_wanted: bool,
    ) -> bool {
        let is_meant = match failure {
            OriginFailure::Connection => true,
            OriginFailure::Status(status) => {
                self.covers_5xx && matches!(status, 500 | 502 | 503 | 504)
            }
        };
        let is_within = is_meant && lifetime.is_within_error(now);
        self.may_be_stale(lifetime) && (is_wanted || is_within)
    }

    fn may_be_stale(&self, lifetime: &Lifetime) -> bool {
        match lifetime.reuse {
            Reuse::Plain => true,
            Reuse::NeverStale => !self.forbids_stale,
            Reuse::Revalidate => false,
        }
    }

    /// What a request with these directives gets; `is_usable` says whether it would get the stored response without any
    /// (fresh, or stale and allowed).
    #[must_use]
    pub fn admit(
        &self,
        lifetime: &Lifetime,
        now: Seconds,
        wishes: &RequestControl,
        is_usable: bool,
    ) -> ReuseDecision {
        if !self.obeys_requests {
            return if is_usable {
                ReuseDecision::Use
            } else {
                ReuseDecision::Ask
            };
        }
        let left = lifetime.expires.saturating_sub(now);
        let is_young = wishes.max_age.is_none_or(|max| lifetime.age(now) <= max);
        let is_long = wishes.min_fresh.is_none_or(|min| left >= i64::from(min));
        // 5.2.1.2: the client accepts a stale response, if the origin does not forbid it.
        let stale_for = wishes.max_stale.unwrap_or_default();
        let is_taken_stale = wishes.max_stale.is_some()
            && self.may_be_stale(lifetime)
            && left.saturating_add(i64::from(stale_for)) > 0;
        if !wishes.no_cache && is_young && is_long && (is_usable || is_taken_stale) {
            ReuseDecision::Use
        } else if wishes.only_if_cached {
            ReuseDecision::Refuse
        } else {
            ReuseDecision::Ask
        }
    }

    /// Does a request with these directives refuse every response that was requested before it (`no-cache`,
    /// `max-age=0`; RFC 9111, 5.2.1)?
    #[must_use]
    pub fn demands_anew(&self, wishes: &RequestControl) -> bool {
        self.obeys_requests && (wishes.no_cache || wishes.max_age == Some(0))
    }

    /// May a request with these directives share the response that another one is fetching (RFC 9111, 4: it must be
    /// reusable for it)?
    #[must_use]
    pub fn may_follow(&self, lifetime: &Lifetime, now: Seconds, wishes: &RequestControl) -> bool {
        let is_fresh = self.is_fresh(lifetime, now);
        !self.obeys_requests || self.admit(lifetime, now, wishes, is_fresh) == ReuseDecision::Use
    }

    /// Does a request for which no response is stored get 504 (`only-if-cached`)?
    #[must_use]
    pub fn refuses_miss(&self, wishes: &RequestControl) -> bool {
        self.obeys_requests && wishes.only_if_cached
    }

    /// Does the request forbid storing its response (RFC 9111, 5.2.1.5)?
    #[must_use]
    pub fn forbids_storing(&self, wishes: &RequestControl) -> bool {
        self.obeys_requests && wishes.no_store
    }
}
