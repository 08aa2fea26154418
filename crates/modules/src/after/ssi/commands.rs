//! The SSI commands and their parameters. Not here: their effects.

use super::parser::Command;

/// The kind of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `include`: shows the answer to a sub-request, or stores it in a variable.
    Include,
    /// Shows a variable.
    Echo,
    /// Sets how times and errors are shown.
    Config,
    /// Sets a variable.
    Set,
    /// Shows the text after it if a condition holds.
    If,
    /// The same with another condition, if none before held.
    Elif,
    /// The same if no condition held.
    Else,
    /// Ends conditions.
    Endif,
    /// Stores the text after it.
    Block,
    /// Ends a block.
    Endblock,
}

/// Maximum parameters of one command.
const PARAMETERS: usize = 5;

/// The values of a command's parameters, in the order of its table.
pub(super) type Values = [Option<Vec<u8>>; PARAMETERS];

/// A command: its name, its parameters and whether each is required.
type Row = (&'static str, Kind, &'static [(&'static str, bool)]);

const ROWS: &[Row] = &[
    (
        "include",
        Kind::Include,
        &[
            ("virtual", false),
            ("file", false),
            ("wait", false),
            ("set", false),
            ("stub", false),
        ],
    ),
    (
        "echo",
        Kind::Echo,
        &[("var", true), ("default", false), ("encoding", false)],
    ),
    (
        "config",
        Kind::Config,
        &[("errmsg", false), ("timefmt", false)],
    ),
    ("set", Kind::Set, &[("var", true), ("value", true)]),
    ("if", Kind::If, &[("expr", true)]),
    ("elif", Kind::Elif, &[("expr", true)]),
    ("else", Kind::Else, &[]),
    ("endif", Kind::Endif, &[]),
    ("block", Kind::Block, &[("name", true)]),
    ("endblock", Kind::Endblock, &[]),
];

impl Kind {
    /// The kind of the command with this name.
    #[must_use]
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let row = ROWS.iter().find(|(known, ..)| known.as_bytes() == name);
        row.map(|(_, kind, _)| *kind)
    }

    /// The values of the parameters of a command of this kind.
    ///
    /// # Errors
    /// The fault in them, for the log.
    pub(super) fn values(self, command: Command) -> Result<Values, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = text(&command.name);
        if command.has_too_many {
            return Err(format!("too many SSI command parameters: \"{name}\""));
        }
        let row = ROWS.iter().find(|(_, kind, _)| *kind == self);
        let parameters = row.map_or(&[][..], |(.., parameters)| parameters);
        let mut values = Values::default();
        for (parameter, value) in command.parameters {
            let known = parameters
                .iter()
                .position(|(known, _)| known.as_bytes() == parameter);
            let Some(at) = known else {
                let parameter = text(&parameter);
                return Err(format!(
                    "invalid parameter name: \"{parameter}\" in \"{name}\" SSI command"
                ));
            };
            if values[at].is_some() {
                let parameter = text(&parameter);
                return Err(format!(
                    "duplicate \"{parameter}\" parameter in \"{name}\" SSI command"
                ));
            }
            values[at] = Some(value);
        }
        for (at, (parameter, is_needed)) in parameters.iter().enumerate() {
            if *is_needed && values[at].is_none() {
                return Err(format!(
                    "mandatory \"{parameter}\" parameter is absent in \"{name}\" SSI command"
                ));
            }
        }
        Ok(values)
    }
}

/// A command as text again, for a block that is run where it is shown.
#[must_use]
pub(super) fn text_of(command: &Command) -> Vec<u8> {
    let mut out = b"<!--#".to_vec();
    out.extend_from_slice(&command.name);
    for (name, value) in &command.parameters {
        out.push(b' ');
        out.extend_from_slice(name);
        out.extend_from_slice(b"=\"");
        out.extend_from_slice(value);
        out.push(b'"');
    }
    out.extend_from_slice(b" -->");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, parameters: &[(&str, &str)]) -> Command {
        let pair =
            |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Command {
            name: name.as_bytes().to_vec(),
            parameters: parameters.iter().map(pair).collect(),
            has_too_many: false,
        }
    }

    #[test]
    fn parameters_are_put_in_order() {
        let values = Kind::Echo.values(command("echo", &[("default", "x"), ("var", "y")]));
        let values = values.unwrap();
        assert_eq!(values[0].as_deref(), Some(&b"y"[..]));
        assert_eq!(values[1].as_deref(), Some(&b"x"[..]));
        assert_eq!(values[2], None);
    }

    #[test]
    fn wrong_parameters() {
        for (wrong, sentence) in [
            (
                command("set", &[("var", "x")]),
                "mandatory \"value\" parameter is absent in \"set\" SSI command",
            ),
            (
                command("set", &[("x", "")]),
                "invalid parameter name: \"x\" in \"set\" SSI command",
            ),
            (
                command("set", &[("var", ""), ("var", "")]),
                "duplicate \"var\" parameter in \"set\" SSI command",
            ),
            (
                Command {
                    has_too_many: true,
                    ..command("set", &[])
                },
                "too many SSI command parameters: \"set\"",
            ),
        ] {
            assert_eq!(Kind::Set.values(wrong).unwrap_err(), sentence);
        }
        assert_eq!(Kind::of(b"Set"), None);
    }

    #[test]
    fn commands_become_text_again() {
        let text = text_of(&command("if", &[("expr", "$a = \\\"b")]));
        assert_eq!(text, b"<!--#if expr=\"$a = \\\"b\" -->");
    }
}
