"""What is installed: names, flags, the Pod's life, the providers file, the token, the notes (IN-1, IN-6 to IN-10)."""

import re

import yaml
from chart import CHART, NAME, NAMESPACE, ROOT, ChartCase, container, deployment, find, notes, objects, text

def flags(values=None):
    return container(values)["args"][1:]


class Names(ChartCase):
    def test_the_names_of_the_guide(self):
        """IN-8."""
        found = [o for o in objects() if o["metadata"].get("namespace")]
        self.assertEqual({o["metadata"]["namespace"] for o in found}, {NAMESPACE})
        named = {(o["kind"], o["metadata"]["name"]) for o in found}
        for expected in [("Deployment", NAME), ("Service", f"{NAME}-discovery"), ("Service", f"{NAME}-metrics"), ("ConfigMap", "providers-config"),
                         ("Secret", "discovery-token"), ("ServiceAccount", NAME)]:
            self.assertIn(expected, named)

    def test_services_reach_the_operators_pods_and_no_test_pod(self):
        found = objects()
        labels = find(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
        tester = find(found, "Pod")["metadata"]["labels"]
        ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
        for name, port in [(f"{NAME}-discovery", 8090), (f"{NAME}-metrics", 8443)]:
            spec = find(found, "Service", name)["spec"]
            self.assertLessEqual(spec["selector"].items(), labels.items())
            self.assertFalse(spec["selector"].items() <= tester.items())
            self.assertEqual(spec["ports"][0]["port"], port)
            self.assertEqual(ports[spec["ports"][0]["targetPort"]], port)

    def test_plain_metrics_are_on_8080_and_none_leave_nothing_behind(self):
        """OP-27."""
        plain = objects({"metrics": {"secure": False}})
        self.assertEqual(find(plain, "Service", f"{NAME}-metrics")["spec"]["ports"][0]["port"], 8080)
        self.assertIn("--metrics-bind-address=:8080", flags({"metrics": {"secure": False}}))
        self.assertNotIn("--metrics-secure", flags({"metrics": {"secure": False}}))
        none = [line for line in text({"metrics": {"enabled": False}, "crds": {"install": False}}).splitlines() if "metrics" in line]
        self.assertEqual(none, [])

    def test_the_monitor_selects_the_metrics_service_alone(self):
        for secure in (True, False):
            found = objects({"serviceMonitor": {"enabled": True}, "metrics": {"secure": secure}})
            monitor, endpoint = find(found, "ServiceMonitor"), find(found, "ServiceMonitor")["spec"]["endpoints"][0]
            wanted = monitor["spec"]["selector"]["matchLabels"].items()
            hits = [o["metadata"]["name"] for o in found if o["kind"] == "Service" and wanted <= o["metadata"]["labels"].items()]
            self.assertEqual(hits, [f"{NAME}-metrics"])
            self.assertEqual(endpoint["port"], find(found, "Service", f"{NAME}-metrics")["spec"]["ports"][0]["name"])
            self.assertEqual(endpoint.get("scheme"), "https" if secure else None)


class Pod(ChartCase):
    def test_the_default_flags(self):
        self.assertEqual(container()["args"], [
            "run", "--providers-config=/etc/proxy-operator/providers.yaml", "--leader-elect", "--discovery-bind-address=:8090",
            "--discovery-token-file=/etc/discovery-token/token", "--health-probe-bind-address=:8081", "--metrics-bind-address=:8443", "--metrics-secure",
            "--log-level=info",
        ])

    def test_settings_become_flags_as_they_are_meant(self):
        given = {"gc-interval": "30m", "check-url-allow": ["10.0.0.0/8", ".x.example"], "lease-queue-limit": 100000, "gc-dry-run": True,
                 "per-proxy-metrics": False, "trace-health-probes": False, "max-unavailable": "10%"}
        more = [flag for flag in flags({"settings": given}) if flag not in flags()]
        self.assertCountEqual(more, ["--gc-interval=30m", "--check-url-allow=10.0.0.0/8", "--check-url-allow=.x.example", "--lease-queue-limit=100000",
                                     "--gc-dry-run", "--per-proxy-metrics=false", "--max-unavailable=10%"])

    def test_it_knows_who_it_is(self):
        fields = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container()["env"]}
        self.assertEqual(fields, {"EPO_POD_NAME": "metadata.name", "EPO_POD_UID": "metadata.uid", "EPO_POD_NAMESPACE": "metadata.namespace",
                                  "EPO_POD_IP": "status.podIP"})

    def test_it_is_as_restricted_as_pods_can_be(self):
        """IN-1, IN-4: the restricted Pod Security level, and the same for the test's Pod."""
        found = objects()
        for spec in [find(found, "Deployment")["spec"]["template"]["spec"], find(found, "Pod")["spec"]]:
            self.assertEqual(spec["securityContext"]["runAsNonRoot"], True)
            self.assertGreater(spec["securityContext"]["runAsUser"], 0)
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for one in spec["containers"]:
                self.assertEqual(one["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}})
        volumes = {v["name"]: v for v in find(found, "Deployment")["spec"]["template"]["spec"]["volumes"]}
        self.assertEqual(volumes["tmp"]["emptyDir"], {"medium": "Memory", "sizeLimit": "16Mi"})
        self.assertEqual(container()["resources"], {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}})

    def test_only_the_operators_pods_get_the_accounts_token(self):
        found = objects()
        self.assertFalse(find(found, "ServiceAccount")["automountServiceAccountToken"])
        self.assertTrue(find(found, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"])
        self.assertFalse(find(found, "Pod")["spec"]["automountServiceAccountToken"])

    def test_its_life(self):
        """IN-9."""
        spec, one = deployment()["spec"], container()
        self.assertEqual((spec["replicas"], spec["strategy"]), (1, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}))
        self.assertEqual(spec["template"]["spec"]["terminationGracePeriodSeconds"], 45)
        self.assertEqual(one["livenessProbe"]["httpGet"], {"path": "/healthz", "port": "health"})
        self.assertEqual(one["readinessProbe"]["httpGet"], {"path": "/readyz", "port": "health"})
        self.assertIn({"name": "health", "containerPort": 8081}, one["ports"])

    def test_configuration_is_mounted_as_whole_directories(self):
        """IN-6: a subPath would never see an edit; and no checksum restarts the Pod for what it follows by itself."""
        one = container()
        mounts = {m["mountPath"]: m for m in one["volumeMounts"]}
        self.assertEqual(mounts["/etc/proxy-operator"], {"name": "providers-config", "mountPath": "/etc/proxy-operator", "readOnly": True})
        self.assertFalse([m for m in one["volumeMounts"] if "subPath" in m])
        volumes = {v["name"]: v for v in deployment()["spec"]["template"]["spec"]["volumes"]}
        for secret, folder in {"gcp-credentials": "gcp", "kvm-ssh": "kvm", "proxmox-token": "proxmox"}.items():
            path = f"/etc/proxy-operator/{folder}"
            self.assertEqual(mounts[path], {"name": secret, "mountPath": path, "readOnly": True})
            self.assertEqual(volumes[secret]["secret"], {"secretName": secret, "optional": True, "defaultMode": 0o440})
        changed = {"providers": {"lab": {"type": "local"}}}
        self.assertEqual(deployment()["spec"]["template"], deployment(changed)["spec"]["template"])

    def test_replicas_reach_each_other_through_the_network_policy(self):
        """LS-10, IN-1."""
        peers = [{"namespaceSelector": {"matchLabels": {"crawlers": "true"}}}]
        found = objects({"networkPolicy": {"enabled": True, "discoveryFrom": peers}})
        discovery, _, health = find(found, "NetworkPolicy")["spec"]["ingress"]
        own = discovery["from"][0]["podSelector"]["matchLabels"].items()
        for labels in [find(found, "Deployment")["spec"]["template"]["metadata"]["labels"], find(found, "Pod")["metadata"]["labels"]]:
            self.assertLessEqual(own, labels.items())
        self.assertEqual((discovery["from"][1:], health), (peers, {"ports": [{"port": "health"}]}))
        self.assertNotIn("from", find(objects({"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]["ingress"][0])


class Configuration(ChartCase):
    def file(self, values=None):
        return yaml.safe_load(find(objects(values), "ConfigMap", "providers-config")["data"]["providers.yaml"])

    def test_the_providers_file_is_made_from_the_entries(self):
        """IN-3, IN-6: only what needs no credentials is enabled."""
        self.assertEqual(self.file(), {"providers": [{"name": "kubernetes", "type": "kubernetes"}]})
        given = {"kubernetes": {"kubernetes": {"maxFileDescriptors": 65536}}, "lab": {"type": "local", "maxConcurrentCreates": 8, "enabled": True}, "off": {"type": "local", "enabled": False}}
        self.assertEqual(self.file({"providers": given}), {"providers": [
            {"name": "kubernetes", "type": "kubernetes", "kubernetes": {"maxFileDescriptors": 65536}}, {"name": "lab", "type": "local", "maxConcurrentCreates": 8}]})
        self.assertEqual(self.file({"providers": {"kubernetes": None}}), {"providers": []})

    def test_the_crds_are_templates_that_an_uninstall_keeps(self):
        """IN-1: as generated, with the mark and our labels beside."""
        found = {o["metadata"]["name"]: o for o in objects() if o["kind"] == "CustomResourceDefinition"}
        self.assertEqual(set(found), {"proxies.crawl.example.com", "providerhealths.crawl.example.com"})
        for name, crd in found.items():
            self.assertEqual(crd["metadata"].pop("annotations"), {"helm.sh/resource-policy": "keep"})
            crd["metadata"].pop("labels")
            self.assertEqual(crd, yaml.safe_load((ROOT / "config" / "crd" / f"{name.split('.')[0]}.yaml").read_text()))
        self.assertFalse([o for o in objects({"crds": {"install": False}}) if o["kind"] == "CustomResourceDefinition"])
        self.assertFalse((CHART / "crds").exists(), "helm never upgrades what is there")

    def test_the_token_is_made_unless_it_is_not_wanted(self):
        """IN-7. That an upgrade keeps it: test_cluster.py."""
        first, second = (find(objects(), "Secret", "discovery-token")["data"] for _ in range(2))
        self.assertEqual((list(first), len(first["token"])), (["token"], 64))
        self.assertNotEqual(first, second)
        for given in [{"createToken": False}, {"tokenSecret": ""}]:
            self.assertFalse([o for o in objects({"discovery": given}) if o["kind"] == "Secret"], given)
        named = objects({"discovery": {"tokenSecret": "crawlers"}})
        self.assertEqual(find(named, "Secret")["metadata"]["name"], "crawlers")
        volume = next(v for v in find(named, "Deployment")["spec"]["template"]["spec"]["volumes"] if v["name"] == "discovery-token")
        self.assertEqual(volume["secret"], {"secretName": "crawlers", "defaultMode": 0o440})

    def test_an_open_api_is_shouted_about(self):
        """IN-7."""
        self.assertIn("THE DISCOVERY API IS OPEN", notes({"discovery": {"tokenSecret": ""}}))
        self.assertIn("create secret generic discovery-token", notes({"discovery": {"tokenSecret": ""}}))
        self.assertNotIn("OPEN", notes())
        self.assertNotIn("OPEN", notes({"discovery": {"tokenSecret": ""}, "extraEnv": [{"name": "DISCOVERY_TOKEN", "value": "x"}]}))
        self.assertIn("create secret generic discovery-token", notes({"discovery": {"createToken": False}}))

    def test_the_notes_say_the_next_step_and_the_traps(self):
        """IN-1, IN-10, and that a leader change forgets leases."""
        told = notes({"replicaCount": 2})
        for words in ["get px -w", "a change of the leader forget them, also with 2 replicas", "BEFORE AN UNINSTALL", '"finalizers":null', "--take-ownership",
                      "crds.install=false", f"service/{NAME}-discovery 8090", "get secret discovery-token", "/v1/leases"]:
            self.assertIn(words, told)
        document = yaml.safe_load(re.search(r"(?s)<<'EOF'\n(.*?)EOF", told).group(1))
        self.assertEqual(document["spec"], {"mode": "Managed", "provider": "kubernetes"})
        self.assertIn("enable one", notes({"providers": {"kubernetes": None}}))
        self.assertIn("namespace: crawl}", notes({"proxyNamespace": "crawl"}))

    def test_helm_test_asks_as_a_crawler_does(self):
        pod = find(objects(), "Pod")
        self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")
        self.assertEqual(pod["spec"]["containers"][0]["args"], [
            "get", "proxies", f"--server=http://{NAME}-discovery.{NAMESPACE}.svc:8090", "--token-file=/etc/discovery-token/token"])
        self.assertNotIn("--token-file", str(find(objects({"discovery": {"tokenSecret": ""}}), "Pod")))
        variable = {"name": "DISCOVERY_TOKEN", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "t"}}}
        given = {"discovery": {"tokenSecret": ""}, "extraEnv": [{"name": "A", "value": "b"}, variable]}
        self.assertEqual(find(objects(given), "Pod")["spec"]["containers"][0]["env"], [variable])

    def test_versions_are_the_crates(self):
        version = re.search(r'(?m)^version = "([^"]+)"$', (ROOT / "Cargo.toml").read_text()).group(1)
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))
        self.assertEqual(container()["image"], f"{NAME}:{version}")
        self.assertEqual(container({"image": {"digest": "sha256:" + "a" * 64}})["image"], f"{NAME}@sha256:" + "a" * 64)
