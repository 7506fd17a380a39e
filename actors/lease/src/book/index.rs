//! The proxies of one selector in the order of LS-3: a lazy 4-ary heap.
//!
//! A grant only raises a proxy's key, so it touches no heap: entries are lower bounds, repaired when they surface.
//! Whatever may lower a key (a release) and whatever opens or closes a proxy is carried into every heap it is in, at
//! once.
//!
//! What must stay true: an entry is never above its proxy's key, and says [`CLOSED`] exactly when its proxy is; `pos` is
//! the inverse of the heap; a member is in the heap.

use std::cmp::Ordering;

/// Order of a proxy now; smaller is better. See [`super::fleet::Hot::key`].
pub(crate) type Key = u128;

/// The key of what cannot be granted whatever is released; the largest.
pub(crate) const CLOSED: Key = 3 << 86;

/// What the heap asks about proxies.
pub(crate) trait Order {
    /// The key now.
    fn key(&self, proxy: u32) -> Key;
    /// The key now of a proxy that is known not to be blocked for this index alone: quicker.
    fn unblocked_key(&self, proxy: u32) -> Key;
    /// Between proxies of equal keys: their names.
    fn tie(&self, a: u32, b: u32) -> Ordering;
}

const ARITY: usize = 4;
const OUT: u32 = u32::MAX;

#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// Key in the upper bits, local number in the lower 32.
    heap: Vec<u128>,
    /// By local number.
    pos: Vec<u32>,
    /// By local number: the proxy.
    members: Vec<u32>,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Proxy(u32),
    /// No proxy qualifies.
    Nothing,
    /// Too many were passed over.
    GaveUp,
}

/// What a search makes of the best proxy so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Take,
    /// Pass it over, at the request's own wish.
    Skip,
    /// Pass it over; too many of these end the search.
    SkipCounted,
}

fn local(entry: u128) -> usize {
    (entry & u128::from(u32::MAX)) as usize
}

fn entry(key: Key, local: usize) -> u128 {
    key << 32 | local as u128
}

impl Index {
    pub(crate) fn build(members: Vec<u32>, order: &impl Order) -> Self {
        let heap = members.iter().enumerate().map(|(local, proxy)| entry(order.key(*proxy), local)).collect();
        let pos = (0..u32::try_from(members.len()).unwrap_or(OUT)).collect();
        let mut index = Self { heap, pos, members };
        for at in (0..index.heap.len().div_ceil(ARITY)).rev() {
            index.sift_down(at, order);
        }
        index
    }

    pub(crate) fn members(&self) -> &[u32] {
        &self.members
    }

    fn before(&self, a: u128, b: u128, order: &impl Order) -> bool {
        match (a >> 32).cmp(&(b >> 32)) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => order.tie(self.members[local(a)], self.members[local(b)]).is_lt(),
        }
    }

    fn put(&mut self, at: usize, what: u128) {
        self.heap[at] = what;
        self.pos[local(what)] = at as u32;
    }

    fn sift_down(&mut self, mut at: usize, order: &impl Order) {
        let what = self.heap[at];
        loop {
            let first = at * ARITY + 1;
            if first >= self.heap.len() {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + ARITY).min(self.heap.len()) {
                if self.before(self.heap[child], self.heap[least], order) {
                    least = child;
                }
            }
            if !self.before(self.heap[least], what, order) {
                break;
            }
            self.put(at, self.heap[least]);
            at = least;
        }
        self.put(at, what);
    }

    fn sift_up(&mut self, mut at: usize, order: &impl Order) {
        let what = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !self.before(what, self.heap[parent], order) {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, what);
    }

    /// The best proxy that `look` takes and whose key is below `limit`.
    pub(crate) fn first(&mut self, limit: Key, patience: usize, order: &impl Order, mut look: impl FnMut(u32) -> Look) -> Found {
        let mut aside: Vec<u128> = Vec::new();
        let mut counted = 0;
        let found = loop {
            let Some(top) = self.heap.first().copied() else { break Found::Nothing };
            // A lower bound: when not even that is below the limit, nothing is.
            if top >> 32 >= limit {
                break Found::Nothing;
            }
            let proxy = self.members[local(top)];
            let now = entry(order.unblocked_key(proxy), local(top));
            if now != top {
                self.heap[0] = now;
                self.sift_down(0, order);
                continue;
            }
            match look(proxy) {
                Look::Take => break Found::Proxy(proxy),
                Look::Skip => {}
                Look::SkipCounted if counted == patience => break Found::GaveUp,
                Look::SkipCounted => counted += 1,
            }
            aside.push(self.pop(order));
        };
        for entry in aside {
            self.push(entry, order);
        }
        found
    }

    fn pop(&mut self, order: &impl Order) -> u128 {
        let top = self.heap.swap_remove(0);
        self.pos[local(top)] = OUT;
        if !self.heap.is_empty() {
            self.sift_down(0, order);
        }
        top
    }

    fn push(&mut self, what: u128, order: &impl Order) {
        self.heap.push(what);
        self.sift_up(self.heap.len() - 1, order);
    }

    /// Adds a proxy and answers its local number.
    pub(crate) fn add(&mut self, proxy: u32, order: &impl Order) -> u32 {
        let number = self.members.len();
        self.members.push(proxy);
        self.pos.push(OUT);
        self.push(entry(order.key(proxy), number), order);
        number as u32
    }

    /// Removes a member. The proxy that takes over its local number, if one does, is answered.
    pub(crate) fn remove(&mut self, number: u32, order: &impl Order) -> Option<u32> {
        let at = self.pos[number as usize] as usize;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.put(at, self.heap[at]);
            self.sift_down(at, order);
            self.sift_up(at, order);
        }
        let last = self.members.len() - 1;
        self.members.swap_remove(number as usize);
        self.pos.swap_remove(number as usize);
        if number as usize == last {
            return None;
        }
        let at = self.pos[number as usize] as usize;
        self.heap[at] = entry(self.heap[at] >> 32, number as usize);
        Some(self.members[number as usize])
    }

    /// A lease of an open proxy ended: its key may be lower, which is carried into the heap.
    pub(crate) fn lowered(&mut self, number: u32, order: &impl Order) {
        let at = self.pos[number as usize] as usize;
        if self.heap[at] >> 32 == CLOSED {
            return;
        }
        let key = order.unblocked_key(self.members[number as usize]);
        if self.heap[at] >> 32 > key {
            self.heap[at] = entry(key, number as usize);
            self.sift_up(at, order);
        }
    }

    /// The key is another, higher or lower: carried into the heap.
    pub(crate) fn changed(&mut self, number: u32, key: Key, order: &impl Order) {
        let at = self.pos[number as usize] as usize;
        let old = self.heap[at] >> 32;
        self.heap[at] = entry(key, number as usize);
        match key.cmp(&old) {
            Ordering::Less => self.sift_up(at, order),
            Ordering::Greater => self.sift_down(at, order),
            Ordering::Equal => {}
        }
    }

    /// What must stay true; for tests.
    #[cfg(test)]
    pub(crate) fn check(&self, order: &impl Order) -> Result<(), String> {
        if self.heap.len() != self.members.len() || self.pos.len() != self.members.len() {
            return Err(format!("{} entries, {} positions, {} members", self.heap.len(), self.pos.len(), self.members.len()));
        }
        for (at, what) in self.heap.iter().enumerate() {
            if self.pos[local(*what)] as usize != at {
                return Err(format!("entry {at} is not where its position says"));
            }
            if what >> 32 > order.key(self.members[local(*what)]) {
                return Err(format!("entry {at} is above its key"));
            }
            if (what >> 32 == CLOSED) != (order.key(self.members[local(*what)]) == CLOSED) {
                return Err(format!("entry {at} is closed, or its proxy is, but not both"));
            }
            if at > 0 && self.before(*what, self.heap[(at - 1) / ARITY], order) {
                return Err(format!("entry {at} is before its parent"));
            }
        }
        Ok(())
    }
}
