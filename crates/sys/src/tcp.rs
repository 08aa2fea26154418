//! The state of a TCP connection (TCP_INFO), and how much it takes ahead of the network (TCP_NOTSENT_LOWAT).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The parts of `struct tcp_info` (tcp(7)) that nginx shows, and what rates follow from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time in microseconds.
    pub rtt: u32,
    /// Its mean deviation in microseconds.
    pub rttvar: u32,
    /// The congestion window in segments.
    pub snd_cwnd: u32,
    /// The largest segment that is sent, in bytes.
    pub snd_mss: u32,
    /// The advertised receive window in bytes.
    pub rcv_space: u32,
}

/// Reads TCP_INFO of a socket (getsockopt(2)). Never waits.
///
/// # Errors
/// Those of the kernel; EOPNOTSUPP for a socket other than TCP.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: all-zero is a valid value of this struct of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which is that long and outlives the call.
    crate::checked(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    })?;
    Ok(TcpInfo {
        rtt: info.tcpi_rtt,
        rttvar: info.tcpi_rttvar,
        snd_cwnd: info.tcpi_snd_cwnd,
        snd_mss: info.tcpi_snd_mss,
        rcv_space: info.tcpi_rcv_space,
    })
}

/// Has a socket take no more once `bytes` of what it took are unsent, and say that it takes more below half of that
/// (TCP_NOTSENT_LOWAT, Linux 3.12); 0: as the system has it (`net.ipv4.tcp_notsent_lowat`; no limit by default). Never waits.
///
/// # Errors
/// Those of the kernel; EOPNOTSUPP for a socket other than TCP.
pub fn set_notsent_lowat(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    // SAFETY: the kernel reads the size of `bytes`, which outlives the call.
    crate::checked(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    })?;
    Ok(())
}
