{{/*
Combinations that no schema can say and that could only fail later, or do nothing: refused, with the way out.
Included by the Deployment, so that nothing is rendered without them.
*/}}
{{- define "epo.refusals" -}}
{{- $v := .Values -}}
{{- if and $v.podDisruptionBudget.enabled (lt (int $v.replicaCount) 2) -}}
{{- fail "podDisruptionBudget.enabled needs replicaCount 2: of one replica a budget would either stop every node drain or do nothing" -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (not $v.metrics.enabled) -}}
{{- fail "serviceMonitor.enabled needs metrics.enabled: there would be nothing to scrape" -}}
{{- end -}}
{{- if and (include "epo.open" .) (ne $v.discovery.service.type "ClusterIP") -}}
{{- fail (printf "discovery.service.type %s needs a token: with discovery.tokenSecret empty the API would be open to everybody outside the cluster" $v.discovery.service.type) -}}
{{- end -}}
{{- if and (index $v.settings "gc-allow-namespaced") (not $v.proxyNamespace) -}}
{{- fail "settings.gc-allow-namespaced needs proxyNamespace: without it orphan collection is on anyway" -}}
{{- end -}}
{{- if and (not $v.networkPolicy.enabled) (or $v.networkPolicy.discoveryFrom $v.networkPolicy.metricsFrom) -}}
{{- fail "networkPolicy.discoveryFrom and metricsFrom need networkPolicy.enabled: nothing would hold them" -}}
{{- end -}}
{{- if and $v.networkPolicy.metricsFrom (not $v.metrics.enabled) -}}
{{- fail "networkPolicy.metricsFrom needs metrics.enabled: there would be nothing to reach" -}}
{{- end -}}
{{- $set := dict -}}
{{- range splitList "\n" (include "epo.flags" .) -}}
{{- if hasPrefix "--" . -}}
{{- $flag := first (splitList "=" (trimPrefix "--" .)) -}}
{{- $_ := set $set (printf "EPO_%s" ($flag | upper | replace "-" "_")) $flag -}}
{{- end -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- if and (eq .name "DISCOVERY_TOKEN") $v.discovery.tokenSecret -}}
{{- fail "extraEnv DISCOVERY_TOKEN and discovery.tokenSecret: the operator takes one of them; set discovery.tokenSecret to \"\" or leave the variable out" -}}
{{- end -}}
{{- if hasPrefix "EPO_POD_" .name -}}
{{- fail (printf "extraEnv %s: the chart sets it from the Pod itself" .name) -}}
{{- end -}}
{{- if hasKey $set .name -}}
{{- fail (printf "extraEnv %s has no effect: the chart gives the flag --%s, and a flag wins over its variable" .name (get $set .name)) -}}
{{- end -}}
{{- if hasKey $v.otel.env .name -}}
{{- fail (printf "extraEnv %s is in otel.env too: leave one of them out" .name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $entry := $v.providers -}}
{{- if $entry -}}
{{- range $block := list "kubernetes" "local" -}}
{{- if and (hasKey $entry $block) (ne $entry.type $block) -}}
{{- fail (printf "providers.%s: the block %s is not of its type %s" $name $block $entry.type) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
