//! One fetch of the check URL through a proxy (HE-1), and which of the reasons of HE-3 it failed for.
//!
//! CONNECT, TLS and GET for https, an absolute-form GET for http; a connection of its own each time; no redirect is
//! followed; no more of the body is read than [`DRAIN`]. Credentials go to the proxy only. Messages name hosts, ports,
//! statuses and stages, never what a peer said.

mod check_url;
mod dial;
mod exchange;
mod fault;
pub mod tls;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use egress_protocol::object::Credentials;
use egress_protocol::prober::{ProbeFailure, ProbeOutcome, ProbeTarget};
use http::header::{ACCEPT, CACHE_CONTROL, CONNECTION, HOST, PRAGMA, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use check_url::CheckUrl;
use exchange::{Answer, BodyEnd, NoAnswer, Tunnel, ask};
pub use fault::OwnFault;
use fault::{Fault, Stop, words};

use crate::settings::ProbeSettings;

/// The most of a body that is read when nobody looks at it.
pub const DRAIN: usize = 64 * 1024;
/// The longest answer that can be an address (HE-7).
pub const LONGEST_ADDRESS: usize = 256;

/// Where a probe is; a timeout names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connect,
    Tunnel,
    Tls,
    Response,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tunnel => "CONNECT",
            Self::Tls => "TLS",
            Self::Response => "response",
        }
    }

    /// Once CONNECT was answered, or where there is none, silence is the target's as far as we can tell (HE-9).
    fn is_target_side(self) -> bool {
        matches!(self, Self::Tls | Self::Response)
    }
}

/// Probes once. Ends within the target's timeout, plus at most a second once a minute for the check URL's name.
pub async fn probe(target: &ProbeTarget, settings: &ProbeSettings) -> Result<ProbeOutcome, OwnFault> {
    let Some(url) = CheckUrl::parse(&target.health_check.url) else {
        return Ok(Fault::of_proxy(ProbeFailure::NotAllowed, "the check URL is not an http or https URL with a host").into());
    };
    if let Err(refusal) = settings.guard.check_url(&settings.resolver, &url.host, url.port).await {
        return Ok(Fault::of_proxy(ProbeFailure::NotAllowed, refusal).into());
    }
    let seconds = target.health_check.timeout_seconds.max(1);
    let mut stage = Stage::Connect;
    match timeout(Duration::from_secs(u64::from(seconds)), fetch(target, &url, settings, &mut stage)).await {
        Ok(Ok(passed)) => Ok(passed),
        Ok(Err(Stop::Fault(fault))) => Ok(fault.into()),
        Ok(Err(Stop::Own(fault))) => Err(fault),
        Err(_elapsed) => {
            let message = format!("no answer within {seconds}s, in stage {}", stage.as_str());
            Ok(ProbeOutcome::Failed { failure: ProbeFailure::Timeout, message, target_side: stage.is_target_side() })
        }
    }
}

async fn fetch(target: &ProbeTarget, url: &CheckUrl, settings: &ProbeSettings, stage: &mut Stage) -> Result<ProbeOutcome, Stop> {
    let start = Instant::now();
    let stream = dial::dial(target, settings).await?;
    let credentials = target.credentials.as_deref();
    if url.tls {
        *stage = Stage::Tunnel;
        let tunnel = connect(stream, url, credentials).await?;
        *stage = Stage::Tls;
        let stream = handshake(tunnel, url, settings).await?;
        *stage = Stage::Response;
        let answer = ask(stream, get(url.path(), url, None)).await;
        judge(target, start, answer.map_err(|_| no_status(url))?).await
    } else {
        *stage = Stage::Response;
        let answer = ask(stream, get(url.uri.clone(), url, credentials)).await.map_err(|none| no_proxy(&none))?;
        if answer.head.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return Err(auth_required(answer.head.status(), credentials).into());
        }
        let status = answer.head.status();
        if status.as_u16() != target.health_check.expected_status && is_the_proxys_own(answer.head.headers()) {
            let message = format!("the proxy itself answered with {}, instead of fetching from {}", status.as_u16(), url.host);
            return Err(Fault { target_side: status.is_server_error(), ..Fault::of_proxy(ProbeFailure::ProxyRefused, message) }.into());
        }
        judge(target, start, answer).await
    }
}

/// Asks the proxy for a tunnel to the target.
async fn connect(stream: TcpStream, url: &CheckUrl, credentials: Option<&Credentials>) -> Result<Tunnel<TcpStream>, Fault> {
    let authority = url.authority();
    let Ok(uri) = authority.parse::<Uri>() else {
        return Err(Fault::of_proxy(ProbeFailure::NotAllowed, "the check URL's host cannot be asked for"));
    };
    let mut request = request(Method::CONNECT, uri, &authority);
    authorize(&mut request, credentials);
    let answer = ask(stream, request).await.map_err(|none| no_proxy(&none))?;
    let status = answer.head.status();
    match status {
        _ if status.is_success() => Ok(answer.into_tunnel()),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED | StatusCode::UNAUTHORIZED => Err(auth_required(status, credentials)),
        _ => {
            let message = format!("CONNECT {authority} was answered with {}", status.as_u16());
            let fault = Fault::of_proxy(ProbeFailure::ProxyRefused, message);
            Err(Fault { target_side: status.is_server_error(), ..fault })
        }
    }
}

/// TLS with the target, inside the tunnel.
async fn handshake(tunnel: Tunnel<TcpStream>, url: &CheckUrl, settings: &ProbeSettings) -> Result<TlsStream<Tunnel<TcpStream>>, Fault> {
    let failed = |why: String| Fault::of_target(ProbeFailure::TlsFailed, format!("TLS handshake with {}: {why}", url.host));
    let name = ServerName::try_from(url.host.clone()).map_err(|_| failed("its name fits no certificate".to_owned()))?;
    let connector = TlsConnector::from(std::sync::Arc::clone(&settings.tls));
    connector.connect(name, tunnel).await.map_err(|error| {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        failed(tls.map_or_else(|| words(&error), tls_words))
    })
}

/// What a handshake failed for, without what the certificate says of itself.
fn tls_words(error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => "the certificate has expired".to_owned(),
        rustls::Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "the certificate is not valid yet".to_owned()
        }
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the certificate is not signed by a trusted issuer".to_owned()
        }
        rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "the certificate is for another name".to_owned()
        }
        rustls::Error::InvalidCertificate(_) => "the certificate is not valid".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("the peer sent the alert {alert:?}"),
        rustls::Error::InvalidMessage(_) => "the peer does not speak TLS".to_owned(),
        rustls::Error::PeerIncompatible(_) => "the peer offers no common protocol version or cipher".to_owned(),
        _ => "the peer broke the protocol".to_owned(),
    }
}

/// Whether an answer is the one that was asked for.
async fn judge<T>(target: &ProbeTarget, start: Instant, answer: Answer<T>) -> Result<ProbeOutcome, Stop>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let latency = start.elapsed();
    let check = &target.health_check;
    let status = answer.head.status().as_u16();
    let unexpected = |message: String| Stop::Fault(Fault::of_target(ProbeFailure::UnexpectedStatus, message));
    if status != check.expected_status {
        return Err(unexpected(format!("status {status} instead of {}", check.expected_status)));
    }
    let most = if check.reports_address { LONGEST_ADDRESS } else { DRAIN };
    let egress_ip = match answer.read_body(most).await {
        BodyEnd::Broken => return Err(unexpected(format!("status {status}, but the body broke off"))),
        BodyEnd::Complete(body) if check.reports_address => match address(&body) {
            Some(ip) => Some(ip),
            None => return Err(unexpected(format!("status {status}, but the body is not one address"))),
        },
        BodyEnd::More if check.reports_address => {
            return Err(unexpected(format!("status {status}, but the body is not one address")));
        }
        BodyEnd::Complete(_) | BodyEnd::More => None,
    };
    Ok(ProbeOutcome::Passed { latency, egress_ip })
}

/// The one address that a body consists of (HE-7).
fn address(body: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(body).ok()?.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn request(method: Method, uri: Uri, host: &str) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    // Parsed out of a URI, so it has no byte that a header may not hold.
    headers.insert(HOST, HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static("")));
    headers.insert(USER_AGENT, HeaderValue::from_static("egress-proxies-operator"));
    request
}

/// The request for the check URL; caches on the way are asked not to answer.
fn get(uri: Uri, url: &CheckUrl, credentials: Option<&Credentials>) -> Request<Empty<Bytes>> {
    let mut request = request(Method::GET, uri, &url.host_header());
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    authorize(&mut request, credentials);
    request
}

fn authorize(request: &mut Request<Empty<Bytes>>, credentials: Option<&Credentials>) {
    let Some(credentials) = credentials else { return };
    let pair = format!("{}:{}", credentials.username.expose(), credentials.password.expose());
    if let Ok(mut value) = HeaderValue::try_from(format!("Basic {}", BASE64.encode(pair.as_bytes()))) {
        value.set_sensitive(true);
        request.headers_mut().insert(PROXY_AUTHORIZATION, value);
    }
}

fn auth_required(status: StatusCode, credentials: Option<&Credentials>) -> Fault {
    let which = if credentials.is_some() { "refuses the credentials" } else { "asks for credentials" };
    Fault::of_proxy(ProbeFailure::ProxyAuthRequired, format!("the proxy {which} (status {})", status.as_u16()))
}

/// Whether an answer in absolute form says that the proxy made it: by an error in `Proxy-Status` (RFC 9209), as squid
/// does, or by the proxy's name as tinyproxy's. A target can say so too, and only makes its own check fail in other words.
fn is_the_proxys_own(headers: &HeaderMap) -> bool {
    let starts = |name: &str, start: &[u8]| {
        headers.get(name).is_some_and(|value| value.as_bytes().get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start)))
    };
    let error = headers.get_all("proxy-status").iter().any(|value| String::from_utf8_lossy(value.as_bytes()).contains("error="));
    error || headers.contains_key("x-squid-error") || starts("server", b"tinyproxy/") || starts("server", b"squid/")
}

/// No answer of the proxy itself.
fn no_proxy(none: &NoAnswer) -> Fault {
    match none {
        NoAnswer::Closed => Fault::of_proxy(ProbeFailure::ConnectFailed, "the proxy closed the connection before it answered"),
        NoAnswer::Garbled => Fault::of_proxy(ProbeFailure::ProxyRefused, "what the proxy answered is not HTTP"),
    }
}

/// No answer of the target, behind the proxy's tunnel.
fn no_status(url: &CheckUrl) -> Fault {
    Fault::of_target(ProbeFailure::UnexpectedStatus, format!("no status: {} closed the connection or did not answer in HTTP", url.host))
}
