//! Asking a health page from the command line, for images that have no shell and no `curl`.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::error::Failure;

/// Bounds the attempt to connect, and each read and write.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The first line of the answer is all that matters.
const STATUS_LINE_MAX: u64 = 256;

/// Asks `url` (`http://host:port/path`) and is content with status 200 only.
///
/// # Errors
/// `Config`: the URL is not of that form. `Retriable`: nobody answers, or with another status.
pub fn probe(url: &str) -> Result<(), Failure> {
    let (authority, path) = split(url).ok_or_else(|| {
        Failure::config(format!(
            "probe {url}: use a URL like http://127.0.0.1:8083/health/live"
        ))
    })?;
    let unanswered = |error: std::io::Error| {
        Failure::retriable(format!("probe {url}: no answer")).caused_by(error)
    };
    let line = ask(authority, &path).map_err(unanswered)?;
    match line.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(Failure::retriable(format!(
            "probe {url}: the answer is \"{}\"",
            line.trim_end()
        ))),
    }
}

fn split(url: &str) -> Option<(&str, String)> {
    let rest = url.strip_prefix("http://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':')?;
    let fits = !host.is_empty()
        && port.parse::<u16>().is_ok()
        && url.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| (authority, format!("/{path}")))
}

/// The status line of the answer to `GET path`.
fn ask(authority: &str, path: &str) -> std::io::Result<String> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => return converse(stream, authority, path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn converse(mut stream: TcpStream, authority: &str, path: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(STATUS_LINE_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::error::Class;

    /// Answers one request with `status`.
    fn answering(status: &'static str) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/health/live", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            assert!(request.starts_with(b"GET /health/live HTTP/1.1\r\n"));
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        });
        url
    }

    #[test]
    fn only_200_is_good() {
        probe(&answering("200 OK")).unwrap();
        let error = probe(&answering("503 Service Unavailable")).unwrap_err();
        assert!(error.to_string().contains("503"), "{error}");
    }

    #[test]
    fn nobody_there_is_an_error() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = probe(&format!("http://{address}/")).unwrap_err();
        assert_eq!(error.class(), Class::Retriable);
    }

    #[test]
    fn a_url_of_another_form_is_refused_before_anything_is_opened() {
        for url in [
            "",
            "localhost:8083",
            "https://localhost:8083/",
            "http://localhost/",
            "http://:8083/",
            "http://localhost:80830/",
            "http://localhost:8083/ HTTP/1.1\r\nX: y",
        ] {
            assert_eq!(probe(url).unwrap_err().class(), Class::Config, "{url:?}");
        }
    }
}
