//! `worker_cpu_affinity`: which CPUs each loop may run on.
//!
//! Not here: binding a loop to them ([`runtime`]). Invariant: a mask names no CPU beyond [`CPUS_MAX`].

use config::{Problem, Scope, Value, Word};

/// Maximum number of CPUs that a mask can name.
const CPUS_MAX: usize = 1024;

/// `worker_cpu_affinity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affinity {
    /// One CPU per loop, of these; empty: of all.
    Auto(Vec<usize>),
    /// The CPUs of each loop.
    Masks(Vec<Vec<usize>>),
}

impl Affinity {
    /// The CPUs of each of `loops` loops, on a machine with so many cores.
    #[must_use]
    pub fn cpus(&self, loops: usize, cores: usize) -> Vec<Vec<usize>> {
        match self {
            Self::Masks(masks) => masks.clone(),
            Self::Auto(of) => {
                let of: Vec<usize> = if of.is_empty() {
                    (0..cores).collect()
                } else {
                    of.clone()
                };
                (0..loops).map(|index| vec![of[index % of.len()]]).collect()
            }
        }
    }
}

impl Value for Affinity {
    const SYNTAX: &'static str = "cpumask … | auto [cpumask]";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        if args[0] != "auto" {
            return args
                .iter()
                .enumerate()
                .map(|(index, word)| mask(word, index))
                .collect::<Result<_, _>>()
                .map(Self::Masks);
        }
        match args.len() {
            1 => Ok(Self::Auto(Vec::new())),
            2 => mask(&args[1], 1).map(Self::Auto),
            _ => Err(Problem::argument_count("worker_cpu_affinity")),
        }
    }
}

fn mask(word: &Word, index: usize) -> Result<Vec<usize>, Problem> {
    if word.bytes().len() > CPUS_MAX {
        let sentence = format!("\"worker_cpu_affinity\" supports up to {CPUS_MAX} CPUs only");
        return Err(Problem::new(sentence).at(index));
    }
    let mut cpus = Vec::new();
    for (cpu, bit) in word
        .bytes()
        .iter()
        .rev()
        .filter(|&&byte| byte != b' ')
        .enumerate()
    {
        match bit {
            b'0' => {}
            b'1' => cpus.push(cpu),
            _ => {
                let bit = char::from(*bit);
                let sentence = format!("invalid character \"{bit}\" in \"worker_cpu_affinity\"");
                return Err(Problem::new(sentence).at(index));
            }
        }
    }
    Ok(cpus)
}
