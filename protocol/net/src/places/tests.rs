use futures_like::now_or_never;

use super::*;

/// Whether a place was given away.
mod futures_like {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    pub(super) fn now_or_never(future: impl Future<Output = ()>) -> bool {
        matches!(pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }
}

const SPARED: Duration = Duration::from_millis(250);

async fn later(by: Duration) {
    tokio::time::advance(by).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_has_waited_longest_gives_way_and_who_works_does_not_ls_23() {
    let places = Places::new(3, SPARED);
    let first = places.take().unwrap();
    later(SPARED).await;
    let (second, third) = (places.take().unwrap(), places.take().unwrap());
    later(SPARED).await;
    first.works();
    assert!(!now_or_never(second.given_away()));
    let fourth = places.take().unwrap();
    assert!(now_or_never(second.given_away()), "it waited as long as the third, and came before it");
    assert!(!now_or_never(first.given_away()) && !now_or_never(third.given_away()));
    assert_eq!(places.taken(), 3, "the one that leaves has no place any more");
    drop(second);
    assert_eq!(places.taken(), 3);

    let fifth = places.take().unwrap();
    assert!(now_or_never(third.given_away()));
    assert!(places.take().is_none(), "one works, two have come just now");
    first.waits();
    assert!(places.take().is_none(), "and its client may just be speaking");
    drop((fourth, fifth));
    assert_eq!(places.taken(), 1);
    assert!(places.take().is_some());
}

#[tokio::test(start_paused = true)]
async fn room_is_made_where_there_are_places_still() {
    let places = Places::new(3, SPARED);
    assert!(!places.make_room(), "nobody is there");
    let first = places.take().unwrap();
    later(SPARED).await;
    first.works();
    assert!(!places.make_room());
    first.waits();
    later(SPARED).await;
    assert!(places.make_room() && now_or_never(first.given_away()));
}
