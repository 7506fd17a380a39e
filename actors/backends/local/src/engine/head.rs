//! Heads of messages as they came: the order and case of field names, and every byte of a value, are kept. What is decided
//! is decided on the parsed fields; what is sent is written anew from them.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use httparse::{EMPTY_HEADER, Header, ParserConfig};
use tokio::net::tcp::ReadHalf;

use super::activity::Activity;

/// What is read at a time while a head is not complete.
const PIECE: usize = 4 * 1024;

/// One field line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub name: Bytes,
    pub value: Bytes,
}

impl Field {
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The values of every field of this name.
pub(super) fn values<'a>(fields: &'a [Field], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.is(name)).map(|field| &*field.value)
}

/// The items of a field that is a list, over all its lines, without empty ones.
pub(super) fn items<'a>(fields: &'a [Field], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    values(fields, name).flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}

/// Why there is no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHead {
    /// The connection ended before a byte of it came.
    Closed,
    /// It ended inside.
    Incomplete,
    TooLarge,
}

/// Reads one head of at most `limit` bytes; what comes behind it stays in `buffer`.
pub(super) async fn read(from: &ReadHalf<'_>, buffer: &mut BytesMut, limit: usize, activity: &Activity) -> Result<Bytes, NoHead> {
    let mut searched = 0;
    let mut blank = 0;
    loop {
        if searched == 0 {
            // Empty lines before a message are not part of it (RFC 9112 §2.2).
            while buffer.first().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
                let _ = buffer.split_to(1);
                blank += 1;
            }
        }
        match end_of_head(buffer, searched) {
            Some(end) if end <= limit => return Ok(buffer.split_to(end).freeze()),
            Some(_) => return Err(NoHead::TooLarge),
            None if buffer.len() + blank > limit => return Err(NoHead::TooLarge),
            None => searched = buffer.len(),
        }
        let ended = if buffer.is_empty() { NoHead::Closed } else { NoHead::Incomplete };
        if from.readable().await.is_err() {
            return Err(ended);
        }
        buffer.reserve(PIECE);
        match from.try_read_buf(buffer) {
            Ok(0) => return Err(ended),
            Ok(_) => activity.touch(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(ended),
        }
    }
}

/// Where the empty line ends that ends a head; the first `searched` bytes hold none.
fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    let ends = |at: usize| match bytes.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    };
    bytes.get(from..)?.iter().enumerate().filter(|(_, byte)| **byte == b'\n').find_map(|(at, _)| ends(from + at))
}

/// A request's head.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub method: Bytes,
    /// Without blanks and control characters, else any bytes.
    pub target: Bytes,
    /// `HTTP/1.0`, not 1.1.
    pub old: bool,
    pub fields: Vec<Field>,
}

impl RequestHead {
    /// Reads it as RFC 9112 §3 and §5 have it; what is wrong is said in words for the client.
    pub(super) fn parse(head: &Bytes) -> Result<Self, &'static str> {
        let end = head.iter().position(|byte| *byte == b'\n').ok_or("this is no HTTP")?;
        let line = head.slice(..end);
        let line = line.strip_suffix(b"\r").map_or(line.clone(), |stripped| line.slice_ref(stripped));
        let first = line.iter().position(|byte| *byte == b' ').ok_or("this is no HTTP")?;
        let last = line.iter().rposition(|byte| *byte == b' ').filter(|last| *last > first).ok_or("the request line ends with HTTP/1.1")?;
        let (method, target) = (line.slice(..first), line.slice(first + 1..last));
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err("this is no HTTP");
        }
        let old = match &line[last + 1..] {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err("the request line ends with HTTP/1.1"),
        };
        if target.is_empty() || target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err("the URL holds a blank or a control character; write it as %20 or the like");
        }
        let mut room = room(head);
        let parsed = httparse::parse_headers(&head[end + 1..], &mut room);
        let Ok(httparse::Status::Complete((_, parsed))) = parsed else {
            return Err("a header field is malformed: NAME: VALUE, no blank before the colon, no folded line, no control character");
        };
        let fields = parsed.iter().map(|header| field(head, header)).collect();
        Ok(Self { method, target, old, fields })
    }
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub status: StatusCode,
    pub reason: Bytes,
    pub fields: Vec<Field>,
}

impl AnswerHead {
    /// Reads it; blanks before a colon and folded lines are taken, and not passed on (RFC 9112 §5.1, §5.2).
    pub(super) fn parse(head: &Bytes) -> Option<Self> {
        let mut config = ParserConfig::default();
        config
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_multiple_spaces_in_response_status_delimiters(true);
        let mut room = room(head);
        let mut parsed = httparse::Response::new(&mut room);
        if !config.parse_response(&mut parsed, head).ok()?.is_complete() {
            return None;
        }
        let reason = parsed.reason.map_or(&[][..], str::as_bytes);
        Some(Self {
            status: StatusCode::from_u16(parsed.code?).ok()?,
            reason: Bytes::copy_from_slice(reason),
            fields: parsed.headers.iter().map(|header| field(head, header)).collect(),
        })
    }
}

/// As many fields as there are lines: the head's size is the only limit.
fn room<'a>(head: &[u8]) -> Vec<Header<'a>> {
    vec![EMPTY_HEADER; head.iter().filter(|byte| **byte == b'\n').count()]
}

fn field(head: &Bytes, header: &Header<'_>) -> Field {
    let name = head.slice_ref(header.name.as_bytes());
    let value = if header.value.contains(&b'\n') {
        Bytes::from(header.value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect::<Vec<_>>())
    } else {
        head.slice_ref(header.value)
    };
    Field { name, value }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn a_head_ends_with_its_empty_line_wherever_a_read_ends() {
        for text in ["GET / HTTP/1.1\r\nA: b\r\n\r\nrest", "GET / HTTP/1.1\nA: b\n\nrest"] {
            let end = text.find("rest").unwrap();
            for searched in 0..end {
                assert_eq!(end_of_head(text.as_bytes(), searched), Some(end), "{searched}");
            }
            assert_eq!(end_of_head(&text.as_bytes()[..end - 1], 0), None);
        }
    }

    #[test]
    fn order_case_and_every_byte_of_a_request_are_kept() {
        let head = Bytes::from_static(b"GET http://a/\xe9?\"<> HTTP/1.1\r\nX-b: 1\r\nCookie: \xe9\r\nx-A:2\r\nX-b: 3\r\n\r\n");
        let parsed = RequestHead::parse(&head).unwrap();
        assert_eq!((&parsed.method[..], &parsed.target[..], parsed.old), (&b"GET"[..], &b"http://a/\xe9?\"<>"[..], false));
        let fields: Vec<_> = parsed.fields.iter().map(|field| (&field.name[..], &field.value[..])).collect();
        assert_eq!(fields, [(&b"X-b"[..], &b"1"[..]), (b"Cookie", b"\xe9"), (b"x-A", b"2"), (b"X-b", b"3")]);
    }

    #[test]
    fn what_two_readers_could_take_differently_in_a_request_is_malformed() {
        for text in [
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\x00\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / x HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 \r\n\r\n",
            "GET /\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "G(T / HTTP/1.1\r\n\r\n",
        ] {
            assert!(RequestHead::parse(&bytes(text)).is_err(), "{text:?}");
        }
    }

    /// Issue 10 item 16.
    #[test]
    fn an_answer_may_have_blanks_before_a_colon_folded_lines_and_many_fields() {
        let many: String = (0..500).map(|n| format!("N{n}: {n}\r\n")).collect();
        let head = bytes(&format!("HTTP/1.1 200 All right\r\nX-XSS-Protection : 1\r\nFolded: a\r\n\tb\r\n{many}\r\n"));
        let parsed = AnswerHead::parse(&head).unwrap();
        assert_eq!((parsed.status, &parsed.reason[..], parsed.fields.len()), (StatusCode::OK, &b"All right"[..], 502));
        assert_eq!((&parsed.fields[0].name[..], &parsed.fields[0].value[..]), (&b"X-XSS-Protection"[..], &b"1"[..]));
        assert_eq!(&parsed.fields[1].value[..], b"a  \tb");
    }
}
