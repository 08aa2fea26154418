//! SETTINGS (RFC 9113, 6.5; RFC 8441, 3; RFC 9218, 2.1): what a peer announced, and what we announce.

use super::Reason;
use super::flow::INITIAL_WINDOW;
use super::frame::{self, FrameHeader, FrameType, MAX_31, PAYLOAD_MAX};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
const NO_RFC7540_PRIORITIES: u16 = 9;

/// Maximum value of SETTINGS_MAX_FRAME_SIZE.
const FRAME_SIZE_LIMIT: u32 = (1 << 24) - 1;

/// The settings of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Maximum number of streams that we may open.
    pub streams_max: u32,
    /// The window of a new stream in bytes.
    pub initial_window: u32,
    /// Maximum length of a payload in bytes.
    pub frame_size: u32,
    /// Whether extended CONNECT may be used (RFC 8441).
    pub allows_protocol: bool,
}

impl Default for PeerSettings {
    /// What holds before SETTINGS (RFC 9113, 6.5.2).
    fn default() -> PeerSettings {
        PeerSettings {
            streams_max: u32::MAX,
            initial_window: INITIAL_WINDOW,
            frame_size: PAYLOAD_MAX as u32,
            allows_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Takes the payload of SETTINGS; unknown settings are ignored. Returns whether the size of the dynamic table was
    /// among them. The change of the initial window is for the caller to apply.
    ///
    /// # Errors
    /// A value that its setting does not have.
    pub fn take(&mut self, payload: &[u8], is_server: bool) -> Result<bool, Reason> {
        let mut has_table_size = false;
        for parameter in payload.as_chunks::<6>().0 {
            let [a, b, value @ ..] = *parameter;
            let value = u32::from_be_bytes(value);
            match u16::from_be_bytes([a, b]) {
                HEADER_TABLE_SIZE => has_table_size = true,
                // A server must not offer push to a client (RFC 9113, 7.2.3).
                ENABLE_PUSH if value > u32::from(is_server) => return Err(Reason::SettingsPush),
                MAX_CONCURRENT_STREAMS => self.streams_max = value,
                INITIAL_WINDOW_SIZE if value > MAX_31 => return Err(Reason::SettingsWindow),
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE if !(PAYLOAD_MAX as u32..=FRAME_SIZE_LIMIT).contains(&value) => {
                    return Err(Reason::SettingsFrameSize);
                }
                MAX_FRAME_SIZE => self.frame_size = value,
                ENABLE_CONNECT_PROTOCOL if value > 1 || (value == 0 && self.allows_protocol) => {
                    return Err(Reason::SettingsConnect);
                }
                ENABLE_CONNECT_PROTOCOL => self.allows_protocol = value == 1,
                NO_RFC7540_PRIORITIES if value > 1 => return Err(Reason::SettingsPriorities),
                _ => {}
            }
        }
        Ok(has_table_size)
    }
}

/// The settings that we announce. To clients, as in nginx, SETTINGS_MAX_HEADER_LIST_SIZE is not among them: it counts 32 bytes
/// more for each field than our limit does, so that clients which obey it would not send what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSettings {
    /// Whether it is the server that announces.
    pub is_server: bool,
    /// Maximum number of streams that the client may open.
    pub streams_max: u32,
    /// The window of a new stream in bytes.
    pub initial_window: u32,
    /// Maximum length in bytes of a payload that is accepted, at least [`PAYLOAD_MAX`].
    pub frame_max: u32,
    /// Maximum size in bytes of the fields of a response: what a server sends beyond it ends the connection.
    pub header_list_max: u32,
    /// Whether extended CONNECT may be used (RFC 8441).
    pub allows_protocol: bool,
}

impl OwnSettings {
    /// Appends the SETTINGS frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let of_server = [
            (MAX_CONCURRENT_STREAMS, self.streams_max),
            (MAX_FRAME_SIZE, self.frame_max),
            (ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let of_role: &[(u16, u32)] = match (self.is_server, self.allows_protocol) {
            (true, true) => &of_server,
            (true, false) => &of_server[..2],
            (false, _) => &[
                (ENABLE_PUSH, 0),
                (MAX_HEADER_LIST_SIZE, self.header_list_max),
            ],
        };
        let of_both = [
            (INITIAL_WINDOW_SIZE, self.initial_window),
            (NO_RFC7540_PRIORITIES, 1),
        ];
        let header = FrameHeader {
            len: 6 * (of_role.len() + of_both.len()),
            kind: FrameType::SETTINGS,
            flags: 0,
            stream: 0,
        };
        frame::write_header(out, &header);
        for (id, value) in of_role.iter().chain(&of_both) {
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Appends the acknowledgement of SETTINGS.
pub fn write_ack(out: &mut Vec<u8>) {
    let header = FrameHeader {
        len: 0,
        kind: FrameType::SETTINGS,
        flags: frame::flags::ACK,
        stream: 0,
    };
    frame::write_header(out, &header);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(settings: &mut PeerSettings, id: u16, value: u32) -> Result<bool, Reason> {
        let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        settings.take(&payload, true)
    }

    /// RFC 9113, 6.5.2; h2spec http2/6.5.2.
    #[test]
    fn values() {
        let mut peer = PeerSettings::default();
        for (id, value, reason) in [
            (ENABLE_PUSH, 2, Reason::SettingsPush),
            (INITIAL_WINDOW_SIZE, 1 << 31, Reason::SettingsWindow),
            (MAX_FRAME_SIZE, 16_383, Reason::SettingsFrameSize),
            (MAX_FRAME_SIZE, 1 << 24, Reason::SettingsFrameSize),
            (ENABLE_CONNECT_PROTOCOL, 2, Reason::SettingsConnect),
            (NO_RFC7540_PRIORITIES, 2, Reason::SettingsPriorities),
        ] {
            assert_eq!(take(&mut peer, id, value), Err(reason), "{id} {value}");
        }
        assert_eq!(peer, PeerSettings::default());
        for (id, value) in [(ENABLE_PUSH, 1), (99, 7), (6, 1), (9, 1)] {
            assert_eq!(take(&mut peer, id, value), Ok(false));
        }
        assert_eq!(take(&mut peer, HEADER_TABLE_SIZE, 0), Ok(true));
        assert_eq!(take(&mut peer, ENABLE_CONNECT_PROTOCOL, 1), Ok(false));
        let outcome = take(&mut peer, ENABLE_CONNECT_PROTOCOL, 0);
        assert_eq!(outcome, Err(Reason::SettingsConnect), "RFC 8441, 3");
        assert!(peer.take(&[0, 2, 0, 0, 0, 1], false).is_err(), "a server");
    }

    #[test]
    fn what_one_writes_the_other_takes() {
        let own = OwnSettings {
            is_server: true,
            streams_max: 7,
            initial_window: 8,
            frame_max: 20_000,
            header_list_max: 9,
            allows_protocol: true,
        };
        let mut out = Vec::new();
        own.write(&mut out);
        let payload = &out[frame::HEADER_LEN..];
        let (parameters, []) = payload.as_chunks::<6>() else {
            panic!("{payload:?}");
        };
        let ids: Vec<u8> = parameters.iter().map(|it| it[1]).collect();
        assert_eq!(ids, [3, 5, 8, 4, 9], "no limit of header lists (6)");
        let mut peer = PeerSettings::default();
        peer.take(payload, false).unwrap();
        let wanted = PeerSettings {
            streams_max: 7,
            initial_window: 8,
            frame_size: 20_000,
            allows_protocol: true,
        };
        assert_eq!(peer, wanted);
    }
}
