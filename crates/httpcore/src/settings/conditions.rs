//! Values of which one that is true is enough: neither empty nor `0`.

use config::{Problem, Scope, Template, Value, Word};
use logs::template::{Variables, expand, is_true};

/// Maximum number of values of a directive at one level.
pub const VALUES_MAX: usize = 4096;

/// Values of which one that is neither empty nor `0` is enough.
#[derive(Clone, Debug, Default)]
pub struct Conditions(Vec<Template>);

impl Value for Conditions {
    const SYNTAX: &'static str = "string …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut all = Vec::with_capacity(args.len());
        for (index, word) in args.iter().enumerate() {
            all.push(Template::of_word(word, scope).map_err(|problem| problem.at(index))?);
        }
        Ok(Self(all))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let more = Self::parse(args, scope)?;
        slot.get_or_insert_default().add(more)
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

impl Conditions {
    /// Adds the values of one more line.
    ///
    /// # Errors
    /// There are more than [`VALUES_MAX`].
    pub fn add(&mut self, more: Self) -> Result<(), Problem> {
        self.0.extend(more.0);
        match self.0.len() {
            ..=VALUES_MAX => Ok(()),
            _ => Err(Problem::directive(format!(
                "has more than {VALUES_MAX} values"
            ))),
        }
    }

    /// The values, in their order.
    #[must_use]
    pub fn templates(&self) -> &[Template] {
        &self.0
    }

    /// Whether one of them is true for this request.
    #[must_use]
    pub fn hold(&self, variables: &impl Variables) -> bool {
        self.0
            .iter()
            .any(|template| is_true(&expand(template, variables)))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
