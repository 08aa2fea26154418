//! `freewheel top [URL]`: a dashboard's content, in a terminal.
//!
//! * [`feed`]: the dashboard's stream, read by a thread. * [`view`]: the state that is built from it. * [`rows`]: the
//!   state as text.
//!
//! Not here: figures. Invariant: the terminal is left as it was found, also after a signal, and no displayed text can
//! control it.

mod feed;
mod rows;
mod view;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use clap::Parser;
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::widgets::Paragraph;

use super::made::refuse;
use crate::command_line::made;
use crate::process::signals::Signals;
use feed::FeedEvent;
use view::View;

/// Interval of checks for new events.
const TICK: Duration = Duration::from_millis(200);
/// Columns that one press of a sideways arrow scrolls, and the maximum (`LEFT_MAX`): error lines are longer than a
/// terminal is wide.
const STEP: u16 = 10;
const LEFT_MAX: u16 = 1000;
/// Maximum number of events of the stream that wait to be shown.
const EVENTS_MAX: usize = 1024;

/// Shows what a dashboard shows, in the terminal. q ends it, the arrows scroll.
#[derive(Debug, Parser)]
#[command(name = "freewheel top", bin_name = "freewheel top")]
pub(super) struct Arguments {
    /// A location with `dashboard`: http://[USER:PASSWORD@]HOST[:PORT]/PATH.
    #[arg(default_value = "http://127.0.0.1/dashboard")]
    url: String,
}

/// Runs `freewheel top` with these arguments (the word `top` first).
pub(super) fn run(args: &[OsString]) -> ExitCode {
    let arguments: Arguments = match made::arguments(args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let stream = match feed::open(&arguments.url) {
        Ok(stream) => stream,
        Err(sentence) => return refuse(&sentence),
    };
    if !std::io::stdout().is_terminal() {
        return refuse("top needs a terminal; for scripts there are status_json and metrics");
    }
    // Before another thread exists, which would get the signals.
    let endings = match Signals::of(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]) {
        Ok(endings) => endings,
        Err(error) => return refuse(&format!("no signals can be taken ({error})")),
    };
    let (news, coming) = mpsc::sync_channel(EVENTS_MAX);
    let reader = std::thread::Builder::new().name("stream".to_owned());
    let url = arguments.url.clone();
    if let Err(error) = reader.spawn(move || feed::follow(stream, &url, &news)) {
        return refuse(&format!("no thread to be had ({error})"));
    }
    let mut terminal = ratatui::init();
    let shown = feed::without_password(&arguments.url);
    let outcome = show(&mut terminal, &shown, &coming, &endings);
    ratatui::restore();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => refuse(&sentence),
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    url: &str,
    coming: &mpsc::Receiver<FeedEvent>,
    endings: &Signals,
) -> Result<(), String> {
    let (mut view, mut above, mut left) = (View::default(), 0_u16, 0_u16);
    while endings.take().is_none() {
        // No more at a time, so that keys are obeyed whatever arrives.
        for _ in 0..EVENTS_MAX {
            match coming.try_recv() {
                Ok(FeedEvent::Told(told)) => view.take(&told),
                Ok(FeedEvent::Gone(why)) => view.gone = Some(why),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(format!("{url}: nobody reads the stream any more"));
                }
            }
        }
        let lines = rows::lines(&view, url);
        above = above.min(
            u16::try_from(lines.len())
                .unwrap_or(u16::MAX)
                .saturating_sub(1),
        );
        let mut page = 1;
        let drawn = terminal.draw(|frame| {
            page = frame.area().height.saturating_sub(1);
            frame.render_widget(Paragraph::new(lines).scroll((above, left)), frame.area());
        });
        drawn.map_err(|error| format!("the terminal cannot be written to ({error})"))?;
        let failed = |error| format!("the terminal cannot be read ({error})");
        if !event::poll(TICK).map_err(failed)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(failed)?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Ok(());
                }
                KeyCode::Down | KeyCode::Char('j') => above = above.saturating_add(1),
                KeyCode::Up | KeyCode::Char('k') => above = above.saturating_sub(1),
                KeyCode::PageDown | KeyCode::Char(' ') => above = above.saturating_add(page),
                KeyCode::PageUp => above = above.saturating_sub(page),
                KeyCode::Right | KeyCode::Char('l') => left = (left + STEP).min(LEFT_MAX),
                KeyCode::Left | KeyCode::Char('h') => left = left.saturating_sub(STEP),
                KeyCode::Home => (above, left) = (0, 0),
                _ => {}
            }
        }
    }
    Ok(())
}
