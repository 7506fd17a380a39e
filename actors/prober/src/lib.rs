//! Proves with real traffic that a proxy works: the probe, its schedule and verdicts, the judge of check URLs.
