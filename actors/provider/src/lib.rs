//! The provider actor: order per instance, deadlines, admission and measurement round a backend.
