//! The generated configuration under the Squid of Debian, unprivileged, in a network of its own (K8-6, K8-21 S).

mod place;
mod process;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use egress_backend_kubernetes::KubernetesConfig;
use serde_json::Value;

use crate::support::double::Double;
use crate::support::kit::{Calls, backend, config, request};
use place::{INSIDE, OUTSIDE, Place};
use process::{SQUID, Squid, parse};

/// The configuration as it stands in the Pod.
fn conf(config: KubernetesConfig, port: u16) -> String {
    let made = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let double = Double::start();
            let mut asked = request("team-a", "u-1");
            asked.port = port;
            backend(config, &double.kubeconfig()).await.made(&asked).await.unwrap();
            let pod = double.seen().remove(0).body;
            let Value::String(conf) = &pod["metadata"]["annotations"]["crawl.example.com/squid-conf"] else { panic!("{pod}") };
            conf.clone()
        })
    });
    made.join().unwrap()
}

fn with(clients: &[&str], destinations: &[&str]) -> KubernetesConfig {
    KubernetesConfig {
        allowed_clients: clients.iter().map(|net| net.parse().unwrap()).collect(),
        allowed_destinations: destinations.iter().map(|net| net.parse().unwrap()).collect(),
        ..config()
    }
}

/// K8-6: `squid -k parse` takes it without a word, at its longest too.
#[test]
fn squid_takes_the_configuration_without_a_warning_k8_6() {
    if !process::there("squid_takes_the_configuration_without_a_warning_k8_6", SQUID) {
        return;
    }
    let many: Vec<String> = (0..=255).flat_map(|n| [format!("10.{n}.0.0/16"), format!("fd00:{n:x}::/32")]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (config, port) in [
        (config(), 3128),
        (config(), 80),
        (with(&["10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0", "2000::/3"], &["10.1.2.3/32", "fd00::/64"]), 3128),
        (with(&many, &many), 65535),
        (KubernetesConfig { max_file_descriptors: 65_536, ..config() }, 3128),
    ] {
        let text = conf(config, port);
        assert!(text.lines().any(|line| line.starts_with("max_filedescriptors ")), "{text}");
        let (ok, said) = parse(&text);
        // What `via off` is always told.
        let known = "WARNING: HTTP requires the use of Via";
        let words = ["WARNING", "ERROR", "FATAL", "Bungled"];
        let loud: Vec<_> = said.lines().filter(|line| words.iter().any(|word| line.contains(word)) && !line.ends_with(known)).collect();
        assert!(ok && loud.is_empty(), "{loud:#?}\n{said}");
    }
    // And it would say so.
    let (ok, said) = parse("http_port 3128\nhttp_access allow nobody\n");
    assert!(!ok && said.contains("nobody"), "{said}");
}

/// K8-6, S4: what goes through and what does not, decided on the address that is connected to.
#[test]
fn a_connect_goes_through_and_the_insides_are_refused_k8_6_s4() {
    let test = "a_connect_goes_through_and_the_insides_are_refused_k8_6_s4";
    let Some(place) = Place::find(test) else { return };
    place.run(move |place| async move {
        let origin = place.origin(OUTSIDE, 8443).await;
        let mail = place.origin(OUTSIDE, 25).await;
        let inside = place.origin(INSIDE, 8443).await;
        let metadata = place.origin("169.254.169.254", 80).await;
        let mut squid = Squid::start(&conf(config(), 3128), 3128, None).await;
        let at = |target: &str| format!("{target}:8443");
        assert_eq!(squid.connect(&at(OUTSIDE)).await, 200);
        assert_eq!(squid.tunnelled(&at(OUTSIDE), b"hello").await, b"hello");
        assert_eq!(squid.fetch(&format!("http://{OUTSIDE}:8443/")).await.0, 200);
        // Anonymous: nothing tells who asked.
        let seen = origin.last();
        let loud: Vec<_> =
            ["via:", "x-forwarded-for:", "forwarded:"].into_iter().filter(|name| seen.to_lowercase().contains(name)).collect();
        assert!(loud.is_empty() && seen.starts_with("GET / HTTP/1.1"), "{seen}");
        for target in [
            "127.0.0.1:8443",
            "[::1]:8443",
            "localhost:8443",
            "127.1:8443",
            "0x7f000001:8443",
            "2130706433:8443",
            "0.0.0.0:8443",
            "[::]:8443",
            "10.0.0.1:443",
            "10.96.0.1:443",
            "10.1.2.3:8443",
            "172.16.0.1:443",
            "172.31.255.255:443",
            "192.168.0.1:443",
            "100.64.0.1:443",
            "100.127.255.255:443",
            "169.254.169.254:80",
            "169.254.0.1:443",
            "224.0.0.1:443",
            "[fd00::1]:443",
            "[fc00::1]:443",
            "[fe80::1]:443",
            "[ff02::1]:443",
            "[::ffff:10.0.0.1]:443",
            "[::ffff:a00:1]:443",
            "[::ffff:127.0.0.1]:8443",
            "[::ffff:169.254.169.254]:80",
            "203.0.113.7:25",
            "198.51.100.9:25",
        ] {
            assert_eq!(squid.connect(target).await, 403, "CONNECT {target}");
            assert_eq!(squid.fetch(&format!("http://{target}/")).await.0, 403, "GET {target}");
        }
        // Nobody is told about the others who use it.
        for ask in ["cache_object://198.51.100.9/info", "cache_object://127.0.0.1/active_requests", "/squid-internal-mgr/info"] {
            let (code, body) = squid.fetch(ask).await;
            assert!(code == 403 && !body.contains("Connection information"), "{ask}: {code}");
        }
        assert_eq!((inside.count(), metadata.count(), mail.count()), (0, 0, 0), "refused before anything was connected");
        squid.stop().await;
    });
}

/// K8-6: exceptions and clients. Port 25 stays refused.
#[test]
fn exceptions_are_for_the_clients_that_are_served_k8_6() {
    let Some(place) = Place::find("exceptions_are_for_the_clients_that_are_served_k8_6") else { return };
    place.run(|place| async move {
        let outside = place.origin(OUTSIDE, 8443).await;
        let inside = place.origin(INSIDE, 8443).await;
        let mail = place.origin(INSIDE, 25).await;
        // Overlapping on purpose: Squid itself would forget the larger ones.
        let text = conf(with(&["127.0.0.1/32", "127.0.0.0/8"], &[&format!("{INSIDE}/32"), "10.1.2.2/31"]), 3128);
        let mut squid = Squid::start(&text, 3128, None).await;
        let stranger: IpAddr = OUTSIDE.parse().unwrap();
        assert_eq!(squid.connect(&format!("{OUTSIDE}:8443")).await, 200);
        assert_eq!(squid.connect(&format!("{INSIDE}:8443")).await, 200);
        assert_eq!(squid.connect(&format!("[::ffff:{INSIDE}]:8443")).await, 200, "Squid takes it as its IPv4");
        assert_eq!(squid.connect("10.1.2.4:8443").await, 403);
        assert_eq!(squid.connect(&format!("{INSIDE}:25")).await, 403);
        let (open, reached) = (outside.count(), inside.count());
        for target in [format!("{OUTSIDE}:8443"), format!("{INSIDE}:8443")] {
            assert_eq!(squid.connect_from(Some(stranger), &target).await, 403, "{target} for a client that is not served");
        }
        assert_eq!((outside.count(), inside.count(), mail.count()), (open, reached, 0));
        assert_eq!(squid.fetch("cache_object://198.51.100.9/info").await.0, 403);
        squid.stop().await;
    });
}

/// K8-6, S1: where the limit is 2^30, as container runtimes set it, the bound keeps it small; without it the same Squid is not.
#[test]
fn under_an_unlimited_nofile_it_stays_below_100_mib_k8_6_s1() {
    let test = "under_an_unlimited_nofile_it_stays_below_100_mib_k8_6_s1";
    let Some(place) = Place::find(test) else { return };
    let Some(shim) = process::unlimited(test) else { return };
    place.run(move |place| async move {
        let _origin = place.origin(OUTSIDE, 8443).await;
        let text = conf(config(), 3128);
        let mut squid = Squid::start(&text, 3128, Some(&shim)).await;
        for _ in 0..200 {
            assert_eq!(squid.connect(&format!("{OUTSIDE}:8443")).await, 200);
        }
        let bounded = squid.resident_mib();
        println!("resident with the bound: {bounded} MiB; descriptors: {}", squid.said("file descriptors available"));
        assert!(bounded < 100, "{bounded} MiB");
        assert!(squid.said("file descriptors available").contains("With 16384 "), "{}", squid.log());
        assert_eq!(squid.written(), Vec::<String>::new(), "nothing is written but to the /dev/shm that every container has");
        let took = squid.stop().await;
        assert!(took < Duration::from_secs(5), "SIGTERM ends it within its grace of 10 s: {took:?}");
        // What the bound is for. Fewer than 2^30, which no machine could hold.
        let unbounded = text.replace("max_filedescriptors 16384\n", "");
        let shim = process::limited_to(&shim, 1 << 22);
        let mut squid = Squid::start(&unbounded, 3128, Some(&shim)).await;
        let unbounded = squid.resident_mib();
        println!("resident without it, under 2^22: {unbounded} MiB");
        assert!(unbounded > 2 * 100, "the test would not notice: {unbounded} MiB");
        squid.stop().await;
    });
}

/// K8-5: a port below 1024 by the sysctl, without a capability.
#[test]
fn port_80_is_opened_by_the_sysctl_alone_k8_5() {
    let Some(place) = Place::find("port_80_is_opened_by_the_sysctl_alone_k8_5") else { return };
    place.run(|place| async move {
        let _origin = place.origin(OUTSIDE, 8443).await;
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0").unwrap();
        let mut squid = Squid::start(&conf(config(), 80), 80, None).await;
        assert_eq!(squid.connect(&format!("{OUTSIDE}:8443")).await, 200);
        squid.stop().await;
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024").unwrap();
        let refused = Squid::try_start(&conf(config(), 80), 80, None, Duration::from_secs(3)).await;
        assert!(refused.is_err_and(|log| log.contains("Permission denied") || log.contains("FATAL")), "it is the sysctl that does it");
    });
}

/// For the helpers.
fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}
