//! Whether spans are exported, by the standard variables (OB-3). Where they go, and how, the exporter reads itself; what it
//! does not read is read here: whether it is to be there at all, and whether what it will read makes sense.
//!
//! What must stay true (OP-4): a value that is wrong whoever reads it is a fault, named by its variable, and nothing starts;
//! a value of the standard that only this version lacks is a warning, since such variables are often set for a whole
//! machine. While nothing is exported, nothing but the variables that say so is judged. A value that may be or hold a
//! secret (headers, the endpoint) is not shown (PC-75).

use std::ffi::OsString;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

/// What the variables ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Spans are exported.
    pub export: bool,
    /// The collector is on this machine: no proxy stands between.
    pub loopback: bool,
    /// How long one export may take.
    pub timeout: Duration,
    /// A variable names the service.
    pub service_named: bool,
    /// What a person should look at.
    pub warnings: Vec<String>,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { export: false, loopback: true, timeout: Duration::from_secs(10), service_named: false, warnings: Vec::new() }
    }
}

const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";
// Of two, the first that is set counts.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const COMPRESSIONS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
/// Whole numbers: milliseconds and spans.
const BATCH: [&str; 4] =
    ["OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"];
const SAMPLERS: [&str; 6] =
    ["always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"];
const RATIOS: RangeInclusive<f64> = 0.0..=1.0;

/// Reads the variables; one that is empty counts as not set. The error is a text of one line for each fault.
pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<TelemetrySettings, String> {
    let mut reader = Reader { variable, faults: Vec::new(), settings: TelemetrySettings::default() };
    reader.read();
    if reader.faults.is_empty() {
        return Ok(reader.settings);
    }
    Err(reader.faults.iter().map(|fault| format!("error: {fault}\n")).collect())
}

fn is_loopback(endpoint: &str) -> bool {
    let Ok(uri) = endpoint.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

struct Reader<F> {
    variable: F,
    faults: Vec<String>,
    settings: TelemetrySettings,
}

impl<F: Fn(&str) -> Option<OsString>> Reader<F> {
    fn read(&mut self) {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return;
        }
        let endpoint = self.first(ENDPOINTS);
        self.settings.export = match self.get(EXPORTER) {
            // One that is no text is set all the same.
            None => endpoint.is_some() || !self.faults.is_empty(),
            Some(text) if text.eq_ignore_ascii_case("none") => false,
            Some(text) => {
                let otlp = text.split(',').any(|one| one.trim().eq_ignore_ascii_case("otlp"));
                if !otlp || text.contains(',') {
                    self.warn(EXPORTER, "this version exports by otlp only");
                }
                otlp
            }
        };
        if !self.settings.export {
            // What is wrong with what is not used is nobody's concern.
            self.faults.retain(|fault| fault.starts_with(EXPORTER));
            return;
        }
        if let Some((name, text)) = endpoint {
            self.endpoint(name, &text);
            self.settings.loopback = is_loopback(&text);
        }
        self.words();
        if let Some((name, text)) = self.first(HEADERS) {
            self.list(name, &text, |key, value| HeaderName::try_from(key).is_ok() && HeaderValue::from_str(value).is_ok());
        }
        for name in TIMEOUTS.into_iter().chain(BATCH) {
            if let Some(text) = self.get(name).filter(|text| text.parse::<u64>().is_err()) {
                self.fault(name, format!("must be a whole number, is {text:?}"));
            }
        }
        if let Some(millis) = self.first(TIMEOUTS).and_then(|(_, text)| text.parse().ok()) {
            self.settings.timeout = Duration::from_millis(millis);
        }
        self.sampler();
        self.settings.service_named = self.get("OTEL_SERVICE_NAME").is_some();
        if let Some(text) = self.get(RESOURCE) {
            self.list(RESOURCE, &text, |key, _| !key.contains(char::is_whitespace));
            self.settings.service_named |= text.split(',').any(|one| one.trim_start().starts_with("service.name="));
        }
    }

    fn get(&mut self, name: &str) -> Option<String> {
        match (self.variable)(name)?.into_string() {
            Ok(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Err(_) => {
                self.fault(name, "is not UTF-8 text".to_owned());
                None
            }
        }
    }

    fn first<const N: usize>(&mut self, names: [&'static str; N]) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.get(name)?)))
    }

    fn fault(&mut self, name: &str, reason: String) {
        self.faults.push(format!("{name}: {reason}"));
    }

    fn warn(&mut self, name: &str, text: &str) {
        self.settings.warnings.push(format!("{name}: {text}"));
    }

    fn endpoint(&mut self, name: &str, text: &str) {
        let known = text.parse::<Uri>().is_ok_and(|uri| {
            let scheme = uri.scheme_str().is_some_and(|scheme| scheme == "http" || scheme == "https");
            let authority = uri.authority().is_some_and(|authority| {
                // What follows the host is a port that is a number, or nothing.
                let port = authority.as_str().rsplit_once(authority.host()).map_or("", |(_, port)| port);
                !authority.host().is_empty() && (port.is_empty() || authority.port_u16().is_some())
            });
            scheme && authority
        });
        if !known {
            self.fault(name, "must be a URL with http or https and a host, such as http://127.0.0.1:4318".to_owned());
        }
    }

    /// Those with words of the standard for values.
    fn words(&mut self) {
        if let Some((name, text)) = self.first(PROTOCOLS) {
            match text.to_ascii_lowercase().as_str() {
                "http/protobuf" => {}
                "grpc" | "http/json" => self.warn(name, "this version speaks http/protobuf only, on most collectors at port 4318"),
                _ => self.fault(name, format!("must be http/protobuf, is {text:?}")),
            }
        }
        if let Some((name, text)) = self.first(COMPRESSIONS) {
            match text.to_ascii_lowercase().as_str() {
                "none" => {}
                "gzip" | "zstd" => self.warn(name, "this version compresses nothing"),
                _ => self.fault(name, format!("must be none, is {text:?}")),
            }
        }
    }

    /// `key=value` pairs, separated by commas. What they hold may be secret: a fault tells the place.
    fn list(&mut self, name: &str, text: &str, fits: impl Fn(&str, &str) -> bool) {
        let pairs = text.split(',').map(str::trim).enumerate().filter(|(_, pair)| !pair.is_empty());
        let bad = |pair: &str| match pair.split_once('=') {
            Some((key, value)) => key.trim().is_empty() || !fits(key.trim(), value.trim()),
            None => true,
        };
        let bad: Vec<String> = pairs.filter(|(_, pair)| bad(pair)).map(|(at, _)| (at + 1).to_string()).collect();
        if !bad.is_empty() {
            self.fault(name, format!("must be a list such as key1=value1,key2=value2; not so: number {}", bad.join(", ")));
        }
    }

    fn sampler(&mut self) {
        let Some(sampler) = self.get(SAMPLER) else { return };
        if !SAMPLERS.contains(&sampler.as_str()) {
            self.warn(SAMPLER, "this version knows no such sampler and takes every trace");
        }
        if let Some(text) = self.get(RATIO).filter(|_| sampler.ends_with("traceidratio"))
            && !text.parse::<f64>().is_ok_and(|ratio| RATIOS.contains(&ratio))
        {
            self.fault(RATIO, format!("must be a number from 0 to 1, is {text:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn judged(variables: &[(&str, &str)]) -> Result<TelemetrySettings, String> {
        read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    fn of(variables: &[(&str, &str)]) -> TelemetrySettings {
        judged(variables).unwrap()
    }

    #[test]
    fn spans_are_exported_only_when_a_variable_asks_for_it_ob_3() {
        for (variables, export) in [
            (&[][..], false),
            (&[ENDPOINT], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces")], true),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], false),
            (&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "console")], false),
            (&[("OTEL_SERVICE_NAME", "x")], false),
        ] {
            assert_eq!(of(variables).export, export, "{variables:?}");
        }
    }

    #[test]
    fn what_this_version_does_not_speak_is_told() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ] {
            let told = of(&[ENDPOINT, (name, value)]);
            assert!(told.export && told.warnings.len() == 1 && told.warnings[0].starts_with(&format!("{name}: ")), "{told:?}");
            assert_eq!(of(&[(name, value)]), TelemetrySettings::default(), "{name}: not while nothing is exported");
        }
        assert_eq!(of(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "console")]).warnings.len(), 1);
    }

    #[test]
    fn what_is_in_order_says_nothing() {
        let all = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://[2001:db8::1]:4318/v1/traces?a=b"),
            // Not in force.
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20dTpw==, x-scope = a b ,"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
        ];
        let settings = of(&all);
        assert_eq!((settings.export, settings.warnings), (true, Vec::<String>::new()));
    }

    #[test]
    fn what_is_certainly_wrong_is_a_fault_that_names_its_variable_and_shows_no_secret_op_4_pc_75() {
        for (name, values) in [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                &["S3cret", "S3cret:4318", "ftp://S3cret:4318", "http://", "http://S3cret:99999", "http://S3cret a/"][..],
            ),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &["/v1/traces", "unix:///S3cret"]),
            ("OTEL_EXPORTER_OTLP_HEADERS", &["S3cret", "a=b,S3cret", "=S3cret", "a b=S3cret", "a=S3\u{1}cret"]),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", &["authorization: Bearer S3cret"]),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", &["http", "protobuf", "http/protobuff"]),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", &["zip"]),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", &["10s", "-1", "1.5"]),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", &["soon"]),
            ("OTEL_BSP_SCHEDULE_DELAY", &["5s"]),
            ("OTEL_BSP_EXPORT_TIMEOUT", &["5s"]),
            ("OTEL_BSP_MAX_QUEUE_SIZE", &["many"]),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &["1e3"]),
            ("OTEL_RESOURCE_ATTRIBUTES", &["S3cret", "a=b,c"]),
        ] {
            for value in values {
                let told = judged(&[ENDPOINT, (name, value)].into_iter().rev().collect::<Vec<_>>()).unwrap_err();
                assert!(told.starts_with(&format!("error: {name}: must be ")) && told.lines().count() == 1, "{value:?}: {told:?}");
                assert!(!told.contains("S3cret"), "{told}");
                let off = [(name, *value), ("OTEL_TRACES_EXPORTER", "none")];
                assert_eq!(judged(&off), Ok(TelemetrySettings::default()), "{value:?}: nothing is exported");
            }
        }
        for ratio in ["10%", "1.1", "-0.1", "NaN"] {
            let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
            let told = judged(&[ENDPOINT, sampler, ("OTEL_TRACES_SAMPLER_ARG", ratio)]).unwrap_err();
            assert!(told.starts_with("error: OTEL_TRACES_SAMPLER_ARG: must be "), "{told}");
            assert!(judged(&[ENDPOINT, ("OTEL_TRACES_SAMPLER_ARG", ratio)]).is_ok(), "no sampler that has one");
        }
        let all = [("OTEL_EXPORTER_OTLP_ENDPOINT", "x"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "x"), ("OTEL_BSP_SCHEDULE_DELAY", "x")];
        assert_eq!(judged(&all).unwrap_err().lines().count(), 3, "all at once");
        let told = read(|name| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| OsString::from_vec(vec![b'h', 0xff])));
        assert_eq!(told, Err("error: OTEL_EXPORTER_OTLP_ENDPOINT: is not UTF-8 text\n".to_owned()));
    }

    /// Issue 10, item 28: `HTTP_PROXY` took spans to a collector on loopback.
    #[test]
    fn a_collector_on_this_machine_is_known_as_one() {
        let at = |endpoint| of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500")]);
        for endpoint in ["http://127.0.0.1:4318", "http://LOCALHOST:4318/", "https://[::1]:4318", "http://127.8.8.8"] {
            assert!(at(endpoint).loopback, "{endpoint}");
        }
        for endpoint in ["http://collector:4318", "http://10.0.0.1:4318", "http://localhost.example:4318"] {
            assert!(!at(endpoint).loopback, "{endpoint}");
        }
        assert!(of(&[("OTEL_TRACES_EXPORTER", "otlp")]).loopback, "the default of the standard");
        assert_eq!(at("http://a:1").timeout, Duration::from_millis(1500));
    }

    #[test]
    fn a_service_that_has_a_name_keeps_it() {
        assert!(of(&[ENDPOINT, ("OTEL_SERVICE_NAME", "x")]).service_named);
        assert!(of(&[ENDPOINT, ("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name=x")]).service_named);
        assert!(!of(&[ENDPOINT, ("OTEL_RESOURCE_ATTRIBUTES", "a=b")]).service_named);
    }
}
