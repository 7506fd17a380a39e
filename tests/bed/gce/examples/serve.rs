//! Serves an empty project of the stand-in on loopback until it is killed: `serve PORT PROJECT [INSTANCES]`. Port 0 takes a free
//! one; where it listens is the one line on stdout. INSTANCES are there from the start, with the managed label.

use std::io::Write as _;

use egress_fake_gce::FakeGce;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port = args.next().ok_or("serve PORT PROJECT [INSTANCES]")?.parse()?;
    let fake = FakeGce::new(&args.next().ok_or("serve PORT PROJECT [INSTANCES]")?);
    fake.keep_no_log();
    for i in 0..args.next().map_or(Ok(0), |count| count.parse::<usize>())? {
        let uid = format!("placed-{i}");
        let labels = [("proxy-operator-managed", "true"), ("proxy-operator-uid", &uid), ("proxy-operator-installation", "placed")];
        fake.place("europe-west1-b", &format!("px-{i}"), &labels, "RUNNING");
    }
    let server = fake.serve(port).await?;
    writeln!(std::io::stdout(), "http://{}", server.address)?;
    std::future::pending().await
}
