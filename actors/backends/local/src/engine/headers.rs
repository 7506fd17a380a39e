//! How large a request's head is.

/// About what the head took on the wire: a lower bound, since blanks are gone.
pub(super) fn size<B>(request: &http::Request<B>) -> usize {
    let line = request.method().as_str().len() + request.uri().to_string().len() + " HTTP/1.1  \r\n\r\n".len();
    request.headers().iter().fold(line, |sum, (name, value)| sum + name.as_str().len() + value.len() + ": \r\n".len())
}
