"""Values: every one does something, none but those of the schema is taken, and what cannot be is refused (IN-1, IN-7)."""

import re
import unittest

import yaml
from chart import CHART, DEFAULTS, SCHEMA, ChartCase, Refused, find, helm, leaves, merged, objects, place, text

# What a value needs beside it to mean anything.
COMPANIONS = {
    ("podDisruptionBudget", "enabled"): {"replicaCount": 2},
    ("settings", "gc-allow-namespaced"): {"proxyNamespace": "crawl"},
    ("serviceMonitor", "interval"): {"serviceMonitor": {"enabled": True}},
    ("serviceMonitor", "labels"): {"serviceMonitor": {"enabled": True}},
    ("networkPolicy", "discoveryFrom"): {"networkPolicy": {"enabled": True}},
    ("networkPolicy", "metricsFrom"): {"networkPolicy": {"enabled": True}},
}


def steady(values):
    """The rendered text without the token, which is made anew each time."""
    return re.sub(r"(?m)^  token: \S+$", "  token: …", text(values))


class Lint(ChartCase):
    def test_the_chart_passes_the_strict_lint(self):
        self.assertIn("1 chart(s) linted, 0 chart(s) failed", helm("lint", "--strict", str(CHART)))

    def test_the_defaults_of_the_schema_are_those_of_the_file(self):
        """Every value is in values.yaml with the schema's default; settings are flags, whose defaults are the binary's."""
        for path, schema in leaves():
            if path[0] == "settings":
                continue
            with self.subTest(".".join(path)):
                value = DEFAULTS
                for key in path:
                    value = value[key]
                self.assertEqual(value, schema["default"])

    def test_no_value_is_without_a_word(self):
        for path, schema in leaves():
            with self.subTest(".".join(path)):
                self.assertGreater(len(schema["description"]), 7)
                self.assertTrue(schema["examples"], "something to toggle it with")


class Toggles(ChartCase):
    """One case a value, made below: rendered with its example it is taken, parses, and changes what is rendered."""


def toggle(path, schema):
    def case(self):
        beside = COMPANIONS.get(path, {})
        given = place(path, schema["examples"][0])
        before, after = steady(beside), steady(merged(beside, given))
        self.assertNotEqual(before, after, "the value does nothing")
        list(yaml.safe_load_all(after))

    return case


for _path, _schema in leaves():
    setattr(Toggles, f"test_{'.'.join(_path)}_is_taken_and_does_something", toggle(_path, _schema))


class Strictness(ChartCase):
    def strict(self, schema, path=()):
        """Every object of the schema that lists its keys, by its path."""
        if schema.get("additionalProperties") is False:
            yield path
        for key, inner in schema.get("properties", {}).items():
            yield from self.strict(inner, (*path, key))

    def test_a_key_that_is_not_known_is_refused_wherever_it_stands(self):
        places = list(self.strict(SCHEMA)) + [("providers", "kubernetes"), ("providers", "kubernetes", "kubernetes"), ("providers", "kubernetes", "gcp"), ("providers", "kubernetes", "local")]
        self.assertGreater(len(places), 15)
        for path in places:
            with self.subTest(".".join(path)):
                self.refused(place((*path, "zz"), 1), "zz")

    def test_a_value_of_another_type_is_refused(self):
        wrong = {"string": 7.5, "integer": "seven", "boolean": "yes", "object": "text", "array": "text"}
        for path, schema in leaves():
            kind = schema.get("type", "string" if "enum" in schema else None)
            kind = kind[0] if isinstance(kind, list) else kind
            with self.subTest(".".join(path)):
                self.refused(place(path, wrong[kind]), f"/{'/'.join(path)}")

    def test_values_out_of_bounds_are_refused(self):
        for given, word in [
            ({"replicaCount": 3}, "replicaCount"),
            ({"replicaCount": 0}, "replicaCount"),
            ({"image": {"digest": "sha256:12"}}, "digest"),
            ({"image": {"tag": "a b"}}, "tag"),
            ({"installationId": "Not_A_Label"}, "installationId"),
            ({"proxyNamespace": "-x"}, "proxyNamespace"),
            ({"logLevel": "info debug"}, "logLevel"),
            ({"providers": {"Lab": {"type": "local"}}}, "Lab"),
            ({"providers": {"lab": {"type": "kvm"}}}, "type"),
            ({"providers": {"lab": {"type": "gcp", "gcp": {}}}}, "project"),
            ({"providers": {"lab": {"type": "gcp", "gcp": {"project": "p1", "diskSizeGb": 9}}}}, "diskSizeGb"),
            ({"providers": {"lab": {"type": "gcp", "gcp": {"project": "p1", "endpoint": "compute.example"}}}}, "endpoint"),
            ({"providers": {"lab": {}}}, "type"),
            ({"providers": {"lab": {"type": "local", "maxConcurrentCreates": 65}}}, "maxConcurrentCreates"),
            ({"providers": {"kubernetes": {"kubernetes": {"maxFileDescriptors": 100}}}}, "maxFileDescriptors"),
            ({"settings": {"gc-interval": "ten minutes"}}, "gc-interval"),
            ({"settings": {"max-unavailable": "0%"}}, "max-unavailable"),
            ({"settings": {"check-url-allow": ["a b"]}}, "check-url-allow"),
            ({"settings": {"lease-store": "postgres://db.example"}}, "lease-store"),
            ({"settings": {"providers-config": "/x"}}, "providers-config"),
            ({"otel": {"env": {"PATH": "/"}}}, "PATH"),
            ({"extraEnv": [{"value": "x"}]}, "extraEnv"),
        ]:
            with self.subTest(str(given)):
                self.refused(given, word)

    def test_combinations_that_cannot_work_are_refused_with_the_way_out(self):
        for given, message in [
            ({"podDisruptionBudget": {"enabled": True}}, "podDisruptionBudget.enabled needs replicaCount 2"),
            ({"serviceMonitor": {"enabled": True}, "metrics": {"enabled": False}}, "serviceMonitor.enabled needs metrics.enabled"),
            ({"discovery": {"tokenSecret": "", "service": {"type": "LoadBalancer"}}}, "discovery.service.type LoadBalancer needs a token"),
            ({"settings": {"gc-allow-namespaced": True}}, "settings.gc-allow-namespaced needs proxyNamespace"),
            ({"networkPolicy": {"discoveryFrom": [{"podSelector": {}}]}}, "need networkPolicy.enabled"),
            ({"networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]}, "metrics": {"enabled": False}}, "networkPolicy.metricsFrom needs metrics.enabled"),
            ({"extraEnv": [{"name": "DISCOVERY_TOKEN", "value": "x"}]}, "extraEnv DISCOVERY_TOKEN and discovery.tokenSecret"),
            ({"extraEnv": [{"name": "EPO_POD_NAME", "value": "x"}]}, "extraEnv EPO_POD_NAME: the chart sets it"),
            ({"extraEnv": [{"name": "EPO_LOG_LEVEL", "value": "debug"}]}, "the chart gives the flag --log-level"),
            ({"settings": {"gc-interval": "1h"}, "extraEnv": [{"name": "EPO_GC_INTERVAL", "value": "2h"}]}, "the chart gives the flag --gc-interval"),
            ({"otel": {"env": {"OTEL_X": "1"}}, "extraEnv": [{"name": "OTEL_X", "value": "2"}]}, "extraEnv OTEL_X is in otel.env too"),
            ({"providers": {"lab": {"type": "local", "kubernetes": {}}}}, "providers.lab: the block kubernetes is not of its type local"),
        ]:
            with self.subTest(message):
                self.refused(given, message)

    def test_what_the_refusals_are_next_to_is_taken(self):
        """The same values with the way out taken: a refusal must not refuse more than it says."""
        for given in [
            {"podDisruptionBudget": {"enabled": True}, "replicaCount": 2},
            {"discovery": {"tokenSecret": ""}, "extraEnv": [{"name": "DISCOVERY_TOKEN", "value": "x"}]},
            {"discovery": {"tokenSecret": "", "service": {"type": "LoadBalancer"}}, "extraEnv": [{"name": "DISCOVERY_TOKEN", "value": "x"}]},
            {"settings": {"gc-allow-namespaced": True}, "proxyNamespace": "crawl"},
            {"settings": {"gc-allow-namespaced": False}},
            {"extraEnv": [{"name": "EPO_GC_INTERVAL", "value": "2h"}]},
            {"providers": {"kubernetes": None}},
            {"global": {"anything": 1}},
        ]:
            with self.subTest(str(given)):
                self.assertGreater(len(objects(given)), 8)

    def test_a_label_or_annotation_of_the_chart_s_own_is_rendered_once(self):
        """Issue 10, 25: what selects keeps the chart's value, of the rest the user's counts."""
        given = {
            "podLabels": {"app.kubernetes.io/name": "mine", "app.kubernetes.io/component": "mine", "example.com/team": "crawl"},
            "podAnnotations": {"kubectl.kubernetes.io/default-container": "other", "example.com/team": "crawl"},
            "serviceMonitor": {"enabled": True, "labels": {"app.kubernetes.io/instance": "prometheus", "release": "prometheus"}},
        }
        found = objects(given)
        deployment = find(found, "Deployment")
        pod = deployment["spec"]["template"]["metadata"]
        self.assertEqual(pod["labels"] | deployment["spec"]["selector"]["matchLabels"], pod["labels"], "it finds its Pods")
        self.assertEqual(pod["labels"]["example.com/team"], "crawl")
        self.assertEqual(pod["annotations"], given["podAnnotations"])
        labels = find(found, "ServiceMonitor")["metadata"]["labels"]
        self.assertEqual(labels | given["serviceMonitor"]["labels"], labels)
        self.assertEqual(labels["app.kubernetes.io/managed-by"], "Helm")

    def test_environment_variables_are_what_kubernetes_takes(self):
        """Issue 10, 25: a reference goes through as it is, a number becomes the text that Kubernetes wants."""
        secret = {"valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}}
        given = {
            "discovery": {"tokenSecret": ""},
            "extraEnv": [
                {"name": "HTTPS_PROXY", **secret},
                {"name": "DISCOVERY_TOKEN", **secret},
                {"name": "NUMBER", "value": 16777216},
                {"name": "HALF", "value": 0.5},
                {"name": "TRUTH", "value": True},
                {"name": "EMPTY"},
            ],
            "otel": {"env": {"OTEL_EXPORTER_OTLP_HEADERS": secret, "OTEL_TRACES_SAMPLER": "always_on"}},
        }
        found = objects(given)
        [container] = find(found, "Deployment")["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one for one in container["env"]}
        for name in ["HTTPS_PROXY", "DISCOVERY_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS"]:
            self.assertEqual(env[name], {"name": name, **secret})
        texts = {name: env[name].get("value") for name in ["NUMBER", "HALF", "TRUTH", "EMPTY", "OTEL_TRACES_SAMPLER"]}
        self.assertEqual(texts, {"NUMBER": "16777216", "HALF": "0.5", "TRUTH": "true", "EMPTY": None, "OTEL_TRACES_SAMPLER": "always_on"})
        [test] = find(found, "Pod")["spec"]["containers"]
        self.assertEqual(test["env"], [{"name": "DISCOVERY_TOKEN", **secret}])
        for wrong in [{"name": "A", "value": "x", **secret}, {"name": "A", "valueFrom": "x"}, {"name": "A", "values": "x"}, {"name": "A", "value": ["x"]}]:
            with self.subTest(str(wrong)):
                self.refused({"extraEnv": [wrong]}, "extraEnv")

    def refused(self, values, word):
        with self.assertRaises(Refused) as told:
            text(values)
        self.assertIn(word, str(told.exception))


if __name__ == "__main__":
    unittest.main()
