//! Where a message ends (RFC 9112 §6), decided on what came, and how it is told to the other side: always anew, so that
//! no two readers can disagree about it.

use http::StatusCode;

use super::head::{Field, items, values};

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    None,
    Length(u64),
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// What is wrong with a message's framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Faulty {
    /// Nobody can know where it ends.
    Malformed(&'static str),
    /// A transfer coding that this proxy cannot take off.
    Coding,
}

const LENGTHS: Faulty = Faulty::Malformed("Content-Length is not one number");
const CODINGS: Faulty = Faulty::Malformed("Transfer-Encoding does not end with one chunked");

/// The framing of a request. With both `Content-Length` and `Transfer-Encoding` the latter counts.
pub(super) fn of_request(fields: &[Field], old: bool) -> Result<Framing, Faulty> {
    if values(fields, "transfer-encoding").next().is_some() {
        if old {
            return Err(Faulty::Malformed("HTTP/1.0 has no Transfer-Encoding"));
        }
        return codings(fields);
    }
    Ok(length(fields)?.map_or(Framing::None, Framing::Length))
}

/// The framing of an answer to a request with this method.
pub(super) fn of_answer(fields: &[Field], status: StatusCode, to_head: bool) -> Result<Framing, Faulty> {
    let framing = if values(fields, "transfer-encoding").next().is_some() {
        codings(fields)?
    } else {
        length(fields)?.map_or(Framing::UntilClose, Framing::Length)
    };
    let none = to_head || status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    Ok(if none { Framing::None } else { framing })
}

fn codings(fields: &[Field]) -> Result<Framing, Faulty> {
    let is_chunked = |item: &[u8]| item.eq_ignore_ascii_case(b"chunked");
    let codings: Vec<_> = items(fields, "transfer-encoding").collect();
    let Some((last, before)) = codings.split_last() else { return Err(CODINGS) };
    if !is_chunked(last) || before.iter().any(|item| is_chunked(item)) {
        Err(CODINGS)
    } else if before.is_empty() {
        Ok(Framing::Chunked)
    } else {
        Err(Faulty::Coding)
    }
}

/// The one number that all values and list items agree on.
pub(super) fn length(fields: &[Field]) -> Result<Option<u64>, Faulty> {
    let mut length = None;
    for item in values(fields, "content-length").flat_map(|value| value.split(|byte| *byte == b',')) {
        let item = item.trim_ascii();
        let digits = std::str::from_utf8(item).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())).ok_or(LENGTHS)?;
        let number = digits.parse().map_err(|_| LENGTHS)?;
        if length.is_some_and(|length| length != number) {
            return Err(LENGTHS);
        }
        length = Some(number);
    }
    Ok(length)
}

/// What the receiver is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    pub length: Option<u64>,
    pub chunked: bool,
}

impl Told {
    /// Of a message whose body is sent along. A receiver of HTTP/1.0 knows no chunks.
    pub(super) fn of(framing: Framing, old: bool) -> Self {
        match framing {
            Framing::None => Self::default(),
            Framing::Length(length) => Self { length: Some(length), chunked: false },
            Framing::Chunked | Framing::UntilClose => Self { length: None, chunked: !old },
        }
    }

    /// Of an answer without its body, to HEAD or a 304: what the body would be told with.
    pub(super) fn without_body(fields: &[Field], old: bool) -> Self {
        if values(fields, "transfer-encoding").next().is_some() {
            Self { length: None, chunked: !old }
        } else {
            Self { length: length(fields).ok().flatten(), chunked: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> Vec<Field> {
        lines
            .iter()
            .map(|(name, value)| Field { name: Bytes::from_static(name.as_bytes()), value: Bytes::from_static(value.as_bytes()) })
            .collect()
    }

    const CL: &str = "Content-Length";
    const TE: &str = "transfer-encoding";

    /// Issue 10 item 13.
    #[test]
    fn a_message_has_one_end_or_none_that_can_be_known() {
        let bad = Err(LENGTHS);
        for (lines, request, answer) in [
            (&[][..], Ok(Framing::None), Ok(Framing::UntilClose)),
            (&[(CL, "5")], Ok(Framing::Length(5)), Ok(Framing::Length(5))),
            (&[(CL, "2, 2")], Ok(Framing::Length(2)), Ok(Framing::Length(2))),
            (&[(CL, "2"), ("content-length", "2")], Ok(Framing::Length(2)), Ok(Framing::Length(2))),
            (&[(CL, "2, 3")], bad, bad),
            (&[(CL, "2"), (CL, "3")], bad, bad),
            (&[(CL, "2,")], bad, bad),
            (&[(CL, "+2")], bad, bad),
            (&[(CL, "0x2")], bad, bad),
            (&[(CL, "")], bad, bad),
            (&[(CL, "99999999999999999999")], bad, bad),
            (&[(TE, "Chunked")], Ok(Framing::Chunked), Ok(Framing::Chunked)),
            (&[(CL, "5"), (TE, "chunked")], Ok(Framing::Chunked), Ok(Framing::Chunked)),
            (&[(TE, "gzip, chunked")], Err(Faulty::Coding), Err(Faulty::Coding)),
            (&[(TE, "gzip"), (TE, "chunked")], Err(Faulty::Coding), Err(Faulty::Coding)),
            (&[(TE, "chunked, gzip")], Err(CODINGS), Err(CODINGS)),
            (&[(TE, "chunked, chunked")], Err(CODINGS), Err(CODINGS)),
            (&[(TE, "gzip")], Err(CODINGS), Err(CODINGS)),
            (&[(TE, "")], Err(CODINGS), Err(CODINGS)),
        ] {
            let fields = fields(lines);
            assert_eq!(of_request(&fields, false), request, "request {lines:?}");
            assert_eq!(of_answer(&fields, StatusCode::OK, false), answer, "answer {lines:?}");
        }
        assert!(of_request(&fields(&[(TE, "chunked")]), true).is_err(), "HTTP/1.0");
    }

    #[test]
    fn some_answers_have_no_body_whatever_they_say() {
        let five = fields(&[(CL, "5")]);
        for (status, to_head) in [(200, true), (204, false), (304, false), (103, false)] {
            assert_eq!(of_answer(&five, StatusCode::from_u16(status).unwrap(), to_head), Ok(Framing::None), "{status}");
        }
        assert_eq!(Told::without_body(&five, false), Told { length: Some(5), chunked: false });
    }
}
