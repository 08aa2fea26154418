//! `freewheel cache format DEVICE`: makes a block device, a partition or a file of a fixed length one for a cache.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use cache::device::{DeviceContents, format, look};
use disk::{DeviceUse, DirectFile, Errno, errno_text, open_device};

use super::text;

/// What to format.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    /// A block device, a partition or a file of a fixed length, which no program has
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// Destroys what is on it
    #[arg(long)]
    force: bool,
}

/// Formats.
pub(super) fn run(wishes: &Wishes) -> Result<ExitCode, String> {
    let name = wishes.device.display();
    let opened = open_device(&wishes.device, DeviceUse::Alone).map_err(|error| match error {
        Errno::BUSY => {
            format!("{name} is in use: a file system on it is mounted, or another program has it")
        }
        Errno::NOTBLK => format!("{name} is neither a block device nor a file of a fixed length"),
        error => format!("{name}: {}", errno_text(error)),
    })?;
    let device = DirectFile::new(opened.as_fd());
    let told = |error: disk::Error| format!("{name}: {error}");
    let contents = look(&device).map_err(told)?;
    match contents {
        DeviceContents::Small => {
            return Err(format!(
                "{name}: {}",
                contents.refusal().unwrap_or_default()
            ));
        }
        DeviceContents::Blank => {}
        _ if wishes.force => {}
        _ => {
            return Err(format!(
                "{name} holds {contents}: with --force that is destroyed"
            ));
        }
    }
    let header = format(&device).map_err(told)?;
    text::say(format_args!(
        "{name}: {} segments of {} MiB\n",
        header.segments,
        header.segment_bytes >> 20
    ));
    Ok(ExitCode::SUCCESS)
}
