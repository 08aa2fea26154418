//! The files of the locations that are no proxies, and those that `proxy_store` keeps.

use crate::asked::{Asked, How, SIZES, VERSIONS, whole};
use crate::findings;
use std::fs;
use std::path::Path;

/// Of each size.
pub const SEEDS: u64 = 10;

/// Makes them below a directory.
#[expect(clippy::disallowed_methods, reason = "nothing else runs")]
pub fn make(directory: &str) -> Result<(), String> {
    for size in SIZES {
        for seed in 0..SEEDS {
            let asked = Asked {
                how: How::Whole,
                size,
                seed,
            };
            let path = Path::new(directory).join(asked.path());
            let folder = path.parent().unwrap_or(Path::new(directory));
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&path, whole(seed, size)))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Looks at each file below a directory whose path is one of a request, and prints what was found.
pub fn check(directory: &str) -> Result<(), String> {
    look(Path::new(directory)).map_err(|error| format!("{directory}: {error}"))?;
    println!("{}", findings::report());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs")]
fn look(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            look(&path)?;
        } else if let Some(asked) = asked(&path) {
            let content = fs::read(&path)?;
            let is_whole = |version| content == whole(asked.seed_of(version), asked.size);
            if (0..VERSIONS).any(is_whole) {
                findings::count("stored whole");
            } else {
                let length = content.len();
                findings::wrong(format!("stored: {length} bytes in {}", path.display()));
            }
        }
    }
    Ok(())
}

/// From the last three parts of a path; a temporary file has another name.
fn asked(path: &Path) -> Option<Asked> {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    Asked::parse(&parts[parts.len().checked_sub(3)?..].join("/"))
}
