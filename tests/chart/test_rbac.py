"""Rights: exactly those of IN-5, PH-45, PH-46, K8-16 and IN-2, each with a word about who needs it."""

import re

from chart import NAME, NAMESPACE, ROOT, ChartCase, find, objects, text

MANAGER = f"{NAME}:{NAMESPACE}:{NAME}:manager"


def rule(group, resources, verbs, names=None):
    out = {"apiGroups": [group], "resources": [resources], "verbs": verbs.split()}
    return out | ({"resourceNames": [names]} if names else {})


NAMESPACED = [
    rule("crawl.example.com", "proxies", "get list watch update patch"),
    rule("crawl.example.com", "proxies/status", "get patch"),
    rule("", "secrets", "list watch"),
    rule("events.k8s.io", "events", "create patch"),
]
PODS = [rule("", "pods", "create get list delete")]
HEALTH = [
    rule("crawl.example.com", "providerhealths", "get list create delete"),
    rule("crawl.example.com", "providerhealths/status", "get patch"),
]
IDENTITY = [rule("", "namespaces", "get", "kube-system")]
REVIEWS = [rule("authentication.k8s.io", "tokenreviews", "create"), rule("authorization.k8s.io", "subjectaccessreviews", "create")]
LEASES = [rule("coordination.k8s.io", "leases", "get create update patch")]
PLAIN = {"metrics": {"secure": False}}
NO_PODS = {"providers": {"kubernetes": {"enabled": False}}}


class Manager(ChartCase):
    def bound(self, values):
        """What the ServiceAccount is given: (where, rules) by binding, each held against its role."""
        found, out = objects(values), {}
        for binding in [o for o in found if o["kind"] in ("RoleBinding", "ClusterRoleBinding")]:
            self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}])
            kind, name, where = binding["roleRef"]["kind"], binding["roleRef"]["name"], binding["metadata"].get("namespace")
            self.assertEqual(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io")
            self.assertEqual(kind, binding["kind"].removesuffix("Binding"))
            role = find(found, kind, name)
            self.assertEqual(role["metadata"].get("namespace"), where)
            out[where] = out.get(where, []) + role["rules"]
        return out

    def test_the_whole_cluster_with_secure_metrics(self):
        self.assertEqual(self.bound({}), {None: NAMESPACED + PODS + HEALTH + IDENTITY + REVIEWS, NAMESPACE: LEASES})

    def test_reviews_only_with_secure_metrics(self):
        expected = {None: NAMESPACED + PODS + HEALTH + IDENTITY, NAMESPACE: LEASES}
        self.assertEqual(self.bound(PLAIN), expected)
        self.assertEqual(self.bound({"metrics": {"enabled": False}}), expected)

    def test_pods_only_while_an_entry_of_type_kubernetes_is_enabled(self):
        """K8-16."""
        expected = {None: NAMESPACED + HEALTH + IDENTITY, NAMESPACE: LEASES}
        for providers in [{"kubernetes": {"enabled": False}}, {"kubernetes": None}, {"kubernetes": None, "lab": {"type": "local"}}]:
            self.assertEqual(self.bound(PLAIN | {"providers": providers}), expected, providers)
        other = {"kubernetes": {"enabled": False}, "pods": {"type": "kubernetes"}}
        self.assertEqual(self.bound(PLAIN | {"providers": other})[None], NAMESPACED + PODS + HEALTH + IDENTITY)

    def test_a_given_installation_id_needs_no_look_at_kube_system(self):
        """PC-51."""
        self.assertEqual(self.bound(PLAIN | {"installationId": "office-1"})[None], NAMESPACED + PODS + HEALTH)

    def test_one_namespace_makes_all_that_is_namespaced_a_role_there(self):
        """OP-25, and K8-16 in it."""
        expected = {None: HEALTH + IDENTITY + REVIEWS, "crawl": NAMESPACED + PODS, NAMESPACE: LEASES}
        self.assertEqual(self.bound({"proxyNamespace": "crawl"}), expected)
        expected["crawl"] = NAMESPACED
        self.assertEqual(self.bound({"proxyNamespace": "crawl"} | NO_PODS), expected)

    def test_one_namespace_may_be_the_operators_own(self):
        own = self.bound({"proxyNamespace": NAMESPACE})
        self.assertEqual(sorted(own, key=str), [None, NAMESPACE])
        self.assertCountEqual(own[NAMESPACE], NAMESPACED + PODS + LEASES)

    def test_every_rule_names_who_needs_it(self):
        for values in ({}, {"proxyNamespace": "crawl"}):
            lines, rules = text(values).splitlines(), 0
            for before, line in zip(lines, lines[1:]):
                if re.match(r"\s*- (apiGroups|nonResourceURLs):", line):
                    rules += 1
                    self.assertRegex(before, r"^\s*# .*\b[A-Z0-9]{2}-\d+", line)
            self.assertGreater(rules, 15)

    def test_cluster_scoped_names_carry_release_and_namespace(self):
        """IN-10: two releases never meet."""
        for found in objects({"proxyNamespace": "crawl"}):
            name = found["metadata"]["name"]
            if found["kind"] in ("ClusterRole", "ClusterRoleBinding") or found["metadata"].get("namespace") == "crawl":
                self.assertTrue(name.startswith(f"{NAME}:{NAMESPACE}:{NAME}:"), name)

    def test_the_guide_has_the_same_rights(self):
        document = (ROOT / "docs" / "install.md").read_text().split("\n## Rights\n")[1].split("\n## ")[0]
        told = re.findall(r"(?m)^\| `(\S+)` \| ([a-z ]+) \| (.*?) \|", document)
        where = {"": "cluster", "crawl": "objects", NAMESPACE: "its own namespace"}
        expected = []
        for place, rules in self.bound({"proxyNamespace": "crawl"}).items():
            for one in rules:
                [group], [resource] = one["apiGroups"], one["resources"]
                kept = "`kube-system` only" if one.get("resourceNames") else where[place or ""]
                expected.append((f"{group}/{resource}".lstrip("/"), " ".join(one["verbs"]), kept))
        self.assertCountEqual(told, expected)


class People(ChartCase):
    def roles(self, values=None):
        found = [o for o in objects(values) if o["kind"] == "ClusterRole" and o["metadata"]["name"] != MANAGER]
        out = {}
        for role in found:
            labels = [key.split("aggregate-to-")[1] for key, on in role["metadata"]["labels"].items() if "aggregate-to-" in key and on == "true"]
            out[role["metadata"]["name"].rsplit(":", 1)[1]] = (labels, role["rules"])
        return out

    def test_viewer_editor_and_admin_are_aggregated_to_the_standard_roles(self):
        """IN-2, PH-46."""
        group, look = "crawl.example.com", "get list watch"
        self.assertEqual(
            self.roles(),
            {
                "proxy-viewer-role": (["view"], [rule(group, "proxies", look), rule(group, "proxies/status", "get")]),
                "proxy-editor-role": (["edit"], [rule(group, "proxies", look + " create update patch delete deletecollection"), rule(group, "proxies/status", "get")]),
                "proxy-admin-role": (["admin"], [rule(group, "proxies", "*"), rule(group, "proxies/status", "get update patch")]),
                "providerhealth-viewer-role": (["view"], [rule(group, "providerhealths", look), rule(group, "providerhealths/status", "get")]),
                "metrics-reader": ([], [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
            },
        )

    def test_they_can_be_left_out(self):
        self.assertEqual(self.roles({"rbac": {"userRoles": False}} | PLAIN), {})
