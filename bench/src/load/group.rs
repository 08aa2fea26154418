//! What one kind of clients does, from its text on the command line.

/// In what order a group asks for its targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Any, each time.
    Random,
    /// One after the other, all connections together.
    Turn,
}

/// Clients that do the same.
#[derive(Debug)]
pub struct Group {
    /// For the report.
    pub name: String,
    /// How many at once.
    pub connections: usize,
    /// A new connection for every request.
    pub is_fresh: bool,
    /// Kept connections are there before the run begins, with TLS after their handshakes.
    pub is_opened: bool,
    /// How targets are chosen.
    pub order: Order,
    /// Requests per second of the whole group; none: as fast as answers come.
    pub rate: Option<f64>,
    /// Requests come by chance around the rate, the same for the same seed, the n-th over the (n modulo connections)-th connection
    /// even when that is waiting; none: evenly, each over one that is free.
    pub seed: Option<u64>,
    /// Starts to the microsecond, at the price of a busy core; else to the timer's millisecond.
    pub is_exact: bool,
    /// Bodies are compared with what the origin gives for the path.
    pub is_checked: bool,
    /// The group ends after so many requests.
    pub count: Option<u64>,
    /// What the group saw is part of what is reported under this name, too: of several groups together.
    pub within: Option<String>,
    /// Request targets (`/a.bin`).
    pub targets: Vec<String>,
}

impl Group {
    /// Reads `name=N,connections=C,targets=FILE[,fresh|opened][,order=random|turn][,rate=R][,seed=S][,exact][,check][,count=M][,within=N]`.
    pub fn parse(text: &str) -> Result<Group, String> {
        let mut group = Group {
            name: String::new(),
            connections: 1,
            is_fresh: false,
            is_opened: false,
            order: Order::Random,
            rate: None,
            seed: None,
            is_exact: false,
            is_checked: false,
            count: None,
            within: None,
            targets: Vec::new(),
        };
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("name", name)) => group.name = name.to_owned(),
                Some(("connections", count)) => group.connections = crate::number(count)?,
                Some(("targets", file)) => group.targets = read_targets(file)?,
                Some(("rate", rate)) => group.rate = Some(crate::number(rate)?),
                Some(("seed", seed)) => group.seed = Some(crate::number(seed)?),
                Some(("count", count)) => group.count = Some(crate::number(count)?),
                Some(("within", name)) => group.within = Some(name.to_owned()),
                Some(("order", "random")) => group.order = Order::Random,
                Some(("order", "turn")) => group.order = Order::Turn,
                None if part == "fresh" => group.is_fresh = true,
                None if part == "opened" => group.is_opened = true,
                None if part == "exact" => group.is_exact = true,
                None if part == "check" => group.is_checked = true,
                _ => return Err(format!("{part}: not part of a group")),
            }
        }
        if group.targets.is_empty()
            || group.connections == 0
            || group.rate.is_some_and(|rate| rate <= 0.0)
        {
            return Err(format!(
                "{text}: needs targets, a connection and a rate above 0 if any"
            ));
        }
        Ok(group)
    }
}

#[expect(clippy::disallowed_methods, reason = "before any request is sent")]
fn read_targets(file: &str) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    Ok(text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_needs_targets_and_known_words() {
        assert!(
            Group::parse("name=a,connections=1")
                .unwrap_err()
                .contains("needs targets")
        );
        assert!(Group::parse("nmae=a").unwrap_err().contains("not part"));
        let file = std::env::temp_dir().join(format!("load-targets-{}", std::process::id()));
        #[expect(clippy::disallowed_methods, reason = "a test")]
        std::fs::write(&file, "/a\n\n/b\n").unwrap();
        let group = Group::parse(&format!(
            "name=a,connections=3,fresh,order=turn,rate=5,targets={}",
            file.display()
        ))
        .unwrap();
        assert_eq!(
            (group.targets.len(), group.is_fresh, group.order, group.rate),
            (2, true, Order::Turn, Some(5.0))
        );
    }
}
