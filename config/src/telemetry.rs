//! Whether spans are exported, by the standard variables (OB-3). Where they go, and how, the exporter reads itself; what it
//! does not read is read here: whether it is to be there at all.

use std::ffi::OsString;

/// What the variables ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Spans are exported.
    pub export: bool,
    /// A variable names the service.
    pub service_named: bool,
    /// What a person should look at.
    pub warnings: Vec<String>,
}

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// Reads the variables; one that is empty counts as not set.
pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> TelemetrySettings {
    let get = |name: &str| variable(name).map(|text| text.to_string_lossy().trim().to_owned()).filter(|text| !text.is_empty());
    let mut settings = TelemetrySettings::default();
    if get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return settings;
    }
    let endpoint = ENDPOINTS.iter().any(|name| get(name).is_some());
    settings.export = match get("OTEL_TRACES_EXPORTER") {
        None => endpoint,
        Some(text) if text.eq_ignore_ascii_case("none") => false,
        Some(text) => {
            let otlp = text.split(',').any(|one| one.trim().eq_ignore_ascii_case("otlp"));
            if !otlp || text.contains(',') {
                settings.warnings.push("OTEL_TRACES_EXPORTER: this version exports by otlp only".to_owned());
            }
            otlp
        }
    };
    settings.service_named = get("OTEL_SERVICE_NAME").is_some()
        || get("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|list| list.split(',').any(|one| one.trim_start().starts_with("service.name=")));
    let protocol = PROTOCOLS.iter().find_map(|name| Some((name, get(name)?)));
    if let Some((name, _)) = protocol.filter(|(_, text)| settings.export && text != "http/protobuf") {
        settings.warnings.push(format!("{name}: this version speaks http/protobuf only, on most collectors at port 4318"));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> TelemetrySettings {
        read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn spans_are_exported_only_when_a_variable_asks_for_it_ob_3() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for (variables, export) in [
            (&[][..], false),
            (&[endpoint], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces")], true),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], false),
            (&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[endpoint, ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[endpoint, ("OTEL_TRACES_EXPORTER", "console")], false),
            (&[("OTEL_SERVICE_NAME", "x")], false),
        ] {
            assert_eq!(of(variables).export, export, "{variables:?}");
        }
    }

    #[test]
    fn what_this_version_does_not_speak_is_told() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        let grpc = of(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(grpc.export && grpc.warnings[0].starts_with("OTEL_EXPORTER_OTLP_PROTOCOL: "), "{grpc:?}");
        assert_eq!(of(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), TelemetrySettings::default());
        assert_eq!(of(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).warnings, [""; 0]);
        assert_eq!(of(&[endpoint, ("OTEL_TRACES_EXPORTER", "console")]).warnings.len(), 1);
    }

    #[test]
    fn a_service_that_has_a_name_keeps_it() {
        assert!(of(&[("OTEL_SERVICE_NAME", "x")]).service_named);
        assert!(of(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name=x")]).service_named);
        assert!(!of(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b")]).service_named);
    }
}
