{{/*
Names (IN-8): fixed, so that the guide's commands work as written. One release a namespace.
*/}}
{{- define "epo.name" -}}egress-proxies-operator{{- end }}

{{/* What a cluster-scoped object, or one in another namespace, is called (IN-10). A colon is in no namespace and no release name. */}}
{{- define "epo.scopedName" -}}
{{- printf "%s:%s:%s:%s" (include "epo.name" .root) .root.Release.Namespace .root.Release.Name .role -}}
{{- end }}

{{- define "epo.selectorLabels" -}}
app.kubernetes.io/name: {{ include "epo.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "epo.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "epo.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The Pods that serve: the test Pod carries another component, so that no Service sends it anything. */}}
{{- define "epo.operatorLabels" -}}
{{ include "epo.selectorLabels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "epo.testLabels" -}}
{{ include "epo.selectorLabels" . }}
app.kubernetes.io/component: test
{{- end }}

{{/* Labels or annotations of the chart (a text) with those of a user (a map) under them: each key once, the chart's word counts. */}}
{{- define "epo.over" -}}
{{- toYaml (merge (fromYaml .own) (deepCopy (.given | default dict))) -}}
{{- end }}

{{/* The same the other way round: the user's word counts. */}}
{{- define "epo.under" -}}
{{- toYaml (merge (deepCopy (.given | default dict)) (fromYaml .own)) -}}
{{- end }}

{{/* An environment variable as Kubernetes takes it: a number or a truth value becomes the text that it was written as. */}}
{{- define "epo.env" -}}
- name: {{ .name }}
{{- if hasKey . "valueFrom" }}
  valueFrom:
    {{- toYaml .valueFrom | nindent 4 }}
{{- else if hasKey . "value" }}
  value: {{ if and (kindIs "float64" .value) (eq .value (float64 (int64 .value))) }}{{ printf "%d" (int64 .value) | quote }}{{ else }}{{ toString .value | quote }}{{ end }}
{{- end }}
{{- end }}

{{- define "epo.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end }}

{{/* Not empty when an entry of that type is enabled. */}}
{{- define "epo.hasProvider" -}}
{{- range .root.Values.providers -}}
{{- if and . (ne (toString .enabled) "false") (eq .type $.type) -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{/* The providers file (IN-6): the enabled entries, by name. */}}
{{- define "epo.providersFile" -}}
{{- $entries := list -}}
{{- range $name, $entry := .Values.providers -}}
{{- if and $entry (ne (toString $entry.enabled) "false") -}}
{{- $entries = append $entries (merge (dict "name" $name) (omit $entry "enabled")) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "providers" $entries) -}}
{{- end }}

{{/* Not empty when the discovery API has no token. */}}
{{- define "epo.open" -}}
{{- $token := .Values.discovery.tokenSecret -}}
{{- range .Values.extraEnv -}}{{- if eq .name "DISCOVERY_TOKEN" -}}{{- $token = .name -}}{{- end -}}{{- end -}}
{{- if not $token -}}yes{{- end -}}
{{- end }}

{{- define "epo.metricsPort" -}}{{ ternary 8443 8080 .Values.metrics.secure }}{{- end }}

{{/*
The flags, one a line (OP-27). A flag that is true is given bare, which flags with and without a value understand.
*/}}
{{- define "epo.flags" -}}
--providers-config=/etc/proxy-operator/providers.yaml
--leader-elect
--discovery-bind-address=:8090
{{ with .Values.discovery.tokenSecret -}}
--discovery-token-file=/etc/discovery-token/token
{{ end -}}
--health-probe-bind-address=:8081
{{ if .Values.metrics.enabled -}}
--metrics-bind-address=:{{ include "epo.metricsPort" . }}
{{ if .Values.metrics.secure -}}
--metrics-secure
{{ end -}}
{{ end -}}
{{ with .Values.proxyNamespace -}}
--proxy-namespace={{ . }}
{{ end -}}
{{ with .Values.installationId -}}
--installation-id={{ . }}
{{ end -}}
--log-level={{ .Values.logLevel }}
{{ range $flag, $value := .Values.settings -}}
{{ if kindIs "slice" $value -}}
{{ range $value -}}
--{{ $flag }}={{ . }}
{{ end -}}
{{ else if kindIs "bool" $value -}}
{{ if $value -}}
--{{ $flag }}
{{ else if eq $flag "per-proxy-metrics" -}}
--{{ $flag }}=false
{{ end -}}
{{ else if kindIs "string" $value -}}
--{{ $flag }}={{ $value }}
{{ else -}}
--{{ $flag }}={{ int64 $value }}
{{ end -}}
{{ end -}}
{{- end }}

{{- /* Secrets with the credentials of providers, each with its folder below the providers file (IN-6). */}}
{{- define "epo.providerSecrets" -}}
gcp-credentials: gcp
kvm-ssh: kvm
proxmox-token: proxmox
{{- end }}
