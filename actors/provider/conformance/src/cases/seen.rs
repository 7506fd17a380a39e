//! CT-32, CT-33, PC-92, PC-93: what can be seen from outside.

use std::collections::BTreeMap;
use std::error::Error;

use egress_protocol::provider::{CallContext, ErrorClass, Op, ProviderError};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::trial::{ENTRY, OPS, SENTINEL, Trial, key, ok};
use crate::{Captured, Fault, Intervention, Verdict, ensure};

pub(super) async fn errors(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    let made = t.made(&door, "errors").await?;
    let mut any = false;
    for fault in Fault::ALL {
        for op in OPS {
            if t.part(&format!("every call fails: {fault:?}"), t.world.fail_all(fault)).is_none() {
                break;
            }
            let error = door.op(op, &t.request("errors"), &made, CallContext::new(op, CancellationToken::new())).await;
            t.world.calm();
            // A list may name the fault in `left_out` instead.
            let Some(error) = error else { continue };
            any = true;
            ensure!(
                error.op == op && &*error.provider == ENTRY,
                "{fault:?}: the error of {op:?} says {:?} of {}",
                error.op,
                error.provider
            );
            ensure!(!error.message.is_empty(), "{fault:?}: the error of {op:?} says nothing");
            ensure!(error.cause.is_some(), "{fault:?}: the error of {op:?} hides the backend's own: {}", error.message);
            ensure!(error.id == made.id || matches!(op, Op::Create | Op::List), "{fault:?}: the error of {op:?} has the id {:?}", error.id);
        }
    }
    ensure!(any, "no fault came to an error");
    Ok(())
}

pub(super) async fn spans(t: &Trial) -> Verdict {
    let door = t.provider().await?;
    // What the backend does when it starts is below no operation.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let calls = t.part("counted at the seam", t.world.calls()).map(|calls| calls.len());
    let heard = t.capture.now();
    let made = t.made(&door, "spans").await?;
    ok(door.get(&made).await, "get")?;
    ok(door.list().await, "list")?;
    t.gone(&door, &made).await?;
    let (spans, lines) = t.capture.since(heard);
    let prefix = format!("{}.", t.type_name);
    let (mut spanned, mut logged): (BTreeMap<String, usize>, BTreeMap<String, usize>) = Default::default();
    for span in &spans {
        let Some(call) = span.name.strip_prefix(&prefix) else { continue };
        *spanned.entry(call.to_owned()).or_default() += 1;
        ensure!(t.capture.is_under(span, "provider."), "the span {} does not stand under an operation's", span.name);
    }
    for line in lines.iter().filter(|line| line.level == Level::DEBUG) {
        if let Some(call) = line.fields.get("call") {
            *logged.entry(call.clone()).or_default() += 1;
        }
    }
    ensure!(spanned == logged, "spans {spanned:?}, but DEBUG lines {logged:?}");
    ensure!(!spanned.is_empty(), "no span of the seam");
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    if let Some(calls) = calls {
        for call in t.world.calls()?.into_iter().skip(calls) {
            *expected.entry(call).or_default() += 1;
        }
        ensure!(spanned == expected, "calls {expected:?}, but spans and DEBUG lines {spanned:?}");
    }
    let loud = lines.iter().find(|line| line.level == Level::INFO);
    ensure!(loud.is_none(), "PC-87: a provider writes at INFO: {loud:?}");
    Ok(())
}

/// An error as a person or a program can see it.
fn shown(error: &ProviderError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(" {next} {next:?}"));
        cause = next.source();
    }
    text
}

pub(super) async fn sentinels(t: &Trial) -> Verdict {
    let mut secrets = t.world.secrets();
    secrets.push(SENTINEL.to_owned());
    let door = t.provider().await?;
    let mut shows = Vec::new();
    let run = |round: String| {
        let door = &door;
        async move {
            let request = t.request(&round);
            let mut shown_here = Vec::new();
            let id = match door.create(&request).await {
                Ok(id) => Some(id),
                Err(error) => {
                    shown_here.push(shown(&error));
                    None
                }
            };
            let key = key(&request, id);
            if key.id.is_some() {
                match door.get(&key).await {
                    Ok(read) => shown_here.push(format!("{read:?}")),
                    Err(error) => shown_here.push(shown(&error)),
                }
            }
            match door.list().await {
                Ok(listed) => shown_here.push(format!("{listed:?}")),
                Err(error) => shown_here.push(shown(&error)),
            }
            if let Err(error) = door.delete(&key).await {
                shown_here.push(shown(&error));
            }
            if let Ok(Some(verdicts)) = door.check(CallContext::new(Op::List, CancellationToken::new())).await {
                shown_here.push(format!("{verdicts:?}"));
            }
            shown_here
        }
    };
    shows.extend(run("success".to_owned()).await);
    for fault in Fault::ALL {
        if t.part(&format!("every call fails: {fault:?}"), t.world.fail_all(fault)).is_some() {
            shows.extend(run(format!("{fault:?}-all")).await);
            t.world.calm();
        }
        for n in 1..24 {
            if t.part("each call fails", t.world.intervene(n, Intervention::Fail(fault))).is_none() {
                break;
            }
            shows.extend(run(format!("{fault:?}-{n}")).await);
            t.world.calm();
            t.world.settle().await;
        }
    }
    for n in 1..8 {
        if t.part("each call panics", t.world.intervene(n, Intervention::Panic)).is_none() {
            break;
        }
        shows.extend(run(format!("panic-{n}")).await);
        t.world.calm();
        t.world.settle().await;
    }
    if let Some(system) = door.system() {
        let node = system.inspect(None, None).await;
        shows.push(format!("{node:?}"));
        shows.push(format!("{:?}", system.metrics().provider_requests));
    }
    for secret in &secrets {
        let seen = t.capture.holding(secret);
        ensure!(seen.is_none(), "{} is in a {}", described(secret), seen.unwrap_or_default());
        let seen = shows.iter().find(|text| text.contains(secret));
        ensure!(seen.is_none(), "{} is in {}", described(secret), seen.cloned().unwrap_or_default());
    }
    Ok(())
}

/// A secret without itself.
fn described(secret: &str) -> String {
    format!("a secret of {} characters ({}…)", secret.len(), secret.chars().take(12).collect::<String>())
}

pub(super) async fn classification(t: &Trial) -> Verdict {
    let table = t.fixture_classified.clone()?;
    for row in &table {
        ensure!(row.classified == row.expected, "{} is classified {:?}, not {:?}", row.what, row.classified, row.expected);
    }
    let quota = t.profiles.quota == crate::Quota::Detected;
    for class in [ErrorClass::NotFound, ErrorClass::QuotaExceeded, ErrorClass::Transient, ErrorClass::Permanent] {
        let there = table.iter().any(|row| row.expected == class && row.kind == Captured::Response);
        ensure!(there || (class == ErrorClass::QuotaExceeded && !quota), "no captured answer of class {class:?}");
    }
    for kind in [Captured::Cancellation, Captured::Foreign] {
        let row = table.iter().find(|row| row.kind == kind);
        ensure!(row.is_some_and(|row| row.expected == ErrorClass::Transient), "no Transient row for {kind:?}");
    }
    Ok(())
}
