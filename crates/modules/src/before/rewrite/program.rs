//! The rewrite lines of a server or a location, as a flat list of instructions.

use std::sync::Arc;

use config::{Template, VariableIndex, VariableSet};

use crate::before::return_::Return;
use httpcore::route::LocationId;

use super::Line;
use super::condition::Condition;
use super::replacement::Rewrite;

slots::slotted!(config::made::LOCATION: Program);

/// The instructions of a server or a location; there is at least one.
#[derive(Debug)]
pub struct Program {
    instructions: Box<[Instruction]>,
    waits: bool,
}

/// One instruction.
#[derive(Debug)]
pub enum Instruction {
    /// Gives a variable a value.
    Set(VariableIndex, Template),
    /// If the condition holds, enters the scope, if there is one, and goes on with the next instruction; otherwise with
    /// `otherwise`.
    If {
        /// The condition.
        condition: Arc<Condition>,
        /// The location that stands for the scope.
        scope: Option<LocationId>,
        /// The first instruction after those inside.
        otherwise: usize,
    },
    /// Rewrites the URI.
    Rewrite(Arc<Rewrite>),
    /// Answers.
    Return(Arc<Return>),
    /// Ends the program.
    Break,
}

impl Instruction {
    /// Whether the value of one of these variables is used.
    #[must_use]
    pub fn uses(&self, variables: &VariableSet) -> bool {
        match self {
            Self::Set(_, value) => variables.is_in(value),
            Self::If { condition, .. } => condition.uses(variables),
            Self::Rewrite(rewrite) => rewrite.uses(variables),
            Self::Return(decided) => decided
                .text
                .as_ref()
                .is_some_and(|text| variables.is_in(text)),
            Self::Break => false,
        }
    }
}

impl Program {
    /// Compiles the lines; `None` if there are none. `scopes` are the locations that stand for the scopes of the lines.
    #[must_use]
    pub fn new(lines: &[Line], scopes: &[LocationId]) -> Option<Self> {
        if lines.is_empty() {
            return None;
        }
        let mut instructions = Vec::with_capacity(lines.len());
        append(&mut instructions, lines, scopes);
        let looks_at_file = |one: &Instruction| matches!(one, Instruction::If { condition, .. } if matches!(**condition, Condition::File(_)));
        Some(Self {
            waits: instructions.iter().any(looks_at_file),
            instructions: instructions.into(),
        })
    }

    /// Whether a file is tested, which may have to be waited for.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Whether the value of one of these variables is used.
    #[must_use]
    pub fn uses(&self, variables: &VariableSet) -> bool {
        !variables.is_empty() && self.instructions.iter().any(|one| one.uses(variables))
    }

    /// Its answer, if an answer is all that it does.
    #[must_use]
    pub fn only_return(&self) -> Option<&Arc<Return>> {
        match &*self.instructions {
            [Instruction::Return(decided)] => Some(decided),
            _ => None,
        }
    }

    /// The instruction at a position; `None`: the program has ended.
    #[must_use]
    pub fn at(&self, number: usize) -> Option<&Instruction> {
        self.instructions.get(number)
    }
}

/// Appends the instructions of the lines. An `if` contains no other, so the recursion is one level deep.
fn append(instructions: &mut Vec<Instruction>, lines: &[Line], scopes: &[LocationId]) {
    for line in lines {
        let instruction = match line {
            Line::Set(variable, value) => Instruction::Set(*variable, value.clone()),
            Line::Rewrite(rewrite) => Instruction::Rewrite(Arc::clone(rewrite)),
            Line::Return(decided) => Instruction::Return(Arc::clone(decided)),
            Line::Break => Instruction::Break,
            Line::If {
                condition,
                inner,
                scope,
            } => {
                let otherwise = instructions.len() + 1 + inner.len();
                instructions.push(Instruction::If {
                    condition: Arc::clone(condition),
                    scope: scope.map(|number| scopes[number]),
                    otherwise,
                });
                append(instructions, inner, scopes);
                debug_assert_eq!(instructions.len(), otherwise, "an if holds no other");
                continue;
            }
        };
        instructions.push(instruction);
    }
}
