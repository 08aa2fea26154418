//! What a start finds on a device whose segments are not files.
//!
//! A device and the directory beside it belong together: the directory has the journal, which says what is on the
//! device, and a file with the device's identity. Not here: the device's format ([`crate::segments::device`]).
//! Invariants: a device that holds something else is not written to; what a journal says of another device is not used.

use super::start::{FoundSegments, LostEntries, folder, forget_all_but, has_table};
use crate::error::Error;
use crate::index::Index;
use crate::journal::{FOLDER, Recovered, temp_ending};
use crate::segments::device::{self, DEVICE_FILE, DeviceContents};
use crate::segments::{DeviceSegments, Segment, SegmentState, SegmentUse, Segments};
use crate::store::{DeviceSettings, FILE_MODE, StoreSettings};
use bytes::Bytes;
use disk::{BatchStep, Device, Errno, Lane, Local, NewFile};

/// Maximum of bytes of the file that says which device the directory belongs to.
const DEVICE_FILE_BYTES_MAX: usize = 8192;

/// Opens the segments on a device, whose directory this process owns. A blank one is formatted. Also returns the
/// entries of the index that are in none, which have left it.
///
/// # Errors
/// [`Error::Device`]: it holds something else, or belongs to another directory; [`Error::Disk`].
pub(super) async fn find(
    local: &Local,
    settings: &StoreSettings,
    device: &DeviceSettings,
    index: &Index,
    recovered: &Recovered,
) -> Result<(Option<FoundSegments>, LostEntries), Error> {
    let (one, pool) = (device.clone(), settings.pool.clone());
    let looked = settings.pool.run(Lane::Write, move || look(&one, &pool));
    let (set, filling) = looked.await.map_err(disk::Error::from)??;
    let (path, known) = known_identity(local, settings).await?;
    let name = set.device.as_ref().map(|device| device.header.name());
    let has_entries = !set.readable().is_empty();
    let is_known = known.is_some() && known == name;
    if !is_known && known.is_some() && has_entries {
        return Err(Error::Device(format!(
            "\"{}\" belongs to another directory than \"{}\", which had another device: name the right one, or have this \
             one emptied by \"freewheel cache format\"",
            String::from_utf8_lossy(&device.path),
            String::from_utf8_lossy(&settings.directory)
        )));
    }
    let mut lost = LostEntries::new();
    if !is_known {
        // What the journal says is of another device, or of files.
        lost = forget_all_but(index, |_, _| false);
        remove_files(settings).await?;
    }
    let name = name.unwrap_or_default();
    let text = [name.as_bytes(), b"\n", &device.path, b"\n"].concat();
    let file = NewFile {
        path: path.into(),
        ending: temp_ending(0),
        is_watched: true,
        from: None,
        mode: FILE_MODE,
        contents: vec![Bytes::from(text)],
    };
    local
        .change(vec![BatchStep::Create(file)], &settings.pool)
        .await?;
    let (found, more) = FoundSegments::of(set, filling, settings, index, recovered).await?;
    lost.extend(more);
    let found = found.map(|found| FoundSegments {
        is_unknown: !is_known && has_entries,
        ..found
    });
    Ok((found, lost))
}

/// The path of the file with the identity of the device, and that identity; None: the directory had no device yet.
async fn known_identity(
    local: &Local,
    settings: &StoreSettings,
) -> Result<(Vec<u8>, Option<String>), Error> {
    let path = format!("/{FOLDER}/{DEVICE_FILE}");
    let path = [&settings.directory[..], path.as_bytes()].concat();
    let text = match local
        .read_front(&path, DEVICE_FILE_BYTES_MAX, &settings.pool)
        .await
    {
        Ok((text, _)) => text,
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok((path, None)),
        Err(error) => return Err(error.into()),
    };
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = String::from_utf8_lossy(line).into_owned();
    Ok((path, (!name.is_empty()).then_some(name)))
}

/// **Waits.**
fn look(
    settings: &DeviceSettings,
    pool: &disk::Pool,
) -> Result<(Segments, Option<SegmentUse>), Error> {
    let fd = settings.descriptor.try_clone();
    let fd = fd.map_err(|error| disk::Error::System {
        call: "dup()",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
    })?;
    let device = Device::new(fd, pool)?;
    let header = match device::look(&device.direct())? {
        DeviceContents::Segments(header) => header,
        DeviceContents::Blank => device::format(&device.direct())?,
        other => return Err(Error::Device(other.refusal().unwrap_or_default())),
    };
    let on = DeviceSegments { device, header };
    let mut segments: Vec<Option<Segment>> = Vec::new();
    let mut newest: Option<(u64, u32)> = None;
    for (number, head, dead) in on.heads() {
        newest = newest.max(Some((head.sequence, number)));
        let place = number as usize;
        segments.resize_with(segments.len().max(place + 1), || None);
        let part = on.part(number);
        segments[place] = Some(Segment::new(
            part,
            SegmentState::Sealed,
            head.sequence,
            dead,
        ));
    }
    let (bytes, most) = (on.header.segment_bytes, on.count_for(None));
    let mut set = Segments::new(Vec::new(), bytes, most, segments);
    set.device = Some(on);
    // Only the newest can be the one that was being filled: another without a table is emptied next.
    let newest = newest.and_then(|(_, number)| {
        let mut readable = set.readable().into_iter();
        readable.find(|one| one.number == number)
    });
    let filling = newest.filter(|one| !has_table(&one.file, &one.header));
    if let Some(filling) = &filling {
        set.set_state(filling.number, SegmentState::Filling);
    }
    Ok((set, filling))
}

/// Deletes the segments that were files of the directory, before it had a device.
async fn remove_files(settings: &StoreSettings) -> Result<(), Error> {
    let folder = folder(settings);
    let remove = move || -> Result<(), disk::Error> {
        for name in disk::names_in(&folder)? {
            if crate::segments::number_of(&name).is_some() {
                disk::remove_waiting(&[&folder[..], &name].concat())?;
            }
        }
        Ok(())
    };
    let removed = settings.pool.run(Lane::Write, remove).await;
    Ok(removed.map_err(disk::Error::from)??)
}
