//! Logs from the feed to the file.
