//! From what a client asked for to what the target gets: origin form, the URL's host, nothing of this hop, and all else as
//! it came. Also the way back.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::uri::Authority;

use super::answer::Refusal;
use super::dial::Target;
use super::framing::{Faulty, Framing, Told, of_request};
use super::head::{AnswerHead, Field, RequestHead, items, values};

/// Never forwarded (RFC 9110 §7.6.1). `Via`, `Forwarded` and the like are neither added nor removed: an egress proxy does
/// not announce who stands behind it.
const HOP_BY_HOP: [&str; 8] =
    ["connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade"];

/// A request as the target is to get it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub target: Target,
    pub head: Bytes,
    pub framing: Framing,
    pub told: Told,
}

/// What is to be done with a request that is no CONNECT.
#[derive(Debug)]
pub(super) enum Asked {
    Forward(Outgoing),
    /// `Max-Forwards` is used up: this proxy is who is asked.
    Ourselves(Bytes),
}

/// Reads a request in absolute form.
pub(super) fn asked(request: &RequestHead) -> Result<Asked, Refusal> {
    let framing = framing(request)?;
    if values(&request.fields, "host").count() > 1 {
        return Err(Refusal::malformed("more than one Host"));
    }
    let (authority, path) = split(&request.target)?;
    let authority = Authority::try_from(&authority[..])
        .map_err(|_| Refusal::malformed("the target's host is neither a name nor an address; a name outside ASCII is written as xn--…"))?;
    let target = Target::read(&authority, Some(80))?;
    let forwards = match &request.method[..] {
        b"TRACE" | b"OPTIONS" => forwards(&request.fields),
        _ => None,
    };
    if forwards == Some(0) {
        return Ok(Asked::Ourselves(ourselves(request)));
    }
    let told = Told::of(framing, false);
    let path = match &path[..] {
        b"" if request.method == "OPTIONS" => Bytes::from_static(b"*"),
        b"" => Bytes::from_static(b"/"),
        [b'?', ..] => [b"/", &path[..]].concat().into(),
        _ => path,
    };
    let mut head = BytesMut::with_capacity(1024);
    for part in [&request.method[..], b" ", &path, b" HTTP/1.1\r\n"] {
        head.extend_from_slice(part);
    }
    if values(&request.fields, "host").next().is_none() {
        line(&mut head, b"Host", authority.as_str().as_bytes());
    }
    let left = forwards.map(|forwards| (forwards - 1).to_string());
    fields(&mut head, &request.fields, told, |field| {
        if field.is("host") {
            Some(authority.as_str().as_bytes())
        } else if field.is("max-forwards") && left.is_some() {
            left.as_deref().map(str::as_bytes)
        } else if field.is("expect") && request.old {
            // HTTP/1.0 knows no interim answers (RFC 9110 §10.1.1).
            None
        } else {
            Some(&field.value)
        }
    });
    head.extend_from_slice(b"\r\n");
    Ok(Asked::Forward(Outgoing { target, head: head.freeze(), framing, told }))
}

/// How a request ends, or why it is not served.
pub(super) fn framing(request: &RequestHead) -> Result<Framing, Refusal> {
    of_request(&request.fields, request.old).map_err(|faulty| match faulty {
        Faulty::Malformed(why) => Refusal::malformed(why),
        Faulty::Coding => {
            Refusal::new(StatusCode::NOT_IMPLEMENTED, "http_request_error", "of transfer codings this proxy takes chunked alone")
        }
    })
}

/// Authority, and path with query, of an `http` URL.
fn split(url: &Bytes) -> Result<(Bytes, Bytes), Refusal> {
    let scheme = url.windows(3).position(|window| window == b"://");
    let is_scheme = |scheme: &[u8]| {
        scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    };
    let Some((scheme, rest)) = scheme.map(|at| (url.slice(..at), url.slice(at + 3..))).filter(|(scheme, _)| is_scheme(scheme)) else {
        return Err(Refusal::malformed("this is a forward proxy: it takes CONNECT or http:// in absolute form"));
    };
    if scheme.eq_ignore_ascii_case(b"https") {
        return Err(Refusal::malformed("https goes through CONNECT"));
    }
    if !scheme.eq_ignore_ascii_case(b"http") {
        return Err(Refusal::malformed("only http is forwarded"));
    }
    let end = rest.iter().position(|byte| *byte == b'#').unwrap_or(rest.len());
    let rest = rest.slice(..end);
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    Ok((rest.slice(..end), rest.slice(end..)))
}

/// `Max-Forwards`, where it is a number (RFC 9110 §7.6.2).
fn forwards(fields: &[Field]) -> Option<u64> {
    values(fields, "max-forwards").next().and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
}

/// The answer to a TRACE or OPTIONS that goes no further. A TRACE is shown what came, without what is secret.
fn ourselves(request: &RequestHead) -> Bytes {
    if request.method == "OPTIONS" {
        return Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    let version: &[u8] = if request.old { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    let mut body = BytesMut::new();
    for part in [&request.method[..], b" ", &request.target, version] {
        body.extend_from_slice(part);
    }
    for field in &request.fields {
        if !["authorization", "proxy-authorization", "cookie"].iter().any(|secret| field.is(secret)) {
            line(&mut body, &field.name, &field.value);
        }
    }
    let mut answer = BytesMut::from(&b"HTTP/1.1 200 OK\r\nContent-Type: message/http\r\n"[..]);
    line(&mut answer, b"Content-Length", (body.len() + 2).to_string().as_bytes());
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(&body);
    answer.extend_from_slice(b"\r\n");
    answer.freeze()
}

/// An answer's head as the client gets it. `date`: when the target does not say when it answered (RFC 9110 §6.6.1).
pub(super) fn answer(head: &AnswerHead, told: Told, close: bool, date: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(1024);
    for part in [b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", &head.reason, b"\r\n"] {
        out.extend_from_slice(part);
    }
    fields(&mut out, &head.fields, told, |field| Some(&field.value));
    if !head.status.is_informational() && values(&head.fields, "date").next().is_none() {
        line(&mut out, b"Date", date.as_bytes());
    }
    if close {
        line(&mut out, b"Connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
    out.freeze()
}

/// Writes what travels, in the order and with the names that came. Where the body ends is told in the place where the
/// other side told it.
fn fields<'a>(out: &mut BytesMut, fields: &'a [Field], told: Told, mut value: impl FnMut(&'a Field) -> Option<&'a [u8]>) {
    let named: Vec<_> = items(fields, "connection").collect();
    let (mut length, mut chunked) = (told.length.map(|length| length.to_string()), told.chunked);
    for field in fields {
        if field.is("content-length") {
            if let Some(length) = length.take() {
                line(out, &field.name, length.as_bytes());
            }
        } else if field.is("transfer-encoding") {
            if std::mem::take(&mut chunked) {
                line(out, &field.name, b"chunked");
            }
        } else if !field.is("host")
            && (HOP_BY_HOP.iter().any(|name| field.is(name)) || named.iter().any(|name| field.name.eq_ignore_ascii_case(name)))
        {
            continue;
        } else if let Some(value) = value(field) {
            line(out, &field.name, value);
        }
    }
    if let Some(length) = length {
        line(out, b"Content-Length", length.as_bytes());
    }
    if chunked {
        line(out, b"Transfer-Encoding", b"chunked");
    }
}

fn line(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Whether `Connection` holds this option.
pub(super) fn connection_says(fields: &[Field], option: &str) -> bool {
    items(fields, "connection").any(|item| item.eq_ignore_ascii_case(option.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> RequestHead {
        RequestHead::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn head(text: &str) -> String {
        match asked(&request(text)) {
            Ok(Asked::Forward(outgoing)) => String::from_utf8(outgoing.head.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Issue 10 items 14 and 15.
    #[test]
    fn what_travels_keeps_its_place_and_its_name_and_what_belongs_to_this_hop_is_gone() {
        assert_eq!(
            head(
                "GET http://shop.example/a?b#c HTTP/1.1\r\nX-first: 1\r\nhOst: other\r\nCookie: a\r\nConnection: close, X-Hop, Host\r\n\
                 x-hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\ntransfer-encoding: chunked\r\nX-Last: 2\r\nX-first: 3\r\n\r\n"
            ),
            "GET /a?b HTTP/1.1\r\nX-first: 1\r\nhOst: shop.example\r\nCookie: a\r\ntransfer-encoding: chunked\r\nX-Last: 2\r\nX-first: 3\r\n\r\n"
        );
    }

    #[test]
    fn the_path_is_what_the_url_has() {
        for (method, url, first) in [
            ("GET", "http://a", "GET / HTTP/1.1"),
            ("GET", "http://a?b", "GET /?b HTTP/1.1"),
            ("GET", "HTTP://a:81/\"<>|{}\\^`?\"", "GET /\"<>|{}\\^`?\" HTTP/1.1"),
            ("GET", "http://a/http://b/", "GET /http://b/ HTTP/1.1"),
            ("OPTIONS", "http://a", "OPTIONS * HTTP/1.1"),
            ("OPTIONS", "http://a/", "OPTIONS / HTTP/1.1"),
        ] {
            assert_eq!(head(&format!("{method} {url} HTTP/1.1\r\n\r\n")).lines().next(), Some(first), "{url}");
        }
    }

    /// RFC 9110 §7.6.2, issue 10 item 19.
    #[test]
    fn max_forwards_counts_down_and_ends_here() {
        assert!(head("TRACE http://a/ HTTP/1.1\r\nMax-Forwards: 2\r\n\r\n").contains("Max-Forwards: 1\r\n"));
        assert!(head("GET http://a/ HTTP/1.1\r\nMax-Forwards: 0\r\n\r\n").contains("Max-Forwards: 0\r\n"), "TRACE and OPTIONS alone");
        let trace = request("TRACE http://a/ HTTP/1.1\r\nMax-Forwards: 0\r\nCookie: secret\r\nX-Mine: 1\r\n\r\n");
        let Ok(Asked::Ourselves(answer)) = asked(&trace) else { panic!("forwarded") };
        let answer = String::from_utf8(answer.to_vec()).unwrap();
        assert!(answer.contains("X-Mine: 1") && !answer.contains("secret"), "{answer}");
        let options = request("OPTIONS http://a/ HTTP/1.1\r\nmax-forwards: 0\r\n\r\n");
        assert!(matches!(asked(&options), Ok(Asked::Ourselves(_))));
    }

    #[test]
    fn where_an_answer_ends_is_told_once_and_anew() {
        let parsed = AnswerHead::parse(&Bytes::from_static(
            b"HTTP/1.1 200 Fine\r\ncontent-LENGTH: 2, 2\r\nB: 1\r\nContent-Length: 2\r\nKeep-Alive: 5\r\nDate: x\r\n\r\n",
        ));
        let told = Told { length: Some(2), chunked: false };
        let head = answer(&parsed.unwrap(), told, true, "now");
        assert_eq!(&head[..], b"HTTP/1.1 200 Fine\r\ncontent-LENGTH: 2\r\nB: 1\r\nDate: x\r\nConnection: close\r\n\r\n");
    }
}
