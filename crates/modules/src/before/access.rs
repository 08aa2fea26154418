//! `allow` and `deny`: access by the client's address; the first rule that matches decides.

use std::net::IpAddr;

use config::{Directive, DirectiveTable, Error, Problem, Scope, Section, Word, blocks};
use ipnet::IpNet;

use httpcore::Failure;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::settings::admission::Satisfy;
use httpcore::steps::satisfy::{self, Verdict};
use httpcore::trusted_proxies;

/// The rules of one level.
pub const RULES_MAX: usize = 65_536;

/// The clients that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// `all`.
    All,
    /// `unix:`: every client of a unix socket.
    Unix,
    /// An address or a network.
    Net(IpNet),
}

/// One `allow` or `deny` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Whether it is `allow`.
    pub is_allowed: bool,
    /// The clients that it applies to.
    pub who: Who,
}

blocks! {
    /// Access control by address.
    pub fn lines in Location {
        /// Allows access for an address, a network, the clients of unix sockets, or all. Rules are checked in order;
        /// the first match decides. A level with rules of its own inherits none.
        "allow": [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1, syntax "address | CIDR | unix: | all";
        /// Denies access; takes the same arguments as `allow`.
        "deny": [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1, syntax "address | CIDR | unix: | all";
    }
}

/// The rules that apply, in order.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// In configuration order.
    pub rules: Vec<Rule>,
}

config::own!(Access);

/// Implemented by hand, since two directives fill one list.
impl Section for Access {
    type Raw = Option<Vec<Rule>>;

    fn tables() -> Vec<&'static DirectiveTable> {
        vec![lines()]
    }

    fn set(raw: &mut Self::Raw, directive: &Directive, scope: &mut Scope) -> Result<bool, Error> {
        let is_allowed = directive.name == "allow";
        if !is_allowed && directive.name != "deny" {
            return Ok(false);
        }
        let word = &directive.args[0];
        let who = who(word, scope).map_err(|problem| directive.error(&problem.at(0)))?;
        let rules = raw.get_or_insert_default();
        if rules.len() == RULES_MAX {
            return Err(directive.error(&Problem::new(format!(
                "more than {RULES_MAX} rules at one level"
            ))));
        }
        rules.push(Rule { is_allowed, who });
        Ok(true)
    }

    fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw {
        child.or_else(|| parent.clone())
    }

    fn fill(_: &mut Self::Raw, _: &mut Scope) -> Result<(), Error> {
        Ok(())
    }

    fn finish(raw: Self::Raw, _: &mut Scope) -> Result<Self, Error> {
        Ok(Self {
            rules: raw.unwrap_or_default(),
        })
    }
}

fn who(word: &Word, scope: &mut Scope) -> Result<Who, Problem> {
    match &word.bytes()[..] {
        b"all" => return Ok(Who::All),
        b"unix:" => return Ok(Who::Unix),
        _ => {}
    }
    let invalid = || Problem::new(format!("invalid parameter \"{}\"", word.display()));
    let net = trusted_proxies::network(word, scope);
    net.map(Who::Net).ok_or_else(invalid)
}

/// Whether there are rules at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    !location.own::<Access>().rules.is_empty()
}

/// 403 for clients that a rule denies.
pub fn judge(request: &Request) -> Verdict {
    let location = request.location();
    match is_allowed(&location.own::<Access>().rules, request.client.ip()) {
        None => Verdict::Silent,
        Some(true) => Verdict::Passed,
        Some(false) => {
            if location.settings.admission.satisfy == Satisfy::All {
                satisfy::log_forbidden(request);
            }
            Verdict::Refused(Failure::new(403))
        }
    }
}

/// Whether the first rule that matches allows `client` (`None`: through a unix socket); `None`: no rule matches.
#[must_use]
pub fn is_allowed(rules: &[Rule], client: Option<IpAddr>) -> Option<bool> {
    // An IPv4 client of an IPv6 socket is compared as IPv4, if any rule may apply to IPv4.
    let is_of_v4 = |rule: &Rule| match rule.who {
        Who::All => true,
        Who::Net(net) => net.addr().is_ipv4(),
        Who::Unix => false,
    };
    let client = match client {
        Some(ip) if rules.iter().any(is_of_v4) => Some(ip.to_canonical()),
        other => other,
    };
    let fits = |rule: &&Rule| match (rule.who, client) {
        (Who::All, _) | (Who::Unix, None) => true,
        (Who::Net(net), Some(ip)) => net.contains(&ip),
        _ => false,
    };
    rules.iter().find(fits).map(|rule| rule.is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(is_allowed: bool, net: &str) -> Rule {
        Rule {
            is_allowed,
            who: Who::Net(net.parse().expect("a network")),
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = [
            rule(false, "192.168.1.1/32"),
            rule(true, "192.168.1.0/24"),
            rule(true, "2001:db8::/32"),
            Rule {
                is_allowed: false,
                who: Who::All,
            },
        ];
        let asked =
            |ip: &str| is_allowed(&rules, Some(ip.parse().expect("an address"))) == Some(true);
        assert!(!asked("192.168.1.1"));
        assert!(asked("192.168.1.2"));
        assert!(asked("::ffff:192.168.1.2"));
        assert!(asked("2001:db8::1"));
        assert!(!asked("10.0.0.1"));
        assert_eq!(is_allowed(&rules, None), Some(false));
        let unix = is_allowed(
            &[
                Rule {
                    is_allowed: true,
                    who: Who::Unix,
                },
                rules[3],
            ],
            None,
        );
        assert_eq!(unix, Some(true));
        assert_eq!(is_allowed(&[], None), None);
    }
}
