//! rustls' connections of either side behind one trait: the only file that knows its unbuffered interface.
//!
//! That interface is gone in rustls 0.24, whose states are the ones that this crate shows. Not here: records of a
//! finished connection (`traffic`).

use crate::traffic::Keys;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus,
};
use rustls::{CommonState, ConnectionTrafficSecrets, Error, ExtractedSecrets};

/// Maximum size of a sealed alert in bytes.
const ALERT_BYTES_MAX: usize = 64;

/// What a call brought.
pub(crate) enum Event {
    /// Something was done; there may be more.
    Again,
    /// More bytes of the peer are needed.
    Blocked,
    /// The handshake is over.
    Ready,
    /// The peer closed.
    Closed,
    /// It failed.
    Failed(Error),
}

/// Secrets of a finished handshake, and what gives the next ones.
pub(crate) type Finished = (ExtractedSecrets, Box<dyn Keys>);

/// A connection of rustls.
pub(crate) trait Connection {
    /// Works on the records in `incoming`; says how many bytes of its front are done with.
    fn advance(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        early: &mut Vec<u8>,
    ) -> (usize, Event);

    /// Seals data of ours before the handshake is over; `None`: it may not be sent yet.
    fn seal_early(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> Option<()>;

    /// Says before the handshake is over that nothing of ours follows.
    fn close_early(&mut self, outgoing: &mut Vec<u8>);

    /// What was negotiated.
    fn state(&self) -> &CommonState;

    /// Gives out the secrets.
    fn finish(self) -> Result<Finished, Error>;
}

impl Connection for UnbufferedServerConnection {
    fn advance(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        early: &mut Vec<u8>,
    ) -> (usize, Event) {
        let UnbufferedStatus { discard, state, .. } = self.process_tls_records(incoming);
        if let Ok(ConnectionState::ReadEarlyData(mut data)) = state {
            while let Some(Ok(record)) = data.next_record() {
                early.extend_from_slice(record.payload);
            }
            return (discard, Event::Again);
        }
        (discard, event(state, outgoing))
    }

    fn seal_early(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> Option<()> {
        let UnbufferedStatus { state, .. } = self.process_tls_records(&mut []);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
            return None;
        };
        let begin = outgoing.len();
        if let Err(EncryptError::InsufficientSize(size)) = traffic.encrypt(plain, &mut []) {
            outgoing.resize(begin + size.required_size, 0);
        }
        let sealed = traffic.encrypt(plain, &mut outgoing[begin..]);
        outgoing.truncate(begin + sealed.as_ref().map_or(0, |length| *length));
        sealed.ok().map(drop)
    }

    fn close_early(&mut self, outgoing: &mut Vec<u8>) {
        let UnbufferedStatus { state, .. } = self.process_tls_records(&mut []);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            let begin = outgoing.len();
            outgoing.resize(begin + ALERT_BYTES_MAX, 0);
            let sealed = traffic.queue_close_notify(&mut outgoing[begin..]);
            outgoing.truncate(begin + sealed.unwrap_or_default());
        }
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<Finished, Error> {
        let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(ServerKeys(kernel))))
    }
}

impl Connection for UnbufferedClientConnection {
    fn advance(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        _: &mut Vec<u8>,
    ) -> (usize, Event) {
        let UnbufferedStatus { discard, state, .. } = self.process_tls_records(incoming);
        (discard, event(state, outgoing))
    }

    fn seal_early(&mut self, _: &[u8], _: &mut Vec<u8>) -> Option<()> {
        None
    }

    fn close_early(&mut self, _: &mut Vec<u8>) {}

    fn state(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<Finished, Error> {
        let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(ClientKeys(kernel))))
    }
}

fn event<Data>(
    state: Result<ConnectionState<'_, '_, Data>, Error>,
    outgoing: &mut Vec<u8>,
) -> Event {
    match state {
        Ok(ConnectionState::EncodeTlsData(data)) => encode(data, outgoing),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Event::Again
        }
        Ok(ConnectionState::BlockedHandshake) => Event::Blocked,
        Ok(ConnectionState::WriteTraffic(_)) => Event::Ready,
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Event::Closed,
        // One record at a time is given, so that none with data comes before the handshake's end is seen.
        Ok(_) => Event::Failed(Error::General("unexpected data".to_owned())),
        Err(error) => Event::Failed(error),
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) -> Event {
    let begin = outgoing.len();
    let needed = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            required_size
        }
        _ => 0,
    };
    outgoing.resize(begin + needed, 0);
    match data.encode(&mut outgoing[begin..]) {
        Ok(_) => Event::Again,
        Err(error) => Event::Failed(Error::General(error.to_string())),
    }
}

struct ServerKeys(KernelConnection<ServerConnectionData>);

impl Keys for ServerKeys {
    fn sealing(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        self.0.update_tx_secret().ok()
    }

    fn opening(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        self.0.update_rx_secret().ok()
    }

    fn ticket(&mut self, _: &[u8]) -> bool {
        false
    }
}

struct ClientKeys(KernelConnection<ClientConnectionData>);

impl Keys for ClientKeys {
    fn sealing(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        self.0.update_tx_secret().ok()
    }

    fn opening(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        self.0.update_rx_secret().ok()
    }

    fn ticket(&mut self, message: &[u8]) -> bool {
        self.0.handle_new_session_ticket(message).is_ok()
    }
}
